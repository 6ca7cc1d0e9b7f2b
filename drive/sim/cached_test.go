package sim_test

import (
	"math/rand/v2"
	"testing"

	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/workload"
)

// withCache simulates groups of four on one engine, with long prompts and three tools each, and a cache of so many tokens.
// Weights change after every batch of so many times four groups.
func withCache(t *testing.T, tokens int64, batch int) sim.Result {
	t.Helper()
	s := setup{c: 32, s: 4, b: 16 * batch, q: 2, rho: 0.8, tailness: 20, seed: 9, steps: 6}
	s.sim = func(c *sim.Config) {
		c.Agents = &sim.Agents{Seed: 9, PromptTokens: 4000, PrefillNSPerToken: 5e5, ToolTokens: 200, CacheTokens: tokens,
			Tools: tools(t, workload.ToolsSpec{Calls: 3, CallsKind: "fixed", Split: "even", Time: workload.TimesSpec{Kind: workload.KindExponential, MeanS: 5}})}
		c.Loop.Sync = loop.SyncInFlight
	}
	return run(t, s.config(t))
}

// TestCacheOfContexts: without a cache modelled nothing is found or said; a large one spares rollouts of a group
// their prompt, and a small one makes those that return from tools read again.
func TestCacheOfContexts(t *testing.T) {
	none, large, small := withCache(t, 0, 16), withCache(t, 1e9, 16), withCache(t, 60_000, 16)
	if hit := none.Summary.Services.PrefixHit; hit != 0 {
		t.Errorf("%g of contexts found where no cache is modelled", hit)
	}
	if l, n := large.Summary.Latency.PrefillS, none.Summary.Latency.PrefillS; l > 0.9*n {
		t.Errorf("a large cache leaves %g s of reading, none modelled %g s", l, n)
	}
	if l, s := large.Summary.Services.PrefixHit, small.Summary.Services.PrefixHit; l < 0.7 || s > l-0.15 {
		t.Errorf("a large cache finds %g and a small one %g of contexts", l, s)
	}
	if l, s := large.Summary.Latency.PrefillS, small.Summary.Latency.PrefillS; s < 1.5*l {
		t.Errorf("a small cache has rollouts read for %g s, a large one for %g s", s, l)
	}
	last := -1.0
	for tokens := int64(30_000); tokens <= 480_000; tokens *= 2 {
		hit := withCache(t, tokens, 16).Summary.Services.PrefixHit
		if hit < last-0.02 {
			t.Errorf("%d tokens find %g of contexts, half as many found %g", tokens, hit, last)
		}
		last = hit
	}
}

// TestCacheIsOfItsWeights: contexts that old weights computed are read again after a tool.
func TestCacheIsOfItsWeights(t *testing.T) {
	seldom, often := withCache(t, 1e9, 16), withCache(t, 1e9, 1)
	if a, b := seldom.Summary.Services.PrefixHit, often.Summary.Services.PrefixHit; b > a-0.02 {
		t.Errorf("with sixteen times as many switches of weights %g of contexts are found, with fewer %g", b, a)
	}
}

// TestCacheOfRecordedSessions: recorded rollouts lose their contexts to a small cache, and to no large one.
func TestCacheOfRecordedSessions(t *testing.T) {
	record := recordedSessions(t, rand.New(rand.NewPCG(1, 2)), 10, 4)
	of := func(tokens int64) sim.Result {
		s := small
		s.steps = 60
		cfg := s.config(t)
		cfg.Work = cfg.Work.(*sim.Modelled).WithSessions(record)
		cfg.Agents = &sim.Agents{Seed: s.seed, PrefillNSPerToken: 1e6, Sessions: record, SessionTimes: true, CacheTokens: tokens}
		return run(t, cfg)
	}
	none, large, tiny := of(0).Summary, of(1e9).Summary, of(1).Summary
	if none.Services.PrefixHit != 0 || large.Services.PrefixHit < 0.2 || tiny.Services.PrefixHit > large.Services.PrefixHit-0.05 { // siblings still share their prompts
		t.Errorf("found %g without a cache, %g in a large one, %g in one of a token", none.Services.PrefixHit, large.Services.PrefixHit, tiny.Services.PrefixHit)
	}
	if tiny.Latency.PrefillS < 1.1*large.Latency.PrefillS {
		t.Errorf("rollouts read for %g s with one token of cache, for %g s with a large one", tiny.Latency.PrefillS, large.Latency.PrefillS)
	}
}
