package sim_test

import (
	"math"
	"testing"

	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/loop"
)

// replayed is a run of a replay buffer of 12 groups.
func replayed(t *testing.T, rules func(*loop.Config)) sim.Config {
	t.Helper()
	s := setup{c: 32, s: 4, b: 16, q: 3, rho: 0.5, tailness: 50, steps: 300}
	s.rules = func(c *loop.Config) {
		c.Policy, c.MaxUses, c.Gamma, c.Seed = loop.PolicyReplay, 3, 0.95, 7
		rules(c)
	}
	s.sim = func(c *sim.Config) { c.DriftPerVersion, c.DriftSpread = 0.02, 0.6 }
	return s.config(t)
}

// TestDriftIsMeasuredBeforeTheStepEnds: every group of a batch is measured once,
// at the instant at which its step ends and before it, in the order of groups; the
// drift is proportional to the lag, by a factor of the group's own of mean 1.
func TestDriftIsMeasuredBeforeTheStepEnds(t *testing.T) {
	batch := map[loop.GroupID]loop.Version{} // lag
	measured, last := 0, loop.Event{}
	factors := map[loop.GroupID]float64{}
	cfg := replayed(t, func(c *loop.Config) { c.Evict = loop.EvictDrift })
	cfg.Observe = func(ev loop.Event, _, _ int64, actions []loop.Action) {
		switch ev.Kind {
		case loop.GroupMeasured:
			lag, named := batch[ev.Group]
			if !named || last.Kind == loop.GroupMeasured && !last.Before(ev) {
				t.Errorf("%v after %v", ev, last)
			}
			measured++
			if factor := float64(ev.Drift) / 0.02 / float64(lag); lag > 0 {
				if before, seen := factors[ev.Group]; seen && math.Abs(factor/before-1) > 1e-5 {
					t.Errorf("%v: a factor of %v, before %v", ev, factor, before)
				}
				factors[ev.Group] = factor
			} else if ev.Drift != 0 {
				t.Errorf("%v without a lag", ev)
			}
		case loop.TrainStepEnded:
			if measured != len(batch) || last.Kind != loop.GroupMeasured || last.Time != ev.Time {
				t.Errorf("%v: %d of %d groups measured, after %v", ev, measured, len(batch), last)
			}
			measured = 0
			clear(batch)
		}
		last = ev
		for _, a := range actions {
			if a.Kind == loop.GroupLeased {
				batch[a.Group] = a.Version - a.StartVersion
			}
		}
	}
	run(t, cfg)
	sum := 0.0
	for _, f := range factors {
		sum += f
	}
	if n := float64(len(factors)); n < 100 || math.Abs(sum/n-1) > 4*0.66/math.Sqrt(n) {
		t.Errorf("%v factors have a mean of %v, want 1", n, sum/n)
	}
}

// TestReplayUsesGroupsAgain: the buffer hands every group out at most as often as
// it may; drift is measured where eviction goes by it, and nowhere else.
func TestReplayUsesGroupsAgain(t *testing.T) {
	for _, evict := range []loop.Eviction{loop.EvictOldestVersion, loop.EvictDrift} {
		uses, most, events := map[loop.GroupID]int{}, 0, 0
		cfg := replayed(t, func(c *loop.Config) { c.Evict, c.MaxUses = evict, 5 })
		cfg.Observe = func(ev loop.Event, _, _ int64, actions []loop.Action) {
			if ev.Kind == loop.GroupMeasured {
				events++
			}
			for _, a := range actions {
				if a.Kind == loop.GroupTrained {
					uses[a.Group]++
					most = max(most, uses[a.Group])
				}
			}
		}
		if _, err := checked(t, cfg); err != nil {
			t.Fatal(err)
		}
		run(t, cfg)
		if most < 2 || most > 5 {
			t.Errorf("eviction %d: a group was trained on %d times, want 2 to 5", evict, most)
		}
		if (events > 0) != (evict == loop.EvictDrift) {
			t.Errorf("eviction %d: %d groups measured", evict, events)
		}
	}
}
