package sim_test

import (
	"math"
	"slices"
	"testing"

	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/loop"
)

// TestPlacement simulates both placements of rollouts on engines that read 20,000 tokens of a prompt of 8,000 a second,
// one rollout after the other, and have room for the contexts of all their slots. It holds the figures of docs/performance.md.
func TestPlacement(t *testing.T) {
	type figures struct{ hit, period, staleness float64 }
	cases := []struct {
		name        string
		setup       setup
		engines     []int
		rules       func(*loop.Config)
		least, with figures
	}{
		{"groups of 16, 8 engines of 64 slots", setup{s: 16, b: 512, q: 1, rho: 0.3}, slices.Repeat([]int{64}, 8), nil,
			figures{0.516, 40.20, 2.96}, figures{0.923, 29.82, 3.16}},
		{"groups of 8, synchronous, 4 engines of 32 slots", setup{s: 8, b: 128, q: 1, rho: 0.3}, slices.Repeat([]int{32}, 4),
			func(c *loop.Config) { c.Policy = loop.PolicySynchronous }, figures{0.500, 137.49, 0}, figures{0.875, 132.69, 0}},
		{"groups of 16, 16 engines of 8 slots", setup{s: 16, b: 512, q: 1, rho: 0.3}, slices.Repeat([]int{8}, 16), nil,
			figures{0.303, 120.40, 0.97}, figures{0.470, 118.25, 1.08}},
		{"single rollouts, interrupted at every batch, 8 engines of 64 slots", setup{s: 1, b: 256, q: 2, rho: 3}, slices.Repeat([]int{64}, 8),
			func(c *loop.Config) { c.InterruptAtBatch = true }, figures{0.036, 47.73, 2.81}, figures{0.224, 42.75, 2.99}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			of := func(placement loop.Placement) figures {
				s := c.setup
				s.seed, s.tailness, s.warmup, s.steps = 5, 50, 20, 120
				for _, slots := range c.engines {
					s.c += slots
				}
				s.rules = func(l *loop.Config) {
					l.EngineSlots, l.Placement = c.engines, placement
					if c.rules != nil {
						c.rules(l)
					}
				}
				s.sim = func(c *sim.Config) {
					c.SyncNS = 2e9
					c.Agents = &sim.Agents{Seed: 5, PromptTokens: 8000, Prefill: sim.PrefillEngine, PrefillNSPerToken: 5e4, CacheTokens: 1e6}
				}
				sum := run(t, s.config(t)).Summary
				return figures{sum.Services.PrefixHit, sum.PeriodS.Mean, sum.Staleness.Mean}
			}
			for placement, want := range []figures{c.least, c.with} {
				got := of(loop.Placement(placement))
				t.Logf("placement %d: %.1f %% found, %.2f s a step, staleness %.2f", placement, 100*got.hit, got.period, got.staleness)
				if math.Abs(got.hit-want.hit) > 0.02 || math.Abs(got.period-want.period) > 0.02*want.period || math.Abs(got.staleness-want.staleness) > 0.05*want.staleness {
					t.Errorf("placement %d: %+v, want %+v within 0.02, 2 %% and 5 %%", placement, got, want)
				}
			}
		})
	}
}
