package study

import (
	"fmt"
	"slices"
	"strings"

	"github.com/headway-rl/headway/loop"
)

// writeControlHow says what is simulated, and how every arm is made.
func writeControlHow(b *strings.Builder, r ControlResult) {
	fmt.Fprintf(b, "## What is simulated\n\nGroups of %d, batches of %d groups, %d engines of %d slots (C/B = %g), policy drop with a queue of up to %d groups, oldest first. "+
		"Lengths are lognormal, tailness %d with a nominal mean of %d tokens; a weight sync takes %g of a train step, in flight. The loop is the one that runs live.\n\n",
		controlGroupSize, controlGroups, controlEngines, controlEngineSlots, float64(controlSlots)/(controlGroups*controlGroupSize), controlQueue, controlTailness, meanTokens, controlSync)
	var rows [][]string
	for _, w := range ControlWorlds {
		if !slices.ContainsFunc(r.Cases, func(c ControlCase) bool { return c.World == w.Name }) {
			continue
		}
		speed := "the same for every number of rollouts"
		if w.Crowding > 0 {
			speed = fmt.Sprintf("alone %g times as fast as with all slots of its engine", 1+w.Crowding)
		}
		rows = append(rows, []string{w.Name, fmt.Sprint(w.Rho), speed})
	}
	table(b, []string{"world", "ρ at the start, filters included", "speed of a slot"}, rows)
	rows = nil
	for _, d := range ControlDrifts {
		if slices.Contains(driftsOf(r), d.Name) {
			rows = append(rows, []string{d.Name, d.What})
		}
	}
	table(b, []string{"drift", "what changes"}, rows)
	b.WriteString("The train step is constant but under drift step, so that lengths and tool calls take a world from bound by the trainer to bound by rollouts. " +
		"Lengths of a group are the same under every arm; what an arm trains, and when, is its own.\n\n")
	b.WriteString("Not judged here: sync_every, redundancy and engines as levers. No arm has a range for them, the controller and the oracle included: weights are synced after every train step, engines come from no pool and go by themselves. Where syncs are slow or a pool could start more engines, this page says nothing.\n\n")
	b.WriteString("## The arms\n\n")
	for _, line := range []string{
		"**controller**: loop.Config.Control with the goal; it moves slots, live groups, hold (up to 0.3) and the queue's capacity, and starts from all slots and the whole queue.",
		fmt.Sprintf("**oracle**: knows the drift. For every level of it settings are searched in simulations of the stationary state (slots, live groups, hold and queue; all kinds first, then the neighbours of the best and of what the controller starts from, down to %g of a group, and live groups raised on as long as that holds), the fastest that hold the goal in at least 95 %% of the steps, in simulations that the search has not seen, too. It plays what lies between those of the two nearest levels. "+
			"It is an upper bound as far as these four levers go, kept still: what is left is an abrupt change, which it answers at once but without a move to ride it out; %d levels, with straight lines between; a search that goes uphill from some starts; and the luck of the seeds that it searches with.", searchSteps[loop.SettingLive][2], ControlOptions{Quick: r.Quick}.planLevels()),
		"**fixed**: the oracle's settings for the undrifted start, throughout.",
		"**fixed, hindsight**: of the oracle's settings for all levels, and the smallest of each of them over the drift, those that hold the goal at every level, and of these the fastest, throughout. Nobody knows them before.",
		"**AReaL bound**: policy bounded with η the goal's mean, or its number of versions where the goal is a share, as it is published: a group starts while live groups are fewer than (η + 1 − lag) batches. Nothing else is limited. It has no margin, and a bound of a mean is not one of a share.",
		"**AReaL bound, best η**: the same with the fastest η, in eighths, that holds the goal in at least 95 % of the steps at the undrifted start (of those as fast within 0.1 %, the smallest), searched and checked as the oracle's settings are.",
		"**prime-rl AIMD**: its concurrency controller, after its source of August 2026 (commit 559b447), on the study's queue. It grows the cap of rollouts in flight by 1.25 per turnover while the cap binds and cache usage is at most 0.6, trims it to what makes 0.7 above 0.8 (at most every six polls of 5 s), and cuts it to 0.8 of what is in flight on a preemption (0.5 if another follows within six polls of having drained). " +
			"Staleness is no signal of it: it is there to keep engines full and out of thrashing, and is shown because it is what moves concurrency elsewhere. " +
			"Our engines have a slot for every rollout, so that none waits in their queues and that signal never fires. Cache usage is what rollouts have generated, over a cache of which all slots use 0.7 before anything drifts; more than the whole cache stands for a preemption. " +
			"No arm pays for a cache that is too full, so that what AIMD gains by keeping out of that is not in its throughput. Rollouts above a cap that falls are not cancelled, but end. Its max_off_policy_steps, which discards single groups, is not part of the rule.",
	} {
		b.WriteString("- " + line + "\n")
	}
	b.WriteString("\n")
}
