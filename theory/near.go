package theory

import "math"

// The functions of this file correct the closed form near ρ = 1, where the
// queue is neither always empty nor always full (theory.md §2). Stock is the
// number of groups waiting above the batch being taken, in units of a batch,
// so it lives on [0, q−1].

// variability is c, the square root of the variance of the number of groups
// that become ready in one train step over their mean at ρ = 1: fitted, not
// derived, to 0.7, 0.8, 0.9 and 0.97 (± 0.05) measured at tailness 30, 50, 70
// and 90 with C/B = 2 and S = 8 (theory.md §2), against the lognormal's own
// spread σ = 1.3·tailness/100 expressed as a coefficient of variation.
var variability = []struct{ spread, c float64 }{
	{0.000, 0.00}, {0.4055, 0.70}, {0.7257, 0.80}, {1.1353, 0.90}, {1.7133, 0.97}, {4, 1.00},
}

// ArrivalVariability returns c for lengths (or rollout times) of coefficient of
// variation spread, by linear interpolation of the fitted table; 0 spread gives
// 0 (deterministic arrivals), a very large one 1 (Poisson arrivals).
func ArrivalVariability(spread float64) float64 {
	last := variability[0]
	for _, point := range variability[1:] {
		if spread < point.spread {
			share := (spread - last.spread) / (point.spread - last.spread)
			return last.c + share*(point.c-last.c)
		}
		last = point
	}
	return last.c
}

// StockVariability returns the c of the queue's random walk: c·g/(g+1.2), with g
// the group time in periods, for q >= 2, and towards the c of one step as q
// falls to 1, where only one step counts. It is smaller since arrivals of
// different steps are not independent: a slot that has just finished a long
// rollout does not finish another soon, and the shorter a rollout against the
// period, the more of its slot's renewals fall into one step.
//
// Fitted, not derived: against the simulator at tailness 30, 50 and 90, S 2, 8
// and 16, C/B 1 and 4, q 2 and 3 and ρ 0.9 to 1.1, where it leaves a mean error
// of 0.01 to 0.07 versions in IQS.
func StockVariability(c, queueFactor, groupPeriods float64) float64 {
	walk := c * groupPeriods / (groupPeriods + 1.2)
	return c + (walk-c)*min(queueFactor-1, 1)
}

// StarvedPeriod returns T/t_step at q = 1, where a late group delays the step:
// E[max(1, X)] with X, the time a batch takes to arrive, normal of mean 1/ρ and
// standard deviation c/(ρ√G): 1 + (μ−1)Φ(d) + sφ(d) with d = (μ−1)/s.
//
// Valid for q = 1 and any ρ; it tends to max(1, 1/ρ) away from ρ = 1.
func StarvedPeriod(rho, c, groups float64) float64 {
	mean, spread := 1/rho, c/(rho*math.Sqrt(groups))
	if spread < 1e-12 {
		return max(1, mean)
	}
	d := (mean - 1) / spread
	density := math.Exp(-d*d/2) / math.Sqrt(2*math.Pi)
	// Far below ρ = 1 a normal X could be negative, hence the lower bound.
	return max(1+(mean-1)*normalCDF(d)+spread*density, 1, mean)
}

// ReflectedStock returns the mean stock at selection, in batches, of a queue
// of factor q: a random walk of drift ρ−1 and variance c²/G per step reflected
// at 0 and q−1 has density ∝ e^{κu} with κ = 2(ρ−1)G/c², and mean
// L/(1−e^{−κL}) − 1/κ with L = q−1: (q−1)/2 at ρ = 1, tending to 0 below and to
// q−1 above.
//
// It is the limit of many groups and small steps of what [Predict] solves; the
// error it leaves in staleness is about 2 % at ρ = 1 and grows to 4 % at 0.95
// and 1.05, where one step moves the stock by more than the density's scale.
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

// stockQuantile returns the stock that a share p of selections does not
// exceed, by inverting the exponential density on [0, q−1].
func stockQuantile(p, queueFactor, rho, c, groups float64) float64 {
	width := queueFactor - 1
	kappa := stockSlope(rho, c, groups)
	k := kappa * width
	switch {
	case width <= 0:
		return 0
	case math.Abs(k) < 1e-6:
		return p * width
	case k > 0:
		return max(width+math.Log(p+(1-p)*math.Exp(-k))/kappa, 0)
	}
	return min(math.Log((1-p)+p*math.Exp(k))/kappa, width)
}

// Settling returns about how many train steps a mean needs before it says
// anything: (q−1)²·G where the queue's stock wanders (near ρ = 1), and a few
// staleness times elsewhere.
func Settling(queueFactor, rho, c, groups, staleness float64) float64 {
	width := queueFactor - 1
	wander := 0.0
	if drift := math.Abs(rho - 1); width > 0 {
		wander = width * width * groups
		if drift > 0 {
			wander = min(wander, width/drift+c*c/(drift*drift*groups))
		}
	}
	return math.Ceil(5*(1+staleness) + wander)
}

// normalCDF is Φ, accurate in both tails.
func normalCDF(z float64) float64 { return math.Erfc(-z/math.Sqrt2) / 2 }
