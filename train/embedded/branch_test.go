package embedded

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/train/sequence"
)

// joined is a rollout that left both as its branches.
func joined(a, b port.Sample) port.Sample {
	out := a
	out.Breaks = append(slices.Clone(a.Breaks), int32(len(a.Tokens)))
	for _, at := range b.Breaks {
		out.Breaks = append(out.Breaks, int32(len(a.Tokens))+at)
	}
	out.Tokens, out.LossMask = slices.Concat(a.Tokens, b.Tokens), slices.Concat(a.LossMask, b.LossMask)
	out.Logprobs, out.Versions = slices.Concat(a.Logprobs, b.Logprobs), slices.Concat(a.Versions, b.Versions)
	return out
}

// TestBranches: every branch is a sequence of its own, with its rollout's advantage.
func TestBranches(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	tr := started(t, options(t))
	b := batch(t, tr, rng)
	other := batch(t, tr, rng)
	plain, err := sequence.Of(b, tr.opt.NormalizeStd, tr.holds)
	if err != nil {
		t.Fatal(err)
	}
	for g := range b.Groups {
		for i := range b.Groups[g].Samples {
			s := &b.Groups[g].Samples[i]
			for range i % 3 {
				*s = joined(*s, other.Groups[g].Samples[i])
			}
		}
	}
	items, err := sequence.Of(b, tr.opt.NormalizeStd, tr.holds)
	if err != nil {
		t.Fatal(err)
	}
	at := 0
	for g := range b.Groups {
		for i := range b.Groups[g].Samples {
			want := plain[g*8+i]
			for k := range i%3 + 1 {
				it := items[at]
				at++
				tokens := want.Tokens
				if k > 0 {
					tokens = other.Groups[g].Samples[i].Tokens
				}
				if !slices.Equal(it.Tokens, tokens) || it.Advantage != want.Advantage || it.Group != g || it.Prompt != 3 || len(it.Logprobs) != 4 || len(it.Lags) != 4 {
					t.Errorf("branch %d of rollout %d in group %d is %+v, want the tokens %v and the advantage %g", k, i, g, it, tokens, want.Advantage)
				}
			}
		}
	}
	if at != len(items) {
		t.Errorf("%d sequences, want %d", len(items), at)
	}
}

// TestBranchesTrain: a batch whose rollouts all went the same way twice has the same mean
// gradient, and makes the same weights.
func TestBranchesTrain(t *testing.T) {
	once, twice := started(t, options(t)), started(t, options(t))
	b := batch(t, once, rand.New(rand.NewPCG(7, 7)))
	doubled := batch(t, twice, rand.New(rand.NewPCG(7, 7)))
	for g := range doubled.Groups {
		for i := range doubled.Groups[g].Samples {
			s := &doubled.Groups[g].Samples[i]
			*s = joined(*s, *s)
		}
	}
	first, err := once.Train(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	second, err := twice.Train(t.Context(), doubled)
	if err != nil {
		t.Fatal(err)
	}
	if second.Rollouts != first.Rollouts || second.Tokens != 2*first.Tokens || second.TokenLag[0].Tokens != 2*first.TokenLag[0].Tokens {
		t.Errorf("%d rollouts of %d tokens, %d of them sampled; once they were %d, %d and %d",
			second.Rollouts, second.Tokens, second.TokenLag[0].Tokens, first.Rollouts, first.Tokens, first.TokenLag[0].Tokens)
	}
	if math.Abs(second.GradNorm-first.GradNorm) > 1e-4*first.GradNorm || math.Abs(second.MeanLogRatio) > 1e-5 {
		t.Errorf("gradient norm %g and log-ratio %g, want %g and 0", second.GradNorm, second.MeanLogRatio, first.GradNorm)
	}
	for i, x := range once.current.Data() {
		if math.Abs(float64(x-twice.current.Data()[i])) > 1e-4 {
			t.Fatalf("weight %d is %g, want %g", i, twice.current.Data()[i], x)
		}
	}
	for want, breaks := range map[string][]int32{"a break at 0 after 0": {0}, "a break at 8 after 4": {4, 8}, "a break at 4 after 4": {4, 4}, "has 0 prompt": {3}} {
		bad := batch(t, twice, rand.New(rand.NewPCG(8, 8)))
		s := &bad.Groups[2].Samples[3]
		*s = joined(*s, *s)
		s.Breaks = breaks
		if _, err := twice.Train(t.Context(), bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("breaks %v: %v, want %q", breaks, err, want)
		}
	}
}
