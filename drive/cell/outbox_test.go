package cell

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/loop/trace"
)

// filled is an outbox of a cell, full of three events that happened a second apart.
func filled(post func(*Event)) *outbox {
	o := &outbox{post: post, eventsMost: 3, bytesMost: 1 << 20, last: trace.Origin{Cell: "b", Incarnation: 2}}
	for i := range int64(3) {
		o.say(&Event{Event: loop.Event{Kind: loop.FirstToken, Time: i * 1e9}})
	}
	return o
}

// TestOutboxHoldsWhatComes: with a full outbox a word waits until the log shows one, and none is dropped. A word that
// answers an action, or whose attempt has ended, does not wait.
func TestOutboxHoldsWhatComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said []int64
		o := filled(func(ev *Event) { said = append(said, ev.Origin.Sequence) })
		for range 2 {
			go o.sayInTurn(t.Context(), &Event{Event: loop.Event{Kind: loop.RolloutScored}})
		}
		o.say(&Event{Event: loop.Event{Kind: loop.RolloutInterrupted}})
		over, end := context.WithCancel(t.Context())
		end()
		o.sayInTurn(over, &Event{Event: loop.Event{Kind: loop.RolloutAborted}})
		for _, shown := range []struct{ by, said int64 }{{0, 5}, {2, 5}, {3, 6}, {4, 7}, {4, 7}} {
			o.logged(trace.Origin{Cell: "b", Incarnation: 2, Sequence: shown.by})
			if synctest.Wait(); int64(len(said)) != shown.said || !slices.IsSorted(said) {
				t.Errorf("the log shows %d: said %v, want up to %d", shown.by, said, shown.said)
			}
		}
		waits := true
		go func() { o.room(t.Context()); waits = false }()
		if synctest.Wait(); !waits {
			t.Error("a turn begins with a full outbox")
		}
		o.logged(trace.Origin{Cell: "b", Incarnation: 2, Sequence: 7})
		if synctest.Wait(); waits || o.bytes != 0 || len(o.unlogged) != 0 {
			t.Errorf("one waits: %v, and %d bytes of %d events are kept", waits, o.bytes, len(o.unlogged))
		}
	})
}

// TestOutboxCountsBytes: long errors fill an outbox too, and are cut.
func TestOutboxCountsBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said := 0
		o := filled(func(*Event) { said++ })
		o.eventsMost, o.bytesMost = 100, o.bytes+1
		for range 3 {
			go o.sayInTurn(t.Context(), &Event{Error: strings.Repeat("é", errorBytesMost)})
		}
		if synctest.Wait(); said != 4 {
			t.Errorf("%d words of %d bytes are said, want 4 in all", said, o.bytes)
		}
		o.logged(trace.Origin{Cell: "b", Incarnation: 2, Sequence: 4})
		if synctest.Wait(); said != 5 {
			t.Errorf("%d words are said once the log shows 4, want 5 in all", said)
		}
		o.logged(trace.Origin{Cell: "b", Incarnation: 2, Sequence: 5})
		synctest.Wait()
	})
}

// TestOutboxSendsAges: what is sent is behind what was sent, and each event says how long ago it happened.
func TestOutboxSendsAges(t *testing.T) {
	o := filled(func(*Event) {})
	o.logged(trace.Origin{Cell: "b", Incarnation: 2, Sequence: 1})
	for _, test := range []struct {
		behind int64
		most   int
		now    time.Duration
		want   []time.Duration
	}{
		{0, 9, 5 * time.Second, []time.Duration{4 * time.Second, 3 * time.Second}},
		{0, 1, 5 * time.Second, []time.Duration{4 * time.Second}},
		{1, 9, 5 * time.Second, []time.Duration{4 * time.Second, 3 * time.Second}},
		{2, 9, time.Second, []time.Duration{0}},
		{3, 9, 5 * time.Second, nil},
		{9, 9, 5 * time.Second, nil},
	} {
		var got []time.Duration
		for _, ev := range o.behind(test.behind, test.most, test.now.Nanoseconds()) {
			got = append(got, time.Duration(ev.Age))
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("behind %d: ages %v, want %v", test.behind, got, test.want)
		}
	}
}

// TestTurnsWaitForRoom: no engine is asked for a turn while the outbox is full.
func TestTurnsWaitForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := filled(func(*Event) {})
		p := newRollout(t.Context(), port.RolloutRequest{ID: port.RolloutID{Group: 1, Attempt: 1}}, func() int64 { return 0 }, o)
		asked := 0
		p.engine = &toldEngine{generate: func() { asked++ }}
		go func() { _, _ = p.Sample(t.Context(), port.SampleRequest{Prompt: []int32{7}}) }()
		if synctest.Wait(); asked != 0 {
			t.Error("an engine is asked with a full outbox")
		}
		o.logged(trace.Origin{Cell: "b", Incarnation: 2, Sequence: 3})
		if synctest.Wait(); asked != 1 {
			t.Errorf("an engine is asked %d times once there is room", asked)
		}
	})
}

// toldEngine is an engine that answers at once.
type toldEngine struct {
	port.Engine
	generate func()
}

func (e *toldEngine) Name() string { return "told" }
func (e *toldEngine) Generate(context.Context, port.GenerateRequest) (port.Generation, error) {
	e.generate()
	return port.Generation{Tokens: []int32{1}, Logprobs: []float32{-1}, Versions: []loop.Version{0}}, nil
}
