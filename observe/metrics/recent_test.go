package metrics

import (
	"encoding/json"
	"math"
	"testing"
)

// Over a run that is no longer than what it looks back on, recent figures are those of the run; over a longer one they
// are those of its newest steps alone, also where the measured window began in between.
func TestRecentFiguresAreThoseOfTheirSteps(t *testing.T) {
	compared := 0
	for seed := range uint64(60) {
		o := draw(t, seed, 400)
		whole, late := NewRecorder(o.plan.Config), NewRecorder(o.plan.Config)
		var recent, after Recent
		late.Warmup = 3
		for i := range o.log {
			steps, measured := whole.window.steps, late.window.steps
			o.observe(whole, i, i+1)
			o.observe(late, i, i+1)
			if late.window.steps != measured {
				after.Stepped(late)
			}
			if whole.window.steps == steps {
				continue
			}
			recent.Stepped(whole)
			f, known := recent.Figures(whole)
			if !known || whole.window.steps > RecentSteps {
				continue
			}
			s := whole.Summary()
			for what, pair := range map[string][2]float64{"period": {f.PeriodS, s.PeriodS.Mean}, "step": {f.StepS, s.StepS.Mean}, "idle": {f.TrainerIdle, s.TrainerIdleRatio},
				"absent": {f.TrainerAbsent, s.TrainerAbsentRatio}, "engines": {f.RolloutIdle, s.RolloutIdleRatio}, "made": {f.Throughput.ProductionRolloutsPerS, s.Throughput.ProductionRolloutsPerS}} {
				if math.Abs(pair[0]-pair[1]) > 1e-9*math.Max(1, math.Abs(pair[1])) {
					t.Fatalf("seed %d, step %d: %s is %g, the run's %g", seed, whole.Version(), what, pair[0], pair[1])
				}
			}
			if f.Throughput.Binding != s.Throughput.Binding {
				t.Fatalf("seed %d, step %d: %q binds, in the run %q", seed, whole.Version(), f.Throughput.Binding, s.Throughput.Binding)
			}
			compared++
		}
		a, known := recent.Figures(whole)
		b, also := after.Figures(late)
		if known && also && whole.window.steps > RecentSteps+3 {
			x, _ := json.Marshal(a)
			y, _ := json.Marshal(b)
			if string(x) != string(y) {
				t.Errorf("seed %d: after a warm-up the newest steps are\n%s, want\n%s", seed, y, x)
			}
		}
	}
	if compared < 300 {
		t.Errorf("%d steps compared: too few to say anything", compared)
	}
}
