package loop

import (
	"encoding/json"
	"fmt"
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
	// Lease is the batch at the trainer, 0 if it is idle.
	Lease LeaseID `json:"lease"`
	// SyncTarget is the version being brought to the engines, NoVersion if none.
	SyncTarget Version `json:"sync_target"`
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
	// State is serving, loading, loaded, switching, joining or lost.
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
		QueueGroups: s.Queue.Len, QueueCapacityGroups: l.cfg.QueueGroups, HeldGroups: s.Held.Len,
		LiveGroups: s.LiveGroups, Retries: len(s.Retries), Lease: s.Lease.ID, SyncTarget: s.Sync.Target,
		Stopping: s.Stopping, Finished: s.Finished, Counts: s.Counts,
	}
	for i := range s.Engines {
		e := &s.Engines[i]
		st.Engines = append(st.Engines, EngineStatus{State: e.describe(), Version: e.Served, Active: int(e.Active), Slots: l.cfg.EngineSlots[i]})
	}
	return st
}

func (e *engine) describe() string {
	switch {
	case e.State == engineLost:
		return "lost"
	case e.State == engineJoining:
		return "joining"
	}
	return [...]string{"serving", "loading", "loaded", "switching"}[e.Phase]
}

// Ledger returns the current ledger.
func (l *Loop) Ledger() Ledger { return l.s.Ledger }

// Version returns the trainer's version.
func (l *Loop) Version() Version { return l.s.Trained }

// QueueGroups returns how many ready groups the queue holds.
func (l *Loop) QueueGroups() int { return l.s.Queue.Len }

// snapshotVersion changes when a snapshot's meaning does.
const snapshotVersion = 1

type snapshot struct {
	Snapshot int
	Config   Config
	State    state
}

// Snapshot returns the whole state as JSON, for Restore.
func (l *Loop) Snapshot() ([]byte, error) {
	return json.Marshal(snapshot{snapshotVersion, l.cfg, l.s})
}

// Restore returns the loop a snapshot was taken of. It refuses a snapshot of
// another version of the loop, and one whose config a loop cannot run with.
func Restore(data []byte) (*Loop, error) {
	var snap snapshot
	if err := json.Unmarshal(data, &snap); err != nil {
		return nil, fmt.Errorf("loop: not a snapshot: %w", err)
	}
	if snap.Snapshot != snapshotVersion {
		return nil, fmt.Errorf("loop: snapshot version %d, this program reads %d: replay the trace instead", snap.Snapshot, snapshotVersion)
	}
	if err := snap.Config.Validate(); err != nil {
		return nil, err
	}
	l := &Loop{cfg: snap.Config, s: snap.State}
	if err := l.plausible(); err != nil {
		return nil, err
	}
	return l, nil
}

// plausible refuses a snapshot whose parts do not fit together.
func (l *Loop) plausible() error {
	s := &l.s
	switch {
	case len(s.Engines) != len(l.cfg.EngineSlots), len(s.Slots) != l.cfg.Concurrency():
		return fmt.Errorf("loop: snapshot has %d engines and %d slots, its config %d and %d",
			len(s.Engines), len(s.Slots), len(l.cfg.EngineSlots), l.cfg.Concurrency())
	case len(s.Samples) != len(s.Groups)*l.cfg.GroupSize:
		return fmt.Errorf("loop: snapshot has %d samples for %d groups of %d", len(s.Samples), len(s.Groups), l.cfg.GroupSize)
	case !s.Ledger.Balanced():
		return fmt.Errorf("loop: snapshot's ledger does not balance: %+v", s.Ledger)
	}
	return nil
}
