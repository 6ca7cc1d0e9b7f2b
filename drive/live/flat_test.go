package live_test

import (
	"os"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// longStore keeps payloads and the newest snapshot, and counts the log.
type longStore struct {
	*memoryStore
	logBytes, snapshots, snapshotMost int
}

func (s *longStore) Append(lines [][]byte) error {
	for _, l := range lines {
		s.logBytes += len(l)
	}
	return nil
}

func (s *longStore) Snapshot(_ int64, state []byte) error {
	s.snapshots++
	s.snapshotMost = max(s.snapshotMost, len(state))
	return nil
}

// TestMemoryIsFlat: what a run holds in memory, and what a snapshot of it takes, is
// bounded by its rules and not by its length. Between the 20 000th and the 100 000th
// group the heap grows by less than 4 MB, and that much only because the series of
// steps fills its bound of twice SeriesSteps meanwhile. By default a fifth of that is
// tried, which takes a second.
func TestMemoryIsFlat(t *testing.T) {
	const (
		growthMost = 4 << 20
		stateMost  = 3 << 20
	)
	early, late := 4_000, 20_000
	if os.Getenv("HEADWAY_LONG") != "" {
		early, late = 20_000, 100_000
	} else if testing.Short() {
		t.Skip("forty thousand rollouts")
	}
	synctest.Test(t, func(t *testing.T) {
		cfg := loop.Config{GroupSize: 2, BatchGroups: 4, EngineSlots: []int{12, 12}, QueueGroups: 8, Policy: loop.PolicyDrop, TrainSteps: loop.Version(late / 4)}
		w := newWorld(cfg)
		w.work(work{stepNS: 9_000_001})
		store := &longStore{memoryStore: w.store}
		heap := map[int]int64{}
		w.change = func(o *live.Options) {
			o.Store = store
			o.OnBatch = func(b port.Batch) { // what the fakes remember is not the run's
				w.trainer.batches = nil
				w.weights.mu.Lock()
				defer w.weights.mu.Unlock()
				for v := range w.weights.leases {
					if v < b.Version-10 {
						delete(w.weights.leases, v)
					}
				}
			}
			o.OnStep = func(d live.StepDone) {
				if groups := int(d.Point.Step) * cfg.BatchGroups; groups == early || groups == late {
					var m runtime.MemStats
					for range 3 { // pools let go of their buffers at the second
						runtime.GC()
					}
					runtime.ReadMemStats(&m)
					heap[groups] = int64(m.HeapAlloc)
				}
			}
		}
		res, err := w.runtime(t, nil).Run(t.Context())
		if err != nil || res.Reason != loop.ReasonSteps {
			t.Fatalf("ended by %v, %v", res.Reason, err)
		}
		if heap[early] == 0 || heap[late] == 0 || heap[late]-heap[early] > growthMost {
			t.Errorf("%d bytes of heap after %d groups, %d after %d: grew by more than %d", heap[early], early, heap[late], late, growthMost)
		}
		if n := len(res.Series); n >= 2*live.SeriesSteps || n < min(live.SeriesSteps, late/4) || res.Series[n-1].Step != loop.Version(late/4) {
			t.Errorf("%d points of the series are left", n)
		}
		if store.snapshots < late/1000 || store.snapshotMost > stateMost {
			t.Errorf("%d snapshots of up to %d bytes, want at most %d", store.snapshots, store.snapshotMost, stateMost)
		}
		t.Logf("%d groups, %v of run time, %.0f MB of log: heap %d kB, then %d kB; %d snapshots of up to %d kB", late, time.Since(w.begin),
			float64(store.logBytes)/1e6, heap[early]>>10, heap[late]>>10, store.snapshots, store.snapshotMost>>10)
	})
}
