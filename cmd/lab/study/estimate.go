package study

import (
	"encoding/json"
	"fmt"
	"math"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Estimate is a mean over seeds with half the width of its 95 % interval by Student's law. Half is
// NaN for one seed, whose mean is no result.
type Estimate struct {
	Mean, Half float64
}

// MarshalJSON writes the mean and the ends of the interval, null where there is none.
func (e Estimate) MarshalJSON() ([]byte, error) {
	type ends struct {
		Mean       *float64    `json:"mean"`
		Interval95 *[2]float64 `json:"interval_95"`
	}
	var out ends
	if !math.IsNaN(e.Mean) && !math.IsInf(e.Mean, 0) {
		out.Mean = &e.Mean
		if !math.IsNaN(e.Half) {
			out.Interval95 = &[2]float64{e.Mean - e.Half, e.Mean + e.Half}
		}
	}
	return json.Marshal(out)
}

// estimateOf is over the values of all seeds; not a number without any.
func estimateOf(values []float64) Estimate {
	switch len(values) {
	case 0:
		return Estimate{math.NaN(), math.NaN()}
	case 1:
		return Estimate{values[0], math.NaN()}
	}
	mean, sd := stat.MeanStdDev(values, nil)
	n := float64(len(values))
	return Estimate{mean, distuv.StudentsT{Sigma: 1, Nu: n - 1}.Quantile(0.975) * sd / math.Sqrt(n)}
}

// print writes the mean and half the interval's width, with so many decimals.
func (e Estimate) print(decimals int) string {
	switch {
	case math.IsNaN(e.Mean):
		return "–"
	case math.IsNaN(e.Half):
		return fmt.Sprintf("%.*f", decimals, e.Mean)
	}
	return fmt.Sprintf("%.*f ± %.*f", decimals, e.Mean, decimals, e.Half)
}

// change writes a ratio as a change in per cent.
func (e Estimate) change() string {
	switch {
	case math.IsNaN(e.Mean):
		return "–"
	case math.IsNaN(e.Half):
		return fmt.Sprintf("%+.1f %%", 100*(e.Mean-1))
	}
	return fmt.Sprintf("%+.1f ± %.1f %%", 100*(e.Mean-1), 100*e.Half)
}

// point is one rule in one cell over its seeds.
type point []Figures

// failed returns why a seed failed, "" if none did.
func (p point) failed() string {
	for _, f := range p {
		if f.Failed != "" {
			return f.Failed
		}
	}
	return ""
}

// mean is a figure's.
func (p point) mean(of func(Figures) float64) Estimate {
	var values []float64
	for _, f := range p {
		if f.Failed == "" {
			values = append(values, of(f))
		}
	}
	return estimateOf(values)
}

// ratio is a figure's to that of a base, seed by seed.
func (p point) ratio(base point, of func(Figures) float64) Estimate {
	var values []float64
	for i, f := range p {
		if f.Failed == "" && i < len(base) && base[i].Failed == "" {
			values = append(values, of(f)/of(base[i]))
		}
	}
	return estimateOf(values)
}

// The figures that tables are made of.
func staleness(f Figures) float64      { return f.Staleness }
func tokenStaleness(f Figures) float64 { return f.TokenStaleness }
func p95(f Figures) float64            { return f.P95 }
func trainerIdle(f Figures) float64    { return f.TrainerIdle }
func bound(f Figures) float64          { return f.Bound }
func period(f Figures) float64         { return f.Period }
func length(f Figures) float64         { return f.Length }
func wasted(f Figures) float64         { return f.Wasted }
func rolloutIdle(f Figures) float64    { return f.RolloutIdle }
