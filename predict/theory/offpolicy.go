package theory

import (
	"fmt"
	"math"
)

// EffectiveShare returns the effective sample size over the number of samples
// where log importance weights are normal with the given variance: e^{−Var log w},
// the limit of (Σw)²/(N·Σw²) for many samples. Beyond a variance of about 1 a
// batch has too few samples for the limit, which is then too low.
func EffectiveShare(variance float64) float64 { return math.Exp(-variance) }

// LagGrowth is how the variance of the log-ratio grows with lag: Var(s) =
// AtOne·s^Exponent. Between 1, where every version adds independent noise, and 2,
// where all move the same way.
type LagGrowth struct {
	AtOne, Exponent float64
	// Usual reports an exponent between 1 and 2; beyond, the lags measured span too
	// little, or something else changes with lag.
	Usual bool
}

// At returns the variance at a lag in versions; 0 at lag 0.
func (g LagGrowth) At(lag float64) float64 { return g.AtOne * math.Pow(lag, g.Exponent) }

// FitLagGrowth fits it to variances measured at lags, by least squares of the
// logarithms, each lag counting once. It wants two different lags above 0 and
// positive variances; others are left out.
//
// A reference, of docs/theory.md, for the exponent that schedules are compared with.
func FitLagGrowth(lags, variances []float64) (LagGrowth, error) {
	if len(lags) != len(variances) {
		return LagGrowth{}, fmt.Errorf("lag growth: %d lags with %d variances: want one of each", len(lags), len(variances))
	}
	var n, x, y, xx, xy float64
	for i, lag := range lags {
		if !(lag > 0) || !(variances[i] > 0) || math.IsInf(lag, 0) || math.IsInf(variances[i], 0) {
			continue
		}
		a, b := math.Log(lag), math.Log(variances[i])
		n, x, y, xx, xy = n+1, x+a, y+b, xx+a*a, xy+a*b
	}
	spread := n*xx - x*x
	if n < 2 || spread < 1e-12 {
		return LagGrowth{}, fmt.Errorf("lag growth: %.0f usable lags of %d: want two different ones above 0, with variances above 0", n, len(lags))
	}
	g := LagGrowth{Exponent: (n*xy - x*y) / spread}
	g.AtOne = math.Exp((y - g.Exponent*x) / n)
	g.Usual = g.Exponent >= 1 && g.Exponent <= 2
	return g, nil
}
