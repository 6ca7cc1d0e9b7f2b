package looptest

import (
	"fmt"
	"slices"

	"github.com/headway-rl/headway/loop"
)

// emptiest is the engine with the most free slots that takes rollouts, the first of equals; -1 if there is none.
func (c *Checker) emptiest() int32 { return c.emptiestOf(func(int32) bool { return true }) }

func (c *Checker) emptiestOf(which func(engine int32) bool) int32 {
	best, most := int32(-1), 0
	for i := range c.engines {
		if n := c.freeAt(int32(i)); n > most && which(int32(i)) {
			best, most = int32(i), n
		}
	}
	return best
}

// freeAt is the number of slots in which an engine could take a rollout now.
func (c *Checker) freeAt(engine int32) int {
	if !c.takesRollouts(&c.engines[engine]) {
		return 0
	}
	n := 0
	for _, s := range c.slots {
		if s.engine == engine && !s.taken {
			n++
		}
	}
	return n
}

// goesTo checks the engine at which a rollout starts or goes on.
func goesTo(a loop.Action, engine int32) error {
	if a.Engine != engine {
		return fmt.Errorf("%v, while engine %d is to take it", a, engine)
	}
	return nil
}

// resumesAt is the engine at which an interrupted rollout has to go on.
func (c *Checker) resumesAt(s sampleModel) int32 {
	if c.cfg.Placement == loop.PlaceCacheAware && c.freeAt(s.engine) > 0 {
		return s.engine
	}
	return c.emptiestOf(func(e int32) bool { return !c.cfg.StaysInCell || c.cellOf(e) == c.cellOf(s.engine) })
}

// nextResumed is the place in the backlog of what is to be resumed next, -1 for nothing.
func (c *Checker) nextResumed() int {
	return slices.IndexFunc(c.backlog, func(r retryModel) bool { return c.resumesAt(c.groups[r.group].samples[r.sample]) >= 0 })
}

// startsNext returns the open group whose rollout is to start next, nil if a group has to open, and the engine.
func (c *Checker) startsNext() (*groupModel, int32) {
	e := c.emptiest()
	if c.cfg.Placement != loop.PlaceCacheAware {
		return c.open(), e
	}
	var first *groupModel
	for _, g := range c.groups {
		switch {
		case g.count(unissued) == 0:
		case g.home == e:
			return g, e
		case first == nil || g.id < first.id:
			first = g
		}
	}
	// Nothing is open at that engine. It is the oldest group's turn only if that may wait no longer, or no group may open.
	if first == nil || c.cfg.Start == loop.StartStream && c.openedAfter(first) < c.patience() && c.closed() == "" && !c.holding() {
		return nil, e
	}
	if c.freeAt(first.home) > 0 {
		return first, first.home
	}
	return first, e
}

func (c *Checker) openedAfter(g *groupModel) int { return int(c.lastGroup - g.id) }

// patience is how many groups may be opened before a group goes where slots are: half of those that run at once.
func (c *Checker) patience() int { return c.control.slots / (2 * c.issuedMost()) }
