package loop_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/looptest"
)

// tally counts groups by what the actions say, and by nothing else.
type tally struct {
	last                  loop.GroupID
	opened, ended, leased int
	trained, lags         int
	drops                 int
	// since the last completed sync: groups opened, groups that ended untrained, and those carried over it.
	openedSince, endedSince, carried int
}

func (c *tally) take(replay bool, actions []loop.Action) {
	for _, a := range actions {
		switch a.Kind {
		case loop.StartRollout:
			if a.Group > c.last {
				c.last = a.Group
				c.opened++
				c.openedSince++
			}
		case loop.GroupLeased:
			c.leased++
		case loop.GroupTrained:
			staleness, _, _ := a.Staleness()
			c.trained++
			c.lags += int(staleness)
			c.leased--
			if !replay {
				c.ended++
			}
		case loop.GroupEnded:
			c.ended++
			c.endedSince++
			if a.End == loop.EndEvicted || a.End == loop.EndDiscarded {
				c.drops++
			}
		case loop.SyncCompleted:
			c.carried, c.openedSince, c.endedSince = c.opened-c.ended-c.leased, 0, 0
		}
	}
}

func (c *tally) live() int { return c.opened - c.ended }

// eachWorld runs worlds of the seeds that suit a test, with a change, and has
// every step looked at.
func eachWorld(t *testing.T, seeds uint64, change func(*looptest.Plan), watch func(cfg loop.Config) func(*looptest.Checker, []loop.Action) error) {
	t.Helper()
	for seed := uint64(1); seed <= seeds; seed++ {
		plan := looptest.Draw(seed).WithCells()
		change(&plan)
		if plan.Config.WithDefaults().Validate() != nil {
			continue
		}
		w, err := looptest.NewWorld(plan)
		if err != nil {
			t.Fatal(err)
		}
		w.Watch = watch(plan.Config.WithDefaults())
		if err := w.Run(400); err != nil {
			t.Fatalf("%v\n%v", err, plan)
		}
	}
}

// TestBoundedNeverExceedsItsGroups requires of PolicyBounded that no more than
// (eta+1)*G groups are ever live, whatever fails, restarts or is interrupted,
// and that none is dropped.
func TestBoundedNeverExceedsItsGroups(t *testing.T) {
	atLimit := 0
	asBounded := func(p *looptest.Plan) {
		c := &p.Config
		c.Policy, c.ExtraGroups, c.Balance = loop.PolicyBounded, 0, false
		c.Eta = float64(p.Seed%9)/2 + float64(c.SyncEvery-1)
		c.QueueGroups = c.LiveGroupsMax()
	}
	eachWorld(t, 60, asBounded, func(cfg loop.Config) func(*looptest.Checker, []loop.Action) error {
		var c tally
		most := int(math.Floor((cfg.Eta+1)*float64(cfg.BatchGroups) + 1e-9))
		return func(_ *looptest.Checker, actions []loop.Action) error {
			c.take(false, actions)
			if c.live() == most {
				atLimit++
			}
			if c.live() > most || c.drops > 0 {
				return fmt.Errorf("%d groups are live of %d, %d dropped", c.live(), most, c.drops)
			}
			return nil
		}
	})
	if atLimit < 1000 {
		t.Errorf("only %d steps were at the limit", atLimit)
	}
}

// TestBoundedMean requires of PolicyBounded that the mean staleness of what it
// trains on stays within eta, with syncs of any length and mode.
func TestBoundedMean(t *testing.T) {
	near := 0
	asBounded := func(p *looptest.Plan) {
		c := &p.Config
		p.Faults = looptest.Faults{}
		c.Policy, c.ExtraGroups, c.Balance = loop.PolicyBounded, 0, false
		c.Eta = float64(p.Seed%7)/2 + float64(c.SyncEvery-1)
		c.QueueGroups = c.LiveGroupsMax()
		p.SyncTicks = 1 + int(p.Seed%40)
		c.Control, c.EnginesStart = nil, 0
	}
	eachWorld(t, 60, asBounded, func(cfg loop.Config) func(*looptest.Checker, []loop.Action) error {
		var c tally
		return func(k *looptest.Checker, actions []loop.Action) error {
			c.take(false, actions)
			mean := float64(c.lags) / float64(max(c.trained, 1))
			if mean > 0.8*cfg.Eta && c.trained > 10 {
				near++
			}
			if mean > cfg.Eta+1e-9 {
				return fmt.Errorf("after v%d the mean staleness is %g, eta is %g", k.Version(), mean, cfg.Eta)
			}
			return nil
		}
	})
	if near < 500 {
		t.Errorf("the mean was near eta after %d steps only", near)
	}
}

// TestMaxKeepsItsBudget requires that whatever PolicyMax hands to the trainer is
// within the budget, with and without abort, under any sync mode and fault.
func TestMaxKeepsItsBudget(t *testing.T) {
	trained := 0
	asMax := func(p *looptest.Plan) {
		c := &p.Config
		c.Policy, c.ExtraGroups, c.Balance = loop.PolicyMax, 0, false
		c.MaxStaleness = max(loop.Version(p.Seed%4), loop.Version(c.SyncEvery)-1)
	}
	eachWorld(t, 60, asMax, func(cfg loop.Config) func(*looptest.Checker, []loop.Action) error {
		return func(_ *looptest.Checker, actions []loop.Action) error {
			for _, a := range actions {
				if a.Kind != loop.GroupLeased && a.Kind != loop.GroupTrained {
					continue
				}
				trained++
				if staleness, _, _ := a.Staleness(); staleness > cfg.MaxStaleness {
					return fmt.Errorf("%v: staleness %d, the budget is %d", a, staleness, cfg.MaxStaleness)
				}
			}
			return nil
		}
	})
	if trained < 500 {
		t.Errorf("only %d groups were trained on", trained)
	}
}

// TestThresholdCapsASync requires of PolicyThreshold that from one sync to the
// next no more than (1+threshold)*every*G groups are used: those carried over
// and those opened, less those that ended untrained.
func TestThresholdCapsASync(t *testing.T) {
	syncs, full := 0, 0
	asThreshold := func(p *looptest.Plan) {
		c := &p.Config
		p.Faults.LeaseReturns, p.Faults.Restarts, p.Faults.Stops = 0, 0, 0
		p.Faults.TrainFails, p.Faults.Restores = 0, 0 // they return a lease, too
		c.Policy, c.ExtraGroups, c.Balance = loop.PolicyThreshold, 0, false
		c.StalenessThreshold = float64(p.Seed%8) / 4
		c.QueueGroups = c.LiveGroupsMax()
	}
	eachWorld(t, 60, asThreshold, func(cfg loop.Config) func(*looptest.Checker, []loop.Action) error {
		var c tally
		most := int(math.Floor((1+cfg.StalenessThreshold)*float64(cfg.SyncEvery*cfg.BatchGroups) + 1e-9))
		return func(_ *looptest.Checker, actions []loop.Action) error {
			c.take(false, actions)
			for _, a := range actions {
				if a.Kind == loop.SyncCompleted {
					syncs++
				}
			}
			used := c.carried + c.openedSince - c.endedSince
			if used == most {
				full++
			}
			if used > most || c.drops > 0 {
				return fmt.Errorf("%d groups are used of %d: %d carried over, %d opened, %d ended; %d dropped", used, most, c.carried, c.openedSince, c.endedSince, c.drops)
			}
			return nil
		}
	})
	if syncs < 200 || full < 500 {
		t.Errorf("only %d syncs, and %d steps at the limit", syncs, full)
	}
}

// TestThresholdDropsNothing requires of PolicyThreshold that it drops no group, also where batches come back: beside a batch
// at the trainer as many groups may be live as the queue holds.
func TestThresholdDropsNothing(t *testing.T) {
	outside := 0
	asThreshold := func(p *looptest.Plan) {
		c := &p.Config
		p.Faults.LeaseReturns, p.TrainTicks = 0.3, 100
		c.Policy, c.ExtraGroups, c.Balance = loop.PolicyThreshold, 0, false
		c.StalenessThreshold = float64(p.Seed%8) / 4
		c.QueueGroups = c.LiveGroupsMax()
	}
	eachWorld(t, 60, asThreshold, func(loop.Config) func(*looptest.Checker, []loop.Action) error {
		c, queued := tally{}, map[loop.GroupID]bool{}
		return func(_ *looptest.Checker, actions []loop.Action) error {
			c.take(false, actions)
			for _, a := range actions {
				if a.Kind == loop.GroupHeld || a.Kind == loop.GroupQueued && queued[a.Group] {
					outside++
				}
				queued[a.Group] = queued[a.Group] || a.Kind == loop.GroupQueued
			}
			if c.drops > 0 {
				return fmt.Errorf("%d groups were dropped", c.drops)
			}
			return nil
		}
	})
	if outside < 20 {
		t.Errorf("only %d groups waited outside", outside)
	}
}

// TestSwitchesAreEmpty requires of SyncRestart that no rollout holds a slot of an
// engine from the moment it is told to switch until it has.
func TestSwitchesAreEmpty(t *testing.T) {
	switches := 0
	asRestart := func(p *looptest.Plan) {
		p.Config.Sync = loop.SyncRestart
		p.Faults.EngineLost, p.Faults.Restarts, p.Faults.Garbage, p.Faults.Stops, p.Faults.TrainFails = 0, 0, 0, 0, 0
		p.Faults.Snapshots = 0
	}
	for seed := uint64(1); seed <= 50; seed++ {
		plan := looptest.Draw(seed).WithCells()
		asRestart(&plan)
		w, err := looptest.NewWorld(plan)
		if err != nil {
			t.Fatal(err)
		}
		w.Watch = func(_ *looptest.Checker, actions []loop.Action) error {
			for i, e := range w.Loop().Status().Engines {
				if e.State == "switching" && e.Active > 0 {
					return fmt.Errorf("engine %d switches with %d rollouts", i, e.Active)
				}
			}
			for _, a := range actions {
				if a.Kind == loop.SwitchWeights {
					switches++
				}
			}
			return nil
		}
		if err := w.Run(400); err != nil {
			t.Fatalf("%v\n%v", err, plan)
		}
	}
	if switches < 200 {
		t.Errorf("only %d switches were looked at", switches)
	}
}

// TestGroupsCountTheFirstScored requires that no group has more than S rollouts
// that count, and that a group with redundancy has S of them unless some failed
// or were pruned.
func TestGroupsCountTheFirstScored(t *testing.T) {
	whole := 0
	asRedundant := func(p *looptest.Plan) {
		p.Config.Redundancy = 1 + int(p.Seed%3)
		p.Faults.Prunes, p.Faults.RolloutFails, p.Faults.NoNumber, p.Faults.EngineLost, p.Faults.SyncFails, p.Faults.Garbage = 0, 0, 0, 0, 0, 0
	}
	eachWorld(t, 50, asRedundant, func(cfg loop.Config) func(*looptest.Checker, []loop.Action) error {
		return func(_ *looptest.Checker, actions []loop.Action) error {
			for _, a := range actions {
				if a.Kind != loop.GroupLeased {
					continue
				}
				if whole++; int(a.Count) != cfg.GroupSize {
					return fmt.Errorf("%v has %d rollouts, want %d", a, a.Count, cfg.GroupSize)
				}
			}
			return nil
		}
	})
	if whole < 300 {
		t.Errorf("only %d groups were looked at", whole)
	}
}

// TestSiblingsStayTogether requires of PlaceCacheAware that most rollouts of a group start where one of it has started
// before, and that no group waits for that: while it has rollouts to start, at most half as many groups are opened after
// it as run at once.
func TestSiblingsStayTogether(t *testing.T) {
	together, apart := map[loop.Placement]int{}, map[loop.Placement]int{}
	for _, placement := range []loop.Placement{loop.PlaceLeastLoaded, loop.PlaceCacheAware} {
		as := func(p *looptest.Plan) {
			p.Faults = looptest.Faults{RolloutFails: p.Faults.RolloutFails, Straggles: p.Faults.Straggles, EngineLost: p.Faults.EngineLost}
			c := &p.Config
			c.Placement, c.Start, c.Control, c.EnginesStart = placement, loop.StartStream, nil, 0
			c.EngineSlots = []int{8, 8, 8, 8}
		}
		eachWorld(t, 120, as, func(cfg loop.Config) func(*looptest.Checker, []loop.Action) error {
			size := cfg.GroupSize + cfg.Redundancy
			most := loop.GroupID(cfg.Concurrency() / (2 * size))
			started, at := map[loop.GroupID]int{}, map[loop.GroupID]map[int32]bool{}
			last := loop.GroupID(0)
			return func(_ *looptest.Checker, actions []loop.Action) error {
				for _, a := range actions {
					if a.Kind == loop.GroupEnded || a.Kind == loop.GroupQueued || a.Kind == loop.GroupHeld {
						delete(started, a.Group) // what it has not started it will not start
					}
					if a.Kind != loop.StartRollout || a.Attempt > 1 {
						continue
					}
					switch engines := at[a.Group]; {
					case engines == nil:
						last, at[a.Group] = a.Group, map[int32]bool{}
					case engines[a.Engine]:
						together[placement]++
					default:
						apart[placement]++
					}
					at[a.Group][a.Engine] = true
					started[a.Group]++
					for g, n := range started {
						if n == size {
							delete(started, g)
						} else if placement == loop.PlaceCacheAware && last-g > most {
							return fmt.Errorf("g%d has started %d of %d rollouts, and %d groups were opened after it, want at most %d", g, n, size, last-g, most)
						}
					}
				}
				return nil
			}
		})
	}
	share := func(p loop.Placement) float64 { return float64(together[p]) / float64(together[p]+apart[p]) }
	if with, without := share(loop.PlaceCacheAware), share(loop.PlaceLeastLoaded); with < 0.8 || without > 0.4 {
		t.Errorf("a share of %.2f of siblings start where one has started before, %.2f without the rule", with, without)
	}
}
