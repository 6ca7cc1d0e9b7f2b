package theory

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestStockIsTheChain: the clipped law of the reflected motion has the mean, the
// starved share and the shortage of the chain u' = clip(u + drift + spread·z, 0,
// q−1), simulated here step by step.
func TestStockIsTheChain(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, q := range []float64{1.5, 2, 3, 5} {
		for _, rho := range []float64{0.8, 0.95, 1, 1.05, 1.2} {
			for _, groups := range []float64{8, 32} {
				const c, steps = 0.8, 400_000
				u, sum, missing, starved := 0.0, 0.0, 0.0, 0.0
				for range steps {
					u += rho - 1 + c/math.Sqrt(groups)*random.NormFloat64()
					if u < 0 {
						missing -= u
						starved++
					}
					u = min(max(u, 0), q-1)
					sum += u
				}
				s := newStock(q, rho, c, groups)
				if d := s.mean() - sum/steps; math.Abs(d) > 0.03 {
					t.Errorf("q=%g ρ=%g G=%g: mean stock %.4f, the chain's %.4f", q, rho, groups, s.mean(), sum/steps)
				}
				if d := s.missing - missing/steps; math.Abs(d) > 0.01 {
					t.Errorf("q=%g ρ=%g G=%g: shortage %.4f, the chain's %.4f", q, rho, groups, s.missing, missing/steps)
				}
				if d := s.starved - starved/steps; math.Abs(d) > 0.08 {
					t.Errorf("q=%g ρ=%g G=%g: starved %.4f, the chain's %.4f", q, rho, groups, s.starved, starved/steps)
				}
			}
		}
	}
}

// TestStockTendsToItsLimit: with many groups the law is that of the reflected
// walk, at ρ = 1 its mean is half a queue, and away from it the queue is empty or
// full.
func TestStockTendsToItsLimit(t *testing.T) {
	for _, q := range []float64{2, 3, 4} {
		even, full, empty := newStock(q, 1, 0.5, 16), newStock(q, 3, 0.5, 16), newStock(q, 0.3, 0.5, 16)
		near(t, "ρ=1", even.mean(), (q-1)/2, 1e-6)
		near(t, "ρ=3", full.mean(), q-1, 1e-3)
		if u := empty.mean(); u > 1e-3 {
			t.Errorf("q=%g: stock %g at ρ = 0.3, want none", q, u)
		}
		for _, drift := range []float64{-0.004, 0.004} {
			s, limit := newStock(q, 1+drift, 0.8, 400), reflectedStock(q, 1+drift, 0.8, 400)
			// Reflecting once a step shifts each end by 0.58 of a step's spread.
			if math.Abs(s.mean()-limit) > 0.58*0.8/20 {
				t.Errorf("q=%g drift %g: stock %.3f, in the limit %.3f", q, drift, s.mean(), limit)
			}
		}
	}
}

// mean is the mean stock in batches.
func (s *stock) mean() float64 {
	sum := 0.0
	for i, u := range s.value[:s.count] {
		sum += u * s.weight[i]
	}
	return sum
}

// reflectedStock is the mean stock at selection, in batches, of a queue
// of factor q: a random walk of drift ρ−1 and variance c²/G per step reflected
// at 0 and q−1 has density ∝ e^{κu} with κ = 2(ρ−1)G/c², and mean
// L/(1−e^{−κL}) − 1/κ with L = q−1: (q−1)/2 at ρ = 1, tending to 0 below and to
// q−1 above.
//
// It is the limit of many groups and small steps of what [Estimator] uses, whose
// walk is reflected once a step; the error it leaves in staleness is about 2 % at
// ρ = 1 and grows to 4 % at 0.95 and 1.05, where one step moves the stock by more
// than the density's scale.
func reflectedStock(queueFactor, rho, c, groups float64) float64 {
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
