package sim_test

import (
	"math"
	"testing"

	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/loop"
)

// straggler is a workload in which one rollout takes a thousand times as long.
type straggler struct {
	sim.Work
	group loop.GroupID
}

func (s straggler) Rollout(r sim.Rollout) sim.Response {
	w := s.Work.Rollout(r)
	if r.Group == s.group && r.Sample == 0 {
		w.Tokens *= 1000
	}
	return w
}

// TestOneStragglerWedgesNothing: a rollout a thousand times as long as others
// costs an asynchronous run one slot and one group, not a step; a synchronous run
// waits for it unless it oversamples or interrupts, which leaves it for later.
func TestOneStragglerWedgesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		rules  func(*loop.Config)
		wedged bool
	}{
		"drop":        {rules: func(*loop.Config) {}},
		"block":       {rules: func(c *loop.Config) { c.Policy = loop.PolicyBlock }},
		"bounded":     {rules: func(c *loop.Config) { c.Policy, c.Eta, c.QueueGroups = loop.PolicyBounded, 2, 12 }},
		"max":         {rules: func(c *loop.Config) { c.Policy, c.MaxStaleness, c.Abort = loop.PolicyMax, 3, true }},
		"partial":     {rules: threshold(1, 1, loop.SyncRestart)},
		"drained":     {rules: threshold(1, 1, loop.SyncDrain), wedged: true},
		"synchronous": {rules: func(c *loop.Config) { c.Policy, c.QueueGroups = loop.PolicySynchronous, 4 }, wedged: true},
		"oversampled": {rules: func(c *loop.Config) {
			c.Policy, c.ExtraGroups, c.QueueGroups = loop.PolicySynchronous, 1, 5
		}},
		"redundant": {rules: func(c *loop.Config) { c.Policy, c.QueueGroups, c.Redundancy = loop.PolicySynchronous, 4, 1 }},
		"stragglers kept": {rules: func(c *loop.Config) {
			c.Policy, c.ExtraGroups, c.QueueGroups, c.InterruptAtBatch = loop.PolicySynchronous, 1, 5, true
		}},
	} {
		s := setup{c: 32, s: 4, b: 16, q: 2, rho: 0.9, tailness: 50, steps: 100, rules: c.rules}
		s.sim = func(c *sim.Config) { c.Work = straggler{c.Work, 20} }
		longest, series := int64(0), run(t, s.config(t)).Series
		for _, step := range series {
			longest = max(longest, step.PeriodNS)
		}
		s.sim = nil
		usual := run(t, s.config(t)).Summary.PeriodS.Mean
		if wedged := float64(longest)/1e9 > 30*usual; wedged != c.wedged {
			t.Errorf("%s: the longest step took %.0f s, where %.0f s are usual", name, float64(longest)/1e9, usual)
		}
	}
}

// TestOverproductionIsDropped: with several times as many groups in flight as the
// trainer can take, the queue drops what is over: 1 − 1/ρ of it.
func TestOverproductionIsDropped(t *testing.T) {
	for _, rho := range []float64{2, 4, 10} {
		s := setup{c: 512, s: 4, b: 16, q: 2, rho: rho, tailness: 50, steps: 600}
		ledger := run(t, s.config(t)).Ledger
		if got, want := float64(ledger.Evicted)/float64(ledger.Evicted+ledger.Trained), 1-1/rho; math.Abs(got-want) > 0.02 {
			t.Errorf("ρ %g: %.3f of the rollouts are dropped, want %.3f", rho, got, want)
		}
	}
}

// TestHoldAndNewest: opening no group shortly before a switch, and training on
// what is newest, make a queue of two batches as fresh as its bound nearly allows,
// at the same period and without a length bias.
func TestHoldAndNewest(t *testing.T) {
	for _, rho := range []float64{1.1, 2} {
		s := setup{c: 256, s: 8, b: 128, q: 2, rho: rho, tailness: 50, warmup: 300, steps: 900}
		drop := run(t, s.config(t)).Summary
		s.rules = func(c *loop.Config) { c.Hold, c.Select = 0.3, loop.SelectNewest }
		held := run(t, s.config(t)).Summary
		gain, period := 1-held.Staleness.Mean/drop.Staleness.Mean, held.PeriodS.Mean/drop.PeriodS.Mean
		bias := held.Length.TrainedMeanTokens / held.Length.SampledMeanTokens
		t.Logf("ρ %g: staleness %.3f, held and newest %.3f: %.1f %% less, period ratio %.4f, trained/sampled length %.4f",
			rho, drop.Staleness.Mean, held.Staleness.Mean, 100*gain, period, bias)
		if gain < 0.1 || period > 1.02 || math.Abs(bias-1) > 0.005 {
			t.Errorf("ρ %g: want at least 10 %% less staleness within 2 %% of the period, and no length bias", rho)
		}
	}
}
