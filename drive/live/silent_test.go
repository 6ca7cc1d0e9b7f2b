package live_test

import (
	"context"
	"errors"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/drive/cell"
	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/internal/presence/presencetest"
	"github.com/headway-rl/headway/loop"
)

// after does things at times from now on.
func after(at time.Duration, do func()) { time.AfterFunc(at, do) }

// lookAt looks at something at a time from now on, in a goroutine of its own. The channel has the answer then.
func lookAt[T any](at time.Duration, look func() T) <-chan T {
	seen := make(chan T, 1)
	after(at, func() { seen <- look() })
	return seen
}

// silences are what the log says of the cell's engines: how often one was lost by silence, and joined, and how many rollouts
// of theirs were scored behind the last of these.
func (w *linkedWorld) silences(t *testing.T) (lost, joined, scored int) {
	for _, rec := range w.records(t) {
		ev := rec.Event
		switch {
		case ev == nil:
		case ev.Kind == loop.EngineLost && ev.Engine > 0 && ev.Origin.Cell == "":
			lost++
		case ev.Kind == loop.EngineJoined && ev.Engine > 0:
			joined, scored = joined+1, 0
		case ev.Kind == loop.RolloutScored && ev.Slot >= 2:
			scored++
		}
	}
	return lost, joined, scored
}

// brief passes over all but one of a test's ways under the race detector, where each takes seconds.
func brief(t *testing.T, one bool) {
	if testing.Short() && !one {
		t.Skip("as one of the others, and long under the race detector")
	}
}

// silentRules are rules by which more than one thing becomes of what a lost cell played.
var silentRules = map[string]func(*loop.Config){
	"fails":   func(*loop.Config) {},
	"resumes": func(c *loop.Config) { c.ResumeLost = true },
	"stays":   func(c *loop.Config) { c.ResumeLost, c.StaysInCell = true, true },
	"spans": func(c *loop.Config) {
		c.ResumeLost, c.StaysInCell, c.Sync, c.InterruptAtBatch, c.MaxSpans = true, true, loop.SyncRestart, true, 3
	},
	"aborts": func(c *loop.Config) {
		c.ResumeLost, c.Policy, c.MaxStaleness, c.Abort = true, loop.PolicyMax, 1, true
	},
}

// TestSilentCellIsLost: the engines of a cell that says nothing for longer than its lease are lost once. The run goes on with the
// others. The cell reads of that when it is back, and its engines join.
func TestSilentCellIsLost(t *testing.T) {
	for name, change := range silentRules {
		t.Run(name, func(t *testing.T) {
			brief(t, name == "resumes")
			synctest.Test(t, func(t *testing.T) {
				cfg := asyncConfig()
				cfg.TrainSteps = 860
				change(&cfg)
				w := newLinkedWorld(cfg, 6, 0.02)
				w.startCell(t)
				for i := range 2 {
					at := time.Duration(2+40*i) * time.Second
					after(at, func() { w.wire.cut(true) })
					after(at+cell.Lease+time.Duration(6+7*i)*time.Second, func() { w.wire.cut(false) })
				}
				res, err := w.lead(t, t.Context())
				if err != nil || res.Reason != loop.ReasonSteps || !res.Status.Ledger.Balanced() {
					t.Fatalf("ended by %v: %v, ledger %+v\n%s", res.Reason, err, res.Status.Ledger, w.logged)
				}
				if w.engines[1].most != 2 || w.engines[2].most != 2 { // else what was given away played on
					t.Errorf("engines 1 and 2 played %d and %d at once", w.engines[1].most, w.engines[2].most)
				}
				w.end()
				if err := <-w.ended; !endedWell(err) {
					t.Errorf("the cell ended by %v", err)
				}
				if lost, joined, scored := w.silences(t); lost != 4 || joined != 6 || scored < 5 {
					t.Errorf("engines were lost %d times and joined %d times, and %d rollouts were scored behind that\n%s", lost, joined, scored, w.logged)
				}
				if text := strings.Join(w.logged, "\n"); strings.Count(text, "engine engine-1 is lost: cell b has said nothing for 15s; its rollouts are tried again elsewhere; it is tried again when its cell is heard") != 2 {
					t.Errorf("the run says %s", text)
				}
				w.checkActions(t)
			})
		})
	}
}

// TestSilentCellIsReplaced: a cell that is dead is lost, and another process of it joins.
func TestSilentCellIsReplaced(t *testing.T) {
	for name, change := range silentRules {
		for pause, at := range map[string]time.Duration{"before its loss": 3 * time.Second, "behind it": 40 * time.Second} {
			t.Run(name+", "+pause, func(t *testing.T) {
				brief(t, name == "resumes")
				synctest.Test(t, func(t *testing.T) {
					cfg := asyncConfig()
					cfg.TrainSteps = 100
					if at > cell.Lease {
						cfg.TrainSteps = 500
					}
					change(&cfg)
					w := newLinkedWorld(cfg, 7, 0)
					w.startCell(t)
					after(2*time.Second, func() { w.end() })
					after(at, func() { <-w.ended; w.startCell(t) })
					res, err := w.lead(t, t.Context())
					if err != nil || res.Reason != loop.ReasonSteps || !res.Status.Ledger.Balanced() {
						t.Fatalf("ended by %v: %v, ledger %+v\n%s", res.Reason, err, res.Status.Ledger, w.logged)
					}
					w.end()
					<-w.ended
					silent := 0
					if at > cell.Lease {
						silent = 2
					}
					if text := strings.Join(w.logged, "\n"); silent == 0 && strings.Contains(text, "is lost") {
						t.Errorf("the run says of engines that join at once: %s", text)
					}
					if lost, joined, scored := w.silences(t); lost != silent || joined != 4 || scored < 20 {
						t.Errorf("engines were lost %d times and joined %d times, and %d rollouts were scored behind that\n%s", lost, joined, scored, w.logged)
					}
					w.checkActions(t)
				})
			})
		}
	}
}

// TestCellThatIsNotHeard: no cell is lost while its writer could not hear it, or for less than its lease.
func TestCellThatIsNotHeard(t *testing.T) {
	for name, do := range map[string]func(w *linkedWorld, process *presencetest.Process){
		"cut off for less than a lease": func(w *linkedWorld, _ *presencetest.Process) {
			after(2*time.Second, func() { w.wire.cut(true) })
			after(11*time.Second, func() { w.wire.cut(false) })
		},
		"the log waits for room": func(w *linkedWorld, _ *presencetest.Process) {
			after(2*time.Second, func() { w.wire.fill(true) })
			after(time.Minute, func() { w.wire.fill(false) })
		},
		"the broker is gone": func(w *linkedWorld, process *presencetest.Process) {
			after(2*time.Second, func() { w.wire.fill(true); w.wire.cut(true); process.Away(58 * time.Second) })
			after(time.Minute, func() { w.wire.fill(false) })
			after(65*time.Second, func() { w.wire.cut(false) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := asyncConfig()
				cfg.TrainSteps = 300
				w := newLinkedWorld(cfg, 8, 0)
				process, change := presencetest.Start(t), w.change
				w.change = func(o *live.Options) {
					change(o)
					o.Present = process.Clock
				}
				w.startCell(t)
				do(w, process)
				w.leadsWithoutLoss(t)
				if lost, joined, _ := w.silences(t); lost != 0 || joined != 2 {
					t.Errorf("engines were lost %d times and joined %d times", lost, joined)
				}
			})
		})
	}
}

// TestNewWriterWaitsForCells: a writer gives each cell a whole lease, and loses those that say nothing in it. One that was lost
// before is not tried until it is heard.
func TestNewWriterWaitsForCells(t *testing.T) {
	for name, test := range map[string]struct {
		ends, back time.Duration // of the first writer, and of the cell for the second
		lost       int
	}{
		"it is heard": {2 * time.Second, 9 * time.Second, 0}, "it is not": {2 * time.Second, 25 * time.Second, 2},
		"it was lost before": {25 * time.Second, 25 * time.Second, 2},
	} {
		t.Run(name, func(t *testing.T) {
			brief(t, name == "it is not")
			synctest.Test(t, func(t *testing.T) {
				cfg := asyncConfig()
				cfg.TrainSteps = 700
				w := newLinkedWorld(cfg, 9, 0)
				w.startCell(t)
				ctx, cancel := context.WithCancel(t.Context())
				after(2*time.Second, func() { w.wire.cut(true) })
				after(test.ends, cancel)
				if _, err := w.lead(t, ctx); !errors.Is(err, context.Canceled) {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				after(test.back, func() { w.wire.cut(false) })
				res, err := w.lead(t, t.Context())
				if err != nil || res.Reason != loop.ReasonSteps || !res.Status.Ledger.Balanced() {
					t.Fatalf("ended by %v: %v, ledger %+v\n%s", res.Reason, err, res.Status.Ledger, w.logged)
				}
				w.end()
				<-w.ended
				if lost, joined, scored := w.silences(t); lost != test.lost || joined != 2+test.lost || scored < 20 {
					t.Errorf("engines were lost %d times and joined %d times, and %d rollouts were scored behind that\n%s", lost, joined, scored, w.logged)
				}
			})
		})
	}
}

// TestCellOverNATSIsLost: a cell that is cut off for longer than its lease is lost, and the run goes on with the writer's own
// engine. Once the cell is back it lets go of what it held, joins, and plays.
func TestCellOverNATSIsLost(t *testing.T) {
	for name, resumes := range map[string]bool{"fails": false, "resumes": true} {
		t.Run(name, func(t *testing.T) {
			w := newNATSWorld(t)
			w.cfg.ResumeLost = resumes
			w.startCell()
			w.engines[0].hold()
			var cut atomic.Bool
			hold := w.holdAt(6, func() {
				w.proxy.cut(true)
				cut.Store(true)
				w.engines[0].release()
			})
			steps := 0 // since the cut
			res, err := w.lead(t.Context(), func(v loop.Version) {
				if hold(v); cut.Load() {
					steps++
				}
				if steps == 2 || steps == 3 { // by then all has come that was on its way
					w.pass(cell.Lease + time.Second)
				}
				if steps != 4 {
					return
				}
				w.engines[0].hold() // until the end: the others have to play
				w.proxy.cut(false)
				go func() {
					for _, e := range w.engines[1:] {
						<-e.let
					}
					w.release()
				}()
			})
			if err != nil {
				t.Fatalf("%v\n%s", err, w.logged)
			}
			w.stopCell()
			w.calmBut(res, 4, "of the cell")
			if n := strings.Count(strings.Join(w.logged, "\n"), "is lost: cell b has said nothing for 15s"); n != 2 {
				t.Errorf("%d engines were lost: %s", n, w.logged)
			}
		})
	}
}

// TestBrokerOfCellsIsGone: while the server is gone nothing is lost, however long that is, and shortly behind it.
func TestBrokerOfCellsIsGone(t *testing.T) {
	w := newNATSWorld(t)
	w.startCell()
	w.engines[0].hold()
	stalled := func(is bool) {
		for ((*w.stalled.Load())() != nil) != is {
			runtime.Gosched()
		}
	}
	res, err := w.lead(t.Context(), w.holdAt(6, func() {
		at := w.server.Addr().(*net.TCPAddr).Port
		w.server.Shutdown()
		w.server.WaitForShutdown()
		stalled(true)
		w.pass(time.Hour)
		w.server = startServer(t, at, w.dir)
		stalled(false)
		w.pass(cell.Lease / 2)
		w.release()
	}))
	if err != nil {
		t.Fatalf("%v\n%s", err, w.logged)
	}
	w.stopCell()
	w.calm(res)
}
