package sglang

import (
	"math"
	"testing"
)

// top_k 2 may keep a third token that is as likely as the second: that is still the distribution which is sampled
// from, unlike the one before the cut and the model's own.
func TestKeptTwo(t *testing.T) {
	half, third := math.Log(1./2), math.Log(1./3)
	for _, c := range []struct {
		name     string
		logprobs []float64
		want     bool
	}{
		{"two each", []float64{half, half, half - 0.01, half}, true},
		{"three at one place", []float64{half, third, half, half}, true},
		{"three at most places", []float64{third, third, third, half}, false},
		{"before the cut, of 64 tokens", []float64{-4.158, -4.158, -4.158, -4.158}, false},
		{"before the cut, of 3 tokens", []float64{third, third, third, third}, false},
		{"the model's own", []float64{-0.1, -2.7, half, -0.9}, false},
		{"certain", []float64{0, 0, 0, 0}, false},
		{"impossible", []float64{half, math.Inf(-1), half, half}, false},
	} {
		if got := keptTwo(c.logprobs); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
