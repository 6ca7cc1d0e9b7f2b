package workload

import (
	"fmt"
	"math"
	"testing"
)

func build(t testing.TB, s LengthSpec) *Lengths {
	t.Helper()
	l, err := s.Build()
	if err != nil {
		t.Fatalf("build %+v: %v", s, err)
	}
	return l
}

// tailed is the lognormal of theory.md with the cap its published tables fit.
func tailed(mean, tailness float64) LengthSpec {
	return LengthSpec{Kind: KindLognormal, MeanTokens: mean, Tailness: tailness, CapTokens: int(2.2*mean + 100*tailness)}
}

// TestTailMultipliers checks the values of docs/theory.md, to their printed
// digits.
func TestTailMultipliers(t *testing.T) {
	for _, c := range []struct {
		tailness float64
		s        int
		want     float64
	}{
		{30, 8, 1.663}, {50, 8, 2.210}, {70, 8, 2.790}, {90, 8, 3.359},
		{30, 16, 1.889}, {50, 16, 2.705}, {70, 16, 3.620}, {90, 16, 4.561},
	} {
		got := build(t, tailed(1400, c.tailness)).TailMultiplier(c.s)
		if math.Abs(got-c.want) > 0.0006 {
			t.Errorf("tailness %g, S=%d: M = %.4f, want %.3f", c.tailness, c.s, got, c.want)
		}
	}
	// E[max of 128]/E[L] of theory.md's synchronous barrier, printed as ≈ 4.3.
	if got := build(t, tailed(1400, 50)).TailMultiplier(128); math.Abs(got-4.3) > 0.1 {
		t.Errorf("E[max of 128]/E[L] = %.3f, want about 4.3", got)
	}
}

// TestCappedMean: with a cap of 12080 and a nominal mean of 1400 at tailness
// 90 the mean that counts is 1345.8 (theory.md).
func TestCappedMean(t *testing.T) {
	if got := build(t, tailed(1400, 90)).Mean(); math.Abs(got-1345.8) > 0.1 {
		t.Errorf("E[L] = %.2f, want 1345.8", got)
	}
}

// TestAliasDrawsMatchTheDistribution compares the counts of many draws with
// the exact probabilities, cell by cell.
func TestAliasDrawsMatchTheDistribution(t *testing.T) {
	const draws = 1 << 20
	for name, spec := range map[string]LengthSpec{
		"lognormal":   tailed(60, 50),
		"capped hard": {Kind: KindLognormal, MeanTokens: 100, Tailness: 90, CapTokens: 120},
		"exponential": {Kind: KindExponential, MeanTokens: 40},
		"pareto":      {Kind: KindPareto, MeanTokens: 30, Alpha: 1.5, CapTokens: 500},
		"measured":    {Kind: KindEmpirical, Groups: [][]int{{3}, {3}, {9}, {1}, {1000}}},
	} {
		l := build(t, spec)
		d := l.Distribution()
		index := map[int]int{}
		var expected []float64
		for i := range d.Len() {
			v, p := d.At(i)
			// Rare values share a cell, so that every cell expects at least 20.
			if len(expected) > 0 && expected[len(expected)-1] < 20 {
				expected[len(expected)-1] += p * draws
			} else {
				expected = append(expected, p*draws)
			}
			index[int(v)] = len(expected) - 1
		}
		counts := make([]int, len(expected))
		src := NewSource(11, StreamLength)
		for i := range draws {
			cell, ok := index[l.Draw(src, uint64(i/8), uint32(i%8), 1)]
			if !ok {
				t.Fatalf("%s: drew a length of probability zero", name)
			}
			counts[cell]++
		}
		if expected[len(expected)-1] < 20 {
			last := len(expected) - 1
			expected[last-1] += expected[last]
			counts[last-1] += counts[last]
			expected, counts = expected[:last], counts[:last]
		}
		if x, k := chiSquare(counts, expected); x > chiSquareLimit(k) {
			t.Errorf("%s: chi-square %.1f above %.1f for %g degrees of freedom", name, x, chiSquareLimit(k), k)
		}
	}
}

// TestDrawnMaximaMatchMoments draws whole groups and compares with the exact
// moments, for independent siblings and for siblings measured together.
func TestDrawnMaximaMatchMoments(t *testing.T) {
	const groups = 1 << 16
	grouped := LengthSpec{Kind: KindEmpirical, CapTokens: 900, Groups: [][]int{
		{10, 12, 14, 11}, {100, 900, 120}, {500}, {40, 45, 50, 55, 60, 4000},
	}}
	for name, spec := range map[string]LengthSpec{"lognormal": tailed(1400, 50), "grouped": grouped} {
		l := build(t, spec)
		for _, s := range []int{1, 2, 4, 8} {
			src := NewSource(2, StreamLength)
			var sum, longest, product, square, longestSquare float64
			for g := range uint64(groups) {
				total, most := 0.0, 0.0
				for i := range uint32(s) {
					v := float64(l.Draw(src, g, i, 1))
					total += v
					most = max(most, v)
					square += v * v
				}
				sum += total
				longest += most
				longestSquare += most * most
				product += most * total
			}
			n := float64(groups)
			spread := math.Sqrt(longestSquare/n-longest/n*longest/n) / math.Sqrt(n)
			near(t, fmt.Sprintf("%s S=%d E[max]", name, s), longest/n, l.MeanMax(s), 5*spread/l.MeanMax(s))
			near(t, fmt.Sprintf("%s S=%d E[max] of MaxDistribution", name, s), l.MaxDistribution(s).Mean(), l.MeanMax(s), 1e-9)
			near(t, fmt.Sprintf("%s S=%d E[L]", name, s), sum/n/float64(s), l.Mean(), 0.02)
			near(t, fmt.Sprintf("%s S=%d E[L²]", name, s), square/n/float64(s), l.MeanSquare(), 0.04)
			near(t, fmt.Sprintf("%s S=%d E[max·sum]", name, s), product/n, l.MeanMaxSum(s), 0.04)
		}
	}
}

func near(t *testing.T, what string, got, want, relative float64) {
	t.Helper()
	if !(math.Abs(got-want) <= relative*math.Abs(want)) {
		t.Errorf("%s: got %.6g, want %.6g within %.2g", what, got, want, relative)
	}
}

// TestExponentialOrderStatistics: E[max of S] of an exponential is H_S times
// the mean; rounding to tokens moves it by less than 1e-4 at this mean.
func TestExponentialOrderStatistics(t *testing.T) {
	l := build(t, LengthSpec{Kind: KindExponential, MeanTokens: 2000})
	harmonic := 0.0
	for s := 1; s <= 32; s++ {
		harmonic += 1 / float64(s)
		near(t, fmt.Sprintf("S=%d", s), l.MeanMax(s), harmonic*2000, 1e-4)
	}
}

func TestParetoMean(t *testing.T) {
	l := build(t, LengthSpec{Kind: KindPareto, MeanTokens: 500, Alpha: 3})
	near(t, "E[L]", l.Mean(), 500, 1e-3)
	if got := l.Quantile(0); got < 333 || got > 334 {
		t.Errorf("the least length is %d, want mean·(alpha−1)/alpha = 333", got)
	}
}

func TestTailnessZeroIsDeterministic(t *testing.T) {
	l := build(t, LengthSpec{Kind: KindLognormal, MeanTokens: 99.6})
	src := NewSource(1, StreamLength)
	for g := range uint64(100) {
		if got := l.Draw(src, g, 0, 1); got != 100 {
			t.Fatalf("drew %d tokens, want 100", got)
		}
	}
	if m := l.TailMultiplier(16); m != 1 {
		t.Errorf("M = %v, want 1", m)
	}
}

// TestScalingLengthsKeepsTheTail: M does not depend on the mean, up to
// rounding to whole tokens.
func TestScalingLengthsKeepsTheTail(t *testing.T) {
	base := LengthSpec{Kind: KindLognormal, MeanTokens: 1000, Tailness: 60, CapTokens: 6000}
	double := LengthSpec{Kind: KindLognormal, MeanTokens: 2000, Tailness: 60, CapTokens: 12000}
	near(t, "M", build(t, double).TailMultiplier(8), build(t, base).TailMultiplier(8), 1e-4)
}

func TestCappedModel(t *testing.T) {
	for name, spec := range map[string]LengthSpec{
		"independent": tailed(1400, 70),
		"grouped":     {Kind: KindEmpirical, Groups: [][]int{{5, 9000}, {2000, 3100, 80}}},
	} {
		full := build(t, spec)
		capped, truncated := full.Capped(3000)
		direct := spec
		direct.CapTokens = 3000
		want := build(t, direct)
		near(t, name+" mean", capped.Mean(), want.Mean(), 1e-12)
		near(t, name+" M", capped.TailMultiplier(4), want.TailMultiplier(4), 1e-12)
		near(t, name+" truncated", truncated, 1-full.CDF(3000), 1e-12)
		if got := capped.Quantile(1); got != 3000 {
			t.Errorf("%s: longest is %d after a cap of 3000", name, got)
		}
	}
}

// TestGroupedSiblingsComeFromOnePrompt: every group drawn holds the members of
// one measured group, each of them once when sizes agree.
func TestGroupedSiblingsComeFromOnePrompt(t *testing.T) {
	l := build(t, LengthSpec{Kind: KindEmpirical, Groups: [][]int{{1, 2, 3, 4}, {10, 20, 30, 40}}})
	src := NewSource(1, StreamLength)
	first := 0
	for g := range uint64(1000) {
		sum := 0
		for i := range uint32(4) {
			sum += l.Draw(src, g, i, 1)
		}
		switch sum {
		case 10:
			first++
		case 100:
		default:
			t.Fatalf("group %d sums to %d, want all members of one measured group", g, sum)
		}
		if retry := l.Draw(src, g, 0, 2); (retry <= 4) != (sum == 10) {
			t.Fatalf("group %d: a retry drew %d from another prompt", g, retry)
		}
	}
	if first < 430 || first > 570 {
		t.Errorf("the first measured group was drawn %d times of 1000", first)
	}
}

// TestUncappedTailIsBounded: a model without a cap still has a finite table.
func TestUncappedTailIsBounded(t *testing.T) {
	l := build(t, LengthSpec{Kind: KindLognormal, MeanTokens: 8000, Tailness: 100})
	if got := l.Quantile(1); got > MaxTokens {
		t.Errorf("longest is %d, above MaxTokens", got)
	}
	near(t, "E[L]", l.Mean(), 8000, 1e-3)
}

func TestDrawDoesNotAllocate(t *testing.T) {
	src := NewSource(1, StreamLength)
	grouped := build(t, LengthSpec{Kind: KindEmpirical, Groups: [][]int{{1, 2}, {3, 4}}})
	single := build(t, tailed(1400, 50))
	service := buildTimes(t, TimesSpec{Kind: KindLognormal, MeanS: 1, Tailness: 50})
	accept, err := NewAcceptance(0.5)
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	if n := testing.AllocsPerRun(100, func() {
		total += grouped.Draw(src, 1, 2, 1) + single.Draw(src, 3, 4, 1) + int(service.Draw(src, 5, 6, 1))
		if accept.Accept(src, 7) {
			total++
		}
	}); n != 0 {
		t.Errorf("draws allocate %v times", n)
	}
	if total == 0 {
		t.Error("nothing was drawn")
	}
}

func BenchmarkDraw(b *testing.B) {
	for name, spec := range map[string]LengthSpec{
		"lognormal": tailed(1400, 50),
		"grouped":   {Kind: KindEmpirical, Groups: [][]int{{1, 2, 3, 4, 5, 6, 7, 8}, {9, 10, 11, 12, 13, 14, 15, 16}}},
	} {
		l := build(b, spec)
		b.Run(name, func(b *testing.B) {
			src := NewSource(1, StreamLength)
			total := 0
			for i := range b.N {
				total += l.Draw(src, uint64(i>>3), uint32(i&7), 1)
			}
			if total == 0 {
				b.Fatal("nothing was drawn")
			}
		})
	}
}
