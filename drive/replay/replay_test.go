package replay_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/headway-rl/headway/drive/replay"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/looptest"
	"github.com/headway-rl/headway/loop/trace"
)

// lived is a run through faults and restarts, written as a live run writes: some
// events, then their actions, and after a restart not all of those before it.
type lived struct {
	plan    looptest.Plan
	data    []byte
	records []looptest.Record
	missing int
}

func live(t testing.TB, seed uint64, events int) lived {
	t.Helper()
	plan := looptest.Draw(seed).WithCells()
	plan.Faults.Garbage, plan.Faults.Reversed = 0, 0 // no driver's trace holds these
	w, err := looptest.NewWorld(plan)
	if err != nil {
		t.Fatal(err)
	}
	w.Keep = true
	if err := w.Run(events); err != nil {
		t.Fatal(err)
	}
	out := lived{plan: plan, records: w.Log}
	out.write(t, seed, true)
	return out
}

// pendingAction is an action that waits for its group commit.
type pendingAction struct {
	seq    int64
	action loop.Action
}

func (r *lived) write(t testing.TB, seed uint64, end bool) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 99))
	enc := &trace.Encoder{}
	data, err := enc.AppendNote(nil, trace.NoteHeader, trace.Header{Format: trace.Format, Program: "headway test", Source: "live", Loop: r.plan.Config})
	if err != nil {
		t.Fatal(err)
	}
	var due []pendingAction
	flush := func(n int) {
		for _, d := range due[:n] {
			data = enc.AppendAction(data, d.seq, d.action)
		}
		due = due[:0]
	}
	for i, rec := range r.records {
		if rec.Event.Kind == loop.Recovered {
			kept := rng.IntN(len(due) + 1)
			r.missing += len(due) - kept
			flush(kept)
		}
		data = enc.AppendEvent(data, trace.Event{Event: rec.Event, GenerateNS: 3, EnvironmentNS: 2, VersionTokens: int64(i)})
		for _, a := range rec.Actions {
			due = append(due, pendingAction{enc.Seq(), a})
		}
		if rng.IntN(3) == 0 {
			flush(len(due))
		}
	}
	if end {
		flush(len(due))
		if data, err = enc.AppendNote(data, trace.NoteEnd, nil); err != nil {
			t.Fatal(err)
		}
	}
	r.data = data
}

func TestVerifyReproducesRunsThroughFaults(t *testing.T) {
	recoveries, missing := int64(0), int64(0)
	for seed := range uint64(60) {
		run := live(t, seed, 300)
		rep, err := replay.Verify(bytes.NewReader(run.data))
		if err != nil || rep.Difference != nil {
			t.Fatalf("seed %d: %v, %v\n%v", seed, err, rep.Difference, run.plan)
		}
		actions := 0
		for _, rec := range run.records {
			actions += len(rec.Actions)
		}
		if rep.Events != int64(len(run.records)) || rep.Actions+rep.Missing != int64(actions) || rep.Missing != int64(run.missing) {
			t.Fatalf("seed %d: %d events of %d, %d+%d actions of %d, missing %d", seed, rep.Events, len(run.records), rep.Actions, rep.Missing, actions, run.missing)
		}
		recoveries += rep.Recoveries
		missing += rep.Missing
	}
	if recoveries < 20 || missing < 20 {
		t.Errorf("%d recoveries with %d missing actions: too few to say anything", recoveries, missing)
	}
}

// rewrite returns a trace with one line changed by f and valid checksums, as a
// different loop, or a liar, would have written it. A nil line is left out.
func rewrite(t testing.TB, data []byte, line int, f func(*trace.Record) *trace.Record) []byte {
	t.Helper()
	r, err := trace.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	enc := &trace.Encoder{}
	out, err := enc.AppendNote(nil, trace.NoteHeader, r.Header)
	if err != nil {
		t.Fatal(err)
	}
	for {
		rec, err := r.Next()
		if err != nil {
			return out
		}
		changed := &rec
		if rec.Line == line {
			changed = f(&rec)
		}
		switch {
		case changed == nil:
		case changed.Event != nil:
			out = enc.AppendEvent(out, *changed.Event)
		case changed.Action != nil:
			out = enc.AppendAction(out, changed.Seq, *changed.Action)
		default:
			if out, err = enc.AppendNote(out, changed.Note, changed.Data); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Every recorded action matters: changed, dropped, doubled or moved to another
// event, the replay finds it there.
func TestEveryChangedActionIsFound(t *testing.T) {
	run := live(t, 4, 60)
	r, err := trace.NewReader(bytes.NewReader(run.data))
	if err != nil {
		t.Fatal(err)
	}
	changes := map[string]func(*trace.Record) *trace.Record{
		"slot":  func(r *trace.Record) *trace.Record { r.Action.Slot++; return r },
		"stamp": func(r *trace.Record) *trace.Record { r.Action.StartVersion++; return r },
		"kind": func(r *trace.Record) *trace.Record {
			r.Action.Kind = loop.StartRollout + r.Action.Kind%loop.SyncCompleted
			return r
		},
		"event":   func(r *trace.Record) *trace.Record { r.Seq++; return r },
		"dropped": func(*trace.Record) *trace.Record { return nil },
	}
	checked := 0
	for {
		rec, err := r.Next()
		if err != nil {
			break
		}
		if rec.Action == nil {
			continue
		}
		for what, change := range changes {
			rep, err := replay.Verify(bytes.NewReader(rewrite(t, run.data, rec.Line, change)))
			if err != nil {
				t.Fatalf("line %d, %s: %v", rec.Line, what, err)
			}
			d := rep.Difference
			if d == nil {
				t.Fatalf("line %d, %s changed and not found", rec.Line, what)
			}
			// What is dropped is missed where something else is next.
			if d.Line != rec.Line && (what != "dropped" || d.Line < rec.Line) || d.Event != rec.Seq || d.Expected == "" {
				t.Fatalf("line %d of event %d, %s: found as %v", rec.Line, rec.Seq, what, d)
			}
			checked++
		}
	}
	if checked < 100 {
		t.Errorf("%d changes checked, want more", checked)
	}
}

// Of an event that says something else, the decisions differ, or nothing depends
// on it; the replay never reproduces a decision that does not follow.
func TestChangedRewardIsFound(t *testing.T) {
	cfg := loop.Config{GroupSize: 2, BatchGroups: 1, EngineSlots: []int{2}, QueueGroups: 1, FilterZeroAdvantage: true}
	l, err := loop.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	w, err := trace.NewWriter(&buf, trace.Header{Program: "x", Source: "simulation", Loop: cfg})
	if err != nil {
		t.Fatal(err)
	}
	step := func(ev loop.Event) {
		actions, _ := l.Step(ev)
		w.Event(trace.Event{Event: ev}, actions)
	}
	step(loop.Event{Kind: loop.RunStarted})
	step(loop.Event{Time: 1, Kind: loop.RolloutScored, Group: 1, Attempt: 1, Reward: 1})
	step(loop.Event{Time: 2, Kind: loop.RolloutScored, Group: 1, Sample: 1, Slot: 1, Attempt: 1, Reward: 0})
	if err := w.End(nil); err != nil {
		t.Fatal(err)
	}
	if rep, err := replay.Verify(bytes.NewReader(buf.Bytes())); err != nil || rep.Difference != nil {
		t.Fatal(err, rep.Difference)
	}
	line := 2 + bytes.Count(buf.Bytes()[:bytes.Index(buf.Bytes(), []byte(`"reward":1`))], []byte("\n")) - 1
	changed := rewrite(t, buf.Bytes(), line, func(r *trace.Record) *trace.Record { r.Event.Reward = 0; return r })
	rep, err := replay.Verify(bytes.NewReader(changed))
	if err != nil || rep.Difference == nil || !strings.Contains(rep.Difference.Expected, "zero-advantage") || !strings.Contains(rep.Difference.Got, "group-queued") {
		t.Errorf("%v %v", err, rep.Difference)
	}
}

func TestUnreadableTracesAreErrors(t *testing.T) {
	run := live(t, 5, 40)
	lines := bytes.SplitAfter(run.data, []byte("\n"))
	for i := range len(run.data) {
		if i%7 != 0 {
			continue
		}
		changed := bytes.Clone(run.data)
		changed[i] ^= 4
		if _, err := replay.Verify(bytes.NewReader(changed)); err == nil {
			t.Fatalf("byte %d flipped and not found", i)
		}
	}
	torn := run.data[:len(run.data)-5]
	_, err := replay.Verify(bytes.NewReader(torn))
	var at *trace.Error
	if !errors.As(err, &at) || !at.Torn || at.Line != len(lines)-1 {
		t.Errorf("torn: %v", err)
	}
	short := bytes.Join(lines[:len(lines)-2], nil)
	rep, err := replay.Verify(bytes.NewReader(short))
	if !errors.Is(err, replay.ErrIncomplete) || !strings.Contains(err.Error(), "resume it") || rep.Events == 0 {
		t.Errorf("without its end: %v, %d events", err, rep.Events)
	}
}

// Going on after the end without a recovery is not something a run does.
func TestEventsAfterTheEnd(t *testing.T) {
	run := live(t, 5, 40)
	r, err := trace.NewReader(bytes.NewReader(run.data))
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = r.Next()
	}
	enc := r.Encoder()
	more := enc.AppendEvent(bytes.Clone(run.data), trace.Event{Event: loop.Event{Kind: loop.Tick, Time: 1 << 40}})
	if rep, err := replay.Verify(bytes.NewReader(more)); err != nil || rep.Difference == nil {
		t.Errorf("a tick after the end: %v %v", err, rep.Difference)
	}
}

func FuzzVerify(f *testing.F) {
	f.Add(live(f, 1, 30).data)
	f.Fuzz(func(t *testing.T, data []byte) {
		rep, err := replay.Verify(bytes.NewReader(data))
		if err == nil && rep.Difference == nil && rep.Events == 0 && len(data) == 0 {
			t.Error("nothing was verified as something")
		}
	})
}
