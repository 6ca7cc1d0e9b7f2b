package live_test

import (
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// TestView: many look at a run while it goes on. What they see is a moment of it, not
// far behind, and agrees with what the trace says of the end.
func TestView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := asyncConfig()
		cfg.EngineSlots = []int{3, 2}
		w := newWorld(cfg)
		r := w.runtime(t, nil)
		if v := r.View(); v.Began || len(v.Engines) != 2 || v.Last.TrainStepNS != -1 || v.Staleness.Groups != 0 {
			t.Errorf("before the run the view is %+v", v)
		}
		done := make(chan struct{})
		var wg sync.WaitGroup
		for k := range 4 {
			wg.Go(func() {
				version := loop.Version(0)
				for {
					select {
					case <-done:
						return
					case <-time.After(time.Duration(7+k) * time.Millisecond):
					}
					v := r.View()
					if v.Status.Version < version || !v.Status.Ledger.Balanced() || v.NowNS < v.AtNS {
						t.Errorf("after version %d the view is %+v", version, v)
						return
					}
					version = v.Status.Version
					if late := time.Duration(v.NowNS - v.AtNS); late > 200*time.Millisecond {
						t.Errorf("the view is %v behind", late)
					}
					if v.Offered != (v.Status.Lease != 0) || v.Offered && (v.OfferedNS < 0 || v.OfferedNS > v.AtNS) {
						t.Errorf("lease %d, offered %v since %d at %d", v.Status.Lease, v.Offered, v.OfferedNS, v.AtNS)
					}
					for i, e := range v.Engines {
						busy := e.Oldest != (port.RolloutID{})
						if busy && (e.OldestNS > v.AtNS || e.Oldest.Group < 1) || v.Began && busy != (v.Status.Engines[i].Active > 0) {
							t.Errorf("engine %d has %d rollouts, the oldest %+v since %d at %d", i, v.Status.Engines[i].Active, e.Oldest, e.OldestNS, v.AtNS)
						}
					}
				}
			})
		}
		res, err := r.Run(t.Context())
		close(done)
		wg.Wait()
		if err != nil {
			t.Fatal(err)
		}
		v := r.View()
		if v.Status.Version != 40 || v.Step.Step != 40 || v.Status.Ledger != res.Status.Ledger || v.Offered {
			t.Errorf("at the end the view is %+v", v)
		}
		checkStaleness(t, w, v)
		if idle := v.TrainerIdle; !(idle >= 0 && idle <= 1) || !(v.RolloutIdle >= 0 && v.RolloutIdle <= 1) {
			t.Errorf("idle %g, %g", idle, v.RolloutIdle)
		}
		checkProgress(t, w, v)
	})
}

// checkStaleness compares the view's staleness with the trace's.
func checkStaleness(t *testing.T, w *world, v live.View) {
	t.Helper()
	var all []loop.Version
	var sum, pqs, iqs loop.Version
	for _, rec := range w.records(t) {
		if a := rec.Action; a != nil && a.Kind == loop.GroupTrained {
			s, p, i := a.Staleness()
			all, sum, pqs, iqs = append(all, s), sum+s, pqs+p, iqs+i
		}
	}
	slices.Sort(all)
	n := float64(len(all))
	s := v.Staleness
	if s.Groups != len(all) || math.Abs(s.Mean-float64(sum)/n) > 1e-9 || math.Abs(s.PQS-float64(pqs)/n) > 1e-9 || math.Abs(s.IQS-float64(iqs)/n) > 1e-9 ||
		s.Max != all[len(all)-1] || s.P50 != all[(len(all)-1)/2] || s.P95 < s.P50 || s.P95 > s.Max || sum == 0 {
		t.Errorf("staleness %+v of %v", s, all)
	}
}

// checkProgress compares when things happened last with the trace.
func checkProgress(t *testing.T, w *world, v live.View) {
	t.Helper()
	want := live.Progress{AskedNS: -1}
	var at int64
	for _, rec := range w.records(t) {
		switch {
		case rec.Event != nil:
			at = rec.Event.Time
			switch rec.Event.Kind {
			case loop.TrainStepEnded:
				want.TrainStepNS = at
			case loop.RolloutScored:
				want.ScoredNS = at
			case loop.FirstToken:
				want.FirstTokenNS = at
			}
		case rec.Action != nil:
			switch rec.Action.Kind {
			case loop.StartTrainStep:
				want.LeaseNS = at
			case loop.SyncCompleted:
				want.SyncNS = at
			case loop.StartRollout:
				want.StartedNS = at
			}
		}
	}
	got := v.Last
	// Several events of a turn may come before their actions in the trace.
	for _, p := range []*int64{&got.LeaseNS, &got.SyncNS, &got.StartedNS} {
		if d := at - *p; d < 0 {
			t.Errorf("something happened after the end: %+v", v.Last)
		}
	}
	got.LeaseNS, got.SyncNS, got.StartedNS = want.LeaseNS, want.SyncNS, want.StartedNS
	if got != want {
		t.Errorf("the view says %+v, the trace %+v", v.Last, want)
	}
}

// TestPatience: a run of which nothing comes ends as stalled, unless somebody may still come.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(asyncConfig())
		w.cfg.FilterZeroAdvantage = true // every reward is 1
		w.change = func(o *live.Options) { o.Patient = true }
		r := w.runtime(t, nil)
		time.AfterFunc(2*time.Minute, r.Stop)
		res, err := r.Run(t.Context())
		if err != nil || res.Reason != loop.ReasonStopped || res.Status.Ledger.Filtered < 5000 {
			t.Errorf("ended by %v: %v", res.Reason, err)
		}
	})
}

// TestClockThatJumps: a clock that is set back, or ahead by hours as after a suspended
// night, breaks nothing: times never fall, holds end, ticks come.
func TestClockThatJumps(t *testing.T) {
	for name, c := range map[string]struct{ at, by time.Duration }{
		"ahead": {2 * time.Second, 9 * time.Hour},
		"back":  {2 * time.Second, -9 * time.Hour},
		"early": {time.Millisecond, -time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := asyncConfig()
				cfg.Hold, cfg.Select = 0.25, loop.SelectNewest
				w := newWorld(cfg)
				w.change = func(o *live.Options) {
					o.Clock = func() int64 {
						d := time.Since(w.begin)
						if d > c.at {
							d += c.by
						}
						return d.Nanoseconds()
					}
				}
				took := time.Now()
				res, err := w.runtime(t, nil).Run(t.Context())
				if err != nil || res.Reason != loop.ReasonSteps || !res.Status.Ledger.Balanced() || res.Status.Counts.TimeReversed != 0 {
					t.Fatalf("ended by %v: %v, %+v", res.Reason, err, res.Status.Counts)
				}
				if d := time.Since(took); d > 30*time.Second {
					t.Errorf("the run took %v, as if it had waited for the clock", d)
				}
				last, held := int64(0), 0
				for _, rec := range w.records(t) {
					if rec.Event == nil {
						continue
					}
					if rec.Event.Time < last {
						t.Fatalf("%v comes after %v", rec.Event, time.Duration(last))
					}
					if rec.Event.Kind == loop.Tick {
						held++
					}
					last = rec.Event.Time
				}
				if held == 0 {
					t.Error("no tick came, the run is too tame")
				}
				replay(t, w)
			})
		})
	}
}

// A queue that is full says since when.
func TestViewOfAFullQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := asyncConfig()
		cfg.TrainerAsks, cfg.TrainSteps = true, 1
		w := newWorld(cfg)
		r := w.runtime(t, nil)
		w.trainer.asks(r, int64(time.Hour), 0)
		time.AfterFunc(time.Minute, func() {
			full := time.Duration(-1)
			if v := r.View(); v.QueueFull {
				full = time.Duration(v.NowNS - v.QueueFullNS)
			}
			if full < 50*time.Second || full > time.Minute {
				t.Errorf("after a minute the queue has been full for %v", full)
			}
		})
		if _, err := r.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}
