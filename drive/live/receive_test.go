package live

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/headway-rl/headway/drive/cell"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/loop/trace"
)

// headed is a store that has a header and nothing else, and refuses references.
type headed struct {
	port.Store
	header trace.Header
}

func (h *headed) Refer(_ string, _ port.RolloutID, reference string) error {
	if reference == "unanswered" {
		return errors.New("NATS does not answer")
	}
	return fmt.Errorf("%w: %s is not there", port.ErrReference, reference)
}

func (h *headed) Header() (trace.Header, bool) { return h.header, true }

// hearing returns a runtime that hears the cell b, of engine 1, and is to be asked for nothing else.
func hearing(t *testing.T) *Runtime { return hearingBy(t, func(*loop.Config) {}) }

// hearingBy is hearing under other rules.
func hearingBy(t *testing.T, change func(*loop.Config)) *Runtime {
	type parts struct {
		port.Trainer
		port.Weights
	}
	header := trace.Header{Format: trace.Format, Program: "test", Loop: loop.Config{GroupSize: 1, BatchGroups: 1, EngineSlots: []int{1, 2}, EngineCells: []int{0, 1}, QueueGroups: 1}.WithDefaults()}
	change(&header.Loop)
	engines := []port.Engine{&linked{}, Elsewhere("one", 2), Elsewhere("two", 2)}[:len(header.Loop.EngineSlots)]
	clock := int64(5e9)
	r, err := New(Options{Header: header, Engines: engines, Cells: []string{"b"},
		Environment: &linked{}, Trainer: &parts{}, Weights: &parts{}, Store: &headed{header: header}, Clock: func() int64 { clock++; return clock }, Logf: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	r.beginLeases()
	close(r.hearing)
	return r
}

// said is an event of incarnation 1 of the cell b.
func said(sequence int64, ev loop.Event, change ...func(*cell.Event)) *cell.Event {
	out := &cell.Event{Event: ev, Origin: trace.Origin{Cell: "b", Incarnation: 1, Sequence: sequence}}
	for _, c := range change {
		c(out)
	}
	return out
}

// greeting makes an event a hello that fits.
func greeting(r *Runtime) func(*cell.Event) {
	return func(ev *cell.Event) {
		h := r.opt.Store.(*headed).header
		hello := cell.NewHello("other", h, h.Loop, []cell.EngineHello{{Engine: 1, Name: "one", Slots: 2}})
		ev.Kind, ev.Engine, ev.Hello = loop.EngineJoined, 1, &hello
	}
}

// TestReceiveRefuses: what a cell cannot say of the run is refused, with the reason, and the next event is taken all the
// same.
func TestReceiveRefuses(t *testing.T) {
	r := hearing(t)
	if err := r.Receive(said(1, loop.Event{}, greeting(r))); err != nil {
		t.Fatal(err)
	}
	first := loop.Event{Kind: loop.FirstToken, Slot: 1}
	for name, test := range map[string]struct {
		ev   *cell.Event
		want string // of the refusal
	}{
		"no cell":             {said(2, first, func(ev *cell.Event) { ev.Origin.Cell = "c" }), `"c" is no cell of this run, which has b`},
		"own cell":            {said(2, first, func(ev *cell.Event) { ev.Origin.Cell = "" }), `"" is no cell of this run`},
		"slot of another":     {said(2, loop.Event{Kind: loop.RolloutScored}), "engine 0 is not its own: it has [1]"},
		"no slot":             {said(2, loop.Event{Kind: loop.RolloutScored, Slot: 3}), "slot 3 is none of the run's 3"},
		"slot below":          {said(2, loop.Event{Kind: loop.RolloutScored, Slot: -1}), "slot -1 is none"},
		"engine of another":   {said(2, loop.Event{Kind: loop.EngineLost}), "engine 0 is not its own"},
		"no engine":           {said(2, loop.Event{Kind: loop.WeightsLoaded, Engine: 2}), "engine 2 is none of the run's 2"},
		"engine below":        {said(2, loop.Event{Kind: loop.SyncFailed, Engine: -1}), "engine -1 is none"},
		"the trainer's":       {said(2, loop.Event{Kind: loop.TrainStepEnded}), "no cell says events of the kind train-step-ended"},
		"the writer's":        {said(2, loop.Event{Kind: loop.Recovered}), "no cell says events of the kind recovered"},
		"joined":              {said(2, loop.Event{Kind: loop.EngineJoined, Engine: 1}), "no cell says events of the kind engine-joined"},
		"hello again":         {said(2, loop.Event{}, greeting(r)), "the first event of a process is its hello, and no other is"},
		"no hello":            {said(1, first, func(ev *cell.Event) { ev.Origin.Incarnation = 2 }), "the first event of a process is its hello"},
		"hello of a kind":     {said(1, loop.Event{}, greeting(r), func(ev *cell.Event) { ev.Origin.Incarnation, ev.Kind = 2, loop.EngineLost }), "its hello is of the kind engine-lost"},
		"its store is full":   {said(2, first, func(ev *cell.Event) { ev.Fatal, ev.Error = true, "no disk" }), "takes no payloads: no disk"},
		"no payload":          {said(2, loop.Event{Kind: loop.RolloutScored, Slot: 1, Group: 3, Attempt: 1}, func(ev *cell.Event) { ev.Payload = "it" }), ": it is not there"},
		"another's engines":   {said(1, loop.Event{}, greeting(r), func(ev *cell.Event) { ev.Origin.Incarnation, ev.Hello.Engines[0].Engine = 2, 0 }), "give both the same document"},
		"another incarnation": {said(1, loop.Event{}, greeting(r), func(ev *cell.Event) { ev.Origin.Incarnation = 0 }), "is replaced by incarnation 1"},
	} {
		err := r.Receive(test.ev)
		if refusal, ok := errors.AsType[*cell.Refusal](err); !ok || refusal.Want != 0 || !strings.Contains(refusal.Why, test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
	unanswered := said(2, loop.Event{Kind: loop.RolloutScored, Slot: 1, Group: 3, Attempt: 1}, func(ev *cell.Event) { ev.Payload = "unanswered" })
	if err := r.Receive(unanswered); err == nil || errors.As(err, new(*cell.Refusal)) {
		t.Errorf("a payload of which the store knows nothing yet: %v, want an error that is no refusal", err)
	}
	if err := r.Receive(said(2, first)); err != nil || len(r.words) != 2 {
		t.Errorf("%v, and %d events are taken, want the hello and one more", err, len(r.words))
	}
}

// TestReceiveTellsTime: an event has happened as long ago as the cell says, and never before another of the cell or the
// run's begin.
func TestReceiveTellsTime(t *testing.T) {
	r := hearing(t)
	now := r.clock()
	aged := func(ns int64) func(*cell.Event) {
		return func(ev *cell.Event) { ev.Age, ev.Time = ns, 1e18 }
	}
	first := loop.Event{Kind: loop.FirstToken, Slot: 1}
	for i, test := range []struct {
		ev       *cell.Event
		least    int64
		included int64
	}{
		{said(1, loop.Event{}, greeting(r), aged(1<<62)), 0, 1},
		{said(2, first, aged(3e9)), now - 3e9, 1000},
		{said(3, first, aged(4e9)), now - 3e9, 1000},
		{said(4, first, aged(-1e9)), now, 1000},
	} {
		if err := r.Receive(test.ev); err != nil {
			t.Fatal(err)
		}
		if c := <-r.words; c.event.Time < test.least || c.event.Time > test.least+test.included {
			t.Errorf("%d: %d, want %d to %d later", i, c.event.Time, test.least, test.included)
		}
	}
}

// TestHelloIsAnswered: the answer to a hello is in the log with its place, behind the loss of what another process had. A word
// that comes again is not in the log again.
func TestHelloIsAnswered(t *testing.T) {
	r := hearing(t)
	r.step(&completion{event: loop.Event{Kind: loop.RunStarted}})
	hello := func(incarnation int64) *cell.Event {
		return said(1, loop.Event{}, greeting(r), func(ev *cell.Event) { ev.Origin.Incarnation = incarnation })
	}
	for _, ev := range []*cell.Event{hello(1), hello(1), said(2, loop.Event{Kind: loop.EngineLost, Engine: 1}), said(2, loop.Event{Kind: loop.EngineLost, Engine: 1}), hello(2), hello(3)} {
		if err := r.Receive(ev); err != nil {
			t.Fatal(err)
		}
		for len(r.words) > 0 {
			if c := <-r.words; c.hello != nil {
				r.welcome(&c)
			} else {
				r.deliver(&c)
			}
		}
	}
	var got []string
	reader := trace.NewReaderAt(bytes.NewReader(r.lines), trace.Position{}, trace.Header{})
	for rec, err := reader.Next(); err == nil; rec, err = reader.Next() {
		if o := rec.Event.Origin; o.Cell != "" {
			got = append(got, rec.Event.Kind.String()+" "+string(rune('0'+o.Incarnation))+" "+string(rune('0'+o.Sequence)))
		}
	}
	want := []string{"engine-joined 1 1", "engine-lost 1 2", "engine-joined 2 1", "engine-lost 3 0", "engine-joined 3 1"}
	if !slices.Equal(got, want) {
		t.Errorf("the log has %q, want %q", got, want)
	}
}

// TestSyncOfTheWriterBefore: a sync whose loads another writer has decided is not told of as one that no engine serves.
func TestSyncOfTheWriterBefore(t *testing.T) {
	for name, lost := range map[string]bool{"serves": false, "lost": true} {
		r := hearing(t)
		told := 0
		r.opt.OnSync = func(SyncDone) { told++ }
		for _, ev := range []loop.Event{
			{Kind: loop.RunStarted}, {Kind: loop.EngineJoined, Engine: 1}, {Kind: loop.WeightsLoaded, Engine: 1, Attempt: 1}, {Kind: loop.WeightsSwitched, Engine: 1, Attempt: 1},
			{Kind: loop.RolloutScored, Group: 1, Attempt: 1, Tokens: 1}, {Kind: loop.TrainStepEnded, Lease: 1, Version: 1, Attempt: 1}, {Kind: loop.EngineLost},
		} {
			r.step(&completion{event: ev})
		}
		r.syncs[1] = engineSync{version: loop.NoVersion} // as in a new process
		last := []loop.Event{{Kind: loop.WeightsLoaded, Engine: 1, Version: 1, Attempt: 2}, {Kind: loop.WeightsSwitched, Engine: 1, Version: 1, Attempt: 2}}
		if lost {
			last = []loop.Event{{Kind: loop.EngineLost, Engine: 1}}
		}
		for _, ev := range last {
			r.step(&completion{event: ev})
		}
		completed := slices.ContainsFunc(r.decided, func(a loop.Action) bool { return a.Kind == loop.SyncCompleted && a.Version == 1 })
		if want := map[bool]int{true: 1}[lost]; !completed || told != want {
			t.Errorf("%s: the sync is completed: %t, and told of %d times, want %d; %v", name, completed, told, want, r.decided)
		}
	}
}
