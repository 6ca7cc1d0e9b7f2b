package looptest

import (
	"fmt"
	"math"

	"github.com/headway-rl/headway/loop"
)

// costModel is what an adaptive hold has cost.
type costModel struct {
	// most is the largest hold, theta what the law has come to, in periods.
	most, theta float64
	// slotTime is what the hold left free since the last train step ended, in slots times nanoseconds, evicted the
	// groups dropped since; held and dropped are shares over the last steps.
	slotTime      float64
	evicted       int
	held, dropped float64
	// moves says that the last train step's end moved the hold.
	moves bool
}

// freeSlots counts the slots that could be given to rollouts.
func (c *Checker) freeSlots() int {
	n, taken := 0, 0
	for _, s := range c.slots {
		switch e := c.engines[s.engine]; {
		case e.state == gone:
		case s.taken:
			taken++
		case e.pool != leaving: // which takes nothing new
			n++
		}
	}
	return min(n, c.control.slots-taken)
}

// payHold books the time until an event in which the hold left slots free.
func (c *Checker) payHold(until int64) {
	if c.hold.since != never && until > c.now {
		c.hold.cost.slotTime += float64(float64(max(c.freeSlots(), 0)) * float64(until-c.now))
	}
}

// adaptHold books what a train step's end makes of an adaptive hold, in its law's own words: a sixteenth of
// every step's figures, a gain of 0.06, twice the drops, grains of 1/64.
func (c *Checker) adaptHold(period int64) {
	k := &c.hold.cost
	if k.most == 0 {
		return
	}
	groups, slots := float64(c.cfg.BatchGroups), float64(c.cfg.Concurrency())
	if period > 0 {
		held, dropped := k.slotTime/(slots*float64(period)), float64(k.evicted)/(float64(k.evicted)+groups)
		k.held += float64(held-k.held) / 16
		k.dropped += float64(dropped-k.dropped) / 16
		pull := float64(2 * k.dropped)
		move := 0.06 * math.Max(1, slots/float64(groups*float64(c.cfg.GroupSize))) * float64(c.cfg.HoldCost+pull-k.held)
		k.theta = math.Min(math.Max(k.theta+math.Min(math.Max(move, -0.05), 0.05), 0), k.most)
	}
	k.slotTime, k.evicted = 0, 0
	at := math.Min(math.Round(k.theta*64)/64, k.most)
	near := math.Abs(k.theta-c.cfg.Hold) < 1.0/64
	k.moves = at != c.cfg.Hold && (!near || at == 0 || at == k.most)
	if k.moves {
		c.cfg.Hold = at
		if at == 0 {
			c.hold.since, c.hold.spent = never, false
		}
	}
}

// holdMoved checks that an adaptive hold says where it has gone, and takes its word out of the controller's.
func (c *Checker) holdMoved(a loop.Action) error {
	want := loop.Action{Kind: loop.SettingChanged, Setting: loop.SettingHold, Value: c.cfg.Hold, Reason: loop.ReasonFree, Version: c.version}
	if !c.hold.cost.moves || a != want {
		return fmt.Errorf("%v of an adaptive hold at %g that moves: %t: %+v", a, c.cfg.Hold, c.hold.cost.moves, fields(a))
	}
	c.hold.cost.moves = false
	return nil
}
