package grpo

import (
	"math"
	"math/rand/v2"
	"testing"
)

func close64(a, b, tolerance float64) bool { return math.Abs(a-b) <= tolerance*(1+math.Abs(b)) }

func TestAdvantages(t *testing.T) {
	for _, c := range []struct {
		rewards   []float32
		normalize bool
		want      []float32
	}{
		{[]float32{1, 0, 0, 1}, false, []float32{0.5, -0.5, -0.5, 0.5}},
		{[]float32{1, 0, 0, 1}, true, []float32{1, -1, -1, 1}},
		{[]float32{0.25, 0.75}, true, []float32{-1, 1}},
		{[]float32{0.4, 0.4, 0.4}, true, []float32{0, 0, 0}}, // no signal, no division by zero
		{[]float32{3}, true, []float32{0}},
		{nil, true, nil},
	} {
		got := make([]float32, len(c.rewards))
		Advantages(got, c.rewards, c.normalize)
		for i := range got {
			if !close64(float64(got[i]), float64(c.want[i]), 1e-6) {
				t.Errorf("rewards %v normalize %v: %v, want %v", c.rewards, c.normalize, got, c.want)
			}
		}
	}
}

// TestAdvantagesProperties: they sum to zero, and shifting or, normalized,
// scaling all rewards changes nothing.
func TestAdvantagesProperties(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		n := 2 + rng.IntN(10)
		rewards, moved := make([]float32, n), make([]float32, n)
		for i := range rewards {
			rewards[i] = rng.Float32()
			moved[i] = 3*rewards[i] - 2
		}
		a, b := make([]float32, n), make([]float32, n)
		Advantages(a, rewards, true)
		Advantages(b, moved, true)
		var sum, square float64
		for i := range a {
			sum += float64(a[i])
			square += float64(a[i]) * float64(a[i])
			if !close64(float64(a[i]), float64(b[i]), 1e-4) {
				t.Fatalf("rewards %v: advantages %v, moved %v", rewards, a, b)
			}
		}
		if math.Abs(sum) > 1e-4 || !close64(square/float64(n), 1, 1e-4) {
			t.Fatalf("rewards %v: advantages %v have sum %g and mean square %g", rewards, a, sum, square/float64(n))
		}
	}
}
