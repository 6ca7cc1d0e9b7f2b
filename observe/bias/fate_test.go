package bias_test

import (
	"math"
	"testing"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/bias"
)

// start and end make what scripts by hand are of.
func start(g loop.GroupID, sample, attempt, slot int32) loop.Action {
	return loop.Action{Kind: loop.StartRollout, Group: g, Sample: sample, Attempt: attempt, Slot: slot}
}

func end(kind loop.EventKind, g loop.GroupID, sample, attempt, slot, tokens int32) loop.Event {
	return loop.Event{Kind: kind, Group: g, Sample: sample, Attempt: attempt, Slot: slot, Tokens: tokens}
}

// Attempts that failed, were pruned, cancelled or come late count for nothing trained; first
// attempts alone are started.
func TestFates(t *testing.T) {
	cfg := loop.Config{GroupSize: 3, BatchGroups: 1, EngineSlots: []int{8}, QueueGroups: 1, Redundancy: 1, Prompts: 3}
	lengths := map[[2]int32]int32{{0, 1}: 10, {1, 1}: 900, {1, 2}: 20, {2, 1}: 700, {3, 1}: 30}
	for _, known := range []bool{true, false} {
		opt := bias.Options{}
		if known {
			opt.Known = func(a loop.Action) (int32, int64) { return lengths[[2]int32{a.Sample, a.Attempt}], 0 }
		}
		o := bias.NewObserver(cfg, opt)
		observe(o, loop.Event{Kind: loop.RunStarted}, start(1, 0, 1, 0), start(1, 1, 1, 1), start(1, 2, 1, 2), start(1, 3, 1, 3))
		observe(o, end(loop.RolloutInterrupted, 1, 0, 1, 0, 4))
		observe(o, end(loop.RolloutScored, 1, 0, 1, 0, 99)) // late: it stands interrupted
		observe(o, end(loop.RolloutFailed, 1, 1, 1, 1, 0), start(1, 1, 2, 1))
		pruned := end(loop.RolloutScored, 1, 2, 1, 2, 500)
		pruned.Mark, pruned.Reward = loop.MarkPruned, float32(math.NaN())
		observe(o, pruned)
		observe(o, loop.Event{Kind: loop.Tick}, loop.Action{Kind: loop.ResumeRollout, Group: 1, Sample: 0, Attempt: 1, Slot: 5})
		observe(o, end(loop.RolloutScored, 1, 0, 1, 5, 10))
		observe(o, end(loop.RolloutScored, 1, 1, 1, 1, 900)) // late: of an attempt that failed
		observe(o, end(loop.RolloutScored, 1, 1, 2, 1, 20), loop.Action{Kind: loop.AbortRollout, Group: 1, Sample: 3, Attempt: 1, Slot: 3}, loop.Action{Kind: loop.GroupQueued, Group: 1})
		observe(o, end(loop.RolloutScored, 1, 3, 1, 3, 30)) // it had been cancelled
		observe(o, loop.Event{Kind: loop.TrainStepEnded}, loop.Action{Kind: loop.GroupTrained, Group: 1, Count: 2})
		r := o.Report()
		want := bias.Property{Started: 2, Trained: 2, StartedMean: 15, TrainedMean: 15}
		censored := 0.5
		if known {
			want, censored = bias.Property{Started: 4, Trained: 2, StartedMean: (10 + 900 + 700 + 30) / 4.0, TrainedMean: 15}, 0
		}
		if p := r.Length; p.Started != want.Started || p.Trained != want.Trained || p.StartedMean != want.StartedMean || p.TrainedMean != want.TrainedMean {
			t.Errorf("known %v: started %d of mean %g, trained %d of mean %g, want %d, %g, %d and %g", known, p.Started, p.StartedMean, p.Trained, p.TrainedMean,
				want.Started, want.StartedMean, want.Trained, want.TrainedMean)
		}
		if r.CensoredShare != censored || r.Environment != nil {
			t.Errorf("known %v: %g censored, want %g", known, r.CensoredShare, censored)
		}
	}
}

// A buffer that trains on a group three times counts its rollouts three times as trained.
func TestReuseCounts(t *testing.T) {
	cfg := loop.Config{GroupSize: 1, BatchGroups: 1, EngineSlots: []int{2}, QueueGroups: 2, Policy: loop.PolicyReplay, MaxUses: 3}
	o := bias.NewObserver(cfg, bias.Options{})
	observe(o, loop.Event{Kind: loop.RunStarted}, start(1, 0, 1, 0), start(2, 0, 1, 1))
	observe(o, end(loop.RolloutScored, 1, 0, 1, 0, 100))
	observe(o, end(loop.RolloutScored, 2, 0, 1, 1, 200))
	for v := range loop.Version(3) {
		observe(o, loop.Event{Kind: loop.TrainStepEnded}, loop.Action{Kind: loop.GroupTrained, Group: 1, Version: v})
	}
	observe(o, loop.Event{Kind: loop.Tick}, loop.Action{Kind: loop.GroupEnded, Group: 1, End: loop.EndTrained}, loop.Action{Kind: loop.GroupEnded, Group: 2, End: loop.EndEvicted})
	r := o.Report()
	if p := r.Length; p.Started != 2 || p.StartedMean != 150 || p.Trained != 3 || p.TrainedMean != 100 || r.TrainedGroups != 1 {
		t.Errorf("%+v", p)
	}
}

// Groups that live on while thousands come and go keep their place and their samples.
func TestStragglersAreKept(t *testing.T) {
	cfg := loop.Config{GroupSize: 2, BatchGroups: 1, EngineSlots: []int{4}, QueueGroups: 1}
	o := bias.NewObserver(cfg, bias.Options{})
	observe(o, loop.Event{Kind: loop.RunStarted}, start(1, 0, 1, 0), start(1, 1, 1, 1))
	observe(o, end(loop.RolloutScored, 1, 0, 1, 0, 1000))
	for g := loop.GroupID(2); g < 3000; g++ {
		observe(o, loop.Event{Kind: loop.Tick}, start(g, 0, 1, 2), loop.Action{Kind: loop.GroupEnded, Group: g, End: loop.EndFailed})
	}
	observe(o, end(loop.RolloutScored, 1, 1, 1, 1, 3000))
	observe(o, loop.Event{Kind: loop.TrainStepEnded}, loop.Action{Kind: loop.GroupTrained, Group: 1})
	if p := o.Report().Length; p == nil || p.Trained != 2 || p.TrainedMean != 2000 {
		t.Errorf("%+v", p)
	}
}

// Environment times are compared as lengths are, in seconds.
func TestEnvironmentTimes(t *testing.T) {
	r := null.play(bias.Options{})
	if e := r.Environment; e == nil || e.Unit != "seconds" || e.Started != r.Length.Started || e.StartedMean <= 0 || e.StartedMean > 0.01 {
		t.Errorf("%+v", e)
	}
}
