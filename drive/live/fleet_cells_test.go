package live_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/loop"
)

// elasticLinkedWorld is a world whose engines are a fleet's, two of them at the start. Engines 1 and 2 are of the cell b.
func elasticLinkedWorld(t *testing.T, steps loop.Version) (*linkedWorld, *fakeFleet) {
	cfg := elasticConfig()
	cfg.EnginesStart, cfg.StaysInCell, cfg.TrainSteps = 2, true, steps
	w := newLinkedWorld(cfg, 11, 0)
	f := &fakeFleet{t: t, w: w.world, starts: 700 * time.Millisecond}
	change := w.change
	w.change = func(o *live.Options) {
		change(o)
		o.Fleet, o.AcquireWithin, o.ReleaseWithin = f, 5*time.Second, time.Second
		f.answers(w.engines)
	}
	return w, f
}

// engineEvents counts the events of a kind about an engine.
func (w *linkedWorld) engineEvents(t *testing.T, kind loop.EventKind, engine int32) (n int) {
	for _, rec := range w.records(t) {
		if ev := rec.Event; ev != nil && ev.Kind == kind && ev.Engine == engine {
			n++
		}
	}
	return n
}

// TestEnginesOfACellComeAndGo: a fleet starts engines of a cell, whose hello comes while they start, and takes them back. Nothing fails
// by it, none is asked before it is there, and none is given back with something on it.
func TestEnginesOfACellComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := elasticLinkedWorld(t, 80)
		w.startCell(t)
		r := w.runtime(t, nil)
		wish(t, r, 2*time.Second, 3)
		wish(t, r, 4*time.Second, 1)
		wish(t, r, 6*time.Second, 2)
		res := w.leadRuntime(t, t.Context(), r)
		w.end()
		<-w.ended
		if f.started != [8]int{1, 2, 1} || f.released[0] != 0 || f.released[1] == 0 || f.released[2] == 0 {
			t.Errorf("started %v, released %v", f.started, f.released)
		}
		if n := res.Status.Ledger.Failed; n != 0 || w.engines[2].most == 0 {
			t.Errorf("%d attempts failed, and engine 2 played %d at once", n, w.engines[2].most)
		}
		if lost, joined := w.engineEvents(t, loop.EngineLost, 1), w.engineEvents(t, loop.EngineJoined, 1); lost != 0 || joined != 2 {
			t.Errorf("engine 1 was lost %d times and joined %d times, want 0 and 2\n%v", lost, joined, w.logged)
		}
		replay(t, w.world)
	})
}

// leadRuntime leads a writer that was made before to its end, which must be a good one.
func (w *linkedWorld) leadRuntime(t *testing.T, ctx context.Context, r *live.Runtime) live.Result {
	t.Helper()
	res, err := w.leadBy(t, ctx, r)
	if err != nil || res.Reason != loop.ReasonSteps || !res.Status.Ledger.Balanced() {
		t.Fatalf("ended by %v: %v, ledger %+v\n%v", res.Reason, err, res.Status.Ledger, w.logged)
	}
	return res
}

// TestFleetOfACellThatIsReplaced: another process of the cell takes over while an engine of it is there, one is away and one
// starts. A cell that is lost has its engines brought back by the fleet.
func TestFleetOfACellThatIsReplaced(t *testing.T) {
	for name, pause := range map[string]time.Duration{"at once": time.Millisecond, "behind its lease": 20 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, f := elasticLinkedWorld(t, 400)
				w.startCell(t)
				r := w.runtime(t, nil)
				after(3*time.Second, func() {
					w.end()
					<-w.ended
					f.die(1)
					after(pause, func() { w.startCell(t) })
				})
				wish(t, r, 2900*time.Millisecond, 3) // it starts while the cell is replaced
				wish(t, r, 40*time.Second, 1)
				w.leadRuntime(t, t.Context(), r)
				w.end()
				<-w.ended
				if f.started[1] != 2 || f.released[1] == 0 || f.is(1) || w.engines[2].most == 0 {
					t.Errorf("started %v, released %v, played %d\n%v", f.started, f.released, w.engines[2].most, w.logged)
				}
			})
		})
	}
}

// TestFleetOfACellAfterAKill: a writer that goes on beside a cell has the fleet make sure of the cell's engines, and loses none
// that is there.
func TestFleetOfACellAfterAKill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := elasticLinkedWorld(t, 120)
		w.startCell(t)
		ctx, kill := context.WithCancel(t.Context())
		after(3*time.Second, kill)
		if _, err := w.lead(t, ctx); err == nil {
			t.Fatal("the run ended before it was killed")
		}
		f.mu.Lock()
		f.calls = [8]int{}
		f.mu.Unlock()
		res, err := w.lead(t, t.Context())
		if err != nil || res.Reason != loop.ReasonSteps || !res.Status.Ledger.Balanced() {
			t.Fatalf("ended by %v: %v, ledger %+v\n%v", res.Reason, err, res.Status.Ledger, w.logged)
		}
		w.end()
		<-w.ended
		if n := w.failures(t); n != 0 || f.asked[1] < 2 || f.started[1] != 1 || w.engineEvents(t, loop.EngineLost, 1) != 0 {
			t.Errorf("%d attempts of the cell failed, asked %v, started %v\n%v", n, f.asked, f.started, w.logged)
		}
	})
}
