package loop

import (
	"fmt"
	"math"
)

// The law by which a hold follows what it costs. costGain is what the hold moves by at most for a
// cost that is off, costStep the most it moves by at a train step, both in train periods; droppedWeight is how
// much more a dropped group counts than a slot that waits, so that some drops remain as a reserve; costGrain
// is the least difference that is a move.
const (
	costGain      = 0.06
	costStep      = 0.05
	droppedWeight = 2
	costGrain     = 1.0 / 64
)

// holdCost is what the loop has learned of what its hold costs (Config.HoldAdaptive).
type holdCost struct {
	// SlotNS is the slot time, in nanoseconds, that the hold left free since the last train step ended,
	// Evicted counts the groups that a full queue dropped since.
	SlotNS  float64
	Evicted int64
	// Held is the share of slot time left free, Dropped that of ready groups dropped, both over the last steps.
	Held, Dropped float64
	// Theta is the hold that the law has come to, At the one in force.
	Theta, At float64
}

// validateHoldCost reports what an adaptive hold cannot be.
func (c Config) validateHoldCost(bad *refusals) {
	if !(c.HoldCost >= 0 && c.HoldCost < 1) {
		bad.add("HoldCost is %g, want a share of slot time from 0 to below 1", c.HoldCost)
	}
	switch {
	case c.HoldAdaptive && c.Hold == 0:
		bad.add("Hold is 0, want the most that an adaptive hold may be, above 0")
	case !c.HoldAdaptive && c.HoldCost > 0:
		bad.add("HoldCost is %g, want 0 without HoldAdaptive: a hold that stays as it is follows no cost", c.HoldCost)
	case c.HoldAdaptive && c.Control != nil && c.Control.Ranges[SettingHold].Moves():
		bad.add("HoldAdaptive and a controller both move the hold, want one of them")
	}
}

// plausible checks what a snapshot says of a hold's cost.
func (k *holdCost) plausible(c *Config) error {
	share := func(v float64) bool { return v >= 0 && v <= 1 }
	if !(k.SlotNS >= 0) || math.IsInf(k.SlotNS, 0) || k.Evicted < 0 || !share(k.Held) || !share(k.Dropped) || !(k.Theta >= 0 && k.Theta <= c.Hold && k.At >= 0 && k.At <= c.Hold) {
		return fmt.Errorf("hold cost %+v, at most %g", *k, c.Hold)
	}
	return nil
}

// payHold counts slot time that the hold leaves free up to an instant. It is called where one began.
func (l *Loop) payHold(now int64) {
	s := &l.s
	if free := min(l.free, l.rules.slots-l.taken); now > s.Now && free > 0 {
		s.Cost.SlotNS += float64(float64(free) * float64(now-s.Now))
	}
}

// learnCost takes the end of a train step and moves the hold: up while more is dropped than the hold costs
// beyond what it may, down where less is. What would be dropped is free to be held back. The period is 0 if it is
// not known.
func (l *Loop) learnCost(periodNS int64) {
	k, c := &l.s.Cost, &l.cfg
	if periodNS > 0 {
		held := k.SlotNS / (float64(c.Concurrency()) * float64(periodNS))
		dropped := float64(k.Evicted) / float64(k.Evicted+int64(c.BatchGroups))
		k.Held += float64(held-k.Held) / 16
		k.Dropped += float64(dropped-k.Dropped) / 16
		load := float64(c.Concurrency()) / float64(c.BatchGroups*c.GroupSize)
		move := costGain * max(1, load) * float64(c.HoldCost+float64(droppedWeight*k.Dropped)-k.Held)
		k.Theta = min(max(k.Theta+min(max(move, -costStep), costStep), 0), c.Hold)
	}
	k.SlotNS, k.Evicted = 0, 0
	at := min(math.Round(k.Theta/costGrain)*costGrain, c.Hold)
	if math.Abs(k.Theta-k.At) < costGrain && at != 0 && at != c.Hold || at == k.At {
		return
	}
	k.At = at
	if at == 0 {
		l.s.Hold = hold{Since: unknownTime}
	}
	l.emit(Action{Kind: SettingChanged, Setting: SettingHold, Value: at, Reason: ReasonFree, Version: l.s.Trained})
	l.adopt()
}
