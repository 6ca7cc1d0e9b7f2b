package link

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/drive/cell"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/loop/trace"
)

// wire is a wire in memory, whose log a test writes and whose words it reads.
type wire struct {
	why chan error
	enc trace.Encoder
	// incarnation is what is given to a process.
	incarnation int64
	lines       chan []byte
	mu          sync.Mutex
	said        []*cell.Event
	// greeted: the hello was said. What comes again of it renews the lease.
	greeted  bool
	renewals int
	down     bool
	answered func([]byte)
	back     func()
}

func (w *wire) Begin(context.Context) (trace.Header, trace.Position, error) {
	return trace.Header{Format: trace.Format}, w.enc.Position(), nil
}

func (w *wire) Incarnate(context.Context) (int64, error) { return w.incarnation, nil }

func (w *wire) Follow(ctx context.Context, take func([]byte, bool) error) error {
	for {
		select {
		case lines := <-w.lines:
			if err := take(lines, true); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (w *wire) Say(word []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.down {
		return errors.New("no connection")
	}
	ev, err := cell.ParseWord(word)
	if err == nil {
		w.said = append(w.said, ev)
	}
	return err
}

func (w *wire) Listen(answered func([]byte), back func()) { w.answered, w.back = answered, back }

// sequences are what was said since the last call.
func (w *wire) sequences() (all []int64) {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, ev := range w.said {
		if ev.Hello != nil && w.greeted {
			w.renewals++
			continue
		}
		w.greeted = w.greeted || ev.Hello != nil
		all = append(all, ev.Origin.Sequence)
	}
	w.said = nil
	return all
}

// log appends an event with actions.
func (w *wire) log(o trace.Origin, ev loop.Event, actions ...loop.Action) {
	text := w.enc.AppendEvent(nil, trace.Event{Event: ev, Origin: o})
	for _, a := range actions {
		text = w.enc.AppendAction(text, w.enc.Seq(), a)
	}
	w.lines <- text
	synctest.Wait()
}

// engine loads at once, and is all else that a cell needs and does not use here.
type engine struct {
	port.Engine
	port.Environment
	port.Store
	why chan error // of rollouts that ended
}

// Play plays until it is told to end, and says why.
func (e engine) Play(ctx context.Context, task port.RolloutRequest, _ port.Sampler) (port.Sample, error) {
	<-ctx.Done()
	e.why <- context.Cause(ctx)
	return port.Sample{}, ctx.Err()
}

func (engine) Name() string                             { return "one" }
func (engine) Slots() int                               { return 3 }
func (engine) Close() error                             { return nil }
func (engine) Load(context.Context, loop.Version) error { return nil }

// linked runs the cell b, incarnation 2, which has joined and has said the words 2 to 4.
func linked(t *testing.T) (w *wire, l *Link, ended chan error, end context.CancelFunc) {
	w = &wire{lines: make(chan []byte), enc: trace.Encoder{}, incarnation: 2, why: make(chan error, 1)}
	ctx, end := context.WithCancel(t.Context())
	began := time.Now()
	clock := func() int64 { return time.Since(began).Nanoseconds() }
	l, err := New(ctx, w, cell.Options{Name: "b", Engines: []port.Engine{nil, engine{}}, Environment: engine{why: w.why}, Payloads: engine{},
		Rules: loop.Config{EngineSlots: []int{1, 2}}, Clock: clock, Space: &cell.Space{Clock: clock}, Logf: t.Logf}, "test")
	if err != nil {
		t.Fatal(err)
	}
	ended = make(chan error, 1)
	go func() { ended <- l.Run() }()
	if got := w.sequences(); !slices.Equal(got, []int64{1}) {
		t.Fatalf("said %v, want the hello", got)
	}
	load := loop.Action{Kind: loop.LoadWeights, Engine: 1, Attempt: 1}
	w.log(trace.Origin{Cell: "b", Incarnation: 1, Sequence: 9}, loop.Event{Kind: loop.WeightsLoaded, Engine: 1}, load) // for another process
	w.log(trace.Origin{Cell: "b", Incarnation: 2, Sequence: 1}, loop.Event{Kind: loop.EngineJoined, Engine: 1}, load, load, load)
	if got := w.sequences(); !slices.Equal(got, []int64{2, 3, 4}) {
		t.Fatalf("said %v, want 2 to 4", got)
	}
	return w, l, ended, end
}

// TestLinkSaysAgain: words are said again from where the writer wants them, with a connection that is there again, for a
// writer that was recovered, and when the log is silent, ever less often. Those that the log shows are not.
func TestLinkSaysAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _, ended, end := linked(t)
		want := func(sequence int64) {
			text, _ := json.Marshal(cell.Refusal{Want: sequence, Why: "it is missing"})
			w.answered(text)
		}
		said := func(why string, all ...int64) {
			t.Helper()
			if got := w.sequences(); !slices.Equal(got, all) {
				t.Errorf("%s: said %v, want %v", why, got, all)
			}
		}
		want(3)
		said("3 is wanted", 3, 4)
		want(3)
		said("3 is wanted for another word too")
		want(4)
		said("4 is wanted", 4)
		w.answered([]byte("rubbish"))
		said("an answer is rubbish")
		w.down = true
		want(2)
		said("there is no connection")
		w.down = false
		w.back()
		said("the connection is there again", 2, 3, 4)
		w.log(trace.Origin{}, loop.Event{Kind: loop.Recovered})
		said("another writer", 2, 3, 4)
		w.log(trace.Origin{Cell: "b", Incarnation: 2, Sequence: 3}, loop.Event{Kind: loop.WeightsLoaded, Engine: 1})
		w.back()
		said("the log shows 3", 4)
		time.Sleep(2 * silenceFirst)
		said("silence", 4)
		time.Sleep(time.Hour)
		if n := len(w.sequences()); n < 100 || n > 125 {
			t.Errorf("in an hour of silence the word was said %d times", n)
		}
		w.back()
		said("the connection is there again, and nobody hears", 4)
		time.Sleep(silenceFirst)
		said("somebody may hear by now", 4)
		w.log(trace.Origin{Cell: "b", Incarnation: 2, Sequence: 4}, loop.Event{Kind: loop.WeightsLoaded, Engine: 1})
		w.renewals = 0
		time.Sleep(time.Hour)
		said("the log shows all")
		if leases := int(time.Hour / cell.Lease); w.renewals < 2*leases || w.renewals > 4*leases {
			t.Errorf("in an hour of %d leases they were renewed %d times", leases, w.renewals)
		}
		end()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// TestLinkEnds: a cell ends with the reason when the writer refuses it, another process takes its place, its store takes
// nothing, or the log cannot be followed.
func TestLinkEnds(t *testing.T) {
	for name, test := range map[string]struct {
		do   func(w *wire, l *Link)
		want string
	}{
		"refused": {func(w *wire, _ *Link) { w.answered([]byte(`{"why":"other rules"}`)) }, "other rules"},
		"replaced": {func(w *wire, _ *Link) {
			w.log(trace.Origin{Cell: "b", Incarnation: 3}, loop.Event{Kind: loop.EngineLost, Engine: 1})
		}, "cell b: this process, incarnation 2, is replaced by incarnation 3, and stops"},
		"ended": {func(w *wire, _ *Link) {
			w.log(trace.Origin{}, loop.Event{Kind: loop.StopRequested}, loop.Action{Kind: loop.FinishRun, Reason: loop.ReasonStopped}) // which goes on
			w.log(trace.Origin{}, loop.Event{Kind: loop.TrainStepEnded}, loop.Action{Kind: loop.FinishRun, Reason: loop.ReasonSteps})
		}, ErrEnded.Error()},
		"broken":  {func(_ *wire, l *Link) { l.post(&cell.Event{Fatal: true, Error: "no disk"}) }, "no disk"},
		"damaged": {func(w *wire, _ *Link) { w.lines <- []byte("rubbish\n") }, "not a trace line"},
		"a gap": {func(w *wire, _ *Link) {
			w.enc.AppendEvent(nil, trace.Event{})
			w.log(trace.Origin{}, loop.Event{Kind: loop.Tick})
		}, "checksum"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, l, ended, end := linked(t)
				defer end()
				test.do(w, l)
				if err := <-ended; err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("%v, want %q", err, test.want)
				}
			})
		})
	}
}

// TestEndIsUnknown: a rollout of a cell that ends does not learn that it does not count. Its end may be in the log by then.
func TestEndIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _, ended, end := linked(t)
		w.log(trace.Origin{}, loop.Event{Kind: loop.Tick}, loop.Action{Kind: loop.StartRollout, Engine: 1, Slot: 1, Group: 1, Attempt: 1})
		end()
		if err := <-w.why; !errors.Is(err, port.ErrEnded) {
			t.Errorf("it ended by %v", err)
		}
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the cell ended by %v", err)
		}
	})
}

// TestNewRefuses: a cell that the log could not name has no link.
func TestNewRefuses(t *testing.T) {
	for _, name := range []string{"", "B!"} {
		if _, err := New(t.Context(), &wire{incarnation: 1}, cell.Options{Name: name}, "test"); err == nil {
			t.Errorf("%q", name)
		}
	}
}

// TestLoads: what a process says of its load comes with the hello and each renewal, and is heard of events that are taken alone.
func TestLoads(t *testing.T) {
	refuse := false
	ear := NewEar(func(*cell.Event) error {
		if refuse {
			return &cell.Refusal{Why: "it does not fit"}
		}
		return nil
	}, t.Logf)
	var heard []string
	ear.Heard = func(ev *cell.Event) { heard = append(heard, string(ev.Load)) }
	synctest.Test(t, func(t *testing.T) {
		w := &wire{incarnation: 2}
		load := 0
		l, err := New(t.Context(), w, cell.Options{Name: "b", Clock: func() int64 { return 0 }, Load: func() json.RawMessage {
			load++
			return json.RawMessage(strconv.Itoa(load))
		}}, "test")
		if err != nil {
			t.Fatal(err)
		}
		l.cell.Hello(l.hello)
		l.sayUnsent()
		l.renew()
		l.renew()
		for i, ev := range w.said {
			word, err := ev.Word()
			if err != nil {
				t.Fatal(err)
			}
			refuse = i == 1
			ear.Take("b", word)
		}
		l.cancel(nil)
		l.cell.Wait()
	})
	if !slices.Equal(heard, []string{"1", "3"}) {
		t.Errorf("it hears %q", heard)
	}
}

// FuzzTake: whatever a stranger says, the answer is a refusal with a reason, and the log is not filled.
func FuzzTake(f *testing.F) {
	f.Add("b", []byte("rubbish"))
	ev := cell.Event{Event: loop.Event{Kind: loop.FirstToken}, Origin: trace.Origin{Cell: "b", Incarnation: 1, Sequence: 2}}
	if text, err := ev.Word(); err == nil {
		f.Add("b", text)
		f.Add("c", text)
	}
	lines := 0
	ear := NewEar(func(ev *cell.Event) error {
		if ev.Origin.Cell != "b" {
			return nil
		}
		return &cell.Refusal{Want: ev.Origin.Sequence / 2, Why: "it is missing"}
	}, func(string, ...any) { lines++ })
	f.Fuzz(func(t *testing.T, name string, word []byte) {
		answer := ear.Take(name, word)
		var r cell.Refusal
		if answer != nil && (json.Unmarshal(answer, &r) != nil || r.Why == "") {
			t.Errorf("%q is answered by %q", word, answer)
		}
		if answer == nil && name == "b" {
			t.Errorf("%q is taken", word)
		}
		if lines > complaintsMost {
			t.Errorf("%d lines are logged", lines)
		}
	})
}

// FuzzAnswered: whatever a stranger answers, the cell goes on or ends with what it was told.
func FuzzAnswered(f *testing.F) {
	f.Add([]byte(`{"want":3,"why":"missing"}`))
	f.Add([]byte(`{"want":-3}`))
	f.Add([]byte(`{"deal":{"number":1,"version":4,"hand":[{"prompt":1,"attempt":1}]}}`))
	f.Add([]byte("rubbish"))
	f.Fuzz(func(t *testing.T, answer []byte) {
		l := &Link{wake: make(chan struct{}, 1), sent: 5}
		l.ctx, l.cancel = context.WithCancelCause(t.Context())
		l.answered(answer)
		if l.sent > 5 || l.sent < 0 {
			t.Errorf("after %q the next word is %d", answer, l.sent+1)
		}
	})
}
