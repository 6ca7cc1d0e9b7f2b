package metrics

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/headway-rl/headway/loop"
)

// The series keeps at least its bound and less than twice that, the newest points.
func TestSeriesIsBounded(t *testing.T) {
	cfg := loop.Config{GroupSize: 1, BatchGroups: 1, EngineSlots: []int{1}, QueueGroups: 1}
	r := NewRecorder(cfg)
	r.StepsMax = 10
	for v := loop.Version(1); v <= 100; v++ {
		g := loop.GroupID(v)
		lease := loop.LeaseID(v)
		r.Observe(loop.Event{Time: int64(v), Kind: loop.Tick}, Measured{}, []loop.Action{{Kind: loop.StartRollout, Group: g, Attempt: 1}, {Kind: loop.StartTrainStep, Lease: lease}})
		r.Observe(loop.Event{Time: int64(v), Kind: loop.TrainStepEnded, Lease: lease, Version: v}, Measured{}, []loop.Action{{Kind: loop.GroupTrained, Group: g, Count: 1, Version: v - 1}})
		n := len(r.Steps)
		if n >= 20 || n < min(10, int(v)) || r.Steps[n-1].Step != v || r.Steps[0].Step != v-loop.Version(n)+1 {
			t.Fatalf("after step %d: %d points, %d to %d", v, n, r.Steps[0].Step, r.Steps[n-1].Step)
		}
	}
	if cap(r.Steps) > 40 {
		t.Errorf("room for %d points", cap(r.Steps))
	}
}

// The count of syncs between two versions is right as far back as the histogram
// tells staleness apart, however long the run is, and takes no more room for it.
func TestSyncsOfALongRun(t *testing.T) {
	r := NewRecorder(loop.Config{GroupSize: 1, BatchGroups: 1, EngineSlots: []int{1}, QueueGroups: 1})
	rng := rand.New(rand.NewPCG(1, 1))
	var synced []loop.Version
	for v := loop.Version(1); v <= 30_000; v++ {
		if rng.IntN(3) == 0 {
			r.loads(v)
			r.loads(v) // on another engine
			synced = append(synced, v)
		}
		start := max(v-loop.Version(rng.IntN(StalenessMax+1)), 0)
		from, _ := slices.BinarySearch(synced, start+1)
		if got, want := r.syncsBetween(start, v), int64(len(synced)-from); got != want {
			t.Fatalf("%d syncs from v%d to v%d, want %d", got, start, v, want)
		}
		r.syncsBetween(0, v) // from before what is remembered: no panic
	}
	if cap(r.syncsUpTo) > 4*syncsKept {
		t.Errorf("room for %d versions", cap(r.syncsUpTo))
	}
}

// A sync takes from its version's making until every engine serves it; versions that none brought, that
// the window did not hold or that are not known to have been made do not count.
func TestTimeOfSyncs(t *testing.T) {
	r := NewRecorder(loop.Config{GroupSize: 1, BatchGroups: 1, EngineSlots: []int{1}, QueueGroups: 1})
	completed := func(at int64, v loop.Version) {
		r.Observe(loop.Event{Time: at, Kind: loop.WeightsSwitched, Version: v}, Measured{}, []loop.Action{{Kind: loop.SyncCompleted, Version: v}})
	}
	for v := loop.Version(1); v <= 200; v++ {
		r.Observe(loop.Event{Time: int64(v) * 100, Kind: loop.TrainStepEnded, Version: v}, Measured{}, nil)
		if v%2 == 0 {
			completed(int64(v)*100+30, v)
			completed(int64(v)*100+60, v) // told again
		}
	}
	completed(1e6, 1)   // long ago
	completed(1e6, 300) // never made
	if s := r.Summary(); math.Abs(s.SyncS.Mean-30e-9) > 1e-18 {
		t.Errorf("%g s", s.SyncS.Mean)
	}
	again, err := Restore(loop.Config{GroupSize: 1, BatchGroups: 1, EngineSlots: []int{1}, QueueGroups: 1}, r.State())
	if err != nil || again.Summary().SyncS != r.Summary().SyncS || again.madeAt != r.madeAt {
		t.Errorf("restored: %v, %+v", err, again.Summary().SyncS)
	}
	r.Reset()
	if s := r.Summary(); s.SyncS.Mean != 0 {
		t.Errorf("after the warm-up: %g s", s.SyncS.Mean)
	}
}

// Versions that went back to before what is remembered have no syncs that are known, and
// no more is wrong with what is counted of them.
func TestSyncsAfterVersionsWentBack(t *testing.T) {
	r := NewRecorder(loop.Config{GroupSize: 1, BatchGroups: 1, EngineSlots: []int{1}, QueueGroups: 1})
	for v := loop.Version(1); v <= 3*syncsKept; v++ {
		r.loads(v)
	}
	for i, v := range []loop.Version{5, r.syncsFrom - 1, r.syncsFrom, 3 * syncsKept} {
		g := loop.GroupID(i + 1)
		r.Observe(loop.Event{Time: 1, Kind: loop.Tick}, Measured{}, []loop.Action{{Kind: loop.StartRollout, Group: g, Attempt: 1, Version: v - 2}})
		r.run.Version, r.run.Lease.Runs = v-1, true
		r.Observe(loop.Event{Time: 2, Kind: loop.TrainStepEnded, Version: v}, Measured{}, []loop.Action{
			{Kind: loop.LoadWeights, Version: v - 3, Attempt: 1},
			{Kind: loop.GroupTrained, Group: g, Count: 1, StartVersion: v - 2, ReadyVersion: v - 1, Version: v}})
	}
	if s := r.Summary(); s.Staleness.Mean != 2 || s.Steps != 4 || r.window.stalenessSyncs != 2 {
		t.Errorf("mean staleness %v over %d steps, %d syncs, want 2, 4 and the 2 of the last", s.Staleness.Mean, s.Steps, r.window.stalenessSyncs)
	}
}

// A trainer that goes back makes a version without a step: what it held is over, the
// next step's point has the version after, and only the next version counts.
func TestTrainerRestored(t *testing.T) {
	r := NewRecorder(loop.Config{GroupSize: 1, BatchGroups: 1, EngineSlots: []int{1}, QueueGroups: 1, TrainerAsks: true})
	r.Warmup = 2
	at := func(s int64, kind loop.EventKind, v loop.Version, actions ...loop.Action) {
		r.Observe(loop.Event{Time: s, Kind: kind, Version: v, Lease: r.run.Lease.ID, Attempt: r.run.Lease.Attempt}, Measured{}, actions)
	}
	at(0, loop.RunStarted, 0, loop.Action{Kind: loop.StartRollout, Group: 1, Attempt: 1}, loop.Action{Kind: loop.StartRollout, Group: 2, Attempt: 1})
	at(10, loop.TrainerReady, 0)
	at(30, loop.Tick, 0, loop.Action{Kind: loop.StartTrainStep, Lease: 1, Attempt: 1}) // asked, and idle for 20
	at(40, loop.TrainStepEnded, 1, loop.Action{Kind: loop.GroupTrained, Group: 1, Count: 1})
	at(60, loop.TrainerReady, 0) // 20 of its own
	at(65, loop.Tick, 0, loop.Action{Kind: loop.StartTrainStep, Lease: 2, Attempt: 1, Version: 1})
	at(70, loop.TrainerRestored, 7) // late, or early: not the next
	if r.Version() != 1 || !r.run.Lease.Runs {
		t.Fatalf("v%d, lease %+v", r.Version(), r.run.Lease)
	}
	at(75, loop.TrainerRestored, 2)
	if r.Version() != 2 || r.run.Lease.Runs || r.window.start != 75 {
		t.Fatalf("v%d, lease %+v, window since %d, want v2, none, 75", r.Version(), r.run.Lease, r.window.start)
	}
	at(80, loop.TrainerReady, 0)
	at(82, loop.Tick, 0, loop.Action{Kind: loop.StartTrainStep, Lease: 3, Attempt: 1, Version: 2})
	at(90, loop.TrainStepEnded, 3, loop.Action{Kind: loop.GroupTrained, Group: 2, Count: 1, Version: 2})
	if len(r.Steps) != 2 || r.Steps[0].TrainNS != 10 || r.Steps[0].TrainerIdle != 0.5 || r.Steps[1].Step != 3 || r.Steps[1].TrainNS != 50-7 {
		t.Errorf("%+v", r.Steps)
	}
	if s := r.Summary(); s.Steps != 1 || s.TrainerIdleRatio != 2.0/15 {
		t.Errorf("%d steps, idle %v, want 1 and 2 of 15", s.Steps, s.TrainerIdleRatio)
	}
}
