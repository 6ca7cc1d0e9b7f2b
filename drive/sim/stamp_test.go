package sim_test

import (
	"testing"

	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/workload"
)

// A group's stamp is the version of its first token, however long its rollouts waited
// for prompt or sandbox before that.
func TestStampIsTheFirstToken(t *testing.T) {
	s := setup{c: 24, s: 1, b: 8, q: 2, rho: 0.8, tailness: 50, warmup: 5, steps: 300}
	first, late := map[loop.GroupID]loop.Version{}, 0
	issued := map[loop.GroupID]loop.Version{}
	s = s.agents(&sim.Agents{PromptTokens: 1000, PrefillNSPerToken: 1e6, Prefill: sim.PrefillPool, PrefillWorkers: 2,
		Sandboxes: &sim.Sandboxes{Early: true, Start: service(t, workload.TimesSpec{Kind: workload.KindExponential, MeanS: 60})}}, func(c *sim.Config) {
		c.Observe = func(ev loop.Event, _, _ int64, actions []loop.Action) {
			if ev.Kind == loop.FirstToken {
				first[ev.Group] = ev.Version
			}
			for _, a := range actions {
				switch a.Kind {
				case loop.StartRollout:
					issued[a.Group] = a.Version
				case loop.GroupLeased:
					if a.StartVersion != first[a.Group] {
						t.Errorf("%v: its first token is of v%d", a, first[a.Group])
					}
					if a.StartVersion > issued[a.Group] {
						late++
					}
				}
			}
		}
	})
	run(t, s.config(t))
	if late < 100 {
		t.Errorf("%d groups were stamped after they were issued: hardly anything was tested", late)
	}
}

// Where rollouts are of one token, the group's stamp is that token's version, whatever its
// engine stood still for between the token's turn and the token.
func TestStampIsTheTokenOfOneTokenRollouts(t *testing.T) {
	lengths, err := workload.LengthSpec{Kind: workload.KindFixed, MeanTokens: 1}.Build()
	if err != nil {
		t.Fatal(err)
	}
	accept, err := workload.NewAcceptance(1)
	if err != nil {
		t.Fatal(err)
	}
	for name, a := range map[string]*sim.Agents{
		"slot":    {PromptTokens: 1000, PrefillNSPerToken: 1e7},
		"engine":  {PromptTokens: 1000, PrefillNSPerToken: 2e5, Prefill: sim.PrefillEngine},
		"pool":    {PromptTokens: 1000, PrefillNSPerToken: 1e7, Prefill: sim.PrefillPool, PrefillWorkers: 32},
		"sandbox": {Seed: 3, Sandboxes: &sim.Sandboxes{Early: true, Start: service(t, workload.TimesSpec{Kind: workload.KindExponential, MeanS: 10})}},
	} {
		for _, mode := range []loop.SyncMode{loop.SyncPause, loop.SyncInFlight, loop.SyncRestart} {
			s := setup{c: 64, s: 1, b: 16, q: 2, rho: 1, warmup: 20, steps: 300}
			s.rules = func(c *loop.Config) { c.Sync = mode }
			cfg := s.agents(a).config(t)
			cfg.Work, cfg.SyncNS = sim.NewModelled(1, lengths, nil, accept, 7e9), 5e9
			cfg.Validation = sim.Validation{Every: 7, NS: 9e9}
			res := run(t, cfg).Summary
			if res.Staleness.Mean != res.TokenStaleness.Mean {
				t.Errorf("%s, %v: staleness %v, of the tokens %v", name, mode, res.Staleness.Mean, res.TokenStaleness.Mean)
			}
		}
	}
}

// An engine that stands still for a sync reads nothing meanwhile, a pool goes on.
func TestPausedEnginesDoNotRead(t *testing.T) {
	for name, test := range map[string]struct {
		mode    sim.PrefillMode
		waits   bool
		perNS   float64
		workers int
	}{"slot": {sim.PrefillSlot, true, 1e7, 0}, "engine": {sim.PrefillEngine, true, 2e5, 0}, "pool": {sim.PrefillPool, false, 1e7, 48}} {
		s := fed
		s.rho = 0.5
		s.rules = func(c *loop.Config) { c.Sync = loop.SyncPause }
		s = s.agents(&sim.Agents{PromptTokens: 1000, PrefillNSPerToken: test.perNS, Prefill: test.mode, PrefillWorkers: test.workers})
		free := run(t, s.config(t)).Summary
		held := run(t, s.also(func(c *sim.Config) { c.SyncNS = 6e9 }).config(t)).Summary
		if waited := held.Latency.QueueS > free.Latency.QueueS+0.05; waited != test.waits {
			t.Errorf("%s: a wait of %v s for reading, %v s where syncs take no time", name, held.Latency.QueueS, free.Latency.QueueS)
		}
		near(t, name+": reading alone", held.Latency.PrefillS, 1000*test.perNS/1e9, 1e-9)
	}
}
