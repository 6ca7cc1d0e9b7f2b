package theory

import (
	"math"
	"math/rand/v2"
	"testing"
)

// batchGroup is one group of a batch: what each rollout contributes to the gradient, and how much it weighs.
type batchGroup struct {
	contributions, ratios, trained []float64
	filtered                       bool
}

func (g *batchGroup) weight(i int) float64 { return g.ratios[i] * g.trained[i] }

// synthetic draws batches whose contributions have variance 1 and a known
// sibling correlation, with lognormal ratios and random masks, and groups of
// differing size.
type synthetic struct {
	groups, size  int
	correlation   float64
	ratioSigma    float64
	masked        float64
	filteredShare float64
}

func (s synthetic) draw(random *rand.Rand) []batchGroup {
	batch := make([]batchGroup, s.groups)
	for i := range batch {
		shared := random.NormFloat64()
		g := batchGroup{filtered: random.Float64() < s.filteredShare}
		for range s.size {
			x := math.Sqrt(s.correlation)*shared + math.Sqrt(1-s.correlation)*random.NormFloat64()
			trained := 1.0
			if random.Float64() < s.masked {
				trained = 0
			}
			g.contributions = append(g.contributions, x)
			g.ratios = append(g.ratios, math.Exp(s.ratioSigma*random.NormFloat64()))
			g.trained = append(g.trained, trained)
		}
		batch[i] = g
	}
	return batch
}

// mean is the batch's gradient: the weighted mean of contributions that count.
func mean(batch []batchGroup) float64 {
	var sum, weights float64
	for i := range batch {
		if batch[i].filtered {
			continue
		}
		for j, x := range batch[i].contributions {
			w := batch[i].weight(j)
			sum += w * x
			weights += w
		}
	}
	return sum / weights
}

// The variance of the gradient's mean over many batches is the variance of one
// contribution over B_eff: the definition, against draws.
func TestEffectiveBatchIsTheVarianceOfTheMean(t *testing.T) {
	for _, s := range []synthetic{
		{groups: 32, size: 8},
		{groups: 32, size: 8, correlation: 0.3},
		{groups: 16, size: 16, correlation: 0.7},
		{groups: 32, size: 8, ratioSigma: 0.6},
		{groups: 32, size: 8, correlation: 0.3, masked: 0.25},
		{groups: 32, size: 8, correlation: 0.2, ratioSigma: 0.5, masked: 0.1, filteredShare: 0.4},
	} {
		random := rand.New(rand.NewPCG(1, 2))
		const batches = 6000
		var squares, effective float64
		for range batches {
			batch := s.draw(random)
			m := mean(batch)
			squares += m * m
			effective += 1 / (effectiveAt(batch, s.correlation) * batches)
		}
		measured, defined := squares/batches, effective
		if math.Abs(measured/defined-1) > 0.05 {
			t.Errorf("%+v: the mean's variance is %.5f, 1/B_eff is %.5f", s, measured, defined)
		}
	}
}

// effectiveAt is the definition written out at a given correlation.
func effectiveAt(batch []batchGroup, r float64) float64 {
	var sum, variance float64
	for i := range batch {
		if batch[i].filtered {
			continue
		}
		for j := range batch[i].contributions {
			sum += batch[i].weight(j)
			for k := range batch[i].contributions {
				covariance := r
				if j == k {
					covariance = 1
				}
				variance += batch[i].weight(j) * batch[i].weight(k) * covariance
			}
		}
	}
	return sum * sum / variance
}

// The rollouts that are expected before a run are those of the definition, over many batches.
func TestEffectiveRolloutsOfManySteps(t *testing.T) {
	s := synthetic{groups: 20000, size: 8, correlation: 0.25, ratioSigma: 0.4, masked: 0.2, filteredShare: 0.3}
	want := effectiveAt(s.draw(rand.New(rand.NewPCG(3, 4))), 0.25)
	got, err := EffectiveRollouts(160000*0.7, 8, 0.25, 0.8, EffectiveShare(0.4*0.4))
	if err != nil || math.Abs(want/got-1) > 0.02 {
		t.Errorf("expected before the run %.0f (%v), by the definition %.0f", got, err, want)
	}
}

func TestBadEffectiveRollouts(t *testing.T) {
	for _, c := range [][5]float64{{0, 1, 0, 1, 1}, {8, 16, 0, 1, 1}, {8, 4, 1.5, 1, 1}, {8, 4, 0.5, 0, 1}, {8, 4, 0.5, 1, math.NaN()}, {math.NaN(), 4, 0, 1, 1}} {
		if n, err := EffectiveRollouts(c[0], c[1], c[2], c[3], c[4]); err == nil {
			t.Errorf("%v: %g effective rollouts", c, n)
		}
	}
}
