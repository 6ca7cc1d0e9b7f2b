package live

import (
	"bytes"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/headway-rl/headway/drive/cell"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/looptest"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/loop/trace"
)

// message is a part of an append, as a cell reads it.
type message struct {
	lines []byte
	ends  bool
}

// cutLog is a log in messages, of which a writer may not have lived to write the last ones of an append.
type cutLog struct {
	port.Store
	header   trace.Header
	messages []message
	deaths   int
}

func (l *cutLog) ReadLog(int64) (io.ReadCloser, error) {
	var text []byte
	for _, m := range l.messages {
		text = append(text, m.lines...)
	}
	return io.NopCloser(bytes.NewReader(text)), nil
}

// append adds lines in messages that are drawn. A writer may die after a message, but not before line number last is in.
// The next one then brings what is missing, which are the same lines.
func (l *cutLog) append(t *testing.T, r *rand.Rand, lines []byte, last int) {
	all := bytes.SplitAfter(lines, []byte("\n"))
	all = all[:len(all)-1]
	for n := 0; n < len(all); {
		k := 1 + r.IntN(len(all)-n)
		ends := n+k == len(all)
		l.messages = append(l.messages, message{bytes.Join(all[n:n+k], nil), ends})
		if n += k; ends || n < last || r.IntN(12) > 0 {
			continue
		}
		l.deaths++
		resume, err := recoverWhole(l, l.header)
		if err != nil {
			t.Fatal(err)
		}
		next := Runtime{enc: resume.Encoder}
		next.complete(&resume.lacks)
		if want := bytes.Join(all[n:], nil); !bytes.Equal(next.lines, want) {
			t.Fatalf("after %d of %d lines the next writer brings\n%s\nwant\n%s", n, len(all), next.lines, want)
		}
	}
}

// sameEntry reports whether two entries are the same; numbers that are none are.
func sameEntry(a, b *cell.Entry) bool {
	return a.Seq == b.Seq && a.Event.String() == b.Event.String() && a.Discarded == b.Discarded && a.Origin == b.Origin && slices.Equal(a.Actions, b.Actions)
}

// TestEntriesOfAnyMessages: whatever messages a log comes in, and wherever in them a reader begins, the entries are the
// same. That holds where writers die in the middle of an append too.
func TestEntriesOfAnyMessages(t *testing.T) {
	deaths, discarded, cut := 0, 0, 0
	for seed := range uint64(60) {
		plan := looptest.Draw(seed)
		w, err := looptest.NewWorld(plan)
		if err != nil {
			t.Fatal(err)
		}
		w.Keep = true
		if err := w.Run(300); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		r := rand.New(rand.NewPCG(seed, 3))
		l, err := loop.New(plan.Config)
		if err != nil {
			t.Fatal(err)
		}
		log, enc, counted := &cutLog{header: trace.Header{Format: trace.Format, Loop: l.Config()}}, &trace.Encoder{}, NewCounted(l.Config().Policy)
		lines, err := enc.AppendNote(nil, trace.NoteHeader, log.header)
		if err != nil {
			t.Fatal(err)
		}
		log.append(t, r, lines, 1)
		var want []cell.Entry
		var begins []int // where an entry begins an append
		for records := w.Log; len(records) > 0; {
			n := min(1+r.IntN(4), len(records))
			if i := slices.IndexFunc(records[1:n], func(rec looptest.Record) bool { return rec.Event.Kind == loop.Recovered }); i >= 0 {
				n = i + 1 // a writer begins with an append of its own
			}
			var lines []byte
			from, last := len(want), 0
			for _, rec := range records[:n] {
				logged, err := trace.ParseEvent(new(trace.Encoder).AppendEvent(nil, trace.Event{Event: rec.Event}))
				if err != nil {
					continue // it has a word that no log has
				}
				e := cell.Entry{Event: logged.Event}
				if r.IntN(3) == 0 {
					e.Origin = trace.Origin{Cell: "b", Incarnation: 1, Sequence: int64(len(want) + 1)}
				}
				lines, last = enc.AppendEvent(lines, trace.Event{Event: e.Event, Origin: e.Origin}), 1+bytes.Count(lines, []byte("\n"))
				e.Seq = enc.Seq()
				actions, _ := l.Step(e.Event)
				e.Actions = slices.Clone(actions)
				if e.Discarded = discards(e.Event, counted.Observe(e.Event, l.Ledger(), actions)); e.Discarded {
					discarded++
					if lines, err = enc.AppendNote(lines, trace.NoteDiscarded, idOf(e.Event)); err != nil {
						t.Fatal(err)
					}
				}
				want = append(want, e)
			}
			for _, e := range want[from:] {
				for _, a := range e.Actions {
					lines = enc.AppendAction(lines, e.Seq, a)
				}
			}
			records = records[n:]
			if len(lines) > 0 {
				begins = append(begins, from)
				log.append(t, r, lines, last)
			}
		}
		deaths += log.deaths
		cut += len(log.messages) - len(begins)
		for _, at := range []int{1, 1 + r.IntN(len(log.messages)-1)} {
			text := bytes.Buffer{}
			for _, m := range log.messages[:at] {
				text.Write(m.lines)
			}
			all := bytes.SplitAfter(text.Bytes(), []byte("\n"))
			position, err := trace.After(all[len(all)-2], int64(len(all)-1))
			if err != nil {
				t.Fatal(err)
			}
			entries, got := cell.NewEntries(position, log.header), []cell.Entry(nil)
			for _, m := range log.messages[at:] {
				some, err := entries.Add(m.lines, m.ends)
				if err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				got = append(got, some...)
			}
			if at == 1 && len(got) != len(want) {
				t.Fatalf("seed %d: %d entries, want %d", seed, len(got), len(want))
			}
			for i := range got {
				if e := &want[len(want)-len(got)+i]; !sameEntry(&got[i], e) {
					t.Fatalf("seed %d, from message %d on: entry %d is\n%+v, want\n%+v", seed, at, i, got[i], *e)
				}
			}
		}
	}
	if deaths < 50 || discarded < 50 || cut < 500 {
		t.Errorf("%d writers died, %d scores were discarded, %d cuts: the test needs more", deaths, discarded, cut)
	}
}
