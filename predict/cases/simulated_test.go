package cases

import (
	"testing"

	"github.com/headway-rl/headway/predict/schedule"
)

// simulated is a row's step by the loop.
func simulated(t *testing.T, in schedule.Input, name schedule.Name) (float64, error) {
	in.Warmup, in.Batches = 6, 24
	out, err := schedule.SimulateWithin(t.Context(), in, in.Arm(name), 8<<20)
	return out.Parts.StepS, err
}
