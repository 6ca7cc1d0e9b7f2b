package theory

import "math"

// The functions of this file are the corrections near ρ = 1 in closed form, where
// the queue is neither always empty nor always full (docs/theory.md, "The queue
// near balance"). Stock is the number of groups waiting above the batch being
// taken, in units of a batch, so it lives on [0, q−1]; c² is the index of
// dispersion of arrivals, see [Dispersion].

// StarvedPeriod returns T/t_step at q = 1, where a late group delays the step:
// E[max(1, X)] with X, the time a batch takes to arrive, normal of mean 1/ρ and
// standard deviation c/(ρ√G): 1 + (μ−1)Φ(d) + sφ(d) with d = (μ−1)/s.
//
// Valid for q = 1 and any ρ; it tends to max(1, 1/ρ) away from ρ = 1.
func StarvedPeriod(rho, c, groups float64) float64 {
	mean, spread := 1/rho, c/(rho*math.Sqrt(groups))
	// Far below ρ = 1 a normal X could be negative, hence the lower bound.
	return max(1+positivePart(mean-1, spread), 1, mean)
}

// ReflectedStock returns the mean stock at selection, in batches, of a queue
// of factor q: a random walk of drift ρ−1 and variance c²/G per step reflected
// at 0 and q−1 has density ∝ e^{κu} with κ = 2(ρ−1)G/c², and mean
// L/(1−e^{−κL}) − 1/κ with L = q−1: (q−1)/2 at ρ = 1, tending to 0 below and to
// q−1 above.
//
// It is the limit of many groups and small steps of what [Estimator] uses, whose
// walk is reflected once a step; the error it leaves in staleness is about 2 % at
// ρ = 1 and grows to 4 % at 0.95 and 1.05, where one step moves the stock by more
// than the density's scale.
func ReflectedStock(queueFactor, rho, c, groups float64) float64 {
	width := queueFactor - 1
	kappa := stockSlope(rho, c, groups)
	k := kappa * width
	switch {
	case width <= 0 || k < -1e9:
		return 0
	case math.Abs(k) < 1e-4:
		return width * (0.5 + k/12) // the series, where the formula cancels
	case k > 700:
		return max(width-1/kappa, 0)
	}
	return min(max(-width/math.Expm1(-k)-1/kappa, 0), width)
}

// stockSlope is κ, the exponent of the stock's density.
func stockSlope(rho, c, groups float64) float64 {
	// Deterministic arrivals leave no spread; a floor keeps κ finite.
	variance := max(c*c, 1e-6)
	return 2 * (rho - 1) * groups / variance
}

// settlingMemories is how many times the queue's memory a run takes to settle:
// what is left of where the stock began is then below 1 %.
const settlingMemories = 5

// Settling returns about how many train steps a run takes before its means say
// anything: five times what the stock takes to forget where it was, the relaxation
// time 1/(π²c²/(2G(q−1)²) + (ρ−1)²G/(2c²)) of a reflected Brownian motion (near
// ρ = 1 about (q−1)²·G in all), and five lives of a group. c² is the index of
// dispersion over that time, staleness the mean in versions. Valid for queue-drop;
// an unbounded queue above ρ = 1 never settles.
func Settling(queueFactor, rho, c2, groups, staleness float64) float64 {
	memory := 0.0
	if queueFactor > 1 {
		memory = stockMemory(queueFactor, rho, c2, groups)
	}
	return math.Ceil(5*(1+staleness) + settlingMemories*memory)
}

// normalCDF is Φ, accurate in both tails.
func normalCDF(z float64) float64 { return math.Erfc(-z/math.Sqrt2) / 2 }
