package metrics_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/looptest"
	"github.com/headway-rl/headway/observe/metrics"
)

// The trainer's idle time adds up over several pauses of different kinds.
func TestIdleOverSeveralPauses(t *testing.T) {
	cfg := loop.Config{GroupSize: 1, BatchGroups: 1, EngineSlots: []int{1}, QueueGroups: 1}
	r := metrics.NewRecorder(cfg)
	at := func(s int64, kind loop.EventKind, lease loop.LeaseID, attempt int32, actions ...loop.Action) {
		r.Observe(loop.Event{Time: s * 1e9, Kind: kind, Lease: lease, Attempt: attempt, Version: r.Version() + 1}, metrics.Measured{}, actions)
	}
	start := func(lease loop.LeaseID, attempt int32) loop.Action {
		return loop.Action{Kind: loop.StartTrainStep, Lease: lease, Attempt: attempt}
	}
	trained := func(g loop.GroupID) loop.Action {
		return loop.Action{Kind: loop.GroupTrained, Group: g, Count: 1, Version: loop.Version(g) - 1}
	}
	for g := loop.GroupID(1); g <= 3; g++ {
		r.Observe(loop.Event{Kind: loop.Tick}, metrics.Measured{}, []loop.Action{{Kind: loop.StartRollout, Group: g, Attempt: 1}})
	}
	at(2, loop.Tick, 0, 0, start(1, 1))             // idle 0–2
	at(12, loop.TrainStepEnded, 1, 1, trained(1))   // busy 2–12
	at(15, loop.Tick, 0, 0, start(2, 1))            // idle 12–15
	at(16, loop.TrainStepFailed, 1, 1)              // late: of a lease that is over
	at(20, loop.TrainStepFailed, 2, 1, start(2, 2)) // busy 15–20, and at once again
	at(30, loop.LeaseReturned, 2, 2)                // busy 20–30
	at(37, loop.Tick, 0, 0, start(3, 1))            // idle 30–37
	at(40, loop.TrainStepEnded, 3, 1, trained(2))   // busy 37–40
	at(40, loop.Tick, 0, 0, start(4, 1))            // no pause
	at(50, loop.TrainStepEnded, 4, 1, trained(3))   // busy 40–50
	if s := r.Summary(); math.Abs(s.TrainerIdleRatio-12.0/50) > 1e-12 || s.Steps != 3 || s.WindowS != 50 {
		t.Errorf("idle %v over %v s and %d steps, want 12 of 50 s and 3", s.TrainerIdleRatio, s.WindowS, s.Steps)
	}
	for i, want := range []float64{2.0 / 12, 10.0 / 28, 0} {
		if got := r.Steps[i].TrainerIdle; math.Abs(got-want) > 1e-12 {
			t.Errorf("step %d idles %v of its period, want %v", i+1, got, want)
		}
	}
}

// What came before the measured window counts in the series alone.
func TestWarmupIsLeftOut(t *testing.T) {
	plan := looptest.Draw(2)
	plan.Faults = looptest.Faults{}
	plan.Config.TrainSteps = 0
	w, err := looptest.NewWorld(plan)
	if err != nil {
		t.Fatal(err)
	}
	w.Keep = true
	if err := w.Run(3000); err != nil {
		t.Fatal(err)
	}
	all, late := metrics.NewRecorder(plan.Config), metrics.NewRecorder(plan.Config)
	late.Warmup = 10
	var after []float64
	for _, r := range w.Log {
		for _, a := range r.Actions {
			if a.Kind == loop.GroupTrained && a.Version >= 10 {
				total, _, _ := a.Staleness()
				after = append(after, float64(total))
			}
		}
		all.Observe(r.Event, metrics.Measured{}, r.Actions)
		late.Observe(r.Event, metrics.Measured{}, r.Actions)
	}
	a, b := all.Summary(), late.Summary()
	if a.Steps < 15 || b.Steps != a.Steps-10 || len(late.Steps) != len(all.Steps) {
		t.Fatalf("%d steps with and %d without warm-up, series of %d and %d", a.Steps, b.Steps, len(all.Steps), len(late.Steps))
	}
	if math.Abs(b.Staleness.Mean-mean(after)) > 1e-12 {
		t.Errorf("staleness %v after warm-up, want %v", b.Staleness.Mean, mean(after))
	}
	if want := float64(all.Steps[len(all.Steps)-1].TimeNS-all.Steps[9].TimeNS) / 1e9; b.WindowS < want {
		t.Errorf("the window is %v s, the steps in it take %v", b.WindowS, want)
	}
}

func TestQuantiles(t *testing.T) {
	for _, test := range []struct {
		histogram []int64
		p         float64
		want      loop.Version
	}{
		{nil, 0.5, 0}, {[]int64{0, 0}, 0.5, 0}, {[]int64{1}, 0.99, 0},
		{[]int64{5, 5}, 0.5, 0}, {[]int64{5, 6}, 0.5, 1}, {[]int64{0, 0, 3}, 0, 2},
		{[]int64{94, 0, 1, 5}, 0.95, 2}, {[]int64{94, 0, 0, 6}, 0.95, 3}, {[]int64{1, 1, 1, 1}, 1, 3},
	} {
		if got := metrics.Quantile(test.histogram, test.p); got != test.want {
			t.Errorf("quantile %v of %v is %d, want %d", test.p, test.histogram, got, test.want)
		}
	}
}

// The interval covers the true mean about as often as it says, correlated steps or not.
func TestIntervalCovers(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	covered, runs := 0, 400
	for range runs {
		r := metrics.NewRecorder(loop.Config{GroupSize: 1, BatchGroups: 1, EngineSlots: []int{1}, QueueGroups: 1})
		level := 0.0
		for step := range 400 {
			level = 0.6*level + rng.NormFloat64()
			r.Steps = append(r.Steps, metrics.Step{TimeNS: int64(step + 1), Staleness: 4 + level})
		}
		ci := r.Summary().Confidence.StalenessMean95
		if ci[0] <= 4 && 4 <= ci[1] {
			covered++
		}
	}
	if share := float64(covered) / float64(runs); share < 0.90 || share > 0.98 {
		t.Errorf("the 95 %% interval covered the mean in %.1f %% of runs", 100*share)
	}
}

// A group that lives on while thousands come and go keeps its place.
func TestStragglersAreRemembered(t *testing.T) {
	cfg := loop.Config{GroupSize: 1, BatchGroups: 1, EngineSlots: []int{2}, QueueGroups: 1}
	r := metrics.NewRecorder(cfg)
	start := func(g loop.GroupID, slot int32) loop.Action {
		return loop.Action{Kind: loop.StartRollout, Group: g, Slot: slot, Attempt: 1}
	}
	scored := func(g loop.GroupID, slot, tokens int32) loop.Event {
		return loop.Event{Kind: loop.RolloutScored, Group: g, Slot: slot, Attempt: 1, Tokens: tokens}
	}
	r.Observe(loop.Event{Kind: loop.RunStarted}, metrics.Measured{}, []loop.Action{start(1, 0), start(2, 1)})
	for g := loop.GroupID(2); g < 5000; g++ {
		r.Observe(scored(g, 1, 10), metrics.Measured{}, []loop.Action{{Kind: loop.GroupEnded, Group: g, End: loop.EndEvicted, Count: 1}, start(g+1, 1)})
	}
	r.Observe(scored(1, 0, 777), metrics.Measured{}, nil)
	if n := r.GroupTokens(1); n != 777 {
		t.Errorf("the straggler's group has %d tokens, want 777", n)
	}
	if n := r.GroupTokens(4000); n != 0 {
		t.Errorf("a group that ended has %d tokens", n)
	}
}

// Observing does not allocate once the series has room.
func TestObserveDoesNotAllocate(t *testing.T) {
	cfg := loop.Config{GroupSize: 1, BatchGroups: 1, EngineSlots: []int{1}, QueueGroups: 1}
	r := metrics.NewRecorder(cfg)
	r.Grow(3000)
	g, now := loop.GroupID(1), int64(0)
	actions := make([]loop.Action, 0, 3) // the loop's, too, are its own
	step := func() {
		now += 5
		actions = append(actions[:0], loop.Action{Kind: loop.GroupQueued, Group: g}, loop.Action{Kind: loop.StartTrainStep, Lease: loop.LeaseID(g)})
		r.Observe(loop.Event{Time: now, Kind: loop.RolloutScored, Group: g, Attempt: 1, Tokens: 5}, metrics.Measured{}, actions)
		now += 5
		actions = append(actions[:0],
			loop.Action{Kind: loop.GroupTrained, Group: g, Count: 1, Version: loop.Version(g) - 1, ReadyVersion: loop.Version(g) - 1, StartVersion: loop.Version(g) - 1},
			loop.Action{Kind: loop.LoadWeights, Version: loop.Version(g)}, loop.Action{Kind: loop.StartRollout, Group: g + 1, Attempt: 1})
		r.Observe(loop.Event{Time: now, Kind: loop.TrainStepEnded}, metrics.Measured{}, actions)
		g++
	}
	r.Observe(loop.Event{Kind: loop.RunStarted}, metrics.Measured{}, []loop.Action{{Kind: loop.StartRollout, Group: 1, Attempt: 1}})
	step()
	if n := testing.AllocsPerRun(1000, step); n != 0 {
		t.Errorf("%v allocations a step, want none", n)
	}
}
