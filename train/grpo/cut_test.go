package grpo

import (
	"math"
	"slices"
	"testing"
)

// The tokens of a small vocabulary, each with its exact chance under a sampler that cuts. Weighed by those, ratios
// over what was kept average 1 and ratios over all ids the kept mass. The gradient by the logits is the gradient of
// the mean advantage under the first, and of something else under the second.
func TestRatiosAverageOneWithMasksAndTheKeptMassWithout(t *testing.T) {
	sampler := []float64{0.9, -0.4, 1.6, 0.1, -1.2, 0.5, -2}
	advantage := []float64{1.5, -0.5, 0.3, 2, -1, -1.8, 0.7}
	for _, cut := range []struct {
		name string
		kept []int
	}{{"top-p 0.8", []int{2, 0, 5, 3}}, {"top-k 2", []int{2, 0}}} {
		before := chances(sampler, cut.kept)
		for _, moved := range []float64{0, 0.3} {
			now := slices.Clone(sampler)
			now[2], now[5], now[4] = now[2]+moved, now[5]-moved, now[4]+moved
			within, all := chances(now, cut.kept), chances(now, nil)
			mass, objective := 0.0, 0.0
			for _, k := range cut.kept {
				mass += all[k]
				objective += within[k] * advantage[k]
			}
			masked, ratio := surrogate(cut.kept, before, within, advantage)
			unmasked, biased := surrogate(cut.kept, before, all, advantage)
			if !close64(ratio, 1, 1e-6) || !close64(biased, mass, 1e-6) || mass > 0.95 {
				t.Errorf("%s, moved %g: the mean ratio is %g with masks and %g without, want 1 and the kept mass %g", cut.name, moved, ratio, biased, mass)
			}
			apart := 0.0
			for j := range sampler {
				want := within[j] * (advantage[j] - objective) // the derivative of the mean advantage by logit j
				if !close64(masked[j], want, 1e-6) {
					t.Errorf("%s, moved %g: the gradient by logit %d is %g with masks, want %g", cut.name, moved, j, masked[j], want)
				}
				apart = max(apart, math.Abs(unmasked[j]-want))
			}
			if apart < 0.02 {
				t.Errorf("%s, moved %g: without masks the gradient is off by %g alone", cut.name, moved, apart)
			}
		}
	}
}

// chances are the probabilities of a softmax over the kept ids, all for nil.
func chances(logits []float64, kept []int) []float64 {
	p, sum := make([]float64, len(logits)), 0.0
	for k, x := range logits {
		if kept == nil || slices.Contains(kept, k) {
			p[k] = math.Exp(x)
			sum += p[k]
		}
	}
	for k := range p {
		p[k] /= sum
	}
	return p
}

// surrogate is the gradient by the logits of the mean of ratio times advantage over all that can be sampled, of a
// policy with the probabilities now, and the mean ratio.
func surrogate(kept []int, before, now, advantage []float64) (gradient []float64, ratio float64) {
	c := (&Correction{EpsilonLow: 1, EpsilonHigh: 1e6}).WithDefaults()
	gradient = make([]float64, len(now))
	for _, k := range kept {
		derivative := []float32{0}
		c.Gradient(derivative, &Sequence{
			Current: []float32{float32(math.Log(now[k]))}, Behaviour: []float32{float32(math.Log(before[k]))}, Advantage: float32(advantage[k]),
		}, &Report{})
		weight := -float64(derivative[0]) * before[k]
		ratio += weight / advantage[k]
		for j := range gradient { // of log now[k] by logit j
			gradient[j] -= weight * now[j]
		}
		gradient[k] += weight
	}
	return gradient, ratio
}
