package live_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/loop"
)

// snapshotConfig has long train steps of many rollouts.
func snapshotConfig() loop.Config {
	return loop.Config{GroupSize: 4, BatchGroups: 2, EngineSlots: []int{8, 8}, QueueGroups: 4, TrainSteps: 60}
}

// TestSnapshotsByEvents: however long a train step takes, no recovery replays more
// than the bound and what one turn brought beside it; wherever it begins, it ends the same.
func TestSnapshotsByEvents(t *testing.T) {
	const most = 150
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(snapshotConfig())
		w.change = func(o *live.Options) { o.SnapshotSteps, o.SnapshotEvents = 1_000_000, most }
		res, err := w.runtime(t, nil).Run(t.Context())
		if err != nil || res.Reason != loop.ReasonSteps {
			t.Fatalf("ended by %v, %v", res.Reason, err)
		}
		lines := slices.Sorted(maps.Keys(w.store.snapshots))
		events := map[int64]int64{0: 0} // by line
		for _, rec := range w.records(t) {
			events[int64(rec.Line)] = events[int64(rec.Line)-1]
			if rec.Event != nil {
				events[int64(rec.Line)] = rec.Seq
			}
		}
		before := int64(0)
		for i, line := range lines {
			least := int64(1)
			if i == len(lines)-1 { // that of the end comes however soon
				least = 0
			}
			if n := events[line] - before; n < least || n > most+50 {
				t.Errorf("%d events between two snapshots, want at most %d and a turn's", n, most)
			}
			before = events[line]
		}
		if len(lines) < 10 {
			t.Errorf("%d snapshots", len(lines))
		}
		w.recoversAlike(t, lines)
	})
}

// recoversAlike requires that the run, which has ended, is the same from whichever snapshot it is recovered. It leaves none.
func (w *world) recoversAlike(t *testing.T, lines []int64) {
	t.Helper()
	var want []byte
	for _, line := range slices.Backward(lines) {
		got, err := live.Recover(w.store, nil)
		if err != nil || got.SnapshotLine != line || len(got.PassedOver) > 0 || !got.Ended {
			t.Fatalf("from line %d: %v, %+v", line, err, got)
		}
		state, err := got.State()
		if err != nil {
			t.Fatal(err)
		}
		if want == nil {
			want = state
		}
		if string(state) != string(want) {
			t.Fatalf("recovered from line %d it is another", line)
		}
		delete(w.store.snapshots, line)
	}
}

// wantingStore always wants a snapshot, and may be unable to keep one.
type wantingStore struct {
	*memoryStore
	tries []int64
	fails bool
}

func (s *wantingStore) WantsSnapshot() bool { return true }

func (s *wantingStore) Snapshot(line int64, state []byte) error {
	s.tries = append(s.tries, line)
	if s.fails {
		return errors.New("it cannot be kept")
	}
	return s.memoryStore.Snapshot(line, state)
}

// TestStoreWantsSnapshots: it gets them, and one that cannot keep them is not asked at
// every turn; the run goes on without.
func TestStoreWantsSnapshots(t *testing.T) {
	for _, fails := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			cfg := snapshotConfig()
			cfg.TrainSteps = 150
			w := newWorld(cfg)
			store := &wantingStore{memoryStore: w.store, fails: fails}
			w.change = func(o *live.Options) { o.Store, o.SnapshotSteps = store, 1_000_000 }
			res, err := w.runtime(t, nil).Run(t.Context())
			if res.Reason != loop.ReasonSteps || err != nil {
				t.Fatalf("ended by %v, %v", res.Reason, err)
			}
			events := len(eventsOf(t, w.store))
			if n := len(store.tries); n < 2 || n > events/1000+1 {
				t.Errorf("%d tries in %d events", n, events)
			}
			if told := strings.Join(w.logged, "\n"); strings.Contains(told, "cannot be kept") != fails {
				t.Errorf("told: %.200s", told)
			}
		})
	}
}

// slowStore takes as long for each snapshot but that of the end as a run takes for three train steps.
type slowStore struct {
	*memoryStore
	steps chan struct{}
	kept  []int64
	under int
}

func (s *slowStore) Snapshot(line int64, state []byte) error {
	if s.under++; s.under > 1 {
		return errors.New("there is one being written")
	}
	defer func() { s.under-- }()
	for range 3 {
		<-s.steps
	}
	s.kept = append(s.kept, line)
	return s.memoryStore.Snapshot(line, state)
}

// TestRunsBesideSnapshots: train steps are made while a snapshot is written, which is of the moment in which it began. There
// is one at a time, and the run waits for it at its end.
func TestRunsBesideSnapshots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(snapshotConfig())
		store := &slowStore{memoryStore: w.store, steps: make(chan struct{}, 1000)}
		steps := loop.Version(0)
		w.change = func(o *live.Options) {
			o.Store, o.SnapshotSteps, o.SnapshotEvents = store, 2, 1_000_000
			before := o.OnStep
			o.OnStep = func(d live.StepDone) {
				if before != nil {
					before(d)
				}
				store.steps <- struct{}{}
				if steps++; steps == w.cfg.TrainSteps { // the rest comes at once
					close(store.steps)
				}
			}
		}
		res, err := w.runtime(t, nil).Run(t.Context())
		if res.Reason != loop.ReasonSteps || err != nil {
			t.Fatalf("ended by %v, %v, told %q", res.Reason, err, w.logged)
		}
		if len(store.kept) < 5 || len(w.logged) > 0 {
			t.Errorf("kept snapshots as of the lines %v, told %q", store.kept, w.logged)
		}
		w.recoversAlike(t, store.kept)
	})
}
