package sequence

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/train/grpo"
)

// TestMinibatchesAreWholeGroups: no group is in two parts, and none is left out.
func TestMinibatchesAreWholeGroups(t *testing.T) {
	for _, shuffle := range []bool{false, true} {
		var all []Sequence
		sizes := []int{3, 1, 0, 4, 2, 2, 5}
		for g, n := range sizes {
			for range n {
				all = append(all, Sequence{Group: g})
			}
		}
		for parts := 1; parts <= len(sizes); parts++ {
			divided, err := Division{Parts: parts, Shuffle: shuffle, Seed: 3}.Minibatches(all, len(sizes), 5)
			if err != nil || len(divided) != parts {
				t.Fatalf("%d parts: %d, %v", parts, len(divided), err)
			}
			where, count := map[int]int{}, map[int]int{}
			for p, part := range divided {
				for _, s := range part {
					if before, ok := where[s.Group]; ok && before != p {
						t.Fatalf("%d parts: group %d is in parts %d and %d", parts, s.Group, before, p)
					}
					where[s.Group] = p
					count[s.Group]++
				}
			}
			for g, n := range sizes {
				if count[g] != n {
					t.Errorf("%d parts: %d of %d sequences of group %d", parts, count[g], n, g)
				}
			}
		}
		if _, err := (Division{Parts: 8}).Minibatches(all, len(sizes), 5); err == nil || !strings.Contains(err.Error(), "7 groups cannot be divided into 8") {
			t.Errorf("8 parts of 7 groups: %v", err)
		}
	}
}

// random is a batch of groups with rollouts of any form that live accepts, branches included.
func random(rng *rand.Rand, version loop.Version) port.Batch {
	b := port.Batch{Lease: 1, Attempt: 1, Version: version}
	for g := range 1 + rng.IntN(4) {
		group := port.Group{ID: loop.GroupID(g + 1), StartVersion: version - loop.Version(rng.IntN(4))}
		for k := range 1 + rng.IntN(4) {
			s := port.Sample{ID: port.RolloutID{Group: group.ID, Sample: int32(k), Attempt: 1}, Reward: float32(rng.IntN(3))}
			for range 1 + rng.IntN(3) {
				if len(s.Tokens) > 0 {
					s.Breaks = append(s.Breaks, int32(len(s.Tokens)))
				}
				for i := range 2 + rng.IntN(9) {
					sampled := i > 0 && rng.IntN(3) > 0
					s.Tokens, s.LossMask = append(s.Tokens, int32(rng.IntN(50))), append(s.LossMask, 0)
					s.Logprobs, s.Versions = append(s.Logprobs, 0), append(s.Versions, loop.NoVersion)
					if at := len(s.Tokens) - 1; sampled {
						s.LossMask[at], s.Logprobs[at], s.Versions[at] = 1, -3*rng.Float32(), version-loop.Version(rng.IntN(int(version)+1))
					}
				}
			}
			group.Samples = append(group.Samples, s)
		}
		b.Groups = append(b.Groups, group)
	}
	return b
}

// TestOf: put together again, the sequences of a rollout are the rollout, each with its own prompt and lags and
// all with the group's advantage; a group's advantages have a mean of 0.
func TestOf(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 300 {
		b := random(rng, 7)
		all, err := Of(b, rng.IntN(2) == 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		at := 0
		for g, group := range b.Groups {
			sum := 0.0
			for _, s := range group.Samples {
				first := at
				var tokens []int32
				for ; at < len(all) && all[at].ID == s.ID; at++ {
					q := &all[at]
					for k := range q.Tokens {
						if from := len(tokens) + k; q.Sampled[k] != s.LossMask[from] || q.Logprobs[k] != s.Logprobs[from] || q.Sampled[k] != 0 && q.Lags[k] != int32(7-s.Versions[from]) {
							t.Fatalf("rollout %v, token %d: %d %g %d", s.ID, from, q.Sampled[k], q.Logprobs[k], q.Lags[k])
						}
					}
					if q.Group != g || q.Advantage != all[first].Advantage || int64(q.Staleness) != int64(7-group.StartVersion) || slices.Index(q.Sampled, 1) >= 0 && slices.Index(q.Sampled, 1) != q.Prompt {
						t.Fatalf("rollout %v: %+v", s.ID, q)
					}
					tokens = append(tokens, q.Tokens...)
				}
				if !slices.Equal(tokens, s.Tokens) || at-first != len(s.Breaks)+1 {
					t.Fatalf("rollout %v: %d sequences of %v, want %d of %v", s.ID, at-first, tokens, len(s.Breaks)+1, s.Tokens)
				}
				sum += float64(all[first].Advantage)
			}
			if math.Abs(sum) > 1e-5 {
				t.Fatalf("advantages of a group sum up to %g", sum)
			}
		}
		if at != len(all) {
			t.Fatalf("%d of %d sequences are of a rollout", at, len(all))
		}
	}
}

// TestReport: what is told of a step is the sum of its tallies, however the sequences were divided over them;
// log-ratios and drifts are those of the tokens; the next step's clip fraction is predicted from this one's.
func TestReport(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	c := grpo.Correction{}.WithDefaults()
	b := random(rng, 3)
	for range 20 { // enough to predict from
		b.Groups = append(b.Groups, random(rng, 3).Groups...)
	}
	all, err := Of(b, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	KeepRatios(all)
	scored := Scored(all)
	told := func(r *Reporter, tallies ...*Tally) (out port.StepReport) {
		r.Begin(&c, tallies...)
		where := rand.New(rand.NewPCG(3, 3))
		for i := range all {
			current, derivative := make([]float32, len(all[i].Tokens)), make([]float32, len(all[i].Tokens))
			for k := range current {
				current[k] = all[i].Logprobs[k] + float32(all[i].Lags[k])*0.2
			}
			tallies[where.IntN(len(tallies))].Gradient(&c, derivative, &all[i], current, float32(scored))
		}
		Sizes(&out, b.Groups, all)
		r.Tell(&out, b.Groups, [][]Sequence{all[:1], all[1:]}, tallies...)
		return out
	}
	var once, twice Reporter
	first := told(&once, new(Tally))
	second := told(&twice, new(Tally), new(Tally))
	if math.Abs(first.MeanLogRatio-second.MeanLogRatio) > 1e-9 || first.ClipFraction != second.ClipFraction || first.TokenLag[3].Tokens != second.TokenLag[3].Tokens || first.MeanLogRatio == 0 {
		t.Errorf("one tally says %+v, two say %+v", first, second)
	}
	sum, tokens, counted := 0.0, 0, 0
	for _, ratios := range LogRatios(all) {
		for _, x := range ratios {
			sum += float64(x)
		}
		tokens += len(ratios)
	}
	for _, l := range first.TokenLag {
		counted += l.Tokens
	}
	if math.Abs(sum/float64(scored)-first.MeanProximalLogRatio) > 1e-6 || tokens != first.Tokens || counted != scored {
		t.Errorf("log-ratios of %d tokens have the mean %g, reported are %+v", tokens, sum/float64(scored), first)
	}
	for g, d := range first.Drifts {
		if d.Group != b.Groups[g].ID || !(d.Drift > 0) {
			t.Errorf("drift %+v of group %d", d, b.Groups[g].ID)
		}
	}
	if first.PredictedClipFraction != 0 || told(&once, new(Tally)).PredictedClipFraction <= 0 {
		t.Error("a first step predicts something, or a second nothing")
	}
}
