package study

import (
	"math"
	"math/rand/v2"

	"github.com/headway-rl/headway/loop"
)

// follower recomputes from the events of a simulation what no summary has.
type follower struct {
	warmup  loop.Version
	delayNS int64
	// updates are the times at which versions 1, 2, … were made.
	updates []int64
	open    map[loop.GroupID]*groupTimes
	// generation times of ready groups in the measured window, in nanoseconds.
	generation []int64
	groups     int64
	staleness  int64
	fresh      freshChoice
}

// groupTimes are when a group was opened and when its last rollout was scored,
// with what is known of it by then.
type groupTimes struct {
	opened, scored int64
	start          loop.Version
	tokens         int64
	rollouts       int
}

func newFollower(rules loop.Config, warmup loop.Version, delayNS int64) follower {
	return follower{warmup: warmup, delayNS: delayNS, open: map[loop.GroupID]*groupTimes{},
		fresh: freshChoice{groupSize: rules.GroupSize, batch: rules.BatchGroups, warmup: warmup, random: rand.New(rand.NewPCG(rules.Seed, 1))}}
}

func (f *follower) observe(ev loop.Event, actions []loop.Action) {
	switch ev.Kind {
	case loop.TrainStepEnded:
		f.updates = append(f.updates, ev.Time)
	case loop.RolloutScored:
		if g := f.open[ev.Group]; g != nil {
			g.scored = ev.Time
			g.tokens += int64(ev.Tokens)
			if g.rollouts++; g.rollouts == f.fresh.groupSize {
				f.fresh.ready(g)
			}
		}
	}
	for i := range actions {
		a := &actions[i]
		switch a.Kind {
		case loop.StartRollout:
			if f.open[a.Group] == nil {
				f.open[a.Group] = &groupTimes{opened: ev.Time, start: a.Version}
			}
		case loop.StartTrainStep:
			f.fresh.selected(a.Version)
		case loop.GroupLeased, loop.GroupEnded:
			f.left(a)
		}
	}
}

// left takes a group that leaves the queue.
func (f *follower) left(a *loop.Action) {
	g := f.open[a.Group]
	if g == nil {
		return
	}
	delete(f.open, a.Group)
	if loop.Version(len(f.updates)) < f.warmup {
		return
	}
	f.generation = append(f.generation, g.scored-g.opened)
	if a.Kind != loop.GroupLeased {
		return
	}
	served := 0
	for k := len(f.updates); k > 0; k-- {
		if f.updates[k-1]+f.delayNS <= g.opened {
			served = k
			break
		}
	}
	f.groups++
	f.staleness += int64(a.Version) - int64(served)
}

// bound is E⌈D/T⌉.
func (f *follower) bound(periodNS float64) float64 {
	sum := 0.0
	for _, d := range f.generation {
		sum += math.Ceil(float64(d) / periodNS)
	}
	return sum / float64(max(len(f.generation), 1))
}

func (f *follower) delayed() float64 { return float64(f.staleness) / float64(max(f.groups, 1)) }

// freshChoice selects batches beside the loop: a random choice among the groups
// ready since the batch before. When a group became ready within a period then no
// longer decides about it, and neither does its generation time modulo the period.
type freshChoice struct {
	groupSize, batch int
	warmup           loop.Version
	random           *rand.Rand
	recent, older    []*groupTimes
	groups           int64
	staleness        int64
	tokens           int64
}

func (c *freshChoice) ready(g *groupTimes) { c.recent = append(c.recent, g) }

// selected makes the batch of a step that starts from a version.
func (c *freshChoice) selected(version loop.Version) {
	c.random.Shuffle(len(c.recent), func(i, j int) { c.recent[i], c.recent[j] = c.recent[j], c.recent[i] })
	n := min(c.batch, len(c.recent))
	batch := append([]*groupTimes{}, c.recent[:n]...)
	for len(batch) < c.batch && len(c.older) > 0 { // the last ones first
		batch = append(batch, c.older[len(c.older)-1])
		c.older = c.older[:len(c.older)-1]
	}
	c.older = append(c.older, c.recent[n:]...)
	c.older = c.older[max(len(c.older)-2*c.batch, 0):]
	c.recent = c.recent[:0]
	if version < c.warmup {
		return
	}
	for _, g := range batch {
		c.groups++
		c.staleness += int64(version - g.start)
		c.tokens += g.tokens
	}
}

// figures are the mean staleness and the length ratio to a mean of what was started.
func (c *freshChoice) figures(started float64) (staleness, length float64) {
	n := float64(max(c.groups, 1))
	return float64(c.staleness) / n, float64(c.tokens) / n / float64(c.groupSize) / started
}
