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
	"github.com/headway-rl/headway/train/grpo"
	"github.com/headway-rl/headway/train/sequence"
)

// aged makes a batch that an earlier version sampled: the trainer makes lag steps on
// other batches in between, and the samples say so.
func aged(t *testing.T, tr *Trainer, rng *rand.Rand, lag int) port.Batch {
	t.Helper()
	old := batch(t, tr, rng)
	for range lag {
		if _, err := tr.Train(t.Context(), batch(t, tr, rng)); err != nil {
			t.Fatal(err)
		}
	}
	old.Lease, old.Version = loop.LeaseID(tr.version+1), tr.version
	for g := range old.Groups {
		old.Groups[g].StartVersion = tr.version - loop.Version(lag)
	}
	return old
}

// TestCorrections: every correction trains on stale batches without a fault,
// raises the reward's tokens, and says what it masked and cut.
func TestCorrections(t *testing.T) {
	for _, c := range []struct {
		correction grpo.Correction
		acts       func(port.StepReport) bool // what only this correction does
	}{
		{grpo.Correction{}, func(r port.StepReport) bool { return r.ActiveClipFraction > 0 }},
		{grpo.Correction{Kind: grpo.None}, func(r port.StepReport) bool { return r.ClipFraction > 0 && r.ActiveClipFraction == 0 }},
		{grpo.Correction{Kind: grpo.DecoupledPPO, Cap: 1.1}, func(r port.StepReport) bool { return r.TruncatedFraction > 0 }},
		{grpo.Correction{Kind: grpo.TIS, Cap: 1.1}, func(r port.StepReport) bool { return r.TruncatedFraction > 0 && r.ActiveClipFraction == 0 }},
		{grpo.Correction{Kind: grpo.TokenMask, Low: 0.8, High: 1.2}, func(r port.StepReport) bool { return r.MaskedFraction > 0 && r.MaskedFraction == r.ClipFraction }},
		{grpo.Correction{Kind: grpo.SequenceMask, Low: 0.9, High: 1.1}, func(r port.StepReport) bool { return r.MaskedFraction > 0 }},
		{grpo.Correction{Kind: grpo.CISPO}, func(r port.StepReport) bool { return r.TruncatedFraction > 0 }},
		{grpo.Correction{VersionMask: grpo.VersionsTraining, VersionLag: 2}, func(r port.StepReport) bool { return r.MaskedFraction == 0 }},
		{grpo.Correction{VersionMask: grpo.VersionsTraining, VersionLag: 1}, func(r port.StepReport) bool { return r.MaskedFraction == 1 && r.GradNorm == 0 }},
	} {
		o := options(t)
		o.Correction = c.correction
		// The batches in between are on-policy and come through every mask.
		tr := started(t, o)
		b := aged(t, tr, rand.New(rand.NewPCG(1, 2)), 2)
		report, err := tr.Train(t.Context(), b)
		if err != nil {
			t.Fatalf("%+v: %v", c.correction, err)
		}
		if !c.acts(report) {
			t.Errorf("%+v: report %+v", c.correction, report)
		}
	}
}

// TestReportByStaleness: tokens are told apart by their own version, groups by
// their staleness, and drift is measured against the step's start.
func TestReportByStaleness(t *testing.T) {
	tr := started(t, options(t))
	rng := rand.New(rand.NewPCG(4, 2))
	stale := aged(t, tr, rng, 3)
	fresh := batch(t, tr, rng)
	for g := range fresh.Groups {
		fresh.Groups[g].ID += 100
		fresh.Groups[g].StartVersion = tr.version - 1 // its first token is not one that is trained on
	}
	mixed := fresh
	mixed.Groups = append(slices.Clone(stale.Groups), fresh.Groups...)
	report, err := tr.Train(t.Context(), mixed)
	if err != nil {
		t.Fatal(err)
	}
	if report.TokenLag[3].Tokens != 64 || report.TokenLag[0].Tokens != 64 || report.GroupLag[1].Tokens != 64 || report.GroupLag[3].Tokens != 64 {
		t.Errorf("tokens by lag %+v, by group %+v", report.TokenLag, report.GroupLag)
	}
	if report.TokenLag[0].ClipFraction != 0 || report.TokenLag[3].ClipFraction == 0 || report.Health == "" || report.Minibatches != 1 {
		t.Errorf("report %+v", report)
	}
	if report.MeanLogRatio != report.MeanProximalLogRatio && math.Abs(report.MeanLogRatio-report.MeanProximalLogRatio) > 1e-12 {
		t.Errorf("one step: mean log-ratio %g, of the step's start %g", report.MeanLogRatio, report.MeanProximalLogRatio)
	}
	if len(report.Drifts) != 16 {
		t.Fatalf("%d drifts of 16 groups", len(report.Drifts))
	}
	for g, d := range report.Drifts {
		if old := g < 8; d.Group != mixed.Groups[g].ID || old != (d.Drift > 1e-3) {
			t.Errorf("group %d, stale %v, has drift %+v", mixed.Groups[g].ID, old, d)
		}
	}
	// From here on the trainer has seen lags 0 and 3, and expects something of them.
	report, err = tr.Train(t.Context(), aged(t, tr, rng, 3))
	if err != nil {
		t.Fatal(err)
	}
	if p := report.TokenLag[3].PredictedClipFraction; p <= 0 || p >= 1 || p != report.PredictedClipFraction {
		t.Errorf("predicted clip fraction at lag 3 is %g, of the step %g", p, report.PredictedClipFraction)
	}
}

// TestMinibatches: several optimizer steps a batch move the weights further, clip
// against the step's start, keep groups whole and are a function of seed and version.
func TestMinibatches(t *testing.T) {
	run := func(minibatches int, shuffle bool, kind grpo.Kind, rate float64) (*Trainer, port.StepReport) {
		o := options(t)
		o.Minibatches, o.ShuffleMinibatches, o.LearningRate = minibatches, shuffle, rate
		o.Correction.Kind = kind
		tr := started(t, o)
		report, err := tr.Train(t.Context(), batch(t, tr, rand.New(rand.NewPCG(6, 6))))
		if err != nil {
			t.Fatal(err)
		}
		return tr, report
	}
	one, _ := run(1, false, grpo.PPOClip, 3e-3)
	_, _, steps := one.adam.State()
	if steps != 1 {
		t.Errorf("%d optimizer steps, want 1", steps)
	}
	for _, kind := range []grpo.Kind{grpo.PPOClip, grpo.DecoupledPPO} {
		four, report := run(4, false, kind, 3e-2)
		if _, _, steps := four.adam.State(); steps != 4 || report.Minibatches != 4 || report.Rollouts != 64 || report.TokenLag[0].Tokens != 64 {
			t.Errorf("%s: %d optimizer steps, report %+v", kind, steps, report)
		}
		// The batch is on-policy: what is clipped comes from the step itself.
		if report.ClipFraction == 0 || report.ActiveClipFraction == 0 || math.Abs(report.MeanProximalLogRatio) > 1e-5 {
			t.Errorf("%s: report %+v", kind, report)
		}
		for _, d := range report.Drifts {
			if d.Drift > 1e-5 {
				t.Errorf("%s: group %d of an on-policy batch has drift %g", kind, d.Group, d.Drift)
			}
		}
	}
	ordered, _ := run(4, false, grpo.PPOClip, 3e-3)
	shuffled, _ := run(4, true, grpo.PPOClip, 3e-3)
	again, _ := run(4, true, grpo.PPOClip, 3e-3)
	if !slices.Equal(shuffled.current.Data(), again.current.Data()) {
		t.Error("shuffled twice by one seed, two results")
	}
	if slices.Equal(shuffled.current.Data(), ordered.current.Data()) {
		t.Error("shuffling changed nothing")
	}
}

// TestShares: two threads get whole groups, and about half the tokens each; with
// more threads than groups every thread still has work.
func TestShares(t *testing.T) {
	tr := &Trainer{shards: make([]*shard, 2)}
	var items []sequence.Sequence
	for g, n := range []int{9, 2, 3, 2, 8, 2} {
		for k := range 4 {
			items = append(items, sequence.Sequence{Group: g, Tokens: make([]int32, n), Lags: []int32{int32(k)}})
		}
	}
	tokens, where, seen := make([]int, 2), map[int]int{}, 0
	for k, share := range tr.shares(items) {
		for _, it := range share {
			if before, ok := where[it.Group]; ok && before != k {
				t.Fatalf("group %d is on threads %d and %d", it.Group, before, k)
			}
			where[it.Group] = k
			tokens[k] += len(it.Tokens)
			seen++
		}
	}
	if seen != len(items) || tokens[0] != tokens[1] {
		t.Errorf("%d of %d items, %v tokens: the batch's order would give 56 and 48", seen, len(items), tokens)
	}
	tr.shards = make([]*shard, 8)
	for k, share := range tr.shares(items) {
		if len(share) == 0 {
			t.Errorf("thread %d has nothing to do", k)
		}
	}
}

// TestFailedMinibatch: a step that fails after its first optimizer step leaves the published weights.
func TestFailedMinibatch(t *testing.T) {
	o := options(t)
	o.Minibatches = 2
	tr := started(t, o)
	b := batch(t, tr, rand.New(rand.NewPCG(6, 6)))
	before := slices.Clone(tr.current.Data())
	// Rewards are finite by contract; one that is not reaches only the second minibatch.
	b.Groups[7].Samples[0].Reward = float32(math.NaN())
	if _, err := tr.Train(t.Context(), b); err == nil || !strings.Contains(err.Error(), "step from version 0") {
		t.Fatalf("got %v", err)
	}
	if _, _, steps := tr.adam.State(); steps != 0 || !slices.Equal(tr.current.Data(), before) {
		t.Errorf("the failed step left %d optimizer steps behind", steps)
	}
	o.Minibatches = 9
	tr = started(t, o)
	if _, err := tr.Train(t.Context(), batch(t, tr, rand.New(rand.NewPCG(6, 6)))); err == nil || !strings.Contains(err.Error(), "8 groups cannot be divided into 9") {
		t.Errorf("got %v", err)
	}
}

// TestTurns: a sample of two turns is trained on where the policy spoke, and its
// log-probs agree with those of one pass over the whole sequence.
func TestTurns(t *testing.T) {
	tr := started(t, options(t))
	pass, err := transformer.NewPass(tr.opt.Model)
	if err != nil {
		t.Fatal(err)
	}
	b := port.Batch{Lease: 1, Attempt: 1, Groups: []port.Group{{ID: 1}}}
	tokens := []int32{0, 3, 1, 5, 2, 7} // prompt of three, a turn, a reply of the environment, a turn
	logp := make([]float32, len(tokens))
	scored := []bool{false, false, false, true, false, true}
	if err := pass.Forward(tr.current, &transformer.Batch{Tokens: tokens, Offsets: []int32{0, 6}, First: []int32{1}, Scored: scored}, logp); err != nil {
		t.Fatal(err)
	}
	for k := range 2 {
		b.Groups[0].Samples = append(b.Groups[0].Samples, port.Sample{ID: port.RolloutID{Group: 1, Sample: int32(k), Attempt: 1}, Tokens: tokens,
			LossMask: []uint8{0, 0, 0, 1, 0, 1}, Logprobs: []float32{0, 0, 0, logp[3], 0, logp[5]}, Versions: []loop.Version{-1, -1, -1, 0, -1, 0}, Reward: float32(k)})
	}
	report, err := tr.Train(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	if report.TokenLag[0].Tokens != 4 || report.Tokens != 12 || math.Abs(report.MeanLogRatio) > 1e-5 || report.GradNorm < 0 {
		t.Errorf("report %+v", report)
	}
}

// TestVersionMaskOfSpans: of a sample that three versions made, the newest mask keeps the last span.
func TestVersionMaskOfSpans(t *testing.T) {
	o := options(t)
	o.Correction.VersionMask = grpo.VersionsNewest
	tr := started(t, o)
	for range 4 {
		if _, err := tr.Train(t.Context(), batch(t, tr, rand.New(rand.NewPCG(1, 1)))); err != nil {
			t.Fatal(err)
		}
	}
	b := batch(t, tr, rand.New(rand.NewPCG(1, 1)))
	s := &b.Groups[0].Samples[0]
	s.Tokens = []int32{0, 3, 1, 4, 5, 6, 7}
	s.LossMask = []uint8{0, 0, 0, 1, 1, 1, 1}
	s.Logprobs = []float32{0, 0, 0, -2, -2, -2, -2}
	s.Versions = []loop.Version{-1, -1, -1, 0, 2, 2, 3}
	report, err := tr.Train(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	if want := 3.0 / 67; math.Abs(report.MaskedFraction-want) > 1e-12 {
		t.Errorf("masked %g of the tokens, want %g", report.MaskedFraction, want)
	}
	if report.TokenLag[1].Tokens != 1 || report.TokenLag[2].Tokens != 2 || report.TokenLag[3].Tokens != 1 || report.TokenLag[3].MaskedFraction != 1 {
		t.Errorf("tokens by lag %+v", report.TokenLag)
	}
}

// TestCorrectionOptions: a band of the correction goes before ClipEpsilon, and bad ones are refused.
func TestCorrectionOptions(t *testing.T) {
	o := options(t)
	o.ClipEpsilon = 0.3
	if c := o.correction(); c.EpsilonLow != 0.3 || c.EpsilonHigh != 0.3 {
		t.Errorf("clip epsilon 0.3 became %+v", c)
	}
	o.Correction.EpsilonLow, o.Correction.EpsilonHigh = 0.1, 0.4
	if c := o.correction(); c.EpsilonLow != 0.1 || c.EpsilonHigh != 0.4 {
		t.Errorf("a band of its own became %+v", c)
	}
	o.Correction.Kind = "magic"
	if _, err := New(o); err == nil || !strings.Contains(err.Error(), `kind is "magic"`) {
		t.Errorf("got %v", err)
	}
	o = options(t)
	o.Minibatches = -1
	if _, err := New(o); err == nil {
		t.Error("a negative number of minibatches was accepted")
	}
}

// TestPublishFailureAfterMinibatches: another attempt starts where the first did.
func TestPublishFailureAfterMinibatches(t *testing.T) {
	o := options(t)
	o.Minibatches = 4
	good := started(t, o)
	b := batch(t, good, rand.New(rand.NewPCG(1, 2)))
	if _, err := good.Train(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	o = options(t)
	o.Minibatches = 4
	o.Weights = &failing{Weights: o.Weights}
	tr := started(t, o)
	if _, err := tr.Train(context.Background(), b); err == nil || errors.Is(err, context.Canceled) {
		t.Fatalf("the failed publish went unnoticed: %v", err)
	}
	if _, err := tr.Train(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(tr.current.Data(), good.current.Data()) {
		t.Error("the second attempt did not start from the published weights")
	}
}

// The log-ratios that are kept are those whose mean is reported: of every sampled token, and of the steps asked for alone.
func TestKeptLogRatios(t *testing.T) {
	for _, minibatches := range []int{1, 2} {
		o := options(t)
		o.Minibatches = minibatches
		o.KeepLogRatios = func(v loop.Version) bool { return v == 2 }
		tr := started(t, o)
		rng := rand.New(rand.NewPCG(5, 6))
		if r, err := tr.Train(t.Context(), batch(t, tr, rng)); err != nil || r.LogRatios != nil {
			t.Fatalf("a step that was not asked for: %v, %v", r.LogRatios, err)
		}
		b := aged(t, tr, rng, 1)
		r, err := tr.Train(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		sum, tokens, samples := 0.0, 0, 0
		for _, g := range b.Groups {
			for _, s := range g.Samples {
				ratios := r.LogRatios[s.ID]
				if len(ratios) != len(s.Tokens) {
					t.Fatalf("%v: %d log-ratios of %d tokens", s.ID, len(ratios), len(s.Tokens))
				}
				samples++
				for k, x := range ratios {
					if s.LossMask[k] == 0 && x != 0 {
						t.Fatalf("%v: log-ratio %g of a token that was not sampled", s.ID, x)
					}
					sum, tokens = sum+float64(x), tokens+int(s.LossMask[k])
				}
			}
		}
		if mean := sum / float64(tokens); len(r.LogRatios) != samples || math.Abs(mean-r.MeanProximalLogRatio) > 1e-6 || mean == 0 {
			t.Errorf("%d minibatches: mean %g of %d samples, reported are %g", minibatches, mean, len(r.LogRatios), r.MeanProximalLogRatio)
		}
	}
}
