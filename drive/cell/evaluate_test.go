package cell

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// dealing is an evaluation of version 7 whose players are cells that a test speaks for. The test moves the clock.
func dealing(t *testing.T, prompts int) (e *Evaluator, clock *int64, u *underEvaluation) {
	t.Helper()
	clock = new(int64)
	e, err := NewEvaluator(t.Context(), EvaluatorOptions{Cells: true, Attempts: 2, Clock: func() int64 { return *clock }, Logf: t.Logf})
	if err == nil {
		u, err = e.begin(7, prompts)
	}
	if err != nil {
		t.Fatal(err)
	}
	return e, clock, u
}

// hold requires that a player is to have some attempts in hand, as prompt and attempt.
func hold(t *testing.T, d Deal, want ...Try) {
	t.Helper()
	if d.Version != 7 || !slices.Equal(d.Hand, want) {
		t.Errorf("version %d, in hand %v, want %v of version 7", d.Version, d.Hand, want)
	}
}

// TestDeals: each attempt is in one hand. One that failed goes to another player, and to the same one where there is no other.
// What comes twice, late or of an earlier process counts for nothing.
func TestDeals(t *testing.T) {
	e, clock, u := dealing(t, 4)
	hold(t, e.Deal("b", 3, Ask{Slots: 2}), Try{1, 1}, Try{2, 1})
	hold(t, e.Deal("c", 1, Ask{Slots: 1}), Try{3, 1})
	failed := Ask{Slots: 2, Version: 7, Ended: []Outcome{{Try: Try{1, 1}, Failed: FailedInfra, Error: "no route"}, {Try: Try{3, 1}, Reward: 1}}}
	hold(t, e.Deal("b", 3, failed), Try{2, 1}, Try{4, 1}) // prompt 3 is not its own
	hold(t, e.Deal("b", 3, failed), Try{2, 1}, Try{4, 1})
	if d := e.Deal("b", 2, Ask{Slots: 2}); d.Version != 0 || d.Hand != nil {
		t.Errorf("an earlier process is dealt %v", d)
	}
	scored := Outcome{Try: Try{3, 1}, Reward: 1, Exact: true, Oldest: 6, Newest: 7}
	hold(t, e.Deal("c", 1, Ask{Slots: 1, Version: 6, Ended: []Outcome{scored}}), Try{3, 1}) // of another evaluation
	hold(t, e.Deal("c", 1, Ask{Slots: 1, Version: 7, Ended: []Outcome{scored}}), Try{1, 2})
	*clock += Lease.Nanoseconds() + 1
	hold(t, e.Deal("b", 3, Ask{Slots: 3, Version: 7, Ended: []Outcome{{Try: Try{2, 1}, Failed: FailedData, Error: "no answer"}}}), Try{4, 1})
	if e.look(u) {
		t.Error("it is over, and the cell b is there")
	}
	// The attempt of c is its last. Another process of b has an attempt more.
	hold(t, e.Deal("b", 4, Ask{Slots: 3}), Try{4, 2})
	*clock += Lease.Nanoseconds() + 1
	e.look(u)
	if *clock += Lease.Nanoseconds() + 1; !e.look(u) {
		t.Error("it is not over, and nobody is there")
	}
	got, err := u.result(4)
	if want := (Evaluation{Scored: 1, Infra: 2, Data: 1, Reward: 1, Accuracy: 1, Oldest: 6, Newest: 7}); err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	if u.left != 0 {
		t.Errorf("%d prompts are left", u.left)
	}
}

// TestNobodyEvaluates: an evaluation without anybody to play it ends after a lease, and says so.
func TestNobodyEvaluates(t *testing.T) {
	e, clock, u := dealing(t, 3)
	e.Deal("b", 1, Ask{}) // none of its engines is there
	if *clock = Lease.Nanoseconds(); e.look(u) {
		t.Error("it is over within a lease")
	}
	if *clock++; !e.look(u) {
		t.Error("it goes on, and nobody is there")
	}
	if got, err := u.result(3); err == nil || !strings.Contains(err.Error(), "no engine with slots to evaluate in was there") {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := e.begin(8, 3); err == nil || !strings.Contains(err.Error(), "version 8 is to be evaluated while version 7 is") {
		t.Errorf("another begins: %v", err)
	}
}

// answering fails each held-out prompt with an error.
type answering struct{ err error }

func (a answering) Play(context.Context, port.RolloutRequest, port.Sampler) (port.Sample, error) {
	return port.Sample{}, a.err
}

// TestShareAsks: a share offers the slots of engines that serve, plays what the answer to its newest ask deals, and forgets what
// is dealt no more. What it says fits into a word.
func TestShareAsks(t *testing.T) {
	engines := []port.Engine{nil, &scripted{name: "one"}, &scripted{name: "two"}}
	long := answering{err: &lengthy{}}
	s, err := NewShare(t.Context(), ShareOptions{Engines: engines, Slots: []int{5, 1, 2000}, Environment: long})
	if err != nil {
		t.Fatal(err)
	}
	if a := s.Ask(); a.Slots != 0 || a.Number != 1 {
		t.Errorf("before an engine serves it asks %+v", a)
	}
	c, err := New(t.Context(), Options{Engines: s.Engines(), Rules: loop.Config{}})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range s.Engines()[1:] {
		if err := e.Switch(t.Context(), 1, false); err != nil {
			t.Fatal(err)
		}
	}
	if a := s.Ask(); a.Slots != 2001 {
		t.Errorf("while all serve it asks %+v", a)
	}
	c.letGo(1, loop.ReasonEngine)
	a := s.Ask()
	if a.Slots != 2000 {
		t.Errorf("while one is lost it asks %+v", a)
	}
	var hand []Try
	for i := range 300 {
		hand = append(hand, Try{Prompt: int32(i + 1), Attempt: 1})
	}
	s.Take(Deal{Number: a.Number - 1, Version: 4, Hand: hand})
	s.Wait()
	if a = s.Ask(); len(a.Ended) > 0 || a.Version != 0 {
		t.Errorf("the answer to an earlier ask has it say %+v", a)
	}
	s.Take(Deal{Number: a.Number, Version: 4, Hand: append(hand, Try{Prompt: -1, Attempt: 1})})
	s.Wait()
	a = s.Ask()
	ev := Event{Event: loop.Event{Kind: loop.EngineJoined}, Ask: &a}
	if text, err := ev.Word(); err != nil || len(a.Ended) != endedMost || len(text) > WordBytesMost/2 {
		t.Errorf("it says %d outcomes in %d bytes: %v", len(a.Ended), len(text), err)
	}
	told := a.Ended[0].Prompt
	s.Take(Deal{Number: a.Number, Version: 4, Hand: slices.DeleteFunc(hand, func(h Try) bool { return h.Prompt == told })})
	if a = s.Ask(); slices.ContainsFunc(a.Ended, func(o Outcome) bool { return o.Prompt == told }) || len(s.ended) != 299 {
		t.Errorf("it has %d outcomes, and says one that it was told to forget", len(s.ended))
	}
	s.Take(Deal{Number: a.Number})
	if a = s.Ask(); len(a.Ended) > 0 || len(s.hand) > 0 {
		t.Errorf("without an evaluation it says %+v", a)
	}
}

// lengthy is an error of many words.
type lengthy struct{}

func (*lengthy) Error() string { return strings.Repeat("\u00e9<", 10_000) }

// scripted is an engine that switches.
type scripted struct {
	port.Engine
	name string
}

func (e *scripted) Name() string                                     { return e.name }
func (e *scripted) Slots() int                                       { return 3 }
func (e *scripted) Switch(context.Context, loop.Version, bool) error { return nil }
