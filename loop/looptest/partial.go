package looptest

import (
	"slices"

	"github.com/headway-rl/headway/loop"
)

// ask books that the engine is told to interrupt the rollout in a slot.
func (c *Checker) ask(slot int) {
	s := &c.slots[slot]
	if !s.taken || s.unwanted || s.asked {
		return
	}
	s.asked = true
	c.expect(loop.Action{Kind: loop.InterruptRollout, Engine: s.engine, Slot: int32(slot), Group: s.group, Sample: s.sample, Attempt: s.attempt})
}

func (c *Checker) interruptAll() {
	for i := range c.slots {
		c.ask(i)
	}
}

// interruptAtBatch asks for every rollout when a whole batch waits.
func (c *Checker) interruptAtBatch() {
	if c.cfg.InterruptAtBatch && len(c.queue) >= c.cfg.BatchGroups {
		c.interruptAll()
	}
}

// sampleInterrupted books a rollout that stopped and kept its tokens; its slot is
// booked by the caller.
func (c *Checker) sampleInterrupted(g *groupModel, k int32, tokens int32) {
	s := &g.samples[k]
	if tokens > s.tokens {
		s.spans++
		s.tokens = tokens
	}
	if c.cfg.MaxSpans == 0 || s.spans < c.cfg.MaxSpans {
		s.state = interrupted
		c.backlog = append(c.backlog, retryModel{g.id, k})
		return
	}
	c.ends[loop.EndCancelled]++
	c.expect(loop.Action{Kind: loop.AbortRollout, Slot: -1, Group: g.id, Sample: k, Attempt: s.attempt, Reason: loop.ReasonSpans})
	s.state = retrying
	c.retries = append(c.retries, retryModel{g.id, k})
	c.unstamp(g)
}

// unstamp forgets the stamp of a group of which nothing made under it is left.
func (c *Checker) unstamp(g *groupModel) {
	if g.count(running, interrupted, scored) == 0 {
		g.start, g.token = loop.NoVersion, false
	}
}

// cutRest ends what a group has beside its scored rollouts, in the order of the samples.
func (c *Checker) cutRest(g *groupModel) {
	for k := range g.samples {
		s := &g.samples[k]
		switch s.state {
		case running:
			c.ends[loop.EndCancelled]++
			c.unwant(s.slot, loop.ReasonNone)
		case interrupted:
			c.ends[loop.EndCancelled]++
			c.expect(loop.Action{Kind: loop.AbortRollout, Slot: -1, Group: g.id, Sample: int32(k), Attempt: s.attempt})
		case unissued, retrying:
		default:
			continue
		}
		s.state = cut
	}
	of := func(r retryModel) bool { return r.group == g.id }
	c.retries = slices.DeleteFunc(c.retries, of)
	c.backlog = slices.DeleteFunc(c.backlog, of)
}

// sampleOver looks at a group after one of its rollouts ended for good: it may
// be ready, or have lost so many that too few can be scored, of which the last ended as told.
func (c *Checker) sampleOver(g *groupModel, end loop.End, why loop.Reason) {
	kept, gone := g.count(scored), g.count(lost, pruned)
	switch {
	case kept == c.cfg.GroupSize:
		c.cutRest(g)
		c.groupReady(g)
	case gone == len(g.samples) || len(g.samples)-gone < c.cfg.GroupMin:
		c.endGroup(g, end, why)
	case kept+gone == len(g.samples):
		c.groupReady(g)
	}
}

// cutSurplus ends, or interrupts, what a synchronous batch was filled without.
func (c *Checker) cutSurplus() {
	if c.cfg.Policy != loop.PolicySynchronous || c.cfg.ExtraGroups == 0 {
		return
	}
	if c.cfg.InterruptAtBatch {
		c.interruptAll()
		return
	}
	for id := loop.GroupID(1); id <= c.lastGroup; id++ {
		if g := c.groups[id]; g != nil && g.place != inLease {
			c.endGroup(g, loop.EndCancelled, loop.ReasonSurplus)
		}
	}
}
