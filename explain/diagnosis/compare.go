package diagnosis

import (
	"math"

	"github.com/headway-rl/headway/predict/theory"
)

// Ways in which a figure was come by.
const (
	methodClosedForm   = "closed_form"
	methodSimulation   = "simulation"
	methodResimulation = "resimulation"
	methodBefore       = "before_the_run"
)

// compared puts measured figures beside predicted ones.
func (f *facts) compared() []Comparison {
	var list []Comparison
	add := func(what string, m measured, predicted float64, ok bool, method string) {
		if m.known && ok && !math.IsNaN(predicted) {
			list = append(list, Comparison{What: what, Measured: m.value, Half: m.half, Predicted: predicted, Method: method})
		}
	}
	if f.unfit == "" && f.uncovered == "" {
		p := &f.predicted
		mean, ok := MeanOf(p)
		add("staleness_mean", f.staleness, mean, ok, methodClosedForm)
		v, ok := p.Corrected.PQS.Value()
		add("pqs", f.pqs, v, ok, methodClosedForm)
		v, ok = p.Corrected.IQS.Value()
		add("iqs", f.iqs, v, ok, methodClosedForm)
		v, ok = p.Staleness.P95.Value()
		add("staleness_p95", f.p95, v, ok, methodClosedForm)
		relative, ok := periodOf(p)
		add("period_s", f.period, relative*f.in.StepS, ok && f.in.StepS > 0, methodClosedForm)
		add("trainer_idle_ratio", f.trainerIdle, 1-1/math.Max(relative, 1), ok && f.in.SyncTrainer == theory.TrainerFree && f.in.SyncTimeS == 0, methodClosedForm)
	}
	if f.again != nil {
		base := f.again.base
		add("staleness_mean", f.staleness, base.staleness.Mean, true, methodResimulation)
		add("pqs", f.pqs, base.pqs, true, methodResimulation)
		add("iqs", f.iqs, base.iqs, true, methodResimulation)
		add("staleness_p95", f.p95, base.p95, true, methodResimulation)
		add("period_s", f.period, base.period.Mean, true, methodResimulation)
		add("trainer_idle_ratio", f.trainerIdle, base.trainerIdle, true, methodResimulation)
		add("rollout_idle_ratio", f.rolloutIdle, base.rolloutIdle, true, methodResimulation)
	}
	if f.model != nil {
		base := f.model.base
		add("staleness_mean", f.staleness, base.staleness.Mean, true, methodSimulation)
		add("pqs", f.pqs, base.pqs, true, methodSimulation)
		add("iqs", f.iqs, base.iqs, true, methodSimulation)
		add("period_s", f.period, base.period.Mean, f.fitted.StepS.Known(), methodSimulation)
		add("trainer_idle_ratio", f.trainerIdle, base.trainerIdle, true, methodSimulation)
	}
	if f.own != nil && f.own.before != nil {
		b := f.own.before
		for _, c := range []struct {
			what string
			m    measured
			v    *float64
		}{{"staleness_mean", f.staleness, b.StalenessMean}, {"pqs", f.pqs, b.PQS}, {"iqs", f.iqs, b.IQS}, {"period_s", f.period, b.PeriodS}} {
			if c.v != nil {
				add(c.what, c.m, *c.v, true, methodBefore)
			}
		}
	}
	return list
}
