package replay

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestCurveNeverFalls(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var points []point
		for a := 1; a < 40; a += 1 + rng.IntN(5) {
			points = append(points, point{a, 200 + float64(a) + 10*rng.NormFloat64(), 1 + float64(rng.IntN(50))})
		}
		rng.Shuffle(len(points), func(i, j int) { points[i], points[j] = points[j], points[i] })
		sum, weighted := 0.0, 0.0
		for _, p := range points {
			sum += p.ns * p.weight
		}
		c := fitCurve(points)
		for _, p := range c.points {
			weighted += p.ns * p.weight
		}
		if math.Abs(sum-weighted) > 1e-6*sum {
			t.Fatalf("the fit takes %g ns in all, %g were measured", weighted, sum)
		}
		last := 0.0
		for a := range 60 {
			ns := c.at(a + 1)
			if ns < last-1e-9 {
				t.Fatalf("%g ns at %d active slots, %g at %d", ns, a+1, last, a)
			}
			last = ns
		}
	}
}

func TestCurveGoesThroughWhatIsOrdered(t *testing.T) {
	c := fitCurve([]point{{8, 180, 1}, {2, 120, 5}, {4, 140, 2}})
	for active, want := range map[int]float64{1: 120, 2: 120, 3: 130, 4: 140, 6: 160, 8: 180, 10: 200} {
		if got := c.at(active); math.Abs(got-want) > 1e-9 {
			t.Errorf("%g ns at %d active slots, want %g", got, active, want)
		}
	}
}

func TestStepModels(t *testing.T) {
	steps := func(n int, f func(i int, tokens int64) int64) []recordedStep {
		rng := rand.New(rand.NewPCG(3, 4))
		out := make([]recordedStep, n)
		for i := range out {
			out[i].tokens = 1000 + 5*int64(i) + rng.Int64N(500)
			out[i].ns = f(i, out[i].tokens)
		}
		return out
	}
	for name, c := range map[string]struct {
		f               func(i int, tokens int64) int64
		fixed, perToken float64
	}{
		"fixed":        {func(int, int64) int64 { return 5e6 }, 5e6, 0},
		"proportional": {func(_ int, n int64) int64 { return 700 * n }, 0, 700},
		"both":         {func(_ int, n int64) int64 { return 2e6 + 700*n }, 2e6, 700},
		// The time drifts while lengths do, and one is not the other's effect.
		"drift": {func(i int, n int64) int64 { return 2e6 + 700*n + 20_000*int64(i) }, 4e6, 700},
	} {
		recorded := steps(200, c.f)
		m := fitSteps(recorded)
		if math.Abs(m.perTokenNS-c.perToken) > 0.02*700 || math.Abs(m.fixedNS-c.fixed) > 0.02*5e6 {
			t.Errorf("%s: fixed %.0f ns and %.1f ns a token, want %.0f and %.0f", name, m.fixedNS, m.perTokenNS, c.fixed, c.perToken)
		}
		for i, s := range recorded {
			if ns, made := m.ns(i, s.tokens); made || math.Abs(float64(ns-s.ns)) > 1 {
				t.Fatalf("%s: step %d takes %d ns, recorded were %d", name, i, ns, s.ns)
			}
		}
		if _, made := m.ns(200, 1000); !made {
			t.Errorf("%s: a step beyond the recorded ones counts as recorded", name)
		}
	}
}
