package sim_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/workload"
)

// anyRun returns a small run with its fleet, start, selection and sync drawn.
func anyRun(rng *rand.Rand, seed int) setup {
	pick := rng.IntN
	s := setup{c: 8 + pick(60), s: 1 + pick(6), rho: 0.3 + 2*rng.Float64(), tailness: float64(20 * pick(5)),
		seed: uint64(seed), envS: float64(15 * pick(2)), q: 1, steps: 80}
	s.b = s.s * (1 + pick(8))
	mode, every, blocked, rolling, start, selection, engines := loop.SyncMode(pick(4)), 1+pick(3), pick(2) == 0, pick(2) == 0, pick(2), pick(3), pick(2)
	syncNS, loadNS, prefill, lockstep := int64(pick(3))*20e9, int64(pick(2))*9e9, float64(pick(2))*1e6, pick(3) == 0
	s.rules = func(c *loop.Config) {
		c.Sync, c.SyncEvery, c.TrainerBlocked, c.RollingSwitch, c.Select = mode, every, blocked, rolling, loop.Selection(selection)
		if start == 1 && s.c >= 2*s.s {
			c.Start = loop.StartGang
		}
		if engines == 1 {
			c.EngineSlots = []int{s.c / 2, s.c - s.c/2}
		}
	}
	s.sim = func(c *sim.Config) {
		c.SyncNS, c.LoadNS, c.PrefillNSPerToken, c.Lockstep = syncNS, loadNS, prefill, lockstep
	}
	return s
}

// with adds rules to a setup.
func (s setup) with(more func(*loop.Config)) setup {
	rules := s.rules
	s.rules = func(c *loop.Config) {
		if rules != nil {
			rules(c)
		}
		more(c)
	}
	return s
}

// TestBoundedKeepsItsMean: whatever the fleet, the lengths and the sync, the mean
// staleness of a run under bounded is at most η, from the first step on, although
// single groups exceed it.
func TestBoundedKeepsItsMean(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 22))
	bound, above := 0, 0
	for i := range 200 {
		s := anyRun(rng, i)
		eta := 4 * rng.Float64()
		if rng.IntN(2) == 0 {
			eta = math.Round(eta)
		}
		s = s.with(func(c *loop.Config) {
			c.Policy, c.Eta = loop.PolicyBounded, max(eta, float64(c.SyncEvery-1))
			eta = c.Eta
			c.QueueGroups = max(c.LiveGroupsMax(), c.BatchGroups)
		})
		cfg := s.config(t)
		got := run(t, cfg).Summary.Staleness
		if got.Mean > eta {
			t.Errorf("run %d: mean staleness %v over η = %v: %v\n%+v", i, got.Mean, eta, got.Histogram, cfg.Loop)
		}
		if got.Mean > 0.95*eta && eta > 0 {
			bound++
		}
		if float64(got.Max) > eta {
			above++
		}
	}
	t.Logf("of 200 runs %d come within 5 %% of η, and %d train a single group above it", bound, above)
	if bound < 15 || above < 30 {
		t.Errorf("the bound was hardly tested")
	}
}

// TestMaxKeepsEveryBudget: under max no group is ever trained above its budget,
// whatever else happens to it: interrupted, resumed, played again, pruned.
func TestMaxKeepsEveryBudget(t *testing.T) {
	rng := rand.New(rand.NewPCG(31, 32))
	trained, at := int64(0), int64(0)
	for i := range 150 {
		s := anyRun(rng, i).with(func(c *loop.Config) {
			c.Policy, c.MaxStaleness, c.Abort = loop.PolicyMax, loop.Version(c.SyncEvery-1+rng.IntN(4)), rng.IntN(2) == 0
			c.InterruptAtBatch, c.Requeue, c.MaxSpans = rng.IntN(3) == 0, rng.IntN(2) == 0, rng.IntN(3)
			c.Redundancy, c.Prompts = rng.IntN(2), 50*rng.IntN(2)
			if c.Start == loop.StartGang && c.Concurrency() < c.GroupSize+c.Redundancy {
				c.Start = loop.StartStream
			}
			c.QueueGroups *= 1 + rng.IntN(3)
		})
		s.steps = 40
		cfg := s.config(t)
		cfg.PruneTokens = int32(rng.IntN(2) * 3000)
		cfg.Observe = func(_ loop.Event, _, _ int64, actions []loop.Action) {
			for _, a := range actions {
				if a.Kind != loop.GroupTrained && a.Kind != loop.GroupLeased {
					continue
				}
				total, _, _ := a.Staleness()
				if total > cfg.Loop.MaxStaleness {
					t.Errorf("run %d: %v over a budget of %d", i, a, cfg.Loop.MaxStaleness)
				}
				trained++
				if total == cfg.Loop.MaxStaleness && total > 0 {
					at++
				}
			}
		}
		if _, err := sim.Run(cfg); err != nil {
			t.Logf("run %d: %v", i, err)
		}
	}
	t.Logf("%d of %d groups were trained at exactly their budget", at, trained)
	if at == 0 {
		t.Error("no budget ever bound")
	}
}

// slowPrompts is a run in which prompts have lengths of their own and come again.
func slowPrompts(t *testing.T, requeue bool, policy loop.Policy) (map[int64][2]int, func(int64) float64) {
	scale, err := workload.NewPromptScale(0.8, 0)
	if err != nil {
		t.Fatal(err)
	}
	s := setup{c: 128, s: 4, b: 32, q: 2, rho: 1.1, tailness: 30, steps: 1500}
	s.rules = func(c *loop.Config) {
		c.Policy, c.MaxStaleness, c.Abort, c.Requeue, c.Prompts = policy, 4, true, requeue, 400
	}
	played := map[int64][2]int{} // groups opened and trained, by prompt
	prompts := map[loop.GroupID]int64{}
	cfg := s.config(t)
	cfg.Work = cfg.Work.(*sim.Modelled).WithPromptScale(scale)
	cfg.Observe = func(_ loop.Event, _, _ int64, actions []loop.Action) {
		for _, a := range actions {
			switch a.Kind {
			case loop.StartRollout:
				if _, seen := prompts[a.Group]; !seen {
					prompts[a.Group] = a.Prompt
					n := played[a.Prompt]
					played[a.Prompt] = [2]int{n[0] + 1, n[1]}
				}
			case loop.GroupTrained:
				n := played[prompts[a.Group]]
				played[prompts[a.Group]] = [2]int{n[0], n[1] + 1}
			}
		}
	}
	run(t, cfg)
	source := workload.NewSource(0, workload.StreamPromptScale)
	return played, func(prompt int64) float64 { return scale.Factor(source, uint64(prompt)) }
}

// TestDiscardAndRequeueStarvesSlowPrompts: a budget that discards what is stale
// and plays its prompt again spends most of the engines on slow prompts and trains
// on them least, which a queue that drops whatever is oldest does not.
func TestDiscardAndRequeueStarvesSlowPrompts(t *testing.T) {
	yield := func(requeue bool, policy loop.Policy) (slow, fast float64) {
		played, factor := slowPrompts(t, requeue, policy)
		var n [2][2]int
		for prompt, counts := range played {
			which := 0
			switch f := factor(prompt); {
			case f > 1.6:
			case f < 0.6:
				which = 1
			default:
				continue
			}
			n[which][0] += counts[0]
			n[which][1] += counts[1]
		}
		return float64(n[0][1]) / float64(n[0][0]), float64(n[1][1]) / float64(n[1][0])
	}
	slow, fast := yield(true, loop.PolicyMax)
	t.Logf("discard and requeue: %.3f of the groups of slow prompts are trained on, %.3f of fast ones", slow, fast)
	if slow > 0.5*fast {
		t.Errorf("slow prompts are not starved any more: this case no longer shows the bias")
	}
	slow, fast = yield(false, loop.PolicyDrop)
	t.Logf("drop: %.3f of slow, %.3f of fast", slow, fast)
	if math.Abs(slow/fast-1) > 0.03 {
		t.Errorf("drop trains on %.3f of slow prompts' groups and %.3f of fast ones', want the same", slow, fast)
	}
}
