package attribution_test

import (
	"math"
	"testing"

	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/workload"
	"github.com/headway-rl/headway/observe/attribution"
)

// TestIdleOverAnyNumberOfPauses: a trainer that is never short of a batch waits for every weight sync,
// and for nothing else. The share is that of one period, after one pause as after a hundred, and what
// the engines stand still is another figure, which does not add to it.
func TestIdleOverAnyNumberOfPauses(t *testing.T) {
	const stepNS, syncNS = 5e9, 2e9
	lengths, err := workload.LengthSpec{Kind: workload.KindLognormal, MeanTokens: 100, Tailness: 30, CapTokens: 400}.Build()
	if err != nil {
		t.Fatal(err)
	}
	accept, err := workload.NewAcceptance(1)
	if err != nil {
		t.Fatal(err)
	}
	for _, pauses := range []int{1, 2, 3, 10, 100} {
		cfg := sim.Config{Loop: loop.Config{GroupSize: 4, BatchGroups: 4, QueueGroups: 8, EngineSlots: []int{32, 32}, Sync: loop.SyncPause, TrainerBlocked: true},
			Work: sim.NewModelled(1, lengths, nil, accept, stepNS), NSPerToken: 10e6, SyncNS: syncNS, Warmup: 5, Measured: pauses}
		o := attribution.New(cfg.Loop)
		o.Warmup = 5
		cfg.Beside = o
		res, err := sim.Run(cfg)
		if err != nil {
			t.Fatal(err)
		}
		a, want := o.Summary(), syncNS/(stepNS+syncNS)
		if math.Abs(a.Trainer.Syncing-want) > 1e-9 || math.Abs(a.Trainer.Total-want) > 1e-9 || math.Abs(a.Trainer.Total-res.Summary.TrainerIdleRatio) > 1e-12 {
			t.Errorf("%d pauses: the trainer is idle %+v, want %g in each, and the recorder has %g", pauses, a.Trainer, want, res.Summary.TrainerIdleRatio)
		}
		// An engine's rollouts stand still; those that end at the very instant leave a slot free.
		if got := a.Standing.Syncing + a.Engines.Syncing; math.Abs(got-want) > 1e-9 || a.Standing.Syncing < 0.9*want {
			t.Errorf("%d pauses: engines stand still for %g and are idle for syncs for %g, want %g in all", pauses, a.Standing.Syncing, a.Engines.Syncing, want)
		}
		sum := 0.0
		for _, reason := range a.Engines.Reasons() {
			sum += reason.Share
		}
		if math.Abs(sum-a.Engines.Total) > 1e-12 || math.Abs(a.Engines.Total-res.Summary.RolloutIdleRatio) > 1e-12 {
			t.Errorf("%d pauses: engines are idle %+v, the recorder has %g", pauses, a.Engines, res.Summary.RolloutIdleRatio)
		}
	}
}

// A validation at the trainer, and one at the engines, is what the trainer waits for.
func TestValidationIsNamed(t *testing.T) {
	lengths, err := workload.LengthSpec{Kind: workload.KindLognormal, MeanTokens: 100, Tailness: 30, CapTokens: 400}.Build()
	if err != nil {
		t.Fatal(err)
	}
	accept, err := workload.NewAcceptance(1)
	if err != nil {
		t.Fatal(err)
	}
	for _, atTrainer := range []bool{true, false} {
		cfg := sim.Config{Loop: loop.Config{GroupSize: 4, BatchGroups: 4, QueueGroups: 4, EngineSlots: []int{32}},
			Work: sim.NewModelled(1, lengths, nil, accept, 1e9), NSPerToken: 10e6, Warmup: 4, Measured: 40,
			Validation: sim.Validation{Every: 4, NS: 20e9, Trainer: atTrainer}}
		o := attribution.New(cfg.Loop)
		o.Warmup = 4
		cfg.Beside = o
		res, err := sim.Run(cfg)
		if err != nil {
			t.Fatal(err)
		}
		a := o.Summary()
		if a.Trainer.Validating < 0.5 || math.Abs(a.Trainer.Total-res.Summary.TrainerIdleRatio) > 1e-12 {
			t.Errorf("at the trainer %t: idle %+v, the recorder has %g", atTrainer, a.Trainer, res.Summary.TrainerIdleRatio)
		}
		if (a.Standing.Validating > 0.5) == atTrainer {
			t.Errorf("at the trainer %t: engines stand %+v", atTrainer, a.Standing)
		}
	}
}
