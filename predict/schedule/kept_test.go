package schedule

import (
	"testing"
)

// What is kept between Inputs changes no figure: whatever they differ in, each has the one that it has alone.
func TestKeptChangesNothing(t *testing.T) {
	first := typical(t)
	first.Train = Phase{S: 2, GPUs: 16, FixedS: 2} // so that the bound on groups ahead binds
	first.SlotsPerEngine = 128
	changes := []func(*Input){
		func(*Input) {},
		func(in *Input) { in.Lengths = lognormal(t, 900, 40, 8192) },
		func(in *Input) { in.Train.S, in.Train.FixedS = 2*in.Train.S, in.Train.S },
		func(in *Input) { in.SyncS += 3 },
		func(in *Input) { in.LoadS += 30 },
		func(in *Input) { in.Decode = Constant(40) },
		func(in *Input) {
			in.Decode = Sampled(func(n int) float64 { return 0.01 + 1e-4*float64(n) }, in.SlotsPerEngine)
		},
		func(in *Input) {
			in.Decode = Sampled(func(n int) float64 { return 0.02 + 1e-4*float64(n) }, in.SlotsPerEngine)
		},
		func(in *Input) { in.Threshold = 0.9 },
		func(in *Input) { in.Pieces = 1 },
		func(in *Input) { in.BatchGroups *= 2 },
		func(in *Input) { in.GroupSize *= 2 },
		func(in *Input) { in.SlotsPerEngine /= 4 },
		func(in *Input) { in.RolloutGPUs = 2 },
		func(in *Input) { in.WholeGroups, in.SlotsPerEngine = true, 4*in.GroupSize },
	}
	kept := new(Kept)
	for round := range 2 {
		for i, change := range changes {
			in := first
			change(&in)
			in = in.WithDefaults()
			with := in
			with.Kept = kept
			moved := i == 0
			for _, name := range Names() {
				a := in.Arm(name)
				base := first.WithDefaults()
				moved = moved || in.ClosedS(a) != base.ClosedS(base.Arm(name))
				if got, want := with.ClosedS(a), in.ClosedS(a); got != want {
					t.Errorf("round %d, change %d, %s: %g s beside what was kept, %g s alone", round, i, name, got, want)
				}
				if got, want := with.BarrierS(a.RolloutGPUs), in.BarrierS(a.RolloutGPUs); got != want {
					t.Errorf("round %d, change %d, %s: a barrier of %g s beside what was kept, %g s alone", round, i, name, got, want)
				}
			}
			if !moved {
				t.Errorf("change %d moves no figure, and tests nothing", i)
			}
		}
	}
}
