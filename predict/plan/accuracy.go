package plan

import (
	"fmt"
	"math"
)

// Accuracy is how far closed forms were from the simulator on the finalists that
// have both, as shares of the simulated figure.
type Accuracy struct {
	// Finalists that have both figures.
	Finalists int `json:"finalists"`
	// Mean and largest absolute relative errors.
	StalenessMeanError float64 `json:"staleness_mean_error"`
	StalenessMaxError  float64 `json:"staleness_max_error"`
	PeriodMeanError    float64 `json:"period_mean_error"`
	PeriodMaxError     float64 `json:"period_max_error"`
	// P95Exact counts the finalists whose p95 agrees, P95Near those that are within a version.
	P95Exact int `json:"p95_exact"`
	P95Near  int `json:"p95_within_one"`
	// Regime of the recommended setting, and where its published error is to be found.
	Regime string `json:"regime"`
	Source string `json:"source"`
}

// nearOne bounds the utilizations around 1 where closed forms are least exact.
const nearOne = 0.1

// accuracy compares both answers wherever there are two.
func (s *search) accuracy() error {
	a := Accuracy{Source: "docs/theory-accuracy.md"}
	for i := range s.finals {
		c := &s.finals[i]
		if c.Predicted == nil || c.Simulated == nil {
			continue
		}
		a.Finalists++
		staleness := math.Abs(c.Predicted.StalenessMean/max(c.Simulated.StalenessMean, 1e-9) - 1)
		if c.Simulated.StalenessMean == 0 {
			staleness = c.Predicted.StalenessMean
		}
		period := math.Abs(c.Predicted.PeriodS/c.Simulated.PeriodS - 1)
		a.StalenessMeanError += staleness
		a.PeriodMeanError += period
		a.StalenessMaxError, a.PeriodMaxError = max(a.StalenessMaxError, staleness), max(a.PeriodMaxError, period)
		switch off := c.Predicted.StalenessP95 - c.Simulated.StalenessP95; {
		case off == 0:
			a.P95Exact, a.P95Near = a.P95Exact+1, a.P95Near+1
		case off == 1 || off == -1:
			a.P95Near++
		}
	}
	if a.Finalists > 0 {
		a.StalenessMeanError /= float64(a.Finalists)
		a.PeriodMeanError /= float64(a.Finalists)
	}
	a.Regime = s.plan.Recommended.regime()
	s.plan.Accuracy = a
	return nil
}

// regime names a setting's utilization as docs/theory-accuracy.md does. Where its simulation says that a rule had both sides
// wait, that binds and not one of them.
func (c *Candidate) regime() string {
	rho := c.Best().Utilization
	switch {
	case c.Simulated != nil && c.Simulated.Binding == "admission":
		return fmt.Sprintf("bound by admission (ρ %.2f)", rho)
	case math.Abs(rho-1) <= nearOne:
		return fmt.Sprintf("near balance (ρ %.2f)", rho)
	case rho < 1:
		return fmt.Sprintf("rollout-bound (ρ %.2f)", rho)
	}
	return fmt.Sprintf("train-bound (ρ %.2f)", rho)
}
