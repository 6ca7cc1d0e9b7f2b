package config

import (
	"fmt"
	"math"

	"github.com/headway-rl/headway/loop"
)

// control checks a goal and its ranges.
func (v *validator) control() {
	c := v.config
	if _, given := c.givenUnder("control"); !c.Controlled() {
		if given || c.Control != (Control{}) {
			v.fail("control", nil, "has no target to keep", "control.target, such as 2, the largest mean staleness in versions; or leave the section out")
		}
		return
	}
	t := c.Control.Target
	within := t.Within != 0 || c.given("control.target.within")
	switch {
	case t.StalenessMean == 0 && t.Share == 0:
		v.fail("control.target", nil, "says neither a mean nor a share", "staleness_mean, or share and within")
	case t.Share == 0 && (within || t.Of != ""):
		key := "control.target.within"
		if !within {
			key = "control.target.of"
		}
		v.fail(key, nil, "has no effect without control.target.share", "share too, such as 0.95, or leave it out")
	case t.Share != 0 && !within && c.origin != nil:
		v.fail("control.target.within", nil, "is missing: control.target.share needs it", "the versions that the share counts up to, such as 4")
	}
	v.targetBudget()
	moves := false
	for _, r := range c.ControlRanges() {
		v.limits(r)
		moves = moves || r.Moves()
	}
	if !moves {
		v.fail("control.limits", nil, "leaves nothing to move: every setting's least is its most", "a range for one setting at least, such as live_groups, concurrency or hold")
	}
}

// targetBudget refuses a goal that the policy's budget keeps already: there would be nothing to do.
func (v *validator) targetBudget() {
	c := v.config
	t, budget := c.Control.Target, c.Queue.MaxStaleness
	if c.Queue.Policy != "max" {
		return
	}
	const why = "is not below queue.max_staleness (%d), which keeps everything that is trained within that already"
	if t.StalenessMean >= float64(budget) && t.StalenessMean > 0 {
		v.fail("control.target.staleness_mean", t.StalenessMean, fmt.Sprintf(why, budget), fmt.Sprintf("below %d, or a higher queue.max_staleness, or policy drop", budget))
	}
	if t.Share > 0 && t.Within >= budget {
		v.fail("control.target.within", t.Within, fmt.Sprintf(why, budget), fmt.Sprintf("below %d, or a higher queue.max_staleness, or policy drop", budget))
	}
}

// limits checks one range against itself and against what the document has.
func (v *validator) limits(r ControlRange) {
	c, key := v.config, controlKeys[r.Setting]
	shown := func(value float64) float64 {
		if r.Setting == loop.SettingQueue {
			return value / float64(c.BatchGroups())
		}
		return value
	}
	least, most := shown(r.Least), shown(r.Most)
	if said, given := c.givenUnder(key); given {
		if problem, allowed := c.unmoved(r.Setting); problem != "" {
			v.fail(said, nil, problem, allowed)
			return
		}
	}
	if r.Least > r.Most {
		v.fail(v.endOf(key, "least"), least, fmt.Sprintf("is above the highest value (%s)", number(most)), "at most "+number(most)+", or a higher "+key+".most")
		return
	}
	for _, bound := range v.bounds(r.Setting) {
		end, value := "least", least
		if bound.most {
			end, value = "most", most
		}
		if bound.most == (value > bound.value) && value != bound.value {
			v.fail(v.endOf(key, end), value, bound.problem, bound.allowed)
			return
		}
	}
	v.starting(r, least, most)
}

// unmoved says why the document leaves a setting that no controller can move, "" for one that can be.
func (c Config) unmoved(setting loop.Setting) (problem, allowed string) {
	policy := c.Queue.Policy
	switch {
	case setting == loop.SettingQueue && !c.queueMoves():
		return fmt.Sprintf("has no effect with policy %s: the capacity follows from the policy", policy), "leave it out, or policy drop, max or block"
	case setting == loop.SettingLive && policy == "replay":
		return "has no effect with policy replay: its buffer keeps groups after they were trained", "leave it out, or another policy"
	case setting == loop.SettingSyncEvery && policy == "threshold":
		return "cannot be moved with policy threshold, which counts groups from sync to sync", "leave it out, or another policy"
	case setting == loop.SettingSyncEvery && c.Trainer.Kind == "remote":
		return "cannot be moved where the trainer is another process, which publishes weights by its own count", "leave it out, or trainer.kind embedded"
	}
	return "", ""
}

// endOf is the key to blame for an end of a range: itself, or the other if only that was given.
func (v *validator) endOf(key, end string) string {
	other := map[string]string{"least": "most", "most": "least"}[end]
	if !v.config.given(join(key, end)) && v.config.given(join(key, other)) {
		return join(key, other)
	}
	return join(key, end)
}

// limitBound is what an end of a range may not pass.
type limitBound struct {
	most             bool // of the upper end, which may not be above; else of the lower, which may not be below
	value            float64
	problem, allowed string
}

// bounds returns what the document leaves a setting.
func (v *validator) bounds(setting loop.Setting) []limitBound {
	c := v.config
	above := func(value float64, what, key string) limitBound {
		return limitBound{true, value, fmt.Sprintf("is above %s (%s)", what, number(value)), "at most " + number(value) + ", or more " + key}
	}
	below := func(value float64, problem string) limitBound {
		return limitBound{false, value, problem, "at least " + number(value)}
	}
	switch setting {
	case loop.SettingSlots:
		least := 1.0
		problem := "leaves no rollout in flight: nothing would ever be trained"
		if c.Rollout.Start == "gang" {
			least, problem = float64(c.Rollout.GroupSize+c.Rollout.Redundancy), "is below the rollouts of one group: with start gang no group would ever find its slots"
		}
		return []limitBound{below(least, problem), above(float64(c.Rollout.Concurrency), "the slots there are, rollout.concurrency", "rollout.concurrency")}
	case loop.SettingLive:
		return []limitBound{below(float64(c.liveLeast()), fmt.Sprintf("lets no batch fill before the next sync, which is up to %d train steps away", c.syncEveryMost()))}
	case loop.SettingQueue:
		return []limitBound{below(1, "holds less than a batch, and none would ever fill"), above(c.queueFactor(), "what the queue holds, queue.factor", "queue.factor")}
	case loop.SettingRedundancy:
		return []limitBound{above(float64(c.Rollout.Redundancy), "rollout.redundancy", "rollout.redundancy")}
	case loop.SettingSyncEvery:
		return append([]limitBound{below(1, "syncs never")}, v.syncBounds()...)
	case loop.SettingEngines:
		fewest, most, _ := c.engineRange()
		return []limitBound{below(1, "leaves no engine: nothing would ever be generated"), below(float64(fewest), "is below the engines that are always there"), above(float64(most), "the engines there may be", "engines and a fleet that starts them")}
	}
	return nil
}

// syncBounds are what the policy's own bound of the staleness leaves the sync interval.
func (v *validator) syncBounds() []limitBound {
	q := v.config.Queue
	bound := func(value float64, key string) []limitBound {
		return []limitBound{{true, value, fmt.Sprintf("starves the trainer: engines fall behind it by one version less than that, and %s is %s", key, number(value-1)),
			fmt.Sprintf("at most %s, or a higher %s", number(math.Floor(value)), key)}}
	}
	switch {
	case q.Policy == "max", q.Policy == "replay" && q.MaxStaleness > 0:
		return bound(float64(q.MaxStaleness)+1, "queue.max_staleness")
	case q.Policy == "bounded":
		return bound(q.Eta+1, "queue.eta")
	}
	return nil
}

// starting refuses a setting that was given a value outside the range it is to be moved within.
func (v *validator) starting(r ControlRange, least, most float64) {
	at := map[loop.Setting]struct {
		key   string
		value float64
	}{loop.SettingHold: {"queue.hold", v.config.Queue.Hold}, loop.SettingSyncEvery: {"sync.every", float64(v.config.Sync.Every)}}
	start, has := at[r.Setting]
	if !has || !v.config.given(start.key) || start.value >= least && start.value <= most {
		return
	}
	v.fail(start.key, start.value, fmt.Sprintf("is outside %s, %s to %s, within which the controller moves it", controlKeys[r.Setting], number(least), number(most)),
		"a value within, or leave it out")
}

// controlWarnings name limits that cost more than they look, and a goal that says nothing.
func (c Config) controlWarnings(warn func(key, format string, args ...any)) {
	if !c.Controlled() {
		return
	}
	most := c.holdRange().Most
	if most > holdMax && c.Queue.Select != "fresh" && c.given("control.limits.hold.most") {
		warn("control.limits.hold.most", "%s is above %s: groups that open together behind a switch are selected by their length, a bias of a hundredth and more in what is trained; queue.select fresh has none", number(most), number(holdMax))
	}
	c.impliedWarnings(warn)
}

// impliedWarnings name a share that holds whenever the mean does: of what is at most m
// versions stale in the mean, no more than m/(k+1) is staler than k (Markov).
func (c Config) impliedWarnings(warn func(key, format string, args ...any)) {
	t := c.Control.Target
	if t.StalenessMean == 0 || t.Share == 0 || t.Of == "tokens" {
		return
	}
	if implied := 1 - t.StalenessMean/float64(t.Within+1); t.Share <= implied {
		warn("control.target.share", "%s within %d follows from staleness_mean %s: of rollouts whose mean is %s at least %.3g are within %d, whatever their distribution; leave it out, or ask for more",
			number(t.Share), t.Within, number(t.StalenessMean), number(t.StalenessMean), implied, t.Within)
	}
}
