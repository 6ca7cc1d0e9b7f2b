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
		var want []byte
		for len(lines) > 0 {
			got, err := live.Recover(w.store, nil)
			if err != nil || len(got.PassedOver) > 0 || !got.Ended {
				t.Fatalf("%v, %+v", err, got)
			}
			state, err := got.State()
			if err != nil {
				t.Fatal(err)
			}
			if want == nil {
				want = state
			}
			if string(state) != string(want) {
				t.Fatalf("recovered from line %d it is another", got.SnapshotLine)
			}
			delete(w.store.snapshots, lines[len(lines)-1])
			lines = lines[:len(lines)-1]
		}
	})
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
