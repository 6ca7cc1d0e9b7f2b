package live

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/headway-rl/headway/drive/cell"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/loop/trace"
)

// TestReceiptsTakeWhatIsNext: an event of a cell is taken once, behind the one before it, and a new incarnation from its
// first one on. Those of another cell's process come in the order of their time too.
func TestReceiptsTakeWhatIsNext(t *testing.T) {
	r := receipts{taken: cellOrigins{"b": {Cell: "b", Incarnation: 2, Sequence: 7}}, times: map[string]int64{}}
	for i, test := range []struct {
		o          trace.Origin
		time, want int64 // 0 for an event that is dropped
		missing    int64 // where the refusal wants the cell to begin again, -1 for one that wants it to end
	}{
		{trace.Origin{Cell: "b", Incarnation: 2, Sequence: 7}, 5, 0, 0},
		{trace.Origin{Cell: "b", Incarnation: 2, Sequence: 9}, 5, 0, 8},
		{trace.Origin{Cell: "b", Incarnation: 2, Sequence: 8}, 5, 5, 0},
		{trace.Origin{Cell: "b", Incarnation: 2, Sequence: 9}, 5, 6, 0},
		{trace.Origin{Cell: "b", Incarnation: 2, Sequence: 10}, 3, 7, 0},
		{trace.Origin{Cell: "b", Incarnation: 2, Sequence: 11}, 9, 9, 0},
		{trace.Origin{Cell: "b", Incarnation: 4, Sequence: 2}, 9, 0, 1},
		{trace.Origin{Cell: "b", Incarnation: 4, Sequence: 1}, 9, 10, 0},
		{trace.Origin{Cell: "b", Incarnation: 2, Sequence: 12}, 20, 0, -1},
		{trace.Origin{Cell: "b", Incarnation: 4}, 9, 0, 2},
		{trace.Origin{Cell: "c"}, 9, 0, -1},
		{trace.Origin{Cell: "c", Incarnation: 1, Sequence: 1}, 4, 4, 0},
	} {
		time, missing := test.time, int64(0)
		taken, err := r.take(test.o, &time, func() error { return nil })
		if !taken {
			time = 0
		}
		if refusal, ok := errors.AsType[*cell.Refusal](err); ok {
			missing = cmp.Or(refusal.Want, -1)
		}
		if time != test.want || missing != test.missing {
			t.Errorf("%d: %+v at %d is taken at %d, want %d; missing from %d on, want %d: %v", i, test.o, test.time, time, test.want, missing, test.missing, err)
		}
	}
}

// linked is a cell of another process, whose words reach writers by a link that repeats some, and loses what is on its
// way when a writer dies. Writers know of the cell what the log shows.
type linked struct {
	port.Engine
	port.Environment
	port.Store
	cell  *cell.Cell
	rng   *rand.Rand
	log   bytes.Buffer
	enc   *trace.Encoder
	words chan cell.Event
	said  []trace.Origin
	// old are words that may come again, receipts those of the writer.
	old      []cell.Event
	receipts receipts
}

func (l *linked) Name() string                             { return "linked" }
func (l *linked) Close() error                             { return nil }
func (l *linked) Slots() int                               { return 1 }
func (l *linked) Load(context.Context, loop.Version) error { return nil }

// lead makes a new writer of what the log shows.
func (l *linked) lead(t *testing.T) {
	l.receipts = receipts{taken: cellOrigins{}, times: map[string]int64{}}
	reader := trace.NewReaderAt(bytes.NewReader(l.log.Bytes()), trace.Position{}, trace.Header{})
	for {
		rec, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		l.receipts.taken.logged(rec.Event.Origin)
	}
}

// hear returns what the link brings that the writer takes.
func (l *linked) hear() (taken []cell.Event) {
	for {
		synctest.Wait()
		select {
		case ev := <-l.words:
			l.old = append(l.old, ev)
			for range 1 + l.rng.IntN(2) {
				if ok, _ := l.receipts.take(ev.Origin, &ev.Time, func() error { return nil }); ok {
					taken = append(taken, ev)
				}
				ev = l.old[l.rng.IntN(len(l.old))]
			}
		default:
			return taken
		}
	}
}

// append has the log show an event, and the cell follow it.
func (l *linked) append(t *testing.T, ev loop.Event, o trace.Origin, actions ...loop.Action) {
	l.log.Write(l.enc.AppendEvent(nil, trace.Event{Event: ev, Origin: o}))
	if err := l.cell.Follow(&cell.Entry{Seq: l.enc.Seq(), Event: ev, Origin: o, Actions: actions}); err != nil {
		t.Fatal(err)
	}
}

// TestEachWordIsInTheLogOnce: what a cell says is in the log once and in its order, through repeated words and writers
// that die with words that they have taken.
func TestEachWordIsInTheLogOnce(t *testing.T) {
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) {
			l := &linked{rng: rand.New(rand.NewPCG(seed, 7)), enc: &trace.Encoder{}, words: make(chan cell.Event, 1<<12)}
			clock, last := func() int64 { return 0 }, int64(0) // all at one instant
			var err error
			l.cell, err = cell.New(t.Context(), cell.Options{Name: "b", Incarnation: 3, Engines: []port.Engine{l}, Environment: l, Payloads: l, Space: &cell.Space{Clock: clock}, Clock: clock,
				Logf: t.Logf, Post: func(ev *cell.Event) {
					if ev.Origin.Sequence > last { // else it says it again
						l.said, last = append(l.said, ev.Origin), ev.Origin.Sequence
					}
					l.words <- *ev
				}})
			if err != nil {
				t.Fatal(err)
			}
			l.lead(t)
			l.cell.Hello(cell.Hello{})
			for range 40 {
				loads := make([]loop.Action, l.rng.IntN(4))
				for i := range loads {
					loads[i] = loop.Action{Kind: loop.LoadWeights, Attempt: int32(l.rng.IntN(9))}
				}
				l.append(t, loop.Event{Kind: loop.Tick}, trace.Origin{}, loads...)
				taken := l.hear()
				dies := l.rng.IntN(4) == 0
				if dies {
					taken = taken[:l.rng.IntN(len(taken)+1)] // the others are not in the log
				}
				for _, ev := range taken {
					l.append(t, ev.Event, ev.Origin)
				}
				if dies {
					for len(l.words) > 0 {
						<-l.words
					}
					l.lead(t)
					l.append(t, loop.Event{Kind: loop.Recovered}, trace.Origin{})
				}
			}
			for _, ev := range l.hear() {
				l.append(t, ev.Event, ev.Origin)
			}
			l.append(t, loop.Event{Kind: loop.Recovered}, trace.Origin{})
			if again := len(l.words); again > 0 {
				t.Errorf("seed %d: %d words are said again that the log has", seed, again)
			}
			var logged []trace.Origin
			reader := trace.NewReaderAt(bytes.NewReader(l.log.Bytes()), trace.Position{}, trace.Header{})
			for rec, err := reader.Next(); err == nil; rec, err = reader.Next() {
				if rec.Event.Origin.Cell != "" {
					logged = append(logged, rec.Event.Origin)
				}
			}
			if len(l.said) < 20 || !slices.Equal(logged, l.said) {
				t.Errorf("seed %d: the log has %v, and the cell has said %v", seed, logged, l.said)
			}
		})
	}
}

// TestCellsOfASnapshot: a run that goes on knows of each cell the newest event that the log shows, also by a snapshot.
func TestCellsOfASnapshot(t *testing.T) {
	cells := cellOrigins{}
	for _, o := range []trace.Origin{{Cell: "b", Incarnation: 2, Sequence: 7}, {}, {Sequence: 4}, {Cell: "a", Incarnation: 1, Sequence: 1}, {Cell: "b", Incarnation: 2, Sequence: 6}, {Cell: "b", Incarnation: 1, Sequence: 9}} {
		cells.logged(o)
	}
	l, err := loop.New(loop.Config{GroupSize: 1, BatchGroups: 1, EngineSlots: []int{1}, QueueGroups: 1})
	if err != nil {
		t.Fatal(err)
	}
	h := trace.Header{Loop: l.Config()}
	r := Resume{Loop: l, Recorder: newRecorder(l.Config(), h), Counted: NewCounted(l.Config().Policy), Encoder: &trace.Encoder{}, cells: cells}
	state, err := r.State()
	if err != nil {
		t.Fatal(err)
	}
	got, err := parseState(state, h)
	want := cellOrigins{"a": {Cell: "a", Incarnation: 1, Sequence: 1}, "b": {Cell: "b", Incarnation: 2, Sequence: 7}}
	if err != nil || !maps.Equal(got.cells, want) {
		t.Errorf("%v, %v: want %v", got, err, want)
	}
}
