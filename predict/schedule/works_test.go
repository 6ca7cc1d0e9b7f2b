package schedule

import (
	"context"
	"errors"
	"math"
	"testing"
)

// The recorded work of every schedule is in an order that can be: a batch begins before it is ready, is ready before
// its step, and its weights go out after that. Its steps and syncs are as long as the parts of the mean batch say.
func TestWorks(t *testing.T) {
	in := typical(t).WithDefaults()
	for _, name := range Names() {
		o, err := Simulate(in, in.Arm(name))
		if err != nil {
			t.Fatal(err)
		}
		w := o.Works
		if want := ganttBatches*o.Arm.Pieces + 1; len(w.Steps) != want { // with the one that the stretch begins after
			t.Errorf("%s: %d steps recorded, want %d", name, len(w.Steps), want)
		}
		train := 0.0
		for i, s := range w.Steps {
			if !(s.BeganS < s.FirstReadyS && s.FirstReadyS <= s.ReadyS && s.ReadyS <= s.FromS+1e-9 && s.FromS < s.ToS) || s.Oldest > s.Newest || s.Newest >= s.Version {
				t.Errorf("%s: %+v is in no order that can be", name, s)
			}
			if i > 0 && (s.Version != w.Steps[i-1].Version+1 || s.FromS < w.Steps[i-1].ToS-1e-9) {
				t.Errorf("%s: step %d follows %d", name, s.Version, w.Steps[i-1].Version)
			}
			if (name == Colocated || name == Synchronous) && s.Oldest != s.Version-1 {
				t.Errorf("%s trains version %d on version %d", name, s.Version, s.Oldest)
			}
			if name == OneStepOff && i > 0 && s.BeganS >= w.Steps[i-1].ToS {
				t.Errorf("%s: batch of version %d begins when the step before has ended", name, s.Version)
			}
			train += s.ToS - s.FromS
		}
		train *= float64(o.Arm.Pieces) / float64(len(w.Steps))
		if want := o.Parts.TrainS + o.Parts.LogProbS; math.Abs(train-want) > 0.2*want {
			t.Errorf("%s: steps of %.2f s, the parts say %.2f", name, train, want)
		}
		for _, s := range w.Syncs {
			if s.ToS < s.FromS || s.ToS-s.FromS > 10*o.Arm.SyncS+100 {
				t.Errorf("%s: sync %+v", name, s)
			}
		}
		if len(w.Syncs) == 0 {
			t.Errorf("%s: no sync recorded", name)
		}
	}
}

// A schedule is simulated for no more than so many events, and as long as somebody waits for it.
func TestSimulateWithin(t *testing.T) {
	in := typical(t).WithDefaults()
	left, leave := context.WithCancel(t.Context())
	leave()
	for _, name := range Names() {
		a := in.Arm(name)
		if _, err := SimulateWithin(t.Context(), in, a, 100); !errors.Is(err, ErrTooMuch) {
			t.Errorf("%s in 100 events: %v", name, err)
		}
		if _, err := SimulateWithin(left, in, a, math.MaxInt64); !errors.Is(err, context.Canceled) {
			t.Errorf("%s for nobody: %v", name, err)
		}
	}
}
