package grpo

import (
	"math"
	"slices"
	"testing"
)

// TestLags: a resumed sample whose newest span is version 7, in a step from version 9.
func TestLags(t *testing.T) {
	versions := []int64{-1, 4, 4, 5, -1, 7}
	sampled := []uint8{0, 1, 1, 1, 0, 1}
	lags := make([]int32, 6)
	Lags(lags, versions, 9)
	if want := []int32{10, 5, 5, 4, 10, 2}; !slices.Equal(lags, want) {
		t.Fatalf("lags %v, want %v", lags, want)
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
