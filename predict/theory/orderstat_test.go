package theory

import (
	"math"
	"math/rand/v2"
	"slices"
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

// TestKeepFirst: order statistics against sorting, their limits, and the published
// example in which keeping the first of 1.25·G trains on half the mean length.
func TestKeepFirst(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	d := lengths(t, 1400, 70).Distribution()
	draw := drawer(d, random)
	for _, c := range []struct{ keep, n int }{{1, 1}, {1, 3}, {6, 8}, {8, 8}, {20, 25}} {
		got, err := KeepFirst(d, c.keep, c.n)
		if err != nil {
			t.Fatal(err)
		}
		mean, last := 0.0, 0.0
		const repeats = 40_000
		values := make([]float64, c.n)
		for range repeats {
			for i := range values {
				values[i] = draw()
			}
			slices.Sort(values)
			for _, v := range values[:c.keep] {
				mean += v / float64(c.keep)
			}
			last += values[c.keep-1]
		}
		near(t, "mean kept", got.Mean, mean/repeats, 0.02)
		near(t, "last kept", got.Last, last/repeats, 0.02)
		if c.keep == c.n {
			near(t, "all kept", got.Bias(), 1, 1e-9)
			near(t, "longest", got.Last, d.MeanMax(c.n), 1e-9)
		}
	}
	half, err := KeepFirst(lengths(t, 1400, 90).Distribution(), 128, 160)
	if err != nil || half.Bias() > 0.55 || half.Bias() < 0.45 {
		t.Errorf("the first 128 of 160 have %.3f of the mean length (%v), want about half", half.Bias(), err)
	}
}

// TestKeepFirstGroups: against sorting whole groups; for groups of one it is
// KeepFirst.
func TestKeepFirstGroups(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	d := lengths(t, 1400, 60).Distribution()
	draw := drawer(d, random)
	const size, keep, n, repeats = 4, 8, 10, 20_000
	got, err := KeepFirstGroups(d, size, keep, n)
	if err != nil {
		t.Fatal(err)
	}
	type group struct{ longest, sum float64 }
	groups := make([]group, n)
	mean, last := 0.0, 0.0
	for range repeats {
		for i := range groups {
			groups[i] = group{}
			for range size {
				v := draw()
				groups[i].sum += v
				groups[i].longest = max(groups[i].longest, v)
			}
		}
		slices.SortFunc(groups, func(a, b group) int { return int(math.Copysign(1, a.longest-b.longest)) })
		for _, g := range groups[:keep] {
			mean += g.sum / (size * keep)
		}
		last += groups[keep-1].longest
	}
	near(t, "mean kept", got.Mean, mean/repeats, 0.01)
	near(t, "last kept", got.Last, last/repeats, 0.01)
	one, err := KeepFirstGroups(d, 1, keep, n)
	if err != nil {
		t.Fatal(err)
	}
	same, err := KeepFirst(d, keep, n)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "groups of one", one.Mean, same.Mean, 1e-9)
	near(t, "groups of one, last", one.Last, same.Last, 1e-9)
	for _, bad := range [][3]int{{0, 1, 2}, {4, 0, 2}, {4, 3, 2}} {
		if _, err := KeepFirstGroups(d, bad[0], bad[1], bad[2]); err == nil {
			t.Errorf("%v is not refused", bad)
		}
	}
	if _, err := KeepFirst(d, 3, 2); err == nil {
		t.Error("three of two are not refused")
	}
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

// TestOffPolicy: the effective share is that of lognormal weights, and a power law is found again.
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
	lags, variances := []float64{0, 1, 2, 4, 8}, []float64{0, 0.01, 0.028, 0.08, 0.226}
	g, err := FitLagGrowth(lags, variances)
	if err != nil || math.Abs(g.Exponent-1.5) > 0.01 || !g.Usual {
		t.Errorf("growth %+v %v, want exponent 1.5", g, err)
	}
	near(t, "at lag 4", g.At(4), 0.08, 0.01)
	for _, bad := range [][2][]float64{{{1}, {1}}, {{2, 2}, {1, 1}}, {{1, 2}, {1}}, {{1, 2}, {0, math.NaN()}}} {
		if _, err := FitLagGrowth(bad[0], bad[1]); err == nil {
			t.Errorf("%v is not refused", bad)
		}
	}
}
