package theory

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/headway-rl/headway/loop/workload"
)

// drawer draws from a distribution, 2^16 values of its quantile function.
func drawer(d workload.Distribution, random *rand.Rand) func() float64 {
	const cells = 1 << 16
	table := make([]float64, cells)
	for i := range table {
		table[i] = d.Quantile((float64(i) + 0.5) / cells)
	}
	return func() float64 { return table[random.Uint64()>>48] }
}

// TestOrderStatistics: M_tail and capped means of the quadrature against groups
// drawn one by one, 10⁶ of them without -short.
func TestOrderStatistics(t *testing.T) {
	groups, tolerance := 1_000_000, 0.002
	if testing.Short() {
		groups, tolerance = 30_000, 0.012
	}
	random := rand.New(rand.NewPCG(3, 4))
	for _, c := range []struct {
		tailness float64
		size     int
	}{{30, 8}, {90, 16}} {
		l := lengths(t, 1400, c.tailness)
		draw := drawer(l.Distribution(), random)
		longest, sum := 0.0, 0.0
		for range groups {
			most := 0.0
			for range c.size {
				v := draw()
				sum += v
				most = max(most, v)
			}
			longest += most
		}
		mean := sum / float64(groups*c.size)
		near(t, "capped mean", l.Mean(), mean, tolerance)
		near(t, "M_tail", l.TailMultiplier(c.size), longest/float64(groups)/mean, tolerance)
	}
	for i, tailness := range []float64{30, 50, 70, 90} {
		l := lengths(t, 1400, tailness)
		near(t, "published, S = 8", l.TailMultiplier(8), []float64{1.663, 2.210, 2.790, 3.359}[i], 5e-4)
		near(t, "published, S = 16", l.TailMultiplier(16), []float64{1.889, 2.705, 3.620, 4.561}[i], 5e-4)
	}
	exponential := workload.LengthSpec{Kind: workload.KindExponential, MeanTokens: 5000}
	l, err := exponential.Build()
	if err != nil {
		t.Fatal(err)
	}
	near(t, "exponential, H₈", l.TailMultiplier(8), 1+1./2+1./3+1./4+1./5+1./6+1./7+1./8, 1e-3)
}

// TestBetaCriticalIsTheRoot: where the least gap over z changes sign, found by
// nested search to 1e-9.
func TestBetaCriticalIsTheRoot(t *testing.T) {
	least := func(q, beta float64) float64 {
		// The gap's infimum over z > 0 lies between its ends; golden section in ln z.
		low, high := -20.0, 20.0
		const golden = 0.6180339887498949
		at := func(x float64) float64 { return sideGap(q, beta, math.Exp(x)) }
		for range 200 {
			a, b := high-golden*(high-low), low+golden*(high-low)
			if at(a) < at(b) {
				high = b
			} else {
				low = a
			}
		}
		return at((low + high) / 2)
	}
	for _, q := range []float64{1.2, 1.5, 2, 3, 5, 10} {
		low, high := 1e-6, 0.499
		for range 100 {
			if middle := (low + high) / 2; least(q, middle) < 0 {
				low = middle
			} else {
				high = middle
			}
		}
		if root := (low + high) / 2; math.Abs(root-BetaCritical(q)) > 1e-9 {
			t.Errorf("q=%g: β_crit %.12f, the root %.12f", q, BetaCritical(q), root)
		}
	}
	if BetaCritical(1) != 0.5 {
		t.Errorf("q=1: %v, want ½: the gap tends to it as z grows", BetaCritical(1))
	}
}

// TestOffPolicy: the effective share is that of lognormal weights.
func TestOffPolicy(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 10))
	for _, variance := range []float64{2e-3, 0.04} {
		sum, squares := 0.0, 0.0
		const n = 200_000
		for range n {
			w := math.Exp(math.Sqrt(variance) * random.NormFloat64())
			sum, squares = sum+w, squares+w*w
		}
		near(t, "effective share", EffectiveShare(variance), sum*sum/(n*squares), 5e-3)
	}
}
