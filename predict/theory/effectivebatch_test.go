package theory

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

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

func (s synthetic) draw(random *rand.Rand) []BatchGroup {
	batch := make([]BatchGroup, s.groups)
	for i := range batch {
		shared := random.NormFloat64()
		g := BatchGroup{Filtered: random.Float64() < s.filteredShare}
		for range s.size {
			x := math.Sqrt(s.correlation)*shared + math.Sqrt(1-s.correlation)*random.NormFloat64()
			trained := 1.0
			if random.Float64() < s.masked {
				trained = 0
			}
			g.Rewards = append(g.Rewards, x)
			g.Ratios = append(g.Ratios, math.Exp(s.ratioSigma*random.NormFloat64()))
			g.Trained = append(g.Trained, trained)
		}
		batch[i] = g
	}
	return batch
}

// mean is the batch's gradient: the weighted mean of contributions that count.
func mean(batch []BatchGroup) float64 {
	var sum, weights float64
	for i := range batch {
		if batch[i].Filtered {
			continue
		}
		for j, x := range batch[i].Rewards {
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
		var squares, effective, correlation float64
		for range batches {
			batch := s.draw(random)
			m := mean(batch)
			squares += m * m
			e, err := EffectiveBatchOf(batch)
			if err != nil {
				t.Fatal(err)
			}
			correlation += e.Correlation / batches
			// By the true correlation, so that the estimate's own bias is measured apart, below.
			effective += 1 / (effectiveAt(batch, s.correlation) * batches)
		}
		measured, defined := squares/batches, effective
		if math.Abs(measured/defined-1) > 0.05 {
			t.Errorf("%+v: the mean's variance is %.5f, 1/B_eff is %.5f", s, measured, defined)
		}
		if math.Abs(correlation-s.correlation) > 0.03 {
			t.Errorf("%+v: correlation %.3f on average", s, correlation)
		}
	}
}

// effectiveAt is the definition written out at a given correlation.
func effectiveAt(batch []BatchGroup, r float64) float64 {
	var sum, variance float64
	for i := range batch {
		if batch[i].Filtered {
			continue
		}
		for j := range batch[i].Rewards {
			sum += batch[i].weight(j)
			for k := range batch[i].Rewards {
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

// Over many batches at once the estimate is the definition at the true correlation.
func TestEffectiveBatchOfManySteps(t *testing.T) {
	s := synthetic{groups: 20000, size: 8, correlation: 0.25, ratioSigma: 0.4, masked: 0.2, filteredShare: 0.3}
	batch := s.draw(rand.New(rand.NewPCG(3, 4)))
	got, err := EffectiveBatchOf(batch)
	if err != nil {
		t.Fatal(err)
	}
	if want := effectiveAt(batch, 0.25); math.Abs(got.Effective/want-1) > 0.02 {
		t.Errorf("B_eff %.0f, by the definition %.0f", got.Effective, want)
	}
	if ess := EffectiveShare(0.4 * 0.4); math.Abs(got.Ratio-ess) > 0.01 {
		t.Errorf("effective by weight %.3f, of lognormal ratios %.3f", got.Ratio, ess)
	}
	if got.Rollouts != 160000 || math.Abs(float64(got.Counted)/160000-0.7*0.8) > 0.01 {
		t.Errorf("%d of %d rollouts count, want about 0.56", got.Counted, got.Rollouts)
	}
	expected, err := EffectiveRollouts(160000*0.7, 8, 0.25, 0.8, EffectiveShare(0.4*0.4))
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(got.Effective/expected-1) > 0.02 {
		t.Errorf("B_eff %.0f, expected before the run %.0f", got.Effective, expected)
	}
}

// Solve rates drawn from Beta(α, β) give 0/1 rewards of correlation 1/(α+β+1).
func TestCorrelationOfSolveRates(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	var groups [][]float64
	for range 40000 {
		p := random.Float64() // Beta(1, 1): correlation 1/3
		g := make([]float64, 4+random.IntN(8))
		for i := range g {
			if random.Float64() < p {
				g[i] = 1
			}
		}
		groups = append(groups, g)
	}
	r, err := SiblingCorrelation(groups)
	if err != nil || math.Abs(r-1.0/3) > 0.01 {
		t.Errorf("correlation %.4f (%v), want 0.3333", r, err)
	}
}

func TestKnownEffectiveBatches(t *testing.T) {
	equal := []BatchGroup{{Rewards: []float64{1, 1}}, {Rewards: []float64{0, 0}}}
	for _, c := range []struct {
		name   string
		groups []BatchGroup
		want   float64
	}{
		{"siblings alike count once", equal, 2},
		{"all filtered", []BatchGroup{{Rewards: []float64{1, 1}, Filtered: true}}, 0},
		{"one group cannot tell its correlation", []BatchGroup{{Rewards: []float64{0, 1, 0, 1}}}, 4},
		{"one rollout carries the weight", []BatchGroup{{Rewards: []float64{0, 1}, Ratios: []float64{1, 0}}}, 1},
	} {
		got, err := EffectiveBatchOf(c.groups)
		if err != nil || math.Abs(got.Effective-c.want) > 1e-12 {
			t.Errorf("%s: %g (%v), want %g", c.name, got.Effective, err, c.want)
		}
	}
}

func TestBadEffectiveBatches(t *testing.T) {
	for _, c := range []struct {
		groups []BatchGroup
		want   string
	}{
		{nil, "no groups"},
		{[]BatchGroup{{Rewards: []float64{1, 2}, Ratios: []float64{1}}}, "2 rewards, 1 ratios"},
		{[]BatchGroup{{Rewards: []float64{math.NaN()}}}, "reward 1 is NaN"},
		{[]BatchGroup{{Rewards: []float64{1}, Ratios: []float64{-1}}}, "rollout 1 weighs -1"},
		{[]BatchGroup{{Rewards: []float64{1}, Trained: []float64{1.5}}}, "share trained 1 is 1.5"},
	} {
		if _, err := EffectiveBatchOf(c.groups); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.groups, err, c.want)
		}
	}
	for _, groups := range [][][]float64{nil, {{1, 2}}, {{1}, {2}}, {{1, 1}, {1, 1}}, {{1, math.NaN()}, {2, 3}}} {
		if r, err := SiblingCorrelation(groups); err == nil {
			t.Errorf("%v: correlation %g", groups, r)
		}
	}
	for _, c := range [][5]float64{{0, 1, 0, 1, 1}, {8, 16, 0, 1, 1}, {8, 4, 1.5, 1, 1}, {8, 4, 0.5, 0, 1}, {8, 4, 0.5, 1, math.NaN()}, {math.NaN(), 4, 0, 1, 1}} {
		if n, err := EffectiveRollouts(c[0], c[1], c[2], c[3], c[4]); err == nil {
			t.Errorf("%v: %g effective rollouts", c, n)
		}
	}
}
