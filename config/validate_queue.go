package config

import "fmt"

// queue checks capacity, budget and what goes with a policy.
func (v *validator) queue() {
	c := v.config
	if c.Schedule == synchronousSchedule {
		return
	}
	v.unused("queue", "policy", c.Queue.Policy, queueKeys)
	v.verl()
	v.capacity()
	v.needed()
	v.admission()
	if c.Queue.HoldAdaptive && c.Queue.Hold == 0 {
		v.fail("queue.hold_adaptive", true, "has no hold to adapt", "queue.hold above 0, the most that it may be: 0.9 with select fresh, 0.3 without")
	}
	if c.Queue.HoldCost > 0 && !c.Queue.HoldAdaptive {
		v.fail("queue.hold_cost", c.Queue.HoldCost, "has no effect: a hold that stays as it is follows no cost", "hold_adaptive true, or leave hold_cost out")
	}
	if at := c.Queue.PauseAt; at > 0 && at < 1 {
		v.fail("queue.pause_at", at, "pauses admission before a batch is full, and the trainer would wait for ever", "at least 1, or 0 for no such limit")
	}
	if groups := c.QueueGroups(); groups > queueGroupsMax && c.Queue.Policy != "bounded" && c.Queue.Policy != "threshold" {
		key := "queue.factor"
		if c.Queue.Capacity > 0 {
			key = "queue.capacity"
		}
		v.fail(key, nil, fmt.Sprintf("makes a queue of %d groups", groups), fmt.Sprintf("at most %d groups", queueGroupsMax))
	}
	if c.Queue.Balance && c.Prompts.Count == 0 {
		v.fail("queue.balance", true, "balances over a prompt set, and every group has a prompt of its own", "prompts.count of at least 1, or balance false")
	}
}

// capacity checks the queue's capacity in rollouts.
func (v *validator) capacity() {
	const path = "queue.capacity"
	c := v.config
	capacity, group := c.Queue.Capacity, c.Rollout.GroupSize
	switch {
	case capacity == 0:
	case c.Queue.Factor != 0:
		v.fail(path, capacity, "says again what queue.factor says", "one of factor, capacity")
	case capacity < c.Train.Batch:
		v.fail(path, capacity, fmt.Sprintf("is below train.batch (%d): no batch would ever fill", c.Train.Batch),
			fmt.Sprintf("at least %d", c.Train.Batch))
	case capacity%group != 0:
		v.fail(path, capacity, fmt.Sprintf("is not a multiple of rollout.group_size (%d)", group), multiplesNear(capacity, group))
	}
}

// needed refuses a policy without the number that it is about.
func (v *validator) needed() {
	c := v.config
	if c.origin == nil || !c.given("queue.policy") {
		return // a program's zero is meant, and a policy by default has its number by default
	}
	missing := func(key, allowed string) {
		if !c.given(key) {
			v.fail(key, nil, fmt.Sprintf("is missing: policy %s needs it", c.Queue.Policy), allowed)
		}
	}
	switch c.Queue.Policy {
	case "max":
		if !c.given("queue.max_staleness") {
			v.fail("queue.max_staleness", nil, "is missing: policy max needs a budget", "the largest staleness in versions a trained group may have")
		}
	case "bounded":
		missing("queue.eta", "the largest mean staleness in versions, such as 4")
	case "threshold":
		missing("queue.staleness_threshold", "the share of groups that may be a sync old, such as 0.5; 0 for none")
	}
}

// admission checks that the queue holds what policies that drop nothing admit.
func (v *validator) admission() {
	c := v.config
	key, value := "queue.eta", c.Queue.Eta
	switch c.Queue.Policy {
	case "bounded":
		if behind := c.Sync.Every - 1; c.Queue.Eta < float64(behind) {
			if v.outranked(key, "sync.every") {
				v.fail("sync.every", c.Sync.Every, fmt.Sprintf("starves the trainer: engines fall %d versions behind it, and queue.eta is %s%s", behind, number(value), c.presetNote(key)),
					fmt.Sprintf("at most %d, or a higher queue.eta", int(value)+1))
				return
			}
			v.fail(key, value, fmt.Sprintf("starves the trainer: with sync.every %d engines fall %d versions behind it", c.Sync.Every, behind),
				fmt.Sprintf("at least %d", behind))
			return
		}
	case "threshold":
		key, value = "queue.staleness_threshold", c.Queue.StalenessThreshold
	default:
		return
	}
	admitted := c.admission().LiveGroupsMax()
	if admitted > queueGroupsMax {
		v.fail(key, value, fmt.Sprintf("admits %d groups at once", admitted), fmt.Sprintf("what admits at most %d", queueGroupsMax))
		return
	}
	if c.QueueGroups() >= admitted {
		return
	}
	path, given := "queue.factor", any(c.Queue.Factor)
	if c.Queue.Capacity != 0 {
		path, given = "queue.capacity", c.Queue.Capacity
	}
	v.fail(path, given, fmt.Sprintf("holds %d groups, but %s %s admits %d, and policy %s drops none", c.QueueGroups(), key, number(value), admitted, c.Queue.Policy),
		"leave it out: it is then what is admitted")
}

// outranked reports whether another key was given more strongly than one: of
// two that do not go together it is the one to blame.
func (v *validator) outranked(path, other string) bool {
	at, given := v.config.rankOf(path)
	otherAt, otherGiven := v.config.rankOf(other)
	return given && otherGiven && v.config.given(other) && otherAt > at
}

// queueGroupsMax bounds the groups of a queue, as the loop does.
const queueGroupsMax = 1 << 20

// starvation refuses budgets under which no group can ever be fresh enough.
//
// With a sync every K steps the trainer is up to K-1 versions ahead of what
// engines serve, and one more while a sync takes time and the trainer is free
// to go on. A group generated then starts with that staleness: under a smaller
// budget every one of them is discarded, and since the trainer is the only one
// to bring the next sync, the run stands still (K > 1) or trains on nothing
// that was generated meanwhile.
func (v *validator) starvation() {
	c := v.config
	budgeted := c.Queue.Policy == "max" || c.Queue.Policy == "replay" && c.Queue.MaxStaleness > 0
	if c.Schedule == synchronousSchedule || !budgeted {
		return
	}
	behind, why := c.Sync.Every-1, fmt.Sprintf("with sync.every %d engines fall %d versions behind the trainer", c.Sync.Every, c.Sync.Every-1)
	if c.Modelled.Sync.TimeS > 0 && c.Sync.Trainer == "free" {
		behind++
		why = fmt.Sprintf("with sync.every %d and a sync that takes time while the trainer is free, engines fall %d versions behind it", c.Sync.Every, behind)
	}
	budget := c.Queue.MaxStaleness
	switch {
	case budget < c.Sync.Every-1 && v.outranked("queue.max_staleness", "sync.every"):
		v.fail("sync.every", c.Sync.Every, fmt.Sprintf("starves the trainer: engines fall %d versions behind it, and queue.max_staleness is %d%s",
			c.Sync.Every-1, budget, c.presetNote("queue.max_staleness")), fmt.Sprintf("at most %d, or a higher queue.max_staleness", budget+1))
	case budget < behind:
		v.fail("queue.max_staleness", budget, "starves the trainer: "+why, fmt.Sprintf("at least %d, or schedule synchronous", behind))
	case budget == 0 && c.Queue.Abort:
		v.fail("queue.max_staleness", budget, "with abort cancels every rollout that starts while a train step runs",
			"at least 1, or abort false, or schedule synchronous")
	}
}

// shaping checks filters and the curriculum.
func (v *validator) shaping() {
	c := v.config
	band, aim := c.Filter.SolveRate, c.Filter.Curriculum
	switch low, high := c.bandKey("low"), c.bandKey("high"); {
	case band.Low > band.High && v.outranked(low, high):
		v.fail(high, band.High, fmt.Sprintf("is below %s (%s): no solve rate is between them", low, number(band.Low)),
			"at least "+number(band.Low))
	case band.Low > band.High:
		v.fail(low, band.Low, fmt.Sprintf("is above %s (%s): no solve rate is between them", high, number(band.High)),
			"at most "+number(band.High))
	case band.High == 0 && (band.Drop || aim.Levels > 0):
		v.fail(high, band.High, "leaves groups alone of which no rollout is solved, and they teach nothing", "above 0, such as 0.9")
	}
	if band.Drop && band.Low > 0 && band.High < 1 && c.Rollout.GroupSize == 1 {
		v.fail("filter.solve_rate.drop", true, "filters every group when rollout.group_size is 1: a single rollout is solved or not",
			"false, or a group_size of at least 2")
	}
	if aim.Levels == 0 {
		for _, idle := range []struct {
			key   string
			value float64
		}{{"low", aim.Low}, {"high", aim.High}, {"explore", aim.Explore}} {
			if idle.value != 0 {
				v.fail("filter.curriculum."+idle.key, idle.value, "has no effect without filter.curriculum.levels", "leave it out, or give levels")
			}
		}
		return
	}
	for _, end := range []struct {
		key       string
		aim, band float64
	}{{"low", aim.Low, band.Low}, {"high", aim.High, band.High}} {
		if end.aim != end.band {
			v.fail("filter.curriculum."+end.key, end.aim, fmt.Sprintf("contradicts filter.solve_rate.%s, which is %s: there is one band", end.key, number(end.band)),
				"leave out one of the two")
		}
	}
	if levels := len(c.Modelled.Solve.Levels); levels > 0 && levels != aim.Levels {
		v.fail("filter.curriculum.levels", aim.Levels, fmt.Sprintf("differs from the difficulties of modelled.solve.levels, which are %d", levels),
			"as many as there are difficulties")
	}
}

// correction checks what a train step does about stale tokens.
func (v *validator) correction() {
	const path = "trainer.correction"
	t := v.config.Trainer.Correction
	if v.unused(path, "kind", t.Kind, correctionKeys) {
		return
	}
	if t.Cap > 0 && t.Floor >= t.Cap {
		v.fail(path+".floor", t.Floor, fmt.Sprintf("is not below cap (%s)", number(t.Cap)), "below "+number(t.Cap))
	}
	if t.Kind == "tis" && t.Cap == 0 && t.Floor >= capDefault {
		v.fail(path+".floor", t.Floor, fmt.Sprintf("is not below cap, %d by default", capDefault), "a cap above it")
	}
	if t.Kind == "decoupled-ppo" && t.DropOverCap && t.Cap == 0 {
		v.fail(path+".drop_over_cap", true, "drops what is over a cap, and there is none", "cap, such as 5")
	}
	if t.DropUnderFloor && t.Floor == 0 {
		v.fail(path+".drop_under_floor", true, "drops what is under a floor, and there is none", "floor, such as 0.5")
	}
	if t.VersionLag > 0 && t.VersionMask == "all" {
		v.fail(path+".version_lag", t.VersionLag, "has no effect with version_mask all", "leave it out, or version_mask newest, training")
	}
	if t.Metric == "kl" && (t.Low != 0 || t.High != 0 || v.config.given(path+".low") || v.config.given(path+".high")) {
		v.fail(path+".metric", t.Metric, "has no use for low and high", "max_kl, or metric geometric")
	}
	if t.Metric != "kl" && t.MaxKL != 0 {
		v.fail(path+".max_kl", t.MaxKL, "has no effect with metric geometric", "leave it out, or metric kl")
	}
}

// capDefault is the cap of tis where none is given.
const capDefault = 2
