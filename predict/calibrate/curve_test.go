package calibrate

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
)

// measuredAs is a point whose rounds lie within a share of its median.
func measuredAs(slots int, speed, within float64) Point {
	return Point{slots, Median{speed, speed * (1 - within), speed * (1 + within), 6}, float64(slots) * speed}
}

func TestPool(t *testing.T) {
	for name, c := range map[string]struct {
		points []Point
		want   []float64
		says   string
	}{
		"falls":            {[]Point{measuredAs(1, 100, 0.01), measuredAs(2, 90, 0.01), measuredAs(4, 50, 0.01)}, []float64{100, 90, 50}, ""},
		"one":              {[]Point{measuredAs(1, 100, 0)}, []float64{100}, ""},
		"hardly rises":     {[]Point{measuredAs(1, 100, 0.1), measuredAs(2, 101, 0.1)}, []float64{100.5, 100.5}, ""},
		"noise":            {[]Point{measuredAs(1, 80, 0.4), measuredAs(2, 100, 0.1), measuredAs(4, 50, 0.1)}, []float64{90, 90, 50}, "80 with 1, 100 with 2 slots; what the rounds differ by explains it"},
		"more than noise":  {[]Point{measuredAs(1, 270, 0.1), measuredAs(2, 815, 0.1), measuredAs(4, 613, 0.1)}, []float64{566, 566, 566}, "measure again"},
		"pooled backwards": {[]Point{measuredAs(1, 100, 0.2), measuredAs(2, 60, 0.2), measuredAs(4, 90, 0.2), measuredAs(8, 75, 0.2)}, []float64{100, 75, 75, 75}, "60 with 2, 90 with 4 slots"},
	} {
		var got []float64
		var notes strings.Builder
		for _, p := range pool(c.points) {
			for range p.points {
				got = append(got, p.speed)
			}
			notes.WriteString(p.contradiction())
		}
		for i := range c.want {
			if len(got) != len(c.want) || math.Abs(got[i]-c.want[i]) > 1e-9 {
				t.Errorf("%s: %v, want %v", name, got, c.want)
				break
			}
		}
		if !strings.Contains(notes.String(), c.says) || c.says == "" && notes.Len() > 0 {
			t.Errorf("%s: says %q, want %q", name, notes.String(), c.says)
		}
	}
}

// However points lie, the curve never rises, keeps their mean, and stays within their extremes.
func TestPoolOfAnything(t *testing.T) {
	draw := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var points []Point
		sum, low, high := 0.0, math.Inf(1), 0.0
		for i := range 1 + draw.IntN(10) {
			speed := math.Exp(3 * draw.NormFloat64())
			points = append(points, measuredAs(1<<i, speed, draw.Float64()))
			sum, low, high = sum+speed, min(low, speed), max(high, speed)
		}
		before, total := math.Inf(1), 0.0
		for _, p := range pool(points) {
			if p.speed >= before || p.speed < low*(1-1e-12) || p.speed > high*(1+1e-12) {
				t.Fatalf("%v after %v of %v", p.speed, before, points)
			}
			before, total = p.speed, total+p.speed*float64(len(p.points))
		}
		if math.Abs(total/sum-1) > 1e-9 {
			t.Fatalf("the speeds add up to %v, were %v", total, sum)
		}
	}
}

// An engine that is slow to begin with contradicts itself: its notes and its document say so, and give a
// curve that falls.
func TestContradictionIsNoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &modelled{slots: 2, reading: 5000, pieces: 1, speed: func(active int) float64 { return 40 * float64(active) }}
		o := options(e)
		o.PrefillTokens = nil
		r, err := Measure(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		text := string(r.Document("an engine"))
		if len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "measure again") || !strings.Contains(text, "# "+r.Notes[0]) {
			t.Errorf("notes %q in\n%s", r.Notes, text)
		}
		if !strings.Contains(text, "{active: 1, tokens_per_s: 59.") || !strings.Contains(text, "} # 40 measured, 40 to 40\n    - {active: 2, tokens_per_s: 59.") {
			t.Errorf("the document is\n%s", text)
		}
	})
}

// Times to the first token that do not grow with the prompt, for all that is known, are no speed.
func TestPrefillWithoutASign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &modelled{slots: 1, speed: saturating, pieces: 1, reading: 1e9}
		e.asks = func(n int) float64 { return []float64{0.003, 0.008, 0.002, 0.009, 0.004}[n%5] }
		r, err := Measure(t.Context(), options(e))
		if err != nil {
			t.Fatal(err)
		}
		if r.PrefillTokensPerS != 0 || strings.Contains(string(r.Document("an engine")), "prefill: {") || !strings.Contains(strings.Join(r.Notes, "\n"), "prefill: ") {
			t.Errorf("prefill at %g tokens/s, notes %q", r.PrefillTokensPerS, r.Notes)
		}
	})
}
