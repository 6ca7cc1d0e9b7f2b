package loop

// unknownTime is the instant of what has not begun.
const unknownTime int64 = -1

// times are what the loop has learned of how long things take, in nanoseconds;
// 0 is unknown. LeaseAt, SyncAt and EndAt are when the running step and sync
// began and the last step ended, or unknownTime.
type times struct {
	Step, Period, Sync     int64
	LeaseAt, SyncAt, EndAt int64
}

// hold is a pause of admission in wait for the next switch of weights.
type hold struct {
	// Since is when the pause began, unknownTime if there is none.
	Since int64
	// Spent: it lasted as long as may be, and the next begins after a sync.
	Spent bool
}

// learn moves an estimate towards a value by an eighth; the first value sets it.
func learn(estimate *int64, value int64) {
	if *estimate == 0 {
		*estimate = max(value, 0)
		return
	}
	*estimate += (value - *estimate) / 8
}

// learnStep takes the end of a train step, and returns the time since the one before, 0 if it is not known.
func (l *Loop) learnStep() (periodNS int64) {
	t := &l.s.Times
	if t.LeaseAt != unknownTime {
		learn(&t.Step, l.s.Now-t.LeaseAt)
	}
	if t.EndAt != unknownTime {
		periodNS = l.s.Now - t.EndAt
		learn(&t.Period, periodNS)
	}
	t.LeaseAt, t.EndAt = unknownTime, l.s.Now
	return periodNS
}

// learnSync takes the completion of a sync.
func (l *Loop) learnSync() {
	t := &l.s.Times
	if t.SyncAt != unknownTime {
		learn(&t.Sync, l.s.Now-t.SyncAt)
	}
	t.SyncAt = unknownTime
	l.s.Hold = hold{Since: unknownTime}
}

// expectedSwitch returns when the engines are expected to serve newer weights,
// NoTick if that is unknown: at the end of the running sync, or of the sync that
// the running step or a later one is to start. Waiting for the step's end
// instead would miss the sync, and with it most of the gain.
func (l *Loop) expectedSwitch() int64 {
	s := &l.s
	t := &s.Times
	switch {
	case s.Sync.Target != NoVersion && t.SyncAt != unknownTime:
		return t.SyncAt + t.Sync
	case s.Sync.Target != NoVersion, s.Lease.ID == 0, t.LeaseAt == unknownTime, t.Step == 0:
		return NoTick
	}
	further := l.stepsBeforeSync()
	if further > 0 && t.Period == 0 {
		return NoTick
	}
	return t.LeaseAt + t.Step + further*t.Period + t.Sync
}

// stepsBeforeSync returns how many further steps follow the running one before a sync
// is due.
func (l *Loop) stepsBeforeSync() int64 {
	s := &l.s
	every := int64(l.rules.syncEvery)
	if l.cfg.TrainerAsks {
		return every - int64(s.Trained)%every - 1
	}
	return max(every-int64(s.Trained-s.Sync.Completed), 1) - 1
}

// holdLimit is how long before a switch no group opens, in nanoseconds.
func (l *Loop) holdLimit() int64 { return int64(l.rules.hold * float64(l.s.Times.Period)) }

// holding reports whether a group that may open otherwise is to wait for the
// next switch, which saves it a version. Never longer than twice the limit.
func (l *Loop) holding() bool {
	s := &l.s
	limit := l.holdLimit()
	if s.Hold.Spent || limit == 0 {
		return false
	}
	at := l.expectedSwitch()
	if at == NoTick || at-s.Now > limit && s.Hold.Since == unknownTime {
		s.Hold.Since = unknownTime
		return false
	}
	if s.Hold.Since == unknownTime {
		s.Hold.Since = s.Now
	}
	return s.Now-s.Hold.Since < 2*limit
}

// holdTick returns when a pause of admission ends at the latest, NoTick without
// one, and ends it if that is now.
func (l *Loop) holdTick() int64 {
	s := &l.s
	if s.Hold.Since == unknownTime {
		return NoTick
	}
	end := s.Hold.Since + 2*l.holdLimit()
	if s.Now >= end {
		s.Hold = hold{Since: unknownTime, Spent: true}
		return NoTick
	}
	return end
}
