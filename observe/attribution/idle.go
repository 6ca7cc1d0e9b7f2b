package attribution

import (
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/track"
)

// cause is why somebody is idle.
type cause uint8

const (
	starved cause = iota
	syncing
	validating
	paused
	blocked

	causes
)

// idle is an amount by cause.
type idle [causes]int64

func (i *idle) add(o idle) {
	for c, n := range o {
		i[c] += n
	}
}

// of returns it as shares of a whole.
func (i *idle) of(whole int64) (s Idle) {
	if whole <= 0 {
		return s
	}
	share := func(n int64) float64 { return float64(n) / float64(whole) }
	s = Idle{Starved: share(i[starved]), Syncing: share(i[syncing]), Validating: share(i[validating]), Paused: share(i[paused]), Blocked: share(i[blocked])}
	sum := int64(0)
	for _, n := range i {
		sum += n
	}
	s.Total = share(sum)
	return s
}

// stand takes that attempts that left these slots go on. They may have had their first token.
func (o *Observer) stand(left []int32) {
	for _, slot := range left {
		if at := &o.run.Slots[slot]; !at.Aborted && o.groups.Get(at.Group) != nil {
			o.groups.Get(at.Group).Seen = true
		}
	}
}

// recovered takes the end of the process before: of a group what still runs or stands interrupted elsewhere is left.
func (o *Observer) recovered(ev *loop.Event, left []int32) {
	o.s.Stopped = false
	if o.run.Stand(ev) {
		o.stand(left)
	}
	if o.run.Synced == loop.NoVersion { // no engine is left, and all come back with the newest weights
		o.s.Due = o.newestWeights()
	}
	for _, g := range o.groups.All() {
		g.Flying = 0
	}
	for i := range o.run.Slots {
		if at := &o.run.Slots[i]; at.Runs && !at.Aborted {
			o.flies(at.Group)
		}
	}
	for _, p := range o.run.Parked.Entries() {
		o.flies(p.Group)
	}
	for _, g := range o.groups.All() {
		g.anew()
	}
}

func (o *Observer) flies(id loop.GroupID) {
	if g := o.groups.Get(id); g != nil {
		g.Flying++
	}
}

// settle counts the time since the last event, in which nothing changed.
func (o *Observer) settle() {
	s := &o.s
	dt := s.Now - s.Settled
	if dt <= 0 {
		return
	}
	run := &o.run
	s.Step.AwayNS += run.AwaySlots * dt
	if run.Active < int64(len(run.Slots)) || run.Switching > 0 { // else every slot is taken, and goes on
		o.idleFor(dt)
	}
	if s.Validating > 0 {
		s.Step.StoodValidating += int64(s.Validating) * run.Active * dt / int64(len(run.Engines))
	}
	switch validates := min(s.TrainFrom-s.Settled, dt); {
	case !run.Lease.Runs && o.cfg.TrainerAsks && !run.Asked: // it does something of its own
	case !run.Lease.Runs:
		s.Step.Trainer[o.trainerWaits()] += dt
	case validates > 0:
		s.Step.Trainer[validating] += validates
	}
	s.Settled = s.Now
}

// idleFor counts slots that are free, or stand still, for so long.
func (o *Observer) idleFor(dt int64) {
	if !o.judged {
		o.judge()
	}
	for c, slots := range o.freed {
		o.s.Step.Engines[c] += slots * dt
	}
	o.s.Step.StoodSyncing += o.stands * dt
}

// judge finds out why slots are free.
func (o *Observer) judge() {
	o.judged, o.freed, o.stands = true, idle{}, 0
	for i := range o.run.Engines {
		e := &o.run.Engines[i]
		if e.Away {
			continue
		}
		if free := e.Slots - e.Active; free > 0 {
			o.freed[o.engineWaits(e)] += int64(free)
		}
		if e.Phase == track.Switching && o.cfg.Sync != loop.SyncInFlight && !e.Gone {
			o.stands += int64(e.Active)
		}
	}
}

// engineWaits says why an engine's slots are free.
func (o *Observer) engineWaits(e *track.Engine) cause {
	run := &o.run
	switch {
	case e.Gone:
		return blocked
	case run.SyncStops(e):
		return syncing
	case run.Sync.Runs && (o.cfg.Policy == loop.PolicySynchronous || o.cfg.Policy == loop.PolicyThreshold):
		return syncing // what may start next starts when it has ended
	case o.cfg.Start == loop.StartGang && len(run.Slots)-int(run.Active) < o.cfg.GroupSize+o.s.Redundancy:
		return starved
	}
	return paused
}

// trainerWaits says why no train step runs.
func (o *Observer) trainerWaits() cause {
	s, run := &o.s, &o.run
	full := s.Queued >= o.cfg.BatchGroups
	gone, stopped := 0, 0
	for i := range run.Engines {
		if e := &run.Engines[i]; e.Gone {
			gone++
		} else if run.SyncStops(e) {
			stopped++
		}
	}
	serving := len(run.Engines) - gone
	switch {
	case run.Sync.Runs && full && o.cfg.TrainerBlocked:
		return syncing
	case full || s.Stopped:
		return paused
	case serving == 0:
		return blocked
	case stopped == serving || run.Sync.Runs && run.Active == 0:
		return syncing
	case s.Validating >= serving:
		return validating
	case run.Active == 0:
		return paused
	}
	return starved
}

// EnginesHeld tells how many engines generate nothing from a time on, in ns. They read for one of
// their rollouts, or they are validating.
func (o *Observer) EnginesHeld(now int64, _, validating int) {
	o.s.Now = max(o.s.Now, now)
	o.settle()
	o.s.Validating = validating
}

// EnginesDown is there for metrics.Beside: the events say which engines are gone.
func (o *Observer) EnginesDown(int64, int) {}

// TrainerValidates tells of a validation that the train step just started waits for, so long, in ns.
func (o *Observer) TrainerValidates(tookNS int64) { o.s.TrainFrom = o.s.Now + tookNS }
