package replay

import (
	"math"

	"github.com/headway-rl/headway/observe/estimate"
	"github.com/headway-rl/headway/observe/metrics"
)

// Estimate is a mean over the measured window of a resimulation. Its intervals say what the
// window's length leaves open, not what the model leaves out: docs/what-if-accuracy.md has that.
type Estimate struct {
	Mean float64 `json:"mean"`
	// Interval95 is by batch means over train steps, nil where they are too few.
	Interval95 *[2]float64 `json:"interval_95"`
	// Difference from the run's own settings, resimulated, with its interval. The interval is by batch means of the
	// differences at the same place of the run, whose rollouts and steps are the same. Nil for the run's own settings
	// themselves.
	Difference   *float64    `json:"difference"`
	Difference95 *[2]float64 `json:"difference_95"`
}

// estimated are the figures that have an estimate: each is the ratio of two sums over train steps.
var estimated = []struct {
	key string
	of  func(*metrics.Step) (num, den float64)
}{
	{"staleness_mean", func(s *metrics.Step) (float64, float64) { return s.Staleness, 1 }},
	{"pqs", func(s *metrics.Step) (float64, float64) { return s.PQS, 1 }},
	{"iqs", func(s *metrics.Step) (float64, float64) { return s.IQS, 1 }},
	{"token_staleness", func(s *metrics.Step) (float64, float64) {
		return s.TokenStaleness * float64(s.Tokens), float64(s.Tokens)
	}},
	{"period_s", func(s *metrics.Step) (float64, float64) { return float64(s.PeriodNS) / 1e9, 1 }},
	{"trainer_idle_ratio", func(s *metrics.Step) (float64, float64) {
		return s.TrainerIdle * float64(s.PeriodNS), float64(s.PeriodNS)
	}},
	{"rollout_idle_ratio", func(s *metrics.Step) (float64, float64) {
		return s.RolloutIdle * float64(s.PeriodNS), float64(s.PeriodNS)
	}},
	{"tokens_per_s", func(s *metrics.Step) (float64, float64) { return float64(s.Tokens), float64(s.PeriodNS) / 1e9 }},
}

// Estimates returns the figures of a resimulation by name: staleness_mean, pqs, iqs, token_staleness, period_s,
// trainer_idle_ratio, rollout_idle_ratio and tokens_per_s. Argument own is the resimulation of the run's own settings
// that they are compared with; nil compares with nothing.
func Estimates(again Resimulation, own *Resimulation) map[string]Estimate {
	out := map[string]Estimate{}
	window := measuredSteps(again)
	for _, figure := range estimated {
		num, den := make([]float64, len(window)), make([]float64, len(window))
		for i := range window {
			num[i], den[i] = figure.of(&window[i])
		}
		all := estimate.OfRatio(num, den)
		if math.IsNaN(all.Mean) {
			continue
		}
		e := Estimate{Mean: all.Mean, Interval95: bounds(all)}
		if own != nil {
			e.Difference, e.Difference95 = difference(num, den, measuredSteps(*own), figure.of)
		}
		out[figure.key] = e
	}
	return out
}

// measuredSteps are the steps of the measured window.
func measuredSteps(again Resimulation) []metrics.Step {
	for i := range again.Series {
		if int(again.Series[i].Step) > again.Warmup {
			return again.Series[i:]
		}
	}
	return nil
}

// difference compares a figure's terms with those of the run's own settings, block by block: the
// shorter of both has as many blocks as steps, so that each holds the same place of the run.
func difference(num, den []float64, own []metrics.Step, of func(*metrics.Step) (float64, float64)) (*float64, *[2]float64) {
	ownNum, ownDen := make([]float64, len(own)), make([]float64, len(own))
	for i := range own {
		ownNum[i], ownDen[i] = of(&own[i])
	}
	n := min(len(num), len(own))
	if n == 0 {
		return nil, nil
	}
	a, b := inBlocks(num, den, n), inBlocks(ownNum, ownDen, n)
	for i := range a {
		a[i] -= b[i]
	}
	all := estimate.OfSeries(a)
	// The mean is that of the means: blocks only say how far it may be off.
	by := estimate.OfRatio(num, den).Mean - estimate.OfRatio(ownNum, ownDen).Mean
	all.Mean = by
	return &by, bounds(all)
}

// inBlocks is the contribution of each of n blocks of steps to the ratio of sums, times n.
func inBlocks(num, den []float64, n int) []float64 {
	ratio := estimate.OfRatio(num, den).Mean
	var weights float64
	for _, w := range den {
		weights += w
	}
	blocks := make([]float64, n)
	for i := range blocks {
		from, to := i*len(num)/n, (i+1)*len(num)/n
		var residual float64
		for k := from; k < to; k++ {
			residual += num[k] - ratio*den[k]
		}
		blocks[i] = ratio + residual*float64(n)/weights
	}
	return blocks
}

// bounds are the ends of an interval, nil for none.
func bounds(v estimate.Interval) *[2]float64 {
	if !v.Known() || math.IsNaN(v.Half) {
		return nil
	}
	return &[2]float64{v.Low(), v.High()}
}
