package live

import "github.com/headway-rl/headway/loop/port"

// Bounds between two snapshots. A recovery replays the events after the newest
// one, beside reading the snapshot itself.
const (
	// SnapshotStepsDefault is the number of train steps, by completed weight syncs.
	SnapshotStepsDefault = 50
	// SnapshotEventsDefault is the number of events. It keeps long steps of many rollouts from making a long recovery.
	// The loop replays about a million a second of processor time, so this many take 0.05 s, or 0.25 s on a busy
	// machine. More often would cost a run whose state is large: keeping it takes as long as replaying a few thousand
	// events.
	SnapshotEventsDefault = 50_000
	// snapshotEventsLeast is the least number of events between two that a store wants.
	snapshotEventsLeast = 1_000
)

// snapshotIfDue begins a snapshot that is due, with every line rendered so far in the
// log before it, unless one is still being written. A run survives that it cannot be kept, not that the log cannot.
func (r *Runtime) snapshotIfDue() error {
	since := r.enc.Seq() - r.snapshotSeq
	if b, ok := port.As[port.Bounded](r.opt.Store); ok && since >= snapshotEventsLeast && b.WantsSnapshot() {
		r.snapshotDue = true
	}
	if !r.snapshotDue && since < int64(r.opt.SnapshotEvents) || r.snapshotUnderWay() {
		return nil
	}
	r.snapshotDue = false
	if err := r.appendLog(); err != nil {
		return err
	}
	r.snapshot(false)
	return nil
}

// snapshotUnderWay reports whether a snapshot is being written.
func (r *Runtime) snapshotUnderWay() bool {
	select {
	case <-r.snapshotKept:
		return false
	default:
		return r.snapshotKept != nil
	}
}

// awaitSnapshot waits for the one that is being written.
func (r *Runtime) awaitSnapshot() {
	if r.snapshotKept != nil {
		<-r.snapshotKept
	}
}

// snapshot begins to keep the run's state as of the last line appended; nothing that the loop
// has decided is still to be executed. ended says that this line is the end note. The state is copied
// here, and written beside the loop: that of a large run takes seconds.
func (r *Runtime) snapshot(ended bool) {
	r.snapshotSeq = r.enc.Seq() // also where it fails: the next is due as long after
	now := Resume{Loop: r.l, Recorder: r.rec, Attribution: r.source, Counted: r.counted, cells: r.cells, Encoder: r.enc, Ended: ended, Restarts: r.restarts}
	line := r.enc.Position().Line
	state, err := now.capture()
	if err != nil {
		r.logf("snapshot: %v", err)
		return
	}
	kept := make(chan struct{})
	r.snapshotKept = kept
	r.wg.Go(func() {
		defer close(kept)
		text, err := state()
		if err == nil {
			err = r.opt.Store.Snapshot(line, text)
		}
		if err != nil {
			r.logf("snapshot: %v", err)
		}
	})
}
