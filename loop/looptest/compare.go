package looptest

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/headway-rl/headway/loop"
)

// Ledger adds up the checker's own models: every attempt of every live group is
// looked at, and every end has been counted when it happened.
func (c *Checker) Ledger() loop.Ledger {
	l := loop.Ledger{
		Admitted: c.admitted,
		Trained:  c.ends[loop.EndTrained], Evicted: c.ends[loop.EndEvicted], Discarded: c.ends[loop.EndDiscarded],
		Filtered: c.ends[loop.EndFiltered], Pruned: c.ends[loop.EndPruned], Cancelled: c.ends[loop.EndCancelled],
		Failed: c.ends[loop.EndFailed],
	}
	for _, g := range c.groups {
		l.InFlight += int64(g.count(running, interrupted))
		switch g.place {
		case generating, inHeld:
			l.Waiting += int64(g.count(scored))
		case inQueue:
			l.Queued += int64(g.count(scored))
		case inLease:
			l.Leased += int64(g.count(scored))
		}
	}
	return l
}

// invariants checks the models themselves after each step.
func (c *Checker) invariants() error {
	l := c.Ledger()
	if sum := l.InFlight + l.Waiting + l.Queued + l.Leased + l.Trained + l.Evicted + l.Discarded + l.Filtered +
		l.Pruned + l.Cancelled + l.Failed; sum != l.Admitted {
		return fmt.Errorf("%d attempts were admitted and %d are accounted for: %+v", l.Admitted, sum, l)
	}
	if len(c.queue) > c.cfg.QueueGroups {
		return fmt.Errorf("the queue holds %d groups of %d", len(c.queue), c.cfg.QueueGroups)
	}
	if len(c.held) > 0 && len(c.queue) < c.cfg.QueueGroups {
		return fmt.Errorf("%d groups are held while the queue has room", len(c.held))
	}
	if err := c.limits(); err != nil {
		return err
	}
	for _, g := range c.groups {
		if g.place == generating && g.count(running, interrupted) > 0 && c.hopeless(g.start) {
			return fmt.Errorf("g%d is in flight with stamp v%d, which can no longer meet the budget of %d", g.id, g.start, c.cfg.MaxStaleness)
		}
	}
	for i, e := range c.engines {
		if e.state == serving && (e.served > c.version || e.served < 0) {
			return fmt.Errorf("engine %d serves v%d, the trainer has v%d", i, e.served, c.version)
		}
	}
	for _, id := range c.lease.groups {
		if err := c.leasedRightly(c.groups[id]); err != nil {
			return err
		}
	}
	return nil
}

// limits checks how many groups may be live, and how many spans a rollout may have.
func (c *Checker) limits() error {
	most := math.MaxInt
	switch c.cfg.Policy {
	case loop.PolicySynchronous:
		most = c.cfg.BatchGroups + c.cfg.ExtraGroups
	case loop.PolicyBounded:
		most = boundedGroups(c.cfg)
	}
	if len(c.groups) > most {
		return fmt.Errorf("%d groups are live, want at most %d", len(c.groups), most)
	}
	for _, g := range c.groups {
		if g.count(scored) > c.cfg.GroupSize {
			return fmt.Errorf("g%d has %d scored rollouts of %d", g.id, g.count(scored), c.cfg.GroupSize)
		}
		for k, s := range g.samples {
			if c.cfg.MaxSpans > 0 && s.state == interrupted && s.spans >= c.cfg.MaxSpans {
				return fmt.Errorf("g%d/%d is to be resumed after %d spans of %d", g.id, k, s.spans, c.cfg.MaxSpans)
			}
		}
	}
	return nil
}

// leasedRightly checks what every group at the trainer must fulfil.
func (c *Checker) leasedRightly(g *groupModel) error {
	if _, ended := c.over[g.id]; ended {
		return fmt.Errorf("g%d is at the trainer though it has ended", g.id)
	}
	pqs, iqs := g.ready-g.start, c.lease.version-g.ready
	staleness := c.lease.version - g.start
	switch {
	case pqs < 0, iqs < 0, g.start < 0:
		return fmt.Errorf("g%d is trained with staleness %d = %d + %d, stamp v%d", g.id, staleness, pqs, iqs, g.start)
	case c.discards() && staleness > c.cfg.MaxStaleness:
		return fmt.Errorf("g%d is trained with staleness %d, the budget is %d", g.id, staleness, c.cfg.MaxStaleness)
	case c.cfg.Policy == loop.PolicyReplay && g.uses >= c.cfg.MaxUses:
		return fmt.Errorf("g%d is trained on for the %dth time of %d", g.id, g.uses+1, c.cfg.MaxUses)
	case c.cfg.Policy == loop.PolicySynchronous && staleness != 0 && !c.keepsSurplus():
		return fmt.Errorf("g%d is trained with staleness %d under the synchronous schedule", g.id, staleness)
	case g.count(scored) == 0:
		return fmt.Errorf("g%d is trained without a scored rollout", g.id)
	}
	return nil
}

// Compare checks a status of the loop, taken after the last observed step,
// against the checker's models.
func (c *Checker) Compare(st loop.Status) error {
	if want := c.Ledger(); st.Ledger != want {
		return fmt.Errorf("ledger is %+v, want %+v", st.Ledger, want)
	}
	if !st.Ledger.Balanced() {
		return fmt.Errorf("ledger does not call itself balanced: %+v", st.Ledger)
	}
	for i := range c.engines {
		if e := &c.engines[i]; c.target == loop.NoVersion && !c.finished && e.state == serving && e.served > c.completed {
			return fmt.Errorf("engine %d serves v%d, the last sync brought v%d, and none is under way", i, e.served, c.completed)
		}
	}
	numbers := []struct {
		what      string
		got, want int64
	}{
		{"version", int64(st.Version), int64(c.version)},
		{"queue_groups", int64(st.QueueGroups), int64(len(c.queue))},
		{"queue_capacity_groups", int64(st.QueueCapacityGroups), int64(c.cfg.QueueGroups)},
		{"held_groups", int64(st.HeldGroups), int64(len(c.held))},
		{"live_groups", int64(st.LiveGroups), int64(len(c.groups))},
		{"retries", int64(st.Retries), int64(len(c.retries))},
		{"backlog", int64(st.Backlog), int64(len(c.backlog))},
		{"requeued", int64(st.Requeued), int64(len(c.prompts.again))},
		{"lease", int64(st.Lease), int64(c.lease.id)},
		{"sync_target", int64(st.SyncTarget), int64(c.target)},
		{"late", st.Counts.Late, c.counts.Late},
		{"unknown", st.Counts.Unknown, c.counts.Unknown},
		{"time_reversed", st.Counts.TimeReversed, c.counts.TimeReversed},
		{"time_ns", st.TimeNS, c.now},
	}
	for _, n := range numbers {
		if n.got != n.want {
			return fmt.Errorf("status has %s %d, want %d", n.what, n.got, n.want)
		}
	}
	if st.Stopping != c.stopping || (st.Finished != loop.ReasonNone) != c.finished {
		return fmt.Errorf("status has stopping %t, finished %q, want %t, %t", st.Stopping, st.Finished, c.stopping, c.finished)
	}
	if st.Asked != c.asked {
		return fmt.Errorf("status has asked %t, want %t", st.Asked, c.asked)
	}
	if holds := c.hold.since != never; st.Holding != holds {
		return fmt.Errorf("status has holding %t, want %t", st.Holding, holds)
	}
	if levels := c.solveRates(); !slices.Equal(st.Levels, levels) {
		return fmt.Errorf("status has levels %v, want %v", st.Levels, levels)
	}
	if err := c.compareControl(st.Control); err != nil {
		return err
	}
	return c.compareEngines(st.Engines)
}

// solveRates are the curriculum's estimates, -1 where nothing is known.
func (c *Checker) solveRates() []float64 {
	var rates []float64
	for _, l := range c.levels {
		rate := -1.0
		if l.measured {
			rate = float64(l.rate) / wholeRate
		}
		rates = append(rates, rate)
	}
	return rates
}

func (c *Checker) compareEngines(engines []loop.EngineStatus) error {
	if len(engines) != len(c.engines) {
		return fmt.Errorf("status has %d engines, want %d", len(engines), len(c.engines))
	}
	for i, e := range c.engines {
		active, slots := 0, 0
		for _, s := range c.slots {
			if int(s.engine) == i {
				slots++
				if s.taken {
					active++
				}
			}
		}
		want := loop.EngineStatus{State: e.describe(), Version: e.served, Active: active, Slots: slots}
		if engines[i] != want {
			return fmt.Errorf("status of engine %d is %+v, want %+v", i, engines[i], want)
		}
	}
	return nil
}

func (e engineModel) describe() string {
	if e.pool != owned {
		return [...]string{"", "leaving", "away", "starting"}[e.pool]
	}
	switch e.state {
	case gone:
		return "lost"
	case joining:
		return "joining"
	}
	return [...]string{"serving", "loading", "loaded", "emptying", "switching"}[e.stage]
}

// Version returns the trainer's version by the checker's models.
func (c *Checker) Version() loop.Version { return c.version }

// mayAsk reports whether a trainer that asks has no batch and has not asked for one.
func (c *Checker) mayAsk() bool {
	return c.cfg.TrainerAsks && c.started && !c.finished && c.lease.id == 0 && !c.asked
}

// Finished reports whether the run has finished by the checker's models.
func (c *Checker) Finished() bool { return c.finished }

// Blocker says in a line what the next train step waits for.
func (c *Checker) Blocker() string {
	var parts []string
	say := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	switch {
	case !c.started:
		say("the run has not started")
	case c.finished:
		say("the run has finished")
	case c.lease.id != 0:
		say("the trainer holds lease %d attempt %d", c.lease.id, c.lease.attempt)
	default:
		say("the trainer is idle, the queue holds %d of the %d groups of a batch", len(c.queue), c.cfg.BatchGroups)
		if c.cfg.TrainerAsks && !c.asked {
			say("it has not asked for a batch")
		}
		if c.cfg.TrainerBlocked && c.target != loop.NoVersion {
			say("it is blocked by the sync")
		}
	}
	if c.target != loop.NoVersion {
		say("a sync to v%d runs", c.target)
	}
	for i, e := range c.engines {
		say("engine %d %s at v%d", i, e.describe(), e.served)
	}
	live := 0
	for id := loop.GroupID(1); id <= c.lastGroup && live < 4; id++ {
		if g := c.groups[id]; g != nil && g.place == generating {
			live++
			say("g%d has %d of %d rollouts scored, %d running, %d interrupted, %d to be tried again", id,
				g.count(scored), c.cfg.GroupSize, g.count(running), g.count(interrupted), g.count(retrying))
		}
	}
	if why := c.paused(); why != "" {
		say("nothing starts: %s", why)
	} else if why := c.closed(); why != "" {
		say("no group may be opened: %s", why)
	}
	return strings.Join(parts, "; ")
}
