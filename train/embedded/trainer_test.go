package embedded

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/headway-rl/headway/internal/transformer"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/store/weights"
)

func options(t *testing.T) Options {
	t.Helper()
	store, err := weights.Open(t.TempDir(), weights.Options{})
	if err != nil {
		t.Fatal(err)
	}
	o := shape()
	o.Weights = store
	return o
}

// shape is a small policy and how it is trained, without a store of weights.
func shape() Options {
	return Options{
		Model:        transformer.Config{Vocabulary: 9, Context: 8, Width: 16, Layers: 1, Heads: 2}.WithDefaults(),
		PromptTokens: 4, Seed: 3, LearningRate: 3e-3, GradientNorm: 1, ClipEpsilon: 0.2, NormalizeStd: true,
	}
}

func started(t *testing.T, o Options) *Trainer {
	t.Helper()
	tr, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.Initialize(t.Context()); err != nil {
		t.Fatal(err)
	}
	return tr
}

// batch makes groups of rollouts as the trainer's own weights would sample them;
// an answer token equal to the prompt's last is rewarded.
func batch(t testing.TB, tr *Trainer, rng *rand.Rand) port.Batch {
	t.Helper()
	b := port.Batch{Lease: loop.LeaseID(tr.version + 1), Attempt: 1, Version: tr.version}
	pass, err := transformer.NewPass(tr.opt.Model)
	if err != nil {
		t.Fatal(err)
	}
	for g := range 8 {
		group := port.Group{ID: loop.GroupID(g + 1)}
		prompt := []int32{0, int32(2 + rng.IntN(7)), 1}
		for k := range 8 {
			answer := int32(2 + rng.IntN(7))
			s := port.Sample{ID: port.RolloutID{Group: group.ID, Sample: int32(k), Attempt: 1}, Tokens: append(slices.Clone(prompt), answer),
				LossMask: []uint8{0, 0, 0, 1}, Versions: []loop.Version{-1, -1, -1, tr.version}}
			if answer == prompt[1] {
				s.Reward = 1
			}
			logp := make([]float32, 4)
			one := transformer.Batch{Tokens: s.Tokens, Offsets: []int32{0, 4}, First: []int32{1}, Scored: []bool{false, false, false, true}}
			if err := pass.Forward(tr.current, &one, logp); err != nil {
				t.Fatal(err)
			}
			s.Logprobs = []float32{0, 0, 0, logp[3]}
			group.Samples = append(group.Samples, s)
		}
		b.Groups = append(b.Groups, group)
	}
	return b
}

// TestLearns: on-policy steps have ratios of one and raise the reward's tokens.
func TestLearns(t *testing.T) {
	tr := started(t, options(t))
	rng := rand.New(rand.NewPCG(1, 2))
	right := func() float64 {
		pass, _ := transformer.NewPass(tr.opt.Model)
		sum := 0.0
		for token := int32(2); token < 9; token++ {
			logp := make([]float32, 4)
			one := transformer.Batch{Tokens: []int32{0, token, 1, token}, Offsets: []int32{0, 4}, First: []int32{1}, Scored: []bool{false, false, false, true}}
			if err := pass.Forward(tr.current, &one, logp); err != nil {
				t.Fatal(err)
			}
			sum += math.Exp(float64(logp[3])) / 7
		}
		return sum
	}
	before := right()
	for range 60 {
		report, err := tr.Train(t.Context(), batch(t, tr, rng))
		if err != nil {
			t.Fatal(err)
		}
		if report.ClipFraction != 0 || math.Abs(report.MeanLogRatio) > 1e-5 || report.EffectiveSampleSize < 0.999 {
			t.Fatalf("on-policy step reports %+v", report)
		}
		if report.Rollouts != 64 || report.Tokens != 256 {
			t.Fatalf("step reports %d rollouts and %d tokens, want 64 and 256", report.Rollouts, report.Tokens)
		}
	}
	if after := right(); after < 4*before {
		t.Errorf("the right answer had probability %.3f before and %.3f after 60 steps", before, after)
	}
}

// TestRestore: a trainer restored from a version goes on exactly as the one that published it.
func TestRestore(t *testing.T) {
	o := options(t)
	first := started(t, o)
	rng := rand.New(rand.NewPCG(1, 2))
	batches := []port.Batch{}
	for range 4 {
		b := batch(t, first, rng)
		batches = append(batches, b)
		if _, err := first.Train(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	second, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Restore(t.Context(), 3, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := second.Train(t.Context(), batches[3]); err != nil {
		t.Fatal(err) // publishing version 4 again is no error: it is the same, to the bit
	}
	if !slices.Equal(first.current.Data(), second.current.Data()) {
		t.Error("the restored trainer's step differs")
	}
}

// TestThreads: two threads give nearly the gradient of one, and twice the same bits.
func TestThreads(t *testing.T) {
	run := func(threads int) []float32 {
		o := options(t)
		o.Threads = threads
		tr := started(t, o)
		b := batch(t, tr, rand.New(rand.NewPCG(5, 5)))
		if _, err := tr.Train(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		return slices.Clone(tr.grad)
	}
	one, two, again := run(1), run(2), run(2)
	if !slices.Equal(two, again) {
		t.Error("two threads gave two results")
	}
	for i := range one {
		if d := math.Abs(float64(one[i] - two[i])); d > 1e-5 {
			t.Fatalf("gradient %d is %g with one thread and %g with two", i, one[i], two[i])
		}
	}
}

// TestWarmup: supervised steps teach the demonstrations.
func TestWarmup(t *testing.T) {
	o := options(t)
	o.WarmupSteps = 80
	o.Demonstrations = func(step int) []Demonstration {
		var out []Demonstration
		for token := int32(2); token < 9; token++ {
			out = append(out, Demonstration{Prompt: []int32{0, token, 1}, Answer: []int32{token}})
		}
		return out
	}
	tr := started(t, o)
	report, err := tr.Train(t.Context(), batch(t, tr, rand.New(rand.NewPCG(1, 1))))
	if err != nil || report.Rollouts != 64 {
		t.Fatalf("%+v, %v", report, err)
	}
	pass, _ := transformer.NewPass(o.Model)
	logp := make([]float32, 4)
	one := transformer.Batch{Tokens: []int32{0, 5, 1, 5}, Offsets: []int32{0, 4}, First: []int32{1}, Scored: []bool{false, false, false, true}}
	if err := pass.Forward(tr.current, &one, logp); err != nil || logp[3] < -0.5 {
		t.Errorf("after the warm-up the answer has log-prob %g, %v", logp[3], err)
	}
}

// failing publishes nothing the first time it is asked for version 1.
type failing struct {
	port.Weights
	failed bool
}

func (f *failing) Publish(ctx context.Context, p port.Publication) error {
	if p.Version == 1 && !f.failed {
		f.failed = true
		return errors.New("no space left on device")
	}
	return f.Weights.Publish(ctx, p)
}

// TestFailedPublish: the next attempt of the step starts from the same weights.
func TestFailedPublish(t *testing.T) {
	o := options(t)
	good := started(t, o)
	b := batch(t, good, rand.New(rand.NewPCG(1, 2)))
	if _, err := good.Train(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	o = options(t)
	o.Weights = &failing{Weights: o.Weights}
	tr := started(t, o)
	if _, err := tr.Train(t.Context(), b); err == nil {
		t.Fatal("the failed publish went unnoticed")
	}
	if _, err := tr.Train(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(tr.current.Data(), good.current.Data()) {
		t.Error("the second attempt did not start from the published weights")
	}
}

// TestRefuses: batches that cannot be trained on change nothing.
func TestRefuses(t *testing.T) {
	tr := started(t, options(t))
	rng := rand.New(rand.NewPCG(1, 2))
	for name, c := range map[string]struct {
		change func(*port.Batch)
		want   string
	}{
		"version":    {func(b *port.Batch) { b.Version = 7 }, "starts from version 7"},
		"token":      {func(b *port.Batch) { b.Groups[0].Samples[0].Tokens[3] = 99 }, "token 99"},
		"mark":       {func(b *port.Batch) { b.Groups[0].Samples[0].LossMask[3] = 2 }, "marks token 3 with 2"},
		"lengths":    {func(b *port.Batch) { b.Groups[0].Samples[0].Versions = b.Groups[0].Samples[0].Versions[:3] }, "4 log-probs and 3 versions"},
		"no version": {func(b *port.Batch) { b.Groups[0].Samples[0].Versions[3] = loop.NoVersion }, "no version for token 3"},
		"future":     {func(b *port.Batch) { b.Groups[0].Samples[0].Versions[3] = 1 }, "sampled by version 1"},
		"not finite": {func(b *port.Batch) { b.Groups[0].Samples[0].Logprobs[3] = float32(math.NaN()) }, "log-prob NaN for token 3"},
		"empty":      {func(b *port.Batch) { b.Groups = nil }, "without a token"},
	} {
		b := batch(t, tr, rng)
		c.change(&b)
		if _, err := tr.Train(context.Background(), b); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q", name, err, c.want)
		}
		if tr.version != 0 {
			t.Fatalf("%s: the trainer moved to version %d", name, tr.version)
		}
	}
	if err := tr.Restore(t.Context(), 9, 0); err == nil {
		t.Error("restored a version that is not there")
	}
	bad := options(t)
	bad.LearningRate = 0
	if _, err := New(bad); err == nil {
		t.Error("a learning rate of 0 was accepted")
	}
}
