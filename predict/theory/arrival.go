package theory

import "math"

// arrivals are the ready groups of one setting, by time in steps.
type arrivals struct {
	dispersion *Dispersion
	acceptance float64
	unit       float64 // a mean rollout's time
	rho        float64
	groups     float64
}

// index is the index of dispersion over a window of so many steps.
func (a *arrivals) index(steps float64) float64 {
	return a.acceptance*a.dispersion.At(steps/a.unit) + 1 - a.acceptance
}

// growth is dV/dN, by how much the variance grows with every further arrival.
func (a *arrivals) growth(steps float64) float64 {
	const near = 0.15
	return ((1+near)*a.index((1+near)*steps) - (1-near)*a.index((1-near)*steps)) / (2 * near)
}

// latePoints is the resolution of the integral of [arrivals.late].
const latePoints = 32

// late is E[(X−1)⁺] for the time X, in steps, in which a batch arrives: the
// integral of P(N(x) < G) over x > 1, N(x) normal of mean ρGx and variance
// c²(x)·ρGx. The variance of the longer window counts, not that of the step: what
// is missing after one step arrives faster than on average. N is whole, hence
// the ½; a window that starts with an arrival (the share starved of them) has
// ½(1 − dV/dN) fewer arrivals than one that starts at any time.
func (a *arrivals) late(starved float64) float64 {
	// Beyond eight deviations from the mean a batch surely is, or is not, complete.
	reach := 8*math.Sqrt(a.index(1/a.rho)/a.groups)/a.rho + 2/(a.rho*a.groups)
	begin, end := max(1/a.rho-reach, 1), 1/a.rho+reach
	if end <= 1 {
		return 0
	}
	sum, last := 0.0, 0.0
	step := (end - begin) / latePoints
	need := 1 - (0.5-starved*(1-a.growth(1/a.rho))/2)/a.groups
	for i := range latePoints + 1 {
		x := begin + step*float64(i)
		short := normalCDF((a.rho*x - need) / -math.Sqrt(max(a.index(x)*a.rho*x/a.groups, 1e-12)))
		if i > 0 {
			sum += (short + last) / 2
		}
		last = short
	}
	return begin - 1 + sum*step
}
