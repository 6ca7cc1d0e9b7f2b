package sim_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/loop"
)

// threshold sets verl's rule: sync every k steps, the trainer waiting for it.
func threshold(theta float64, k int, mode loop.SyncMode) func(*loop.Config) {
	return func(c *loop.Config) {
		c.Policy, c.StalenessThreshold, c.SyncEvery, c.Sync, c.TrainerBlocked = loop.PolicyThreshold, theta, k, mode, true
		c.QueueGroups = max(c.LiveGroupsMax(), c.BatchGroups)
	}
}

// syncsLived counts, apart from the loop's stamps, the syncs that every group lives
// through from its opening to its selection.
type syncsLived struct {
	every   loop.Version
	lived   map[loop.GroupID]int64 // of groups opened and not selected
	taken   map[loop.GroupID]int64 // of groups at the trainer
	carried []int64                // groups not selected, at every sync
	waited  int64                  // Σ syncs lived, of trained groups
	trained int64                  // Σ staleness in syncs by the loop's stamps
}

func (c *syncsLived) observe(ev loop.Event, _, _ int64, actions []loop.Action) {
	for _, a := range actions {
		switch a.Kind {
		case loop.SyncCompleted:
			c.carried = append(c.carried, int64(len(c.lived)))
			for g := range c.lived {
				c.lived[g]++
			}
		case loop.StartRollout:
			if _, open := c.lived[a.Group]; !open {
				c.lived[a.Group] = 0
			}
		case loop.GroupLeased:
			c.taken[a.Group] = c.lived[a.Group]
			delete(c.lived, a.Group)
		case loop.GroupTrained:
			c.waited += c.taken[a.Group]
			delete(c.taken, a.Group)
			c.trained += int64(a.Version/c.every - a.StartVersion/c.every)
		}
	}
}

// TestThresholdWithPartialRollouts: where verl's rule with partial rollouts binds,
// as many groups as may be live are live at every sync, and KG of them are trained
// before the next: ⌊(1+θ)KG⌋−KG are carried over, always, in whole numbers. The sum
// of what trained groups are stale by, in syncs, is the sum of what was carried.
func TestThresholdWithPartialRollouts(t *testing.T) {
	cases := 0
	for _, theta := range []float64{0, 0.1, 0.25, 0.5, 1, 1.25, 2.5} {
		for _, k := range []int{1, 2, 4} {
			for _, groups := range []int{4, 7, 16} {
				for _, rho := range []float64{2, 12} {
					counted := syncsLived{every: loop.Version(k), lived: map[loop.GroupID]int64{}, taken: map[loop.GroupID]int64{}}
					s := setup{c: 16 * groups, s: 4, b: 4 * groups, q: 1, rho: rho, tailness: 50, steps: 50 * k, rules: threshold(theta, k, loop.SyncRestart)}
					s.sim = func(c *sim.Config) { c.SyncNS, c.PrefillNSPerToken, c.Observe = 3e9, 1e5, counted.observe }
					run(t, s.config(t))
					name := fmt.Sprintf("θ %g K %d G %d ρ %g", theta, k, groups, rho)
					want := int64(math.Floor((1+theta)*float64(k*groups)+1e-9)) - int64(k*groups)
					for i, carried := range counted.carried {
						if i > 3 && carried != want {
							t.Fatalf("%s: %d groups carried over sync %d, want %d", name, carried, i, want)
						}
					}
					sum := int64(0)
					for _, carried := range counted.carried {
						sum += carried
					}
					for _, untrained := range []map[loop.GroupID]int64{counted.lived, counted.taken} {
						for _, syncs := range untrained {
							sum -= syncs
						}
					}
					if counted.trained != counted.waited || counted.trained != sum || len(counted.carried) < 45 {
						t.Errorf("%s: Σ staleness %d syncs, Σ lived %d, Σ carried %d over %d syncs", name, counted.trained, counted.waited, sum, len(counted.carried))
					}
					cases++
				}
			}
		}
	}
	t.Logf("%d settings", cases)
}

// TestThresholdMeanIsExact: where rollouts end within a sync's period, groups are
// trained in the order of their versions, and the mean over whole cycles is the
// formula to the last digit: ⌊(1+θ)KG⌋/(KG) − 1.
func TestThresholdMeanIsExact(t *testing.T) {
	for _, theta := range []float64{0, 0.1, 0.25, 0.5, 1, 1.25, 2.5} {
		for _, k := range []int{1, 2, 4} {
			for _, groups := range []int{4, 7, 16} {
				for _, mode := range []loop.SyncMode{loop.SyncRestart, loop.SyncDrain, loop.SyncInFlight} {
					live := int(math.Floor((1+theta)*float64(k*groups) + 1e-9))
					s := setup{c: 4 * live, s: 4, b: 4 * groups, q: 1, tailness: 50, warmup: 5 * k, steps: 40 * k, rules: threshold(theta, k, mode)}
					s.rho = 8 * float64(s.c) / float64(s.b) // a step takes longer than the longest rollout
					mean := run(t, s.config(t)).Summary.Staleness.MeanSyncs
					if want := float64(live-k*groups) * 40 / float64(40*k*groups); mean != want {
						t.Errorf("θ %g K %d G %d, sync mode %d: mean staleness %v syncs, want %v", theta, k, groups, mode, mean, want)
					}
				}
			}
		}
	}
}

// TestThresholdDrainedGivesLess: without partial rollouts the engines run empty
// before every sync; where rollouts are long beside the step, the same threshold
// yields less staleness, and far fewer updates.
func TestThresholdDrainedGivesLess(t *testing.T) {
	s := setup{c: 48, s: 8, b: 128, q: 1, rho: 0.3, tailness: 90, warmup: 50, steps: 600, rules: threshold(1.25, 1, loop.SyncRestart)}
	partial := run(t, s.config(t)).Summary
	s.rules = threshold(1.25, 1, loop.SyncDrain)
	drained := run(t, s.config(t)).Summary
	t.Logf("θ 1.25: partial %.4f in %.1f s a step, drained %.4f in %.1f s", partial.Staleness.Mean, partial.PeriodS.Mean, drained.Staleness.Mean, drained.PeriodS.Mean)
	if math.Abs(partial.Staleness.Mean-1.25) > 0.005 || drained.Staleness.Mean > 1.1 || drained.PeriodS.Mean < 2*partial.PeriodS.Mean {
		t.Errorf("want about 1.25 with partial rollouts, less than 1.1 and twice the period without")
	}
}

// TestThresholdOfOneIsOneStepOff: with rollouts that take less than a step, every
// group is trained exactly one version late.
func TestThresholdOfOneIsOneStepOff(t *testing.T) {
	for _, mode := range []loop.SyncMode{loop.SyncInFlight, loop.SyncPause, loop.SyncDrain, loop.SyncRestart} {
		s := setup{c: 256, s: 4, b: 32, q: 2, rho: 64, tailness: 50, warmup: 5, steps: 200, rules: threshold(1, 1, mode)}
		s.sim = func(c *sim.Config) { c.SyncNS = 2e9 }
		if got := run(t, s.config(t)).Summary.Staleness; !slices.Equal(got.Histogram, []int64{0, 8 * 200}) {
			t.Errorf("sync mode %d: staleness %v, want all groups at 1", mode, got.Histogram)
		}
	}
}

// TestThresholdOfZeroIsSynchronous: with one step per sync and no staleness
// allowed, verl's rule decides what the synchronous schedule decides, at the same
// times, whatever the engines do while they switch.
func TestThresholdOfZeroIsSynchronous(t *testing.T) {
	for _, mode := range []loop.SyncMode{loop.SyncInFlight, loop.SyncPause, loop.SyncDrain, loop.SyncRestart} {
		for _, blocked := range []bool{false, true} {
			decisions := func(policy loop.Policy) (all []string) {
				s := setup{c: 40, s: 4, b: 32, q: 1, rho: 1, tailness: 50, steps: 60}
				s.rules = func(c *loop.Config) { c.Policy, c.Sync, c.TrainerBlocked = policy, mode, blocked }
				s.sim = func(c *sim.Config) {
					c.SyncNS, c.LoadNS = 5e9, 1e9
					c.Observe = func(ev loop.Event, _, _ int64, actions []loop.Action) {
						for _, a := range actions {
							all = append(all, fmt.Sprint(ev.Time, " ", a))
						}
					}
				}
				if res := run(t, s.config(t)); res.Summary.Staleness.Max != 0 {
					t.Errorf("sync mode %d, policy %d: staleness %v, want 0", mode, policy, res.Summary.Staleness.Histogram)
				}
				return all
			}
			a, b := decisions(loop.PolicyThreshold), decisions(loop.PolicySynchronous)
			for i := range min(len(a), len(b)) {
				if a[i] != b[i] {
					t.Fatalf("sync mode %d, decision %d: threshold %q, synchronous %q", mode, i, a[i], b[i])
				}
			}
			if len(a) != len(b) || len(a) == 0 {
				t.Errorf("sync mode %d: %d decisions under threshold, %d under synchronous", mode, len(a), len(b))
			}
		}
	}
}
