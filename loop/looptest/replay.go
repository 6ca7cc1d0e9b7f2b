package looptest

import (
	"math"
	"slices"

	"github.com/headway-rl/headway/loop"
)

// driftModel is what is known of how far a group's rollouts have drifted from the
// trainer, in millionths of a nat.
type driftModel struct {
	measured bool
	value    int64
	at       loop.Version
}

// slopeModel is the estimate of the drift per version.
type slopeModel struct {
	known bool
	value int64
}

// driftMost is the largest mean absolute log-ratio that a measurement may have, in nats.
const driftMost = 1e6

// weights returns the weights of groups that are 0, 1, 2, … versions old, in 2^-32.
func weights(gamma float64) (w [64]uint64) {
	w[0] = 1 << 32
	for k := 1; k < len(w); k++ {
		w[k] = max(1, uint64(float64(w[k-1])*gamma))
	}
	return w
}

// drawn returns the queued group that PolicyReplay's sampling takes next.
func (c *Checker) drawn() loop.GroupID {
	ofPrompt := map[int64]uint64{}
	for _, id := range c.queue {
		ofPrompt[c.groups[id].prompt]++
	}
	youngest := loop.NoVersion
	for _, id := range c.queue {
		youngest = max(youngest, c.groups[id].start)
	}
	var sum uint64
	upTo := make([]uint64, len(c.queue))
	for i, id := range c.queue {
		g := c.groups[id]
		w := c.gamma[min(int(youngest-g.start), len(c.gamma)-1)]
		if c.cfg.Balance {
			w = max(1, w/ofPrompt[g.prompt])
		}
		sum += w
		upTo[i] = sum
	}
	x := loop.Draw(c.cfg.Seed, c.draws) % sum
	c.draws++
	return c.queue[slices.IndexFunc(upTo, func(w uint64) bool { return w > x })]
}

// evict ends what a full buffer gives up first.
func (c *Checker) evict() {
	first := slices.MinFunc(c.queue, func(x, y loop.GroupID) int {
		a, b := c.groups[x], c.groups[y]
		switch {
		case c.cfg.Evict == loop.EvictDrift && c.expectedDrift(a) != c.expectedDrift(b):
			if c.expectedDrift(a) > c.expectedDrift(b) {
				return -1
			}
			return 1
		case c.cfg.Evict == loop.EvictOldestVersion && a.start != b.start:
			return int(a.start - b.start)
		}
		return a.turn - b.turn
	})
	c.endReady(c.groups[first], loop.EndEvicted, loop.ReasonFull)
}

// endReady ends a group out of the queue, one that had been trained as such.
func (c *Checker) endReady(g *groupModel, end loop.End, why loop.Reason) {
	if g.uses > 0 {
		end = loop.EndTrained
	}
	c.endGroup(g, end, why)
}

func (c *Checker) expectedDrift(g *groupModel) int64 {
	at := g.start
	if g.drift.measured {
		at = g.drift.at
	}
	return g.drift.value + c.slope.value*int64(c.version-at)
}

// groupMeasured books what the train step that is about to end found.
func (c *Checker) groupMeasured(ev loop.Event) {
	d := float64(ev.Drift)
	if !slices.Contains(c.lease.groups, ev.Group) || math.IsNaN(d) || math.IsInf(d, 0) || d < 0 || d > driftMost {
		c.counts.Late++
		return
	}
	g := c.groups[ev.Group]
	g.drift = driftModel{true, int64(math.Round(d * 1e6)), c.lease.version}
	lag := int64(c.lease.version - g.start)
	if lag <= 0 {
		return
	}
	sample := g.drift.value / lag
	if !c.slope.known {
		c.slope = slopeModel{true, sample}
		return
	}
	c.slope.value += (sample - c.slope.value) / 8
}

// keepTrained puts a trained group back into the buffer, or ends it after its last use.
func (c *Checker) keepTrained(g *groupModel) {
	g.uses++
	if g.uses >= c.cfg.MaxUses {
		c.endGroup(g, loop.EndTrained, loop.ReasonUses)
		return
	}
	g.place = inQueue
	c.queue = append(c.queue, g.id)
}
