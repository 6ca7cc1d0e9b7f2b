package theory

import (
	"math"
	"testing"
)

func near(t *testing.T, what string, got, want, relative float64) {
	t.Helper()
	if !(math.Abs(got-want) <= relative*math.Abs(want)) {
		t.Errorf("%s: got %.6g, want %.6g within %.2g", what, got, want, relative)
	}
}

// TestInQueueBranchesMeetOnlyAtOneBatch: the two branches agree at ρ = 1 for
// q = 1 and jump by q − 1 otherwise.
func TestInQueueBranchesMeetOnlyAtOneBatch(t *testing.T) {
	below := InQueue(1, math.Nextafter(1, 0))
	near(t, "q=1 from below", below, InQueue(1, 1), 1e-12)
	for _, q := range []float64{1.5, 2, 3, 10} {
		jump := InQueue(q, 1) - InQueue(q, math.Nextafter(1, 0))
		near(t, "jump", jump, q-1, 1e-9)
	}
}

// TestInQueueTendsToHalf: however long the queue, a trainer that is slow enough
// takes groups that have seen half an update.
func TestInQueueTendsToHalf(t *testing.T) {
	for _, q := range []float64{1, 2, 5} {
		near(t, "IQS(∞)", InQueue(q, 1e9), 0.5, 1e-6)
	}
}

// TestBetaCritical: the closed form is where the least gap changes sign, found
// here by search instead.
func TestBetaCritical(t *testing.T) {
	near(t, "q=1", BetaCritical(1), 0.5, 1e-12)
	near(t, "q=2", BetaCritical(2), 0.0670, 5e-4)
	for _, q := range []float64{1, 1.5, 2, 4} {
		least := func(beta float64) float64 {
			gap := math.Inf(1)
			for z := 1e-3; z < 1e5; z *= 1.01 {
				gap = min(gap, sideGap(q, beta, z))
			}
			return gap
		}
		critical := BetaCritical(q)
		if g := least(critical * 0.9); g >= 0 {
			t.Errorf("q=%g: below β_crit the train-bound side never wins (least gap %g)", q, g)
		}
		if g := least(critical * 1.1); g < 0 {
			t.Errorf("q=%g: above β_crit the train-bound side wins (least gap %g)", q, g)
		}
	}
}

// TestBudgetPeriod: T(ρ) falls on (0,1) and rises on (1,∞), the pair of
// sideGap has one period, and the split adds up.
func TestBudgetPeriod(t *testing.T) {
	b := Budget{GPUs: 64, RolloutTokensPerS: 2000, TrainTokensPerS: 900, BatchRollouts: 512, MeanTokens: 4000, SlotsPerRolloutGPU: 16}
	for rho := 0.05; rho < 8; rho *= 1.1 {
		next := rho * 1.1
		falls := b.PeriodS(next) < b.PeriodS(rho)
		if next <= 1 && !falls || rho >= 1 && falls {
			t.Errorf("from ρ = %.3f to %.3f the period goes from %.2f to %.2f s", rho, next, b.PeriodS(rho), b.PeriodS(next))
		}
		rollout, train, _ := b.Split(rho)
		near(t, "GPUs", rollout+train, b.GPUs, 1e-12)
		near(t, "ρ", b.RolloutTokensPerS/b.TrainTokensPerS*rollout/train, rho, 1e-12)
		near(t, "slots", b.Concurrency(rho), 16*rollout, 1e-12)
	}
	for z := 0.1; z < 4; z *= 1.5 {
		above, below := 1+z, 1/(1+b.Beta()*z)
		near(t, "period of the pair", b.PeriodS(above), b.PeriodS(below), 1e-9)
		near(t, "PQS of the pair",
			PreQueue(b.Concurrency(above), b.BatchRollouts, 2, above),
			PreQueue(b.Concurrency(below), b.BatchRollouts, 2, below), 1e-9)
	}
}

// TestReflectedStock: the mean of the exponential density on [0, q−1], by
// direct integration, its limits, and the quantiles of the same density.
func TestReflectedStock(t *testing.T) {
	near(t, "ρ=1", reflectedStock(3, 1, 0.8, 16), 1, 1e-6)
	near(t, "ρ≫1", reflectedStock(3, 50, 0.8, 16), 2, 1e-3)
	if s := reflectedStock(3, 0.1, 0.8, 16); s > 0.05 {
		t.Errorf("stock %g at ρ = 0.1, want about 0", s)
	}
	for _, rho := range []float64{0.8, 0.95, 1.0001, 1.05, 1.3} {
		kappa := stockSlope(rho, 0.8, 16)
		var mass, moment float64
		const cells = 100000
		for i := range cells {
			u := 2 * (float64(i) + 0.5) / cells
			mass += math.Exp(kappa * (u - 1))
			moment += u * math.Exp(kappa*(u-1))
		}
		near(t, "mean", reflectedStock(3, rho, 0.8, 16), moment/mass, 1e-5)
		sum := 0.0
		for i := range 4096 {
			sum += exponentialQuantile((float64(i)+0.5)/4096, kappa, 2) / 4096
		}
		near(t, "mean of quantiles", sum, moment/mass, 1e-3)
	}
}

// sideGap is the staleness of the train-bound side minus that of the
// rollout-bound side of the same period, gap(z) = (z+2q)/(2(1+z)) − 1/(1+β*z),
// for the pair ρ₊ = 1+z, ρ₋ = 1/(1+β*z), z > 0. Both sides have the same PQS,
// so the gap is in IQS alone.
func sideGap(queueFactor, beta, z float64) float64 {
	return (z+2*queueFactor)/(2*(1+z)) - 1/(1+beta*z)
}
