package attribution

import "github.com/headway-rl/headway/loop"

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

// phase is where an engine is in a weight sync.
type phase uint8

const (
	apart phase = iota
	loading
	loaded
	// emptying: its rollouts are interrupted for the switch.
	emptying
	switching
)

// engine is what is remembered of one.
type engine struct {
	Slots, Active int
	Served        loop.Version
	// Attempt is that of its newest load.
	Attempt int32
	Phase   phase
	// Gone: it is lost, or came back and serves nothing yet. Failing: its sync has just failed. Away: it is the
	// pool's that starts and stops engines, and no capacity.
	Gone, Failing, Away bool
}

// take has more or fewer slots of an engine taken.
func (o *Observer) take(engine int32, more int) {
	o.s.Engines[engine].Active += more
	o.s.Active += more
	o.judged = false
}

func (o *Observer) engineEvent(ev *loop.Event) {
	s := &o.s
	if uint(ev.Engine) >= uint(len(s.Engines)) {
		return
	}
	o.judged = false
	e := &s.Engines[ev.Engine]
	switch ev.Kind {
	case loop.EngineLost:
		o.lose(ev.Engine)
	case loop.SyncFailed:
		e.Failing = e.Attempt == ev.Attempt && e.Phase != apart
	case loop.WeightsLoaded:
		if e.Attempt == ev.Attempt && e.Phase == loading && !e.Gone {
			o.enter(e, loaded)
			o.empty()
		}
	case loop.WeightsSwitched:
		if e.Attempt != ev.Attempt || e.Phase != switching {
			return
		}
		if e.Gone && ev.Version < max(o.minServed(), s.Completed) {
			return // the others have gone on, and it loads again
		}
		e.Served, e.Gone = ev.Version, false
		o.enter(e, apart)
	}
}

// enter has an engine begin a phase.
func (o *Observer) enter(e *engine, p phase) {
	if e.Phase == switching {
		o.s.Switching--
	}
	if e.Phase = p; p == switching {
		o.s.Switching++
	}
}

// empty has engines that have loaded give up their rollouts for the switch (loop.SyncRestart): each
// for itself, or all of them once the last has loaded.
func (o *Observer) empty() {
	if o.cfg.Sync != loop.SyncRestart {
		return
	}
	for i := range o.s.Engines {
		if e := &o.s.Engines[i]; !e.Gone && e.Phase == loading && !o.cfg.RollingSwitch {
			return
		}
	}
	for i := range o.s.Engines {
		if e := &o.s.Engines[i]; !e.Gone && e.Phase == loaded {
			o.enter(e, emptying)
		}
	}
}

// lose has an engine serve nothing any more. Its rollouts fail with it, or say themselves that they
// were interrupted.
func (o *Observer) lose(i int32) {
	o.s.Engines[i].Gone = true
	o.enter(&o.s.Engines[i], apart)
	o.empty()
	if !o.cfg.ResumeLost {
		o.vacateAll(i)
	}
}

// leaves has an engine be the pool's, or come from there.
func (o *Observer) leaves(e *engine, away bool) {
	if e.Away == away {
		return
	}
	e.Away = away
	if !away {
		o.s.AwaySlots -= e.Slots
		return
	}
	o.s.AwaySlots += e.Slots
}

// givenUp takes the failed sync of an engine that was not told to load again.
func (o *Observer) givenUp(i int32) {
	if uint(i) < uint(len(o.s.Engines)) && o.s.Engines[i].Failing {
		o.s.Engines[i].Failing = false
		o.lose(i)
	}
}

func (o *Observer) engineAction(a *loop.Action) {
	e := &o.s.Engines[a.Engine]
	o.judged = false
	switch a.Kind {
	case loop.LoadWeights:
		o.leaves(e, false)                                   // one that the pool has given loads at once
		e.Gone = e.Gone || e.Failing && e.Phase == switching // what it holds is unknown
		e.Attempt, e.Failing = a.Attempt, false
		o.enter(e, loading)
		o.s.Syncing = o.s.Syncing || !e.Gone // one that is gone fetches weights for itself
	case loop.SwitchWeights:
		o.enter(e, switching)
	}
}

// recovered takes the end of the process before: whatever was under way is gone, and every engine
// comes back without weights.
func (o *Observer) recovered() {
	s := &o.s
	s.Syncing, s.Asked, s.Stopped, o.judged = false, false, false, false
	s.Due = o.newestWeights()
	s.Completed = s.Due
	o.vacateAll(-1)
	o.groups.each(func(g *life) {
		g.Flying = 0
		g.anew()
	})
	for i := range s.Engines {
		s.Engines[i].Gone = true
		o.enter(&s.Engines[i], apart)
	}
}

// minServed is the lowest version that an engine serves, loop.NoVersion if none does.
func (o *Observer) minServed() loop.Version {
	lowest := loop.NoVersion
	for i := range o.s.Engines {
		if e := &o.s.Engines[i]; !e.Gone && (lowest == loop.NoVersion || e.Served < lowest) {
			lowest = e.Served
		}
	}
	return lowest
}

// settle counts the time since the last event, in which nothing changed.
func (o *Observer) settle() {
	s := &o.s
	dt := s.Now - s.Settled
	if dt <= 0 {
		return
	}
	s.Step.AwayNS += int64(s.AwaySlots) * dt
	if s.Active < len(s.Slots) || s.Switching > 0 { // else every slot is taken, and goes on
		o.idleFor(dt)
	}
	if s.Validating > 0 {
		s.Step.StoodValidating += int64(s.Validating) * int64(s.Active) * dt / int64(len(s.Engines))
	}
	switch validates := min(s.TrainFrom-s.Settled, dt); {
	case s.LeaseNS < 0 && o.cfg.TrainerAsks && !s.Asked: // it does something of its own
	case s.LeaseNS < 0:
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
	for i := range o.s.Engines {
		e := &o.s.Engines[i]
		if e.Away {
			continue
		}
		if free := e.Slots - e.Active; free > 0 {
			o.freed[o.engineWaits(e)] += int64(free)
		}
		if e.Phase == switching && o.cfg.Sync != loop.SyncInFlight && !e.Gone {
			o.stands += int64(e.Active)
		}
	}
}

// engineWaits says why an engine's slots are free.
func (o *Observer) engineWaits(e *engine) cause {
	s := &o.s
	switch {
	case e.Gone:
		return blocked
	case o.syncStops(e):
		return syncing
	case s.Syncing && (o.cfg.Policy == loop.PolicySynchronous || o.cfg.Policy == loop.PolicyThreshold):
		return syncing // what may start next starts when it has ended
	case o.cfg.Start == loop.StartGang && len(s.Slots)-s.Active < o.cfg.GroupSize+s.Redundancy:
		return starved
	}
	return paused
}

// syncStops reports whether an engine starts nothing for the sync that it takes part in.
func (o *Observer) syncStops(e *engine) bool {
	switch o.cfg.Sync {
	case loop.SyncPause:
		return e.Phase == switching
	case loop.SyncDrain:
		return e.Phase != apart
	case loop.SyncRestart:
		return e.Phase == emptying || e.Phase == switching
	}
	return false
}

// trainerWaits says why no train step runs.
func (o *Observer) trainerWaits() cause {
	s := &o.s
	full := s.Queued >= o.cfg.BatchGroups
	gone, stopped := 0, 0
	for i := range s.Engines {
		if e := &s.Engines[i]; e.Gone {
			gone++
		} else if o.syncStops(e) {
			stopped++
		}
	}
	serving := len(s.Engines) - gone
	switch {
	case s.Syncing && full && o.cfg.TrainerBlocked:
		return syncing
	case full || s.Stopped:
		return paused
	case serving == 0:
		return blocked
	case stopped == serving || s.Syncing && s.Active == 0:
		return syncing
	case s.Validating >= serving:
		return validating
	case s.Active == 0:
		return paused
	}
	return starved
}

// EnginesHeld tells how many engines generate nothing from a time on, in ns, because they read for
// one of their rollouts, and because they are validating.
func (o *Observer) EnginesHeld(now int64, _, validating int) {
	o.s.Now = max(o.s.Now, now)
	o.settle()
	o.s.Validating = validating
}

// EnginesDown is there for metrics.Beside: the events say which engines are gone.
func (o *Observer) EnginesDown(int64, int) {}

// TrainerValidates tells of a validation that the train step just started waits for, so long, in ns.
func (o *Observer) TrainerValidates(tookNS int64) { o.s.TrainFrom = o.s.Now + tookNS }
