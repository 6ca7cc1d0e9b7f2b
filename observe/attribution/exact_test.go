package attribution_test

import (
	"math"
	"testing"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/looptest"
	"github.com/headway-rl/headway/observe/attribution"
	"github.com/headway-rl/headway/observe/metrics"
)

// world records a loop driven through faults, stalls and restarts.
func world(t *testing.T, seed uint64, n int) (loop.Config, []looptest.Record) {
	t.Helper()
	plan := looptest.Draw(seed).WithCells()
	plan.Faults.Garbage, plan.Faults.Reversed = 0, 0
	w, err := looptest.NewWorld(plan)
	if err != nil {
		t.Fatal(err)
	}
	w.Keep = true
	if err := w.Run(n); err != nil {
		t.Fatal(err)
	}
	return plan.Config, w.Log
}

// staleness collects what a record's trained groups are due.
func staleness(rec looptest.Record) (all []loop.Action) {
	for _, a := range rec.Actions {
		if a.Kind == loop.GroupTrained {
			all = append(all, a)
		}
	}
	return all
}

// TestPartsAddUp drives loops of all kinds and holds every trained group's parts to its
// staleness, exactly; the idle shares to the recorder's; and Little's identity.
func TestPartsAddUp(t *testing.T) {
	trained, sources := 0, attribution.Split{}
	for seed := range uint64(250) {
		cfg, log := world(t, seed, 600)
		recorder, o := metrics.NewRecorder(cfg), attribution.New(cfg)
		recorder.Beside = o
		var got []attribution.Group
		o.OnGroup = func(g attribution.Group) { got = append(got, g) }
		queue, err := loop.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range log {
			got = got[:0]
			queue.Step(r.Event)
			recorder.Observe(r.Event, metrics.Measured{QueueGroups: queue.QueueGroups()}, r.Actions)
			for i, a := range staleness(r) {
				want, _, _ := a.Staleness()
				if len(got) <= i || got[i].ID != a.Group || got[i].Staleness != want || got[i].Split.Sum() != float64(want) {
					t.Fatalf("seed %d: %v has staleness %d, and parts %+v", seed, a, want, got)
				}
				for s, part := range got[i].Split {
					if part < 0 {
						t.Fatalf("seed %d: %v has a negative part: %+v", seed, a, got[i])
					}
					sources[s] += part
				}
				trained++
			}
		}
		a, m := o.Summary(), recorder.Summary()
		if math.Abs(a.Trainer.Total-m.TrainerIdleRatio) > 1e-12 || math.Abs(a.Engines.Total-m.RolloutIdleRatio) > 1e-12 {
			t.Errorf("seed %d: idle %g and %g, the recorder has %g and %g", seed, a.Trainer.Total, a.Engines.Total, m.TrainerIdleRatio, m.RolloutIdleRatio)
		}
		if a.Little.Mismatch != 0 {
			t.Errorf("seed %d: %+v (%v)", seed, a.Little, cfg)
		}
	}
	if trained < 3000 {
		t.Errorf("only %d groups were trained", trained)
	}
	t.Log(trained, sources)
}
