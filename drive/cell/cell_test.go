package cell

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// keeper is a store and an environment that note what becomes of payloads and attempts.
type keeper struct {
	port.Environment
	payloads
	fail             error
	discarded, acked []port.RolloutID
	counted          []bool
	forgotten        []loop.GroupID
}

func (k *keeper) PutSample(s port.Sample) error {
	if k.fail != nil {
		return k.fail
	}
	return k.payloads.PutSample(s)
}

func (k *keeper) Discard(id port.RolloutID) error {
	k.discarded = append(k.discarded, id)
	return nil
}

func (k *keeper) Forget(g loop.GroupID) error {
	k.forgotten = append(k.forgotten, g)
	return nil
}

func (k *keeper) Logged(id port.RolloutID, counted bool) {
	k.acked, k.counted = append(k.acked, id), append(k.counted, counted)
}

// told is a cell with one engine of a token a second, that follows a log of a test.
type told struct {
	*Cell
	*keeper
	engine *countingEngine
	posted chan Event
}

func newTold(t *testing.T, opt Options) *told {
	x := &told{keeper: &keeper{Environment: turns{tokens: 1}}, engine: &countingEngine{name: "a", version: 3}, posted: make(chan Event, 64)}
	began := time.Now()
	opt.Engines, opt.Environment, opt.Payloads = []port.Engine{x.engine}, x.keeper, x.keeper
	opt.Clock = func() int64 { return time.Since(began).Nanoseconds() }
	opt.Space, opt.Post, opt.Logf = &Space{Clock: opt.Clock}, func(ev *Event) { x.posted <- *ev }, t.Logf
	var err error
	if x.Cell, err = New(t.Context(), opt); err != nil {
		t.Fatal(err)
	}
	return x
}

// on has the cell follow an event and what follows from it.
func (x *told) on(ev loop.Event, actions ...loop.Action) {
	if err := x.Follow(&Entry{Seq: x.followed + 1, Event: ev, Actions: actions}); err != nil {
		panic(err)
	}
}

// do has the cell follow actions.
func (x *told) do(actions ...loop.Action) { x.on(loop.Event{Kind: loop.Tick}, actions...) }

// next returns what is posted within so many seconds.
func (x *told) next(seconds int) (out []Event) {
	time.Sleep(time.Duration(seconds)*time.Second + time.Second/2)
	synctest.Wait()
	for len(x.posted) > 0 {
		out = append(out, <-x.posted)
	}
	return out
}

func kinds(events []Event) (out []loop.EventKind) {
	for i := range events {
		out = append(out, events[i].Kind)
	}
	return out
}

func attempt(kind loop.ActionKind, sample, number int32) loop.Action {
	return loop.Action{Kind: kind, Group: 4, Sample: sample, Attempt: number, Slot: sample}
}

// TestLogged: an ended attempt is acknowledged once, when its end is logged. Its payload goes if it does not count, and
// with its group where that has ended before.
func TestLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newTold(t, Options{})
		for sample := range int32(3) {
			x.do(attempt(loop.StartRollout, sample, 1))
		}
		got := x.next(2)
		if n := len(got); n != 6 || got[5].Kind != loop.RolloutScored || got[5].VersionTokens != 6 || got[5].GenerateNS != 2*time.Second.Nanoseconds() {
			t.Fatalf("%d events, the last %+v: want a first token and a score of each of three", n, got[5])
		}
		if len(x.acked)+len(x.discarded)+len(x.forgotten) > 0 || len(x.put) != 3 {
			t.Fatalf("%+v before anything is logged", x.keeper)
		}
		id := func(sample int32) port.RolloutID { return port.RolloutID{Group: 4, Sample: sample, Attempt: 1} }
		ended := func(kind loop.EventKind, sample int32) loop.Event {
			return loop.Event{Kind: kind, Group: 4, Sample: sample, Attempt: 1}
		}
		x.on(ended(loop.RolloutScored, 0))
		x.on(ended(loop.RolloutAborted, 1))
		x.on(ended(loop.RolloutScored, 1))
		x.do(loop.Action{Kind: loop.GroupEnded, Group: 4})
		late := &Entry{Seq: x.followed + 1, Event: ended(loop.RolloutScored, 2), Discarded: true}
		if err := errors.Join(x.Follow(late), x.Follow(late)); err != nil {
			t.Fatal(err)
		}
		x.on(loop.Event{Kind: loop.RolloutScored, Group: 9, Attempt: 1}) // of another process
		if !slices.Equal(x.acked, []port.RolloutID{id(0), id(1), id(2)}) || !slices.Equal(x.counted, []bool{true, false, false}) {
			t.Errorf("acknowledged %v as %v", x.acked, x.counted)
		}
		if !slices.Equal(x.discarded, []port.RolloutID{id(1), id(2)}) || !slices.Equal(x.forgotten, []loop.GroupID{4, 4}) {
			t.Errorf("discarded %v, forgotten %v", x.discarded, x.forgotten)
		}
	})
}

// TestCommandsOfNoAttempt: an attempt is started once in the place of the one before, and nothing but a resume of one
// that does not stand interrupted is answered.
func TestCommandsOfNoAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newTold(t, Options{})
		x.do(attempt(loop.InterruptRollout, 0, 1), attempt(loop.AbortRollout, 0, 1))
		if got := x.next(0); len(got) > 0 {
			t.Errorf("posted %v", got)
		}
		x.do(attempt(loop.ResumeRollout, 0, 1))
		got := x.next(0)
		if len(got) != 1 || got[0].Kind != loop.RolloutFailed || got[0].Reason != loop.ReasonEngine || !strings.Contains(got[0].Error, "interrupted") {
			t.Errorf("posted %+v", got)
		}
		x.do(attempt(loop.StartRollout, 0, 1), attempt(loop.StartRollout, 0, 2), attempt(loop.InterruptRollout, 0, 1)) // the first is the last no more
		if got := kinds(x.next(2)); !slices.Equal(got, []loop.EventKind{loop.RolloutAborted, loop.FirstToken, loop.RolloutScored}) {
			t.Errorf("posted %v", got)
		}
	})
}

// TestStoreThatTakesNothing: the cell says that it is broken, and by what.
func TestStoreThatTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newTold(t, Options{})
		x.fail = errors.New("input/output error")
		x.do(attempt(loop.StartRollout, 0, 1))
		got := x.next(2)
		if len(got) != 2 || !got[1].Fatal || !errors.Is(x.Err(), x.fail) {
			t.Errorf("posted %+v: %v", got, x.Err())
		}
	})
}

// TestEngineThatIsDown: a rollout fails with its engine, or the cell says that the engine is lost and the rollout waits to
// be interrupted, with the tokens it has.
func TestEngineThatIsDown(t *testing.T) {
	for resume, want := range map[bool][]loop.EventKind{false: {loop.RolloutFailed}, true: {loop.EngineLost}} {
		synctest.Test(t, func(t *testing.T) {
			x := newTold(t, Options{Rules: loop.Config{ResumeLost: resume}})
			x.engine.fail = port.ErrEngineDown
			x.do(attempt(loop.StartRollout, 0, 1))
			got := x.next(0)
			if !slices.Equal(kinds(got), want) || got[0].Error == "" {
				t.Errorf("%v: posted %+v", resume, got)
			}
			x.do(attempt(loop.InterruptRollout, 0, 1))
			if got := x.next(0); resume && (len(got) != 1 || got[0].Kind != loop.RolloutInterrupted) {
				t.Errorf("posted %+v", got)
			}
			x.do(attempt(loop.AbortRollout, 0, 1))
		})
	}
}

// TestNameOfACell: a name that would need an escape in the log is refused.
func TestNameOfACell(t *testing.T) {
	for name, right := range map[string]bool{"": true, "cell-0.cells": true, `a"b`: false, "A": false, "a b": false} {
		if _, err := New(t.Context(), Options{Name: name}); (err == nil) != right {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// syncing is an engine whose loads and switches fail as they are told.
type syncing struct {
	countingEngine
	load, change error
	held         bool
}

func (e *syncing) Load(context.Context, loop.Version) error { return e.load }
func (e *syncing) Switch(_ context.Context, _ loop.Version, hold bool) error {
	e.held = hold
	return e.change
}

// TestWeights: a load and a switch are answered with the version and the attempt that were asked for.
func TestWeights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newTold(t, Options{Rules: loop.Config{Sync: loop.SyncPause}})
		e := &syncing{}
		x.opt.Engines[0] = e
		load := loop.Action{Kind: loop.LoadWeights, Version: 5, Attempt: 2}
		x.do(load, loop.Action{Kind: loop.SwitchWeights, Version: 5, Attempt: 2})
		got := x.next(0)
		slices.SortFunc(got, func(a, b Event) int { return int(a.Kind) - int(b.Kind) })
		if !slices.Equal(kinds(got), []loop.EventKind{loop.WeightsLoaded, loop.WeightsSwitched}) || got[1].Version != 5 || got[1].Attempt != 2 || !e.held {
			t.Errorf("posted %+v, held %v", got, e.held)
		}
		for _, down := range []bool{false, true} {
			if e.load = errors.New("no such version"); down {
				e.load = port.ErrEngineDown
			}
			x.do(load)
			got := x.next(0)
			if len(got) != 1 || got[0].Kind != loop.SyncFailed || got[0].Reason != loop.ReasonSync || got[0].Down != down || got[0].Error != e.load.Error() {
				t.Errorf("posted %+v", got)
			}
		}
	})
}
