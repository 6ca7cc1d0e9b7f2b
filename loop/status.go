package loop

import (
	"cmp"
	"slices"
)

// Counts are events that changed nothing. All zero in a run without faults.
type Counts struct {
	// Late counts completions that were late, duplicate or named nothing outstanding.
	Late int64 `json:"late"`
	// Unknown counts events of no known kind.
	Unknown int64 `json:"unknown"`
	// TimeReversed counts events with a time before that of an earlier event.
	TimeReversed int64 `json:"time_reversed"`
}

// Status is a copy of what the loop's state says to people; it shares nothing with the loop.
type Status struct {
	// TimeNS is the time of the last event, in nanoseconds since the run started.
	TimeNS int64 `json:"time_ns"`
	// Version is the trainer's version.
	Version Version `json:"version"`
	// Ledger counts rollout attempts by state.
	Ledger Ledger `json:"ledger"`
	// QueueGroups and QueueCapacityGroups are the queue's content and limit, HeldGroups what waits outside.
	QueueGroups         int `json:"queue_groups"`
	QueueCapacityGroups int `json:"queue_capacity_groups"`
	HeldGroups          int `json:"held_groups"`
	// LiveGroups counts groups opened and not ended; Retries rollouts that wait for another attempt.
	LiveGroups int `json:"live_groups"`
	Retries    int `json:"retries"`
	// Backlog counts interrupted rollouts that wait for a slot, Requeued prompts that wait to be played again.
	Backlog  int `json:"backlog"`
	Requeued int `json:"requeued"`
	// Holding: admission waits for the next switch of weights.
	Holding bool `json:"holding"`
	// Levels are the curriculum's estimates of the solve rate, -1 where nothing is known yet.
	Levels []float64 `json:"levels,omitempty"`
	// Lease is the batch at the trainer, 0 if it is idle.
	Lease LeaseID `json:"lease"`
	// Asked: the trainer has asked for a batch since its last step began (Config.TrainerAsks).
	Asked bool `json:"asked,omitempty"`
	// SyncTarget is the version being brought to the engines, NoVersion if none.
	SyncTarget Version `json:"sync_target"`
	// Control is what the controller does; nil without a goal.
	Control *ControlStatus `json:"control,omitempty"`
	// Engines in the order of Config.EngineSlots.
	Engines []EngineStatus `json:"engines"`
	// Stopping: a stop was requested. Finished says why the run finished, ReasonNone if it has not.
	Stopping bool   `json:"stopping"`
	Finished Reason `json:"finished"`
	// Counts are events that changed nothing.
	Counts Counts `json:"counts"`
}

// EngineStatus is one engine in a Status.
type EngineStatus struct {
	// State is serving, loading, loaded, emptying, switching, joining or lost; where a pool starts and stops
	// engines also starting, leaving or away.
	State string `json:"state"`
	// Version served, NoVersion if unknown.
	Version Version `json:"version"`
	// Active slots of Slots.
	Active int `json:"active"`
	Slots  int `json:"slots"`
}

// Status returns a copy of the loop's state for people. It allocates; call it
// when somebody looks.
func (l *Loop) Status() Status {
	s := &l.s
	st := Status{
		TimeNS: s.Now, Version: s.Trained, Ledger: s.Ledger,
		QueueGroups: s.Queue.Len, QueueCapacityGroups: l.rules.queue, HeldGroups: s.Held.Len,
		LiveGroups: s.LiveGroups, Retries: s.Retries.len(), Backlog: s.Backlog.len(), Requeued: len(s.Requeue),
		Holding: s.Hold.Since != unknownTime, Lease: s.Lease.ID, Asked: s.Asked, SyncTarget: s.Sync.Target,
		Stopping: s.Stopping, Finished: s.Finished, Counts: s.Counts,
	}
	st.Control = l.ControlStatus()
	for i := range s.Engines {
		e := &s.Engines[i]
		st.Engines = append(st.Engines, EngineStatus{State: e.describe(), Version: e.Served, Active: int(e.Active), Slots: l.cfg.EngineSlots[i]})
	}
	for i := range s.Levels {
		rate := -1.0
		if lv := &s.Levels[i]; lv.Measured {
			rate = float64(lv.Rate) / solveOne
		}
		st.Levels = append(st.Levels, rate)
	}
	return st
}

func (e *engine) describe() string {
	switch {
	case e.Away != engineOurs:
		return [...]string{"", "leaving", "away", "starting"}[e.Away]
	case e.State == engineLost:
		return "lost"
	case e.State == engineJoining:
		return "joining"
	}
	return [...]string{"serving", "loading", "loaded", "emptying", "switching"}[e.Phase]
}

// Ledger returns the current ledger.
func (l *Loop) Ledger() Ledger { return l.s.Ledger }

// Version returns the trainer's version.
func (l *Loop) Version() Version { return l.s.Trained }

// NextLease is the lease that the next new batch is given: the loop has given out every one below it, and no other.
func (l *Loop) NextLease() LeaseID { return l.s.NextLease }

// Lost reports whether an engine counts as lost.
func (l *Loop) Lost(engine int) bool { return l.s.Engines[engine].State == engineLost }

// Unanswered returns the failures of all attempts that have a slot of an engine. A driver takes them when the engine's process
// is gone, which would have answered.
func (l *Loop) Unanswered(engine int) (all []Event) {
	for k := range l.s.Slots {
		if sl := &l.s.Slots[k]; int(sl.Engine) == engine && sl.State != slotFree {
			all = append(all, Event{Kind: RolloutFailed, Slot: int32(k), Group: sl.ID, Sample: sl.Sample, Attempt: sl.Attempt, Reason: ReasonRestart})
		}
	}
	return all
}

// UnderWay returns the attempts in flight at engines of cell 0, each as it was started, those that stand interrupted with -1
// as Slot. A driver that goes on with a run takes them up again (Config.ResumeRestart).
func (l *Loop) UnderWay() (all []Action) {
	for i := range l.s.Slots {
		if sl := &l.s.Slots[i]; sl.holdsAttempt() && l.cfg.Owns(sl.Engine) {
			a := l.underWay(sl.Group, sl.Sample)
			a.Engine, a.Slot = sl.Engine, int32(i)
			all = append(all, a)
		}
	}
	for _, r := range l.s.Backlog.all() {
		if r.Cell == 0 && l.sample(r.Group, r.Sample).Slot == parked {
			all = append(all, l.underWay(r.Group, r.Sample))
		}
	}
	return all
}

// underWay is the attempt in flight at a sample as it was started, in no slot.
func (l *Loop) underWay(gi, k int32) Action {
	g, x := &l.s.Groups[gi], &l.s.Extras[gi]
	a := Action{Kind: StartRollout, Engine: none, Slot: none, Group: g.ID, Sample: k, Attempt: l.sample(gi, k).Attempt, StartVersion: g.Start}
	if l.prompts {
		a.Prompt, a.Level = x.Prompt, x.Level
	}
	return a
}

// LiveGroups returns the groups that have been opened and have not ended, in no order.
func (l *Loop) LiveGroups() (all []GroupID) {
	for i := range l.s.Groups {
		if g := &l.s.Groups[i]; g.State != groupFree {
			all = append(all, g.ID)
		}
	}
	return all
}

// ReadyGroups returns the groups that are ready and have not ended, in the order in which they became so. Those that are
// leased are among them. Each is as in its notice GroupQueued, but for Version.
func (l *Loop) ReadyGroups() (all []Action) {
	var ready []*group
	for i := range l.s.Groups {
		if g := &l.s.Groups[i]; g.State == groupHeld || g.State == groupQueued || g.State == groupLeased {
			ready = append(ready, g)
		}
	}
	slices.SortFunc(ready, func(a, b *group) int { return cmp.Compare(a.Turn, b.Turn) })
	for _, g := range ready {
		all = append(all, Action{Kind: GroupQueued, Group: g.ID, Count: g.Scored, StartVersion: g.Start, ReadyVersion: g.Ready})
	}
	return all
}

// Asked reports whether the trainer has asked for a batch since its last step began; always
// false without Config.TrainerAsks.
func (l *Loop) Asked() bool { return l.s.Asked }

// TouchSlots reads slots and returns a sum that means nothing. It decides nothing: a driver that knows which events
// come next has the slots near by then. The slots must exist.
func (l *Loop) TouchSlots(slots []int32) (sum int32) {
	for _, slot := range slots {
		sum += l.s.Slots[slot].Group
	}
	return sum
}

// TouchGroups reads the groups of the rollouts in slots, as TouchSlots does the slots.
func (l *Loop) TouchGroups(slots []int32) (sum int32) {
	for _, slot := range slots {
		if sl := &l.s.Slots[slot]; sl.Group != none {
			sum += l.s.Groups[sl.Group].Scored + l.sample(sl.Group, sl.Sample).Slot
		}
	}
	return sum
}

// QueueGroups returns how many ready groups the queue holds.
func (l *Loop) QueueGroups() int { return l.s.Queue.Len }
