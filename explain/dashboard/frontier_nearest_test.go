package dashboard

import (
	"math"
	"strings"
	"testing"

	"github.com/headway-rl/headway/observe/metrics"
	"github.com/headway-rl/headway/predict/theory"
)

// A run whose rule has no closed form has the curve of the nearest one, with engines that do not wait, and no advice from
// it. Where no rule is near there is no curve.
func TestFrontierOfTheNearestRule(t *testing.T) {
	own := theory.Input{GroupSize: 8, ConcurrencyRollouts: 128, BatchRollouts: 128, QueueFactor: 2, Utilization: 0.95, TailMultiplier: 1.05, StepS: 0.02}
	for _, nearest := range []bool{true, false} {
		m := New(Options{Rules: rules(), Setting: func(metrics.Summary) (Setting, bool) {
			return Setting{Input: own, Uncovered: "policy bounded has no closed form", Nearest: nearest}, true
		}})
		f, err := m.Frontier(nil, nil)
		if err != nil || f.Cheapest != nil || !strings.Contains(strings.Join(f.Warnings, " "), "policy bounded has no closed form") {
			t.Errorf("%+v, %v", f, err)
		}
		if nearest != (len(f.Curve) > 0) || nearest != (f.Point.StalenessMean > 0) || nearest != strings.Contains(strings.Join(f.Warnings, " "), "queue-drop") {
			t.Errorf("nearest %v: %d points, here %+v, %q", nearest, len(f.Curve), f.Point, f.Warnings)
		}
	}
	in := own
	withoutWaiting(&in, metrics.Summary{RolloutIdleRatio: 0.5})
	if math.Abs(in.Utilization-1.9) > 1e-9 {
		t.Errorf("engines that wait half of the time have utilization %g without", in.Utilization)
	}
}
