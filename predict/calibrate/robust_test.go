package calibrate

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// The interval of six values is from the least to the greatest, that of many is between two within;
// they hold the true median of a skewed distribution as often as they say.
func TestMedian(t *testing.T) {
	if m := MedianOf([]float64{5, 1, 3}); m.Value != 3 || m.Low != 1 || m.High != 5 || m.Values != 3 {
		t.Errorf("%+v", m)
	}
	if m := MedianOf([]float64{4, 1}); m.Value != 2.5 {
		t.Errorf("%+v", m)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{6, 11, 30} {
		held, runs, least := 0, 4000, 0
		for range runs {
			values := make([]float64, n)
			for i := range values {
				values[i] = r.ExpFloat64()
			}
			m := MedianOf(values)
			if m.Low <= math.Ln2 && math.Ln2 <= m.High {
				held++
			}
			if m.Low > minOf(values) {
				least++
			}
		}
		if share := float64(held) / float64(runs); share < 0.943 || n > 6 && share > 0.995 || n > 6 && least == 0 {
			t.Errorf("%d values: %.3f of the intervals hold the median", n, share)
		}
	}
}

func minOf(values []float64) float64 {
	least := math.Inf(1)
	for _, v := range values {
		least = min(least, v)
	}
	return least
}

// One point far off the line does not move it.
func TestLine(t *testing.T) {
	x, y := []float64{1, 1, 2, 2, 4, 4, 8, 8}, []float64{5, 5, 7, 7, 11, 400, 19, 19}
	if l := lineThrough(x, y); l.slope != 2 || l.at0 != 3 {
		t.Errorf("%+v, want 2x + 3", l)
	}
	if l := lineThrough([]float64{1, 1}, []float64{2, 3}); l.slope > 0 {
		t.Errorf("%+v from one length", l)
	}
}

// The knee is where the doublings begin that all bring less than 1.4 times the tokens.
func TestKnee(t *testing.T) {
	for _, c := range []struct {
		all  []float64
		knee int
	}{{[]float64{10, 20, 39, 70, 130}, 0}, {[]float64{10, 20, 25, 26, 26}, 2}, {[]float64{10, 11}, 1}, {[]float64{10}, 0}, {[]float64{10, 20, 15}, 2}, {[]float64{1240, 1233, 1913}, 0}, {[]float64{10, 11, 20, 21, 22}, 4}} {
		var points []Point
		for i, all := range c.all {
			points = append(points, Point{Slots: 1 << i, TokensPerS: all})
		}
		if got := knee(points); got != c.knee {
			t.Errorf("%v: knee at %d, want %d", c.all, got, c.knee)
		}
	}
}

// Tokens between two arrivals count by the share of the time, and stretches that are too short not at all.
func TestSpeed(t *testing.T) {
	at := func(ms ...int) (r []arrival) {
		for i, m := range ms {
			r = append(r, arrival{time.Duration(m) * time.Millisecond, 10*i + 1})
		}
		return r
	}
	slots := []trace{{responses: [][]arrival{at(0, 1000, 2000)}}, {responses: [][]arrival{at(500, 1500), at(1500, 2500)}}}
	if got := speed(slots); math.Abs(got-10) > 1e-9 {
		t.Errorf("10 tokens/s each are %g", got)
	}
	if got := speed([]trace{{responses: [][]arrival{at(0, 1000)}}, {responses: [][]arrival{at(900, 1900)}}}); got != 0 {
		t.Errorf("a tenth of a second of one token each has the speed %g", got)
	}
}

// What is said of a knee holds for every number of slots beyond it, and says one slot as one does.
func TestKneeInWords(t *testing.T) {
	r := Result{Knee: 1, Decode: []Point{{Slots: 1, TokensPerS: 10}, {Slots: 2, TokensPerS: 11}}}
	if got := r.Sentences()[0]; got != "The knee is at 1 slot: beyond, twice the slots never bring 1.4 times the tokens." {
		t.Error(got)
	}
	if got := string(r.Document("x")); !strings.Contains(got, "Beyond 1 slot, more bring little") {
		t.Error(got)
	}
}
