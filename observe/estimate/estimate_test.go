package estimate

import (
	"math"
	"math/rand/v2"
	"testing"
)

// autoregression is a stationary AR(1) series with mean 10 and innovations of
// deviation 1.
func autoregression(r *rand.Rand, n int, phi float64) []float64 {
	x := make([]float64, n)
	v := r.NormFloat64() / math.Sqrt(1-phi*phi)
	for i := range x {
		x[i] = 10 + v
		v = phi*v + r.NormFloat64()
	}
	return x
}

// waits are successive waiting times of a queue with one server, exponential
// arrivals and services and the given load, after a long warm-up: skewed, and
// correlated over some 1/(1-load)² values.
func waits(r *rand.Rand, n int, load float64) []float64 {
	w := 0.0
	x := make([]float64, n)
	for i := -2000; i < n; i++ {
		w = max(0, w+r.ExpFloat64()-r.ExpFloat64()/load)
		if i >= 0 {
			x[i] = w
		}
	}
	return x
}

// rates judges many series and returns which share has settled, and which share of
// their intervals holds the true mean.
func rates(series func(*rand.Rand) []float64, truth float64) (settled, covered float64) {
	const runs = 400
	for seed := range uint64(runs) {
		v := SettlingOf(series(rand.New(rand.NewPCG(seed, 1))), 0)
		if v.OK() {
			settled++
			if v.Interval.Low() <= truth && truth <= v.Interval.High() {
				covered++
			}
		}
	}
	return settled / runs, covered / max(settled, 1)
}

// Nineteen of twenty intervals hold the mean, and sound series are hardly ever refused.
func TestIntervalsCover(t *testing.T) {
	for _, test := range []struct {
		name   string
		truth  float64
		series func(*rand.Rand) []float64
	}{
		{"independent, 200", 10, func(r *rand.Rand) []float64 { return autoregression(r, 200, 0) }},
		{"AR(1) 0.5, 200", 10, func(r *rand.Rand) []float64 { return autoregression(r, 200, 0.5) }},
		{"AR(1) 0.5, 1500", 10, func(r *rand.Rand) []float64 { return autoregression(r, 1500, 0.5) }},
		{"AR(1) 0.8, 1500", 10, func(r *rand.Rand) []float64 { return autoregression(r, 1500, 0.8) }},
		{"AR(1) 0.9, 1500", 10, func(r *rand.Rand) []float64 { return autoregression(r, 1500, 0.9) }},
		{"AR(1) -0.5, 1500", 10, func(r *rand.Rand) []float64 { return autoregression(r, 1500, -0.5) }},
		{"queue 0.5, 5000", 1, func(r *rand.Rand) []float64 { return waits(r, 5000, 0.5) }},
		{"queue 0.7, 10000", 0.7 / 0.3, func(r *rand.Rand) []float64 { return waits(r, 10000, 0.7) }},
	} {
		settled, covered := rates(test.series, test.truth)
		if covered < 0.92 || covered > 0.98 {
			t.Errorf("%s: %.3f of the intervals hold the mean, want 0.95", test.name, covered)
		}
		if settled < 0.95 {
			t.Errorf("%s: %.3f are taken for settled, want nearly all", test.name, settled)
		}
	}
}

// Series with hardly enough independent values, of which many are refused: the intervals
// of those that are let pass hold the mean nearly as often, though the ones whose memory
// chance hides pass first.
func TestIntervalsCoverWhatIsLetPass(t *testing.T) {
	for _, test := range []struct {
		n         int
		phi       float64
		low, high float64 // of the share that is taken for settled
	}{{160, 0.9, 0.1, 0.35}, {600, 0.97, 0.1, 0.35}, {100, 0.8, 0.2, 0.5}, {300, 0.9, 0.5, 0.75}, {1200, 0.97, 0.6, 0.85}} {
		settled, covered := rates(func(r *rand.Rand) []float64 { return autoregression(r, test.n, test.phi) }, 10)
		if settled < test.low || settled > test.high || covered < 0.9 {
			t.Errorf("AR(1) %g, %d: %.3f are taken for settled, of which %.3f hold the mean, want 0.9 at least", test.phi, test.n, settled, covered)
		}
	}
}

// What has not settled is refused, or next to never let pass.
func TestUnsettledIsRefused(t *testing.T) {
	with := func(add func(i int) float64) func(*rand.Rand) []float64 {
		return func(r *rand.Rand) []float64 {
			x := autoregression(r, 1500, 0.5)
			for i := range x {
				x[i] += add(i)
			}
			return x
		}
	}
	for _, test := range []struct {
		name   string
		most   float64
		series func(*rand.Rand) []float64
	}{
		{"line", 0.01, with(func(i int) float64 { return float64(i) / 500 })},
		{"slow approach", 0.01, with(func(i int) float64 { return -5 * math.Exp(-float64(i)/300) })},
		{"slower approach", 0.01, with(func(i int) float64 { return -5 * math.Exp(-float64(i)/1000) })},
		{"step half-way", 0.01, with(func(i int) float64 { return float64(i / 750) })},
		{"random walk", 0.05, func(r *rand.Rand) []float64 {
			x, v := make([]float64, 1500), 10.0
			for i := range x {
				v += 0.1 * r.NormFloat64()
				x[i] = v
			}
			return x
		}},
		{"memory as long as the series", 0.1, func(r *rand.Rand) []float64 { return autoregression(r, 200, 0.98) }},
		{"too few", 0, func(r *rand.Rand) []float64 { return autoregression(r, ValuesMin-1, 0) }},
	} {
		if settled, _ := rates(test.series, 10); settled > test.most {
			t.Errorf("%s: %.3f are taken for settled, want at most %g", test.name, settled, test.most)
		}
	}
}

// The causes are told apart, with how long it would take where that shows.
func TestCauses(t *testing.T) {
	noisy := func(n int, f func(i int) float64) []float64 {
		r := rand.New(rand.NewPCG(3, 4))
		x := autoregression(r, n, 0)
		for i := range x {
			x[i] += f(i)
		}
		return x
	}
	line := SettlingOf(noisy(1000, func(i int) float64 { return float64(i) / 100 }), 0)
	if line.Cause != Trend || !math.IsNaN(line.More) || math.Abs(line.Drift-10) > 0.5 {
		t.Errorf("a line: %+v", line)
	}
	start := SettlingOf(noisy(1000, func(i int) float64 { return -8 * math.Exp(-float64(i)/30) }), 0)
	if start.Cause != Transient || start.More != 1000 {
		t.Errorf("a transient: %+v", start)
	}
	approach := SettlingOf(noisy(1000, func(i int) float64 { return -30 * math.Exp(-float64(i)/400) }), 0)
	// 2 % of 10 over another window: exp(-t/400)·30 < 0.1 at t ≈ 2280, 1280 further.
	if approach.OK() || !(approach.More > 600 && approach.More < 3500) {
		t.Errorf("an approach: %+v", approach)
	}
	if short := SettlingOf(noisy(12, func(int) float64 { return 0 }), 0); short.Cause != Short || short.More != 8 {
		t.Errorf("a short series: %+v", short)
	}
	// A drift that no one would see is let pass; on a smaller scale it counts.
	slight := noisy(20000, func(i int) float64 { return float64(i) / 125000 })
	if v := SettlingOf(slight, 0); !v.OK() {
		t.Errorf("a slight drift: %+v", v)
	}
	if v := SettlingOf(slight, 1); v.Cause != Trend {
		t.Errorf("a slight drift on a scale of 1: %+v", v)
	}
}

// Constant and periodic series, as deterministic lengths give, have settled.
func TestDeterministicSeriesSettle(t *testing.T) {
	constant, periodic := make([]float64, 100), make([]float64, 1000)
	for i := range constant {
		constant[i] = 0.3
	}
	for i := range periodic {
		periodic[i] = float64(i % 7)
	}
	v := SettlingOf(constant, 0)
	if !v.OK() || v.Interval.Half != 0 || v.Interval.Mean != 0.3 || !math.IsInf(v.Independent, 1) {
		t.Errorf("constant: %+v", v)
	}
	v = SettlingOf(periodic, 0)
	if !v.OK() || v.Interval.Half > 0.05 || math.Abs(v.Interval.Mean-3) > 0.01 {
		t.Errorf("periodic: %+v", v)
	}
	if v := SettlingOf(make([]float64, 50), 0); !v.OK() {
		t.Errorf("zeros: %+v", v)
	}
}

// MSER-5 cuts where a transient ends, and says where there is no end.
func TestWarmup(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 9))
		x := autoregression(r, 1000, 0.3)
		for i := range 200 {
			x[i] -= 5
		}
		if w := Warmup(x); !w.Found || w.Steps < 195 || w.Steps > 320 {
			t.Errorf("seed %d: the warm-up of 200 is cut at %+v", seed, w)
		}
		for i := range x {
			x[i] += float64(i) / 50
		}
		if w := Warmup(x); w.Found {
			t.Errorf("seed %d: a line is cut at %+v", seed, w)
		}
	}
	flat := make([]float64, 100)
	for i := range flat {
		flat[i] = 0.1
	}
	if w := Warmup(flat); w != (Truncation{Found: true}) {
		t.Errorf("a constant is cut at %+v", w)
	}
	if w := Warmup(flat[:19]); w != (Truncation{}) {
		t.Errorf("too few values are cut at %+v", w)
	}
}

// A ratio's interval allows for numerator and denominator going together.
func TestRatio(t *testing.T) {
	covered, half, plain := 0, 0.0, 0.0
	const runs = 500
	for seed := range uint64(runs) {
		r := rand.New(rand.NewPCG(seed, 5))
		num, den := make([]float64, 400), make([]float64, 400)
		for i := range num {
			den[i] = 1 + 9*r.Float64()
			num[i] = den[i] * (0.25 + 0.03*r.NormFloat64()) // 0.25 of each
		}
		v := OfRatio(num, den)
		if v.Low() <= 0.25 && 0.25 <= v.High() {
			covered++
		}
		half += v.Half
		plain += OfSeries(num).Half / 5.5
	}
	if share := float64(covered) / runs; share < 0.92 || share > 0.98 {
		t.Errorf("%.3f of the intervals hold the ratio", share)
	}
	if half > plain/2 {
		t.Errorf("half width %g, want far less than the numerator's %g", half/runs, plain/runs)
	}
	if v := OfRatio([]float64{0, 0}, []float64{0, 0}); !math.IsNaN(v.Mean) || v.Known() {
		t.Errorf("nothing over nothing is %+v", v)
	}
	if v := OfSeries([]float64{1, 2, 3}); v.Mean != 2 || v.Known() || !math.IsNaN(v.Half) {
		t.Errorf("three values: %+v", v)
	}
}

// Student's t by hand: 12.706·s/√2 for two values, 2.776·s/√5 for five.
func TestSeeds(t *testing.T) {
	if v := OfSeeds([]float64{1, 3}); v.Mean != 2 || math.Abs(v.Half-12.7062) > 1e-3 {
		t.Errorf("two seeds: %+v", v)
	}
	if v := OfSeeds([]float64{1, 2, 3, 4, 5}); v.Mean != 3 || math.Abs(v.Half-2.77645*math.Sqrt(2.5/5)) > 1e-4 || v.Batches != 5 {
		t.Errorf("five seeds: %+v", v)
	}
	if v := OfSeeds([]float64{7}); v.Mean != 7 || !math.IsNaN(v.Half) || v.Known() {
		t.Errorf("one seed: %+v", v)
	}
	if v := OfSeeds(nil); !math.IsNaN(v.Mean) {
		t.Errorf("no seed: %+v", v)
	}
}
