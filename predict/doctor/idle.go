package doctor

import (
	"fmt"

	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/loop"
)

const (
	keyPolicy   = "queue.policy"
	keySchedule = "schedule"
)

const (
	// idleMuch is the share of time without a train step from which on it is a finding.
	idleMuch = 0.3
	// idleExcess is how much of that must be beyond 1−ρ for a rule to be looked for,
	idleExcess = 0.1
	// idleGain how much less it must be without the rule for that to be the reason.
	idleGain = 0.05
	// idleBusy is the share up to which a trainer counts as always busy.
	idleBusy = 0.05
)

var idleChecks = []check{
	{Kind{
		Code: "trainer-idle", Severities: []Severity{Warning, Info},
		Keys:  []string{keySyncMode, keySyncTime, keyThreshold, keyEta, keyBudget, keyHold, keyPause, keyPrune, "filter.zero_advantage", keyBand, keyTools, keyVerifiers, keyScorers, keyStarts, keySandboxes, keySchedule, keyTarget, keyUtilization, "modelled.train.step_s", "modelled.train.throughput_tokens_per_s"},
		When:  "no train step runs in more than 30 % of the time: a warning about the rule that keeps the trainer waiting; an info where the engines produce too little whatever the rules, or the schedule is synchronous. With `pause_at` from 10 % on, an info up to 30 %: groups that start in waves end in waves",
		Known: "simulation; a rule is named where at least 0.1 of the share is beyond 1 − ρ, and it is the one whose relaxation alone, in a second simulation, lowers the share most, and by 0.05 or more; one that takes the simulation beyond the document's `budget` only as an info, where no other does",
	}, (*examination).trainerIdle},
}

// relaxation is a simulation's config with one rule relaxed.
type relaxation struct {
	key, what, do string
	config        sim.Config
	// beyond is the key of the budget, with its value, that the relaxed simulation exceeds; "" for none.
	beyond string
}

func (e *examination) trainerIdle() {
	p := e.probe()
	if p == nil || p.stalled != nil {
		return
	}
	rho, ok := e.load()
	idle := p.result.Summary.TrainerIdleRatio
	waves := e.rules.PauseGroups > 0 && e.rules.Policy != loop.PolicySynchronous && idle >= idleExcess
	if idle < idleMuch && !waves {
		return
	}
	figures := Figures{{"trainer_idle_share", idle}}
	excess := idle - max(0, 1-rho)
	if !ok { // as simulated, with the rules as they are: nothing says what they leave
		rho, excess = p.result.Summary.Utilization, idle
	}
	figures = append(figures, Figure{"effective_utilization", rho})
	what := fmt.Sprintf("no train step runs in %s of the time", percent(idle))
	if e.rules.Policy == loop.PolicySynchronous {
		f := e.add(Info, keySchedule, Simulated)
		f.What, f.Figures = what, figures
		f.Why = "under schedule: synchronous the trainer waits while a batch is generated, and the engines while it trains"
		return
	}
	if excess >= idleExcess {
		cause, without, found := e.idleCause(idle)
		switch {
		case e.err != nil || idle < idleMuch && !(found && cause.key == keyPause):
			return
		case found && cause.beyond != "":
			f := e.add(Info, cause.key, Simulated)
			f.What = what
			f.Why = fmt.Sprintf("%s: relaxed, it leaves %s, but that is beyond the document's %s", cause.what, percent(without), cause.beyond)
			f.Do = "nothing within the budget; a plan with a wider one shows what that buys"
			f.Figures = append(figures, Figure{"trainer_idle_share_relaxed", without})
			return
		case found:
			severity := Warning
			if idle < idleMuch || cause.key == keyTarget { // which was asked for
				severity = Info
			}
			f := e.add(severity, cause.key, Simulated)
			f.What = what
			if ok {
				f.What = fmt.Sprintf("%s, where an effective ρ of %s would leave %s", what, short(rho), percent(max(0, 1-rho)))
			}
			f.Why = fmt.Sprintf("%s: relaxed, it leaves %s", cause.what, percent(without))
			f.Do = cause.do
			f.Figures = append(figures, Figure{"trainer_idle_share_relaxed", without})
			return
		}
	}
	if idle < idleMuch {
		return
	}
	f := e.add(Info, e.speedKey(), Simulated)
	f.What, f.Figures = what, figures
	f.Why = fmt.Sprintf("engines produce %s times what the trainer takes", short(rho))
	if excess >= idleExcess {
		f.Why += ", and no rule, relaxed alone, changes much"
	}
	if rho < 1 {
		f.Do = "more rollout GPUs, or fewer for the trainer"
	}
}

// idleCause simulates the case with one rule relaxed after the other, and returns
// the rule without which the trainer idles least, and how much it then does: within
// the document's budget if there is one, else beyond it.
func (e *examination) idleCause(idle float64) (cause relaxation, without float64, found bool) {
	cfg, ok := e.probeConfig()
	if !ok {
		return cause, 0, false
	}
	cfg.Measured = max(cfg.Measured/4, probeStepsMin)
	without = idle - idleGain
	withoutBeyond, forbidden := without, relaxation{}
	for _, r := range e.relaxations(cfg) {
		p, err := simulate(r.config)
		if err != nil {
			e.err = err
			return cause, 0, false
		}
		if p.stalled != nil {
			continue
		}
		share := p.result.Summary.TrainerIdleRatio
		if r.beyond = e.beyond(&p); r.beyond != "" {
			if share <= withoutBeyond {
				forbidden, withoutBeyond = r, share
			}
		} else if share <= without {
			cause, without, found = r, share, true
		}
	}
	if !found && forbidden.beyond != "" {
		return forbidden, withoutBeyond, true
	}
	return cause, without, found
}

// overBudget is the factor by which a short simulation may exceed a budget.
const overBudget = 1.05

// beyond names the budget for a plan that a simulation exceeds, with its value; "" for none.
func (e *examination) beyond(p *probe) string {
	b, s := e.document.Budget, p.result.Summary.Staleness
	switch {
	case b.StalenessMean > 0 && s.Mean > overBudget*b.StalenessMean:
		return "budget.staleness_mean of " + short(b.StalenessMean)
	case b.StalenessP95 > 0 && int(s.P95) > b.StalenessP95:
		return fmt.Sprintf("budget.staleness_p95 of %d", b.StalenessP95)
	case b.WasteShare > 0 && p.lost() > overBudget*b.WasteShare:
		return "budget.waste_share of " + short(b.WasteShare)
	}
	return ""
}

// upTo returns a relaxed bound on the mean staleness: the budget's, where that is
// between the bound as it is and the one wanted.
func (e *examination) upTo(bound, wanted float64) float64 {
	if b := e.document.Budget.StalenessMean; b > bound {
		return min(b, wanted)
	}
	return wanted
}

// within says how far the document's budget lets a bound on the mean staleness be raised.
func (e *examination) within(bound float64) string {
	if b := e.document.Budget.StalenessMean; b > bound {
		return ", up to the budget.staleness_mean of " + short(b)
	}
	return ""
}

// relaxations are the rules of a case that can keep a trainer waiting, each relaxed.
func (e *examination) relaxations(base sim.Config) []relaxation {
	var all []relaxation
	add := func(when bool, key, what, do string, relax func(*sim.Config)) {
		if when {
			cfg := base
			relax(&cfg)
			all = append(all, relaxation{key: key, what: what, do: do, config: cfg})
		}
	}
	r := &e.rules
	// More live groups need a queue that drops none of them.
	widen := func(c *sim.Config) { c.Loop.QueueGroups += 4 * r.SyncEvery * r.BatchGroups }
	add(r.Sync == loop.SyncDrain, keySyncMode, "a sync waits until every rollout in flight has ended, and the slots that are free early stand still", "sync.mode: in_flight or pause",
		func(c *sim.Config) { c.Loop.Sync = loop.SyncInFlight })
	add(e.controlled(), keyTarget, "the controller keeps groups from starting for the sake of the target", "a higher target; target-price says what this one costs",
		func(c *sim.Config) { c.Loop.Control = nil })
	add(base.SyncNS > 0, keySyncTime, fmt.Sprintf("every weight sync takes %s s", short(e.document.Modelled.Sync.TimeS)), "a faster transfer, a larger sync.every, or sync.mode: in_flight with sync.trainer: free",
		func(c *sim.Config) { c.SyncNS = 0 })
	add(r.Policy == loop.PolicyThreshold, keyThreshold, fmt.Sprintf("no more than (1 + %s) batches start from one sync to the next, and then engines wait for it", short(r.StalenessThreshold)), "a higher queue.staleness_threshold, which lets them work on"+e.within(r.StalenessThreshold),
		func(c *sim.Config) {
			c.Loop.StalenessThreshold = e.upTo(r.StalenessThreshold, r.StalenessThreshold+2)
			widen(c)
		})
	add(r.Policy == loop.PolicyBounded, keyEta, fmt.Sprintf("admission stops at the bound of η = %s, and engines wait for the trainer", short(r.Eta)), "a higher queue.eta"+e.within(r.Eta),
		func(c *sim.Config) { c.Loop.Eta = e.upTo(r.Eta, r.Eta+4); widen(c) })
	add(r.MaxStaleness > 0 || r.Policy == loop.PolicyMax, keyBudget, fmt.Sprintf("groups staler than the budget of %d are discarded", r.MaxStaleness), "raise "+keyBudget+", or lower rollout.concurrency",
		func(c *sim.Config) { c.Loop.MaxStaleness += 16 })
	add(r.Hold > 0, keyHold, "hold keeps groups from starting", "a shorter queue.hold", func(c *sim.Config) { c.Loop.Hold = 0 })
	add(r.PauseGroups > 0, keyPause, fmt.Sprintf("no group opens while %d are ready, so that groups start in waves, and end in waves", r.PauseGroups), "a higher queue.pause_at, at more staleness",
		func(c *sim.Config) { c.Loop.PauseGroups = 0 })
	add(base.PruneTokens > 0, keyPrune, "pruned rollouts are generated for nothing", "a higher rollout.prune.tokens", func(c *sim.Config) { c.PruneTokens = 0 })
	add(r.FilterZeroAdvantage, "filter.zero_advantage", "groups whose rewards are all equal are generated for nothing", "prompts of another difficulty, or filter.curriculum",
		func(c *sim.Config) { c.Loop.FilterZeroAdvantage = false })
	add(r.FilterSolveRate, keyBand, "groups outside the band of solve rates are generated for nothing", "a wider band, or filter.curriculum",
		func(c *sim.Config) { c.Loop.FilterSolveRate = false })
	if base.Agents != nil {
		all = append(all, e.agentRelaxations(base)...)
	}
	return all
}

// agentRelaxations lift the limits of what rollouts ask for beside tokens.
func (e *examination) agentRelaxations(base sim.Config) []relaxation {
	var all []relaxation
	add := func(when bool, key, what string, relax func(*sim.Agents)) {
		if !when {
			return
		}
		agents := *base.Agents
		if agents.Sandboxes != nil {
			boxes := *agents.Sandboxes
			agents.Sandboxes = &boxes
		}
		relax(&agents)
		cfg := base
		cfg.Agents = &agents
		all = append(all, relaxation{key: key, what: what, do: "a higher " + key + ", or a rollout.concurrency that it serves", config: cfg})
	}
	a := base.Agents
	add(a.ToolWorkers > 0, keyTools, fmt.Sprintf("%d tool calls run at once, and the others wait in their slots", a.ToolWorkers), func(a *sim.Agents) { a.ToolWorkers = 0 })
	add(a.Verifier.Workers > 0, keyVerifiers, fmt.Sprintf("%d rollouts are judged at once, and the others wait in their slots", a.Verifier.Workers), func(a *sim.Agents) { a.Verifier.Workers = 0 })
	add(a.Scorer.Workers > 0, keyScorers, fmt.Sprintf("%d rollouts are scored at once, and the others wait in their slots", a.Scorer.Workers), func(a *sim.Agents) { a.Scorer.Workers = 0 })
	if s := a.Sandboxes; s != nil {
		add(s.Starting > 0, keyStarts, fmt.Sprintf("%d sandboxes start at once, and the others wait in their slots", s.Starting), func(a *sim.Agents) { a.Sandboxes.Starting = 0 })
		add(s.Limit > 0, keySandboxes, fmt.Sprintf("there are %d sandboxes, and rollouts without one wait in their slots", s.Limit), func(a *sim.Agents) { a.Sandboxes.Limit = 0 })
	}
	return all
}

// speedKey is the key that says how fast the trainer is.
func (e *examination) speedKey() string {
	if e.document.Modelled.Train.StepS > 0 {
		return "modelled.train.step_s"
	}
	if e.document.Modelled.Train.ThroughputTokensPerS > 0 {
		return "modelled.train.throughput_tokens_per_s"
	}
	return keyUtilization
}
