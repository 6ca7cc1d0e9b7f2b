package grpo

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func all(n int) []bool { return slices.Repeat([]bool{true}, n) }

func TestMaskTokens(t *testing.T) {
	logp := []float32{0, 1, -1, 1, float32(math.NaN())}
	keep := all(5)
	cleared := MaskTokens(keep, logp, make([]float32, 5), []uint8{1, 1, 1, 0, 1}, 0.5, 2)
	if want := []bool{true, false, false, true, true}; cleared != 2 || !slices.Equal(keep, want) {
		t.Errorf("cleared %d: %v, want %v", cleared, keep, want)
	}
	if again := MaskTokens(keep, logp, make([]float32, 5), nil, 0.5, 2); again != 1 {
		t.Errorf("cleared %d of what was left, want 1", again)
	}
}

// TestVersionMasks: a resumed sample whose newest span is version 7, in a step from version 9.
func TestVersionMasks(t *testing.T) {
	versions := []int64{-1, 4, 4, 5, -1, 7}
	sampled := []uint8{0, 1, 1, 1, 0, 1}
	lags := make([]int32, 6)
	Lags(lags, versions, 9)
	if want := []int32{10, 5, 5, 4, 10, 2}; !slices.Equal(lags, want) {
		t.Fatalf("lags %v, want %v", lags, want)
	}
	for width, want := range map[int32]int{0: 3, 1: 3, 2: 2, 3: 0} {
		if keep := all(6); MaskNewest(keep, lags, sampled, width) != want {
			t.Errorf("within %d of the newest: kept %v, want %d cleared", width, keep, want)
		}
	}
	for width, want := range map[int32]int{0: 4, 1: 4, 2: 3, 4: 2, 5: 0} {
		if keep := all(6); MaskLag(keep, lags, sampled, width) != want {
			t.Errorf("within %d of the training version: kept %v, want %d cleared", width, keep, want)
		}
	}
	if n := Spans(lags, sampled); n != 3 {
		t.Errorf("%d spans, want 3", n)
	}
	if n := Spans([]int32{2, 1, 2}, nil); n != 3 {
		t.Errorf("%d spans of a version that comes back, want 3", n)
	}
	if n := Spans(lags, make([]uint8, 6)); n != 0 {
		t.Errorf("%d spans without a sampled token", n)
	}
	if keep := all(2); MaskNewest(keep, []int32{math.MaxInt32, math.MaxInt32}, nil, math.MaxInt32) != 0 {
		t.Error("the widest mask cleared tokens: overflow")
	}
}

func TestSequenceMetrics(t *testing.T) {
	current, behaviour := []float32{9, -1, -2}, []float32{-9, -1.5, -1.2}
	sampled := []uint8{0, 1, 1}
	sum, n := SequenceLogRatio(current, behaviour, sampled)
	if n != 2 || !close64(sum, -0.3, 1e-6) {
		t.Errorf("log-ratio %g of %d tokens, want -0.3 of 2", sum, n)
	}
	if sum, n := AbsoluteLogRatio(current, behaviour, sampled); n != 2 || !close64(sum, 1.3, 1e-6) {
		t.Errorf("drift %g of %d tokens, want 1.3 of 2", sum, n)
	}
	want := (math.Exp(0.5) - 1.5 + math.Exp(-0.8) - 0.2) / 2
	if kl := SequenceKL(current, behaviour, sampled); !close64(kl, want, 1e-6) {
		t.Errorf("KL %g, want %g", kl, want)
	}
	if kl := SequenceKL(current, behaviour, make([]uint8, 3)); kl != 0 {
		t.Errorf("KL %g without tokens", kl)
	}
}

// TestMasksAgreeWithGradient: the plain functions clear the tokens that a
// Correction leaves out.
func TestMasksAgreeWithGradient(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	for range 200 {
		s := drawSequence(rng, 20)
		for _, c := range []struct {
			correction Correction
			mask       func(keep []bool) int
		}{
			{Correction{Kind: TokenMask, Low: 0.8, High: 1.3}, func(keep []bool) int {
				return MaskTokens(keep, s.Current, s.Behaviour, s.Sampled, 0.8, 1.3)
			}},
			{Correction{Kind: None, VersionMask: VersionsNewest, VersionLag: 1}, func(keep []bool) int {
				return MaskNewest(keep, s.Lags, s.Sampled, 1)
			}},
			{Correction{Kind: CISPO, VersionMask: VersionsTraining, VersionLag: 4}, func(keep []bool) int {
				return MaskLag(keep, s.Lags, s.Sampled, 4)
			}},
		} {
			full := c.correction.WithDefaults()
			derivative := make([]float32, 20)
			var r Report
			full.Gradient(derivative, &s, &r)
			keep := all(20)
			if cleared := c.mask(keep); cleared != r.All.Masked {
				t.Fatalf("%+v: cleared %d tokens, the gradient masks %d", c.correction, cleared, r.All.Masked)
			}
			for k := range keep {
				if !keep[k] && derivative[k] != 0 {
					t.Fatalf("%+v: token %d is cleared but has derivative %g", c.correction, k, derivative[k])
				}
			}
		}
	}
}

// TestOffPolicySequenceMask: with an infinite upper bound and only negative
// advantages, the geometric mask drops what DeepSeek-V3.2's rule does: bad
// sequences with mean log(π_b/π_θ) above δ.
func TestOffPolicySequenceMask(t *testing.T) {
	const delta = 0.1
	c := Correction{Kind: SequenceMask, Low: math.Exp(-delta), High: math.Inf(1), NegativeOnly: true}.WithDefaults()
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	for _, s := range []struct {
		shift, advantage float32
		dropped          bool
	}{{-0.2, -1, true}, {-0.2, 1, false}, {-0.05, -1, false}, {0.9, -1, false}} {
		seq := Sequence{Current: []float32{-1 + s.shift, -2 + s.shift}, Behaviour: []float32{-1, -2}, Advantage: s.advantage}
		var r Report
		c.Gradient(make([]float32, 2), &seq, &r)
		if (r.All.Masked == 2) != s.dropped {
			t.Errorf("shift %g advantage %g: %d tokens masked, want dropped %v", s.shift, s.advantage, r.All.Masked, s.dropped)
		}
	}
}
