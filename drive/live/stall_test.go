package live_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/loop/trace"
)

// TestStallsSayWhy: a run whose rules let nothing through ends, and the error says
// in words what became of its groups and what to change.
func TestStallsSayWhy(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*loop.Config)
		env    fakeEnvironment
		want   []string
	}{
		"zero advantage": {func(c *loop.Config) { c.FilterZeroAdvantage = true }, fakeEnvironment{},
			[]string{"groups ended untrained since the last train step, all filtered", "the same", "filter.zero_advantage: false"}},
		"solve rate": {func(c *loop.Config) { c.FilterSolveRate, c.SolveLow, c.SolveHigh = true, 0.4, 0.6 }, fakeEnvironment{},
			[]string{"all filtered", "solve rate outside [0.4, 0.6]", "widen filter.solve_rate"}},
		"pruned": {func(*loop.Config) {}, fakeEnvironment{pruned: func(port.RolloutID) bool { return true }},
			[]string{"all pruned", "rollout.prune.tokens"}},
		"failed": {func(c *loop.Config) { c.MaxAttempts = 1 }, fakeEnvironment{err: errors.New("sandbox gone")},
			[]string{"all failed", "the environment failed"}},
		"failed data": {func(*loop.Config) {}, fakeEnvironment{err: fmt.Errorf("%w: no answer", port.ErrData)},
			[]string{"all failed", "cannot be played or judged", "leave them out"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(asyncConfig())
				c.change(&w.cfg)
				w.env = c.env
				_, err := w.runtime(t, nil).Run(t.Context())
				if !errors.Is(err, live.ErrStalled) {
					t.Fatalf("got %v, want ErrStalled", err)
				}
				for _, want := range append(c.want, "the queue holds 0 groups, a batch is 2") {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("%q lacks %q", err, want)
					}
				}
				if strings.ContainsAny(err.Error(), "{}") {
					t.Errorf("%q shows a struct", err)
				}
				replay(t, w)
			})
		})
	}
}

// TestStallWithoutEngines: when every engine is lost nothing is under way, and the error says so.
func TestStallWithoutEngines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(asyncConfig())
		w.engines[0].broken = func(v loop.Version) error {
			if v > 0 {
				return errors.New("connection reset")
			}
			return nil
		}
		_, err := w.runtime(t, nil).Run(t.Context())
		if !errors.Is(err, live.ErrStalled) || !strings.Contains(err.Error(), "nothing is under way") || !strings.Contains(err.Error(), "1 of 1 engine lost") {
			t.Errorf("got %v", err)
		}
	})
}

// TestPrunedLeaveNothing: pruned rollouts count in the ledger, and have no payload;
// their groups are trained without them.
func TestPrunedLeaveNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := asyncConfig()
		cfg.GroupSize, cfg.EngineSlots = 3, []int{8}
		w := newWorld(cfg)
		w.env.pruned = func(id port.RolloutID) bool { return (int(id.Group)+int(id.Sample))%4 == 0 }
		short := 0
		w.change = func(o *live.Options) {
			o.OnBatch = func(b port.Batch) {
				for _, g := range b.Groups {
					if len(g.Samples) < 3 {
						short++
					}
					for i := range g.Samples {
						if w.env.pruned(g.Samples[i].ID) {
							t.Errorf("%v was pruned and is trained on", g.Samples[i].ID)
						}
					}
				}
			}
		}
		res, err := w.runtime(t, nil).Run(t.Context())
		if err != nil || res.Reason != loop.ReasonSteps {
			t.Fatal(res.Reason, err)
		}
		if l := res.Status.Ledger; l.Pruned == 0 || !l.Balanced() || short == 0 {
			t.Errorf("ledger %+v, %d short groups: want pruned rollouts and groups that went on without them", l, short)
		}
	})
}

// TestLateScoresLeaveNoPayload: under redundancy a rollout may be scored just as it
// is given up. Its payload goes, whatever the order, and the batch has exactly the
// rollouts that were counted.
func TestLateScoresLeaveNoPayload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := asyncConfig()
		cfg.Redundancy, cfg.EngineSlots = 1, []int{6}
		w := newWorld(cfg)
		w.work(work{stepNS: 101_000_001, equal: true})
		w.store.slow = func(id port.RolloutID) time.Duration { // the others are scored before its payload is durable
			return time.Duration((int(id.Group)+int(id.Sample))%3/2) * time.Millisecond
		}
		w.change = func(o *live.Options) {
			o.OnBatch = func(b port.Batch) {
				for _, g := range b.Groups {
					if len(g.Samples) != 2 {
						t.Errorf("group %d has %d samples, want the 2 that count", g.ID, len(g.Samples))
					}
				}
			}
		}
		res, err := w.runtime(t, nil).Run(t.Context())
		if err != nil || res.Reason != loop.ReasonSteps {
			t.Fatal(res.Reason, err)
		}
		discarded := 0
		for _, rec := range w.records(t) {
			if rec.Note == trace.NoteDiscarded {
				discarded++
			}
		}
		if discarded == 0 {
			t.Error("no score came late: the test needs some")
		}
		replay(t, w)
	})
}

// TestReplayKeepsPayloads trains on groups again and again, after restarts of the
// run too, and forgets their payloads when they end.
func TestReplayKeepsPayloads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(asyncConfig())
		w.cfg.Policy, w.cfg.MaxUses, w.cfg.QueueGroups, w.cfg.Evict = loop.PolicyReplay, 3, 6, loop.EvictDrift
		w.trainer.drifts = true
		uses := map[loop.GroupID]int{}
		w.change = func(o *live.Options) {
			o.OnBatch = func(b port.Batch) {
				for _, g := range b.Groups {
					uses[g.ID]++
				}
			}
		}
		var resume *live.Resume
		for range 3 {
			r := w.runtime(t, resume)
			if len(uses) == 0 {
				w.stopAfter(t, r, 10)
			}
			res, err := r.Run(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if res.Reason == loop.ReasonSteps {
				break
			}
			resume = w.resume(t)
		}
		again := 0
		for _, n := range uses {
			if n > 3 {
				t.Errorf("a group was trained %d times, 3 are allowed", n)
			}
			if n > 1 {
				again++
			}
		}
		if again == 0 {
			t.Error("no group was trained again")
		}
		if n := len(w.store.samples); n > 14 {
			t.Errorf("payloads of %d groups are kept", n)
		}
		measured := 0
		for _, rec := range w.records(t) {
			if rec.Event != nil && rec.Event.Kind == loop.GroupMeasured {
				measured++
			}
		}
		if measured != 40*2 {
			t.Errorf("%d groups were measured, want 2 in each of 40 steps", measured)
		}
		if l, _ := replay(t, w); l.Status().Counts.Late > 0 {
			t.Errorf("%+v", l.Status().Counts)
		}
	})
}
