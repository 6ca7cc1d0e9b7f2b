package live_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/drive/cell"
	"github.com/headway-rl/headway/drive/cell/link"
	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/observe/metrics"
	"github.com/headway-rl/headway/store/storetest"
)

// linkedWorld is a run whose engines 1 and 2 are in a process of their own, the cell "b".
type linkedWorld struct {
	*world
	wire *memoryWire
	// ended is what the cell's process has ended with.
	end   context.CancelFunc
	ended chan error
	mu    sync.Mutex
	loads map[string]int
	// beside are the slots that each engine evaluates in, nil for none, and heldOut plays there. Deal answers the cell.
	beside  []int
	heldOut port.Environment
	deal    func(*cell.Event) cell.Deal
}

func newLinkedWorld(cfg loop.Config, seed uint64, faults float64) *linkedWorld {
	cfg.EngineSlots, cfg.EngineCells = []int{2, 2, 2}, []int{0, 1, 1}
	w := &linkedWorld{world: newWorld(cfg), loads: map[string]int{}}
	w.wire = &memoryWire{memoryStore: w.store, changed: make(chan struct{}), rng: rand.New(rand.NewPCG(seed, 5)), faults: faults, incarnations: map[string]int64{}}
	w.change = func(o *live.Options) {
		o.Store, o.Cells, o.RejoinAfter = w.wire, []string{"b"}, time.Second
		for i := 1; i < 3; i++ {
			o.Engines[i] = live.Elsewhere(w.engines[i].name, w.engines[i].slots)
			w.engines[i].broken = func(v loop.Version) error {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.loads[fmt.Sprintf("%s v%d", w.engines[i].name, v)]++
				return nil
			}
		}
	}
	return w
}

// startCell starts a process of the cell, in the place of the one before.
func (w *linkedWorld) startCell(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	w.end, w.ended = end, make(chan error, 1)
	began := time.Now()
	clock := func() int64 { return time.Hour.Nanoseconds() + time.Since(began).Nanoseconds() } // an hour off
	o := cell.Options{Name: "b", Engines: []port.Engine{nil, w.engines[1], w.engines[2]}, Environment: w.env, Payloads: w.store,
		Rules: w.cfg, Clock: clock, Space: &cell.Space{Clock: clock}, Logf: t.Logf}
	ended, share := w.ended, w.share(t, ctx, &o)
	go func() {
		l, err := link.New(ctx, w.wire.connect("b"), o, "test")
		if err == nil {
			l.Plays(share)
			err = l.Run()
		}
		ended <- err
	}()
}

// endedWell reports whether a cell has ended with its run, or was stopped.
func endedWell(err error) bool {
	return errors.Is(err, link.ErrEnded) || errors.Is(err, context.Canceled)
}

// lead runs a writer, of a run that goes on if there is one, until it ends or the context does.
func (w *linkedWorld) lead(t *testing.T, ctx context.Context) (live.Result, error) {
	var resume *live.Resume
	if _, there := w.store.Header(); there {
		var err error
		if resume, err = live.Recover(w.wire, nil); err != nil {
			t.Fatal(err)
		}
		w.offset = resume.Loop.Status().TimeNS
		w.trainer.restored = false
	}
	return w.leadBy(t, ctx, w.runtime(t, resume))
}

// leadBy runs a writer until it ends or the context does.
func (w *linkedWorld) leadBy(t *testing.T, ctx context.Context, r *live.Runtime) (live.Result, error) {
	ear := link.NewEar(r.Receive, t.Logf)
	ear.Deal = w.deal
	w.wire.hear(ear.Take)
	defer w.wire.hear(nil)
	return r.Run(ctx)
}

// clockFrom returns a clock that stands at an offset when it begins, and goes on when the world has another.
func clockFrom(offset int64, begin time.Time) func() int64 {
	return func() int64 { return offset + time.Since(begin).Nanoseconds() }
}

// failures are the attempts on the cell's slots that failed, or were given up with what went on there.
func (w *linkedWorld) failures(t *testing.T) (n int) {
	for _, rec := range w.records(t) {
		if ev := rec.Event; ev != nil && ev.Slot >= 2 && (ev.Kind == loop.RolloutFailed || ev.Kind == loop.RolloutAborted) {
			n++
		}
	}
	return n
}

// checkActions looks whether the log has every action that the loop decides.
func (w *linkedWorld) checkActions(t *testing.T) {
	reader, err := trace.NewReader(bytes.NewReader(w.store.log.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	l, err := loop.New(reader.Header.Loop)
	if err != nil {
		t.Fatal(err)
	}
	player := trace.NewPlayer(reader, l)
	if err := player.Play(); err != nil {
		t.Fatal(err)
	}
	if found := player.Tally(); found.Missing > 0 || found.Difference != nil {
		t.Errorf("the log lacks %d actions, and differs by %v", found.Missing, found.Difference)
	}
}

// memoryWire is the store of a run, whose appends reach cells in messages that are drawn, and a network that loses, doubles
// and delays their words.
type memoryWire struct {
	*memoryStore
	faults float64

	mu       sync.Mutex
	rng      *rand.Rand
	messages []wireMessage
	changed  chan struct{}
	take     func(string, []byte) []byte
	down     bool
	full     bool // appends wait
	dies     bool
	back     func()
	// incarnations has the newest of each cell.
	incarnations map[string]int64
}

type wireMessage struct {
	text []byte
	ends bool
}

// errDied is what an append fails with in which the writer dies.
var errDied = errors.New("the writer dies in an append")

func (w *memoryWire) Append(lines [][]byte) error {
	w.mu.Lock()
	for w.full {
		changed := w.changed
		w.mu.Unlock()
		<-changed
		w.mu.Lock()
	}
	defer w.mu.Unlock()
	all := bytes.SplitAfter(bytes.Join(lines, nil), []byte("\n"))
	all = all[:len(all)-1]
	written, dies := len(all), w.dies && len(all) > 1
	if dies {
		w.dies, written = false, 1+w.rng.IntN(len(all)-1)
	}
	if err := w.memoryStore.Append(all[:written]); err != nil {
		return err
	}
	for from := 0; from < written; {
		n := 1 + w.rng.IntN(written-from)
		w.messages = append(w.messages, wireMessage{bytes.Join(all[from:from+n], nil), from+n == len(all)})
		from += n
	}
	close(w.changed)
	w.changed = make(chan struct{})
	if dies {
		return errDied
	}
	return nil
}

// die has the writer die in its next append of several lines.
func (w *memoryWire) die() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dies = true
}

func (w *memoryWire) hear(take func(string, []byte) []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.take = take
}

// cut cuts the connections of cells, or restores them.
func (w *memoryWire) cut(down bool) {
	w.mu.Lock()
	w.down = down
	close(w.changed)
	w.changed = make(chan struct{})
	back := w.back
	w.mu.Unlock()
	if !down {
		back()
	}
}

// fill has appends wait, or go on.
func (w *memoryWire) fill(full bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.full = full
	close(w.changed)
	w.changed = make(chan struct{})
}

// memoryConnection is that of a process of a cell.
type memoryConnection struct {
	*memoryWire
	cell     string
	next     int
	answered func([]byte)
}

func (w *memoryWire) connect(cell string) *memoryConnection {
	return &memoryConnection{memoryWire: w, cell: cell}
}

func (c *memoryConnection) Incarnate(context.Context) (int64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.incarnations[c.cell]++
	return c.incarnations[c.cell], nil
}

// TestMemoryWireIncarnates holds the wire of these tests to what real ones do.
func TestMemoryWireIncarnates(t *testing.T) {
	w := newLinkedWorld(asyncConfig(), 1, 0).wire
	storetest.Incarnations(t, func(_ *testing.T, cell string) func(context.Context) (int64, error) { return w.connect(cell).Incarnate })
}

func (c *memoryConnection) Begin(ctx context.Context) (trace.Header, trace.Position, error) {
	for {
		c.mu.Lock()
		n, changed := len(c.messages), c.changed
		c.mu.Unlock()
		if n > 0 {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return trace.Header{}, trace.Position{}, ctx.Err()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next = len(c.messages)
	lines := bytes.SplitAfter(c.log.Bytes(), []byte("\n"))
	h, _ := c.Header()
	at, err := trace.After(lines[len(lines)-2], int64(len(lines)-1))
	return h, at, err
}

func (c *memoryConnection) Follow(ctx context.Context, take func([]byte, bool) error) error {
	for {
		c.mu.Lock()
		changed, next := c.changed, wireMessage{}
		there := c.next < len(c.messages) && !c.down
		if there {
			next = c.messages[c.next]
			c.next++
		}
		c.mu.Unlock()
		if there {
			if err := take(next.text, next.ends); err != nil {
				return err
			}
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (c *memoryConnection) Listen(answered func([]byte), back func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answered, c.back = answered, back
}

func (c *memoryConnection) Say(word []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down {
		return errors.New("no connection")
	}
	copies := 1
	if c.faults > 0 {
		switch x := c.rng.Float64(); {
		case x < c.faults:
			copies = 0
		case x < 2*c.faults:
			copies = 2
		}
	}
	for range copies {
		delay := time.Microsecond
		if c.rng.Float64() < c.faults {
			delay = time.Duration(c.rng.IntN(5000)) * time.Microsecond
		}
		time.AfterFunc(delay, func() {
			c.mu.Lock()
			take := c.take
			c.mu.Unlock()
			if take == nil {
				return
			}
			if answer := take(c.cell, word); answer != nil {
				c.answered(answer)
			}
		})
	}
	return nil
}

// leadsWithoutLoss leads the run and its cell to their ends, and requires that no attempt has failed and no version was
// loaded twice.
func (w *linkedWorld) leadsWithoutLoss(t *testing.T) {
	t.Helper()
	res, err := w.lead(t, t.Context())
	if err != nil || res.Reason != loop.ReasonSteps || !res.Status.Ledger.Balanced() {
		t.Fatalf("ended by %v: %v, ledger %+v\n%s", res.Reason, err, res.Status.Ledger, w.logged)
	}
	if n := w.failures(t); n > 0 {
		t.Errorf("%d attempts failed", n)
	}
	w.end()
	if err := <-w.ended; !endedWell(err) {
		t.Errorf("the cell ended by %v", err)
	}
	for load, n := range w.loads {
		if n != 1 {
			t.Errorf("%s was loaded %d times", load, n)
		}
	}
}

// TestCellInAnotherProcess: a run trains to its end with two of its engines behind a link, whatever the link does.
func TestCellInAnotherProcess(t *testing.T) {
	for name, faults := range map[string]float64{"calm": 0, "words lost, doubled and late": 0.2} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := asyncConfig()
				w := newLinkedWorld(cfg, 1, faults)
				w.startCell(t)
				w.leadsWithoutLoss(t)
				if w.engines[1].most != 2 || w.engines[2].most != 2 || len(w.loads) < 4 {
					t.Errorf("engines 1 and 2 played %d and %d at once, and loaded %d", w.engines[1].most, w.engines[2].most, len(w.loads))
				}
			})
		})
	}
}

// TestWriterIsRecoveredBesideACell: writers die at many moments, in appends too, and another goes on each time. What plays in the cell goes
// on as the same attempts, and no engine of it loads again.
func TestWriterIsRecoveredBesideACell(t *testing.T) {
	for name, faults := range map[string]float64{"calm": 0, "words lost, doubled and late": 0.1} {
		for rules, change := range hardRules {
			if rules == "partial" {
				continue // interrupted rollouts cannot go on in another cell yet
			}
			t.Run(name+", "+rules, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					cfg := asyncConfig()
					change(&cfg)
					w := newLinkedWorld(cfg, 2, faults)
					w.startCell(t)
					restarts, res := 0, live.Result{}
					for ; ; restarts++ {
						ctx, cancel := context.WithCancel(t.Context())
						end := cancel
						if restarts%2 == 1 {
							end = w.wire.die
						}
						stop := time.AfterFunc(time.Duration(153_000_000+13_700_003*restarts), end)
						var err error
						res, err = w.lead(t, ctx)
						stop.Stop()
						cancel()
						if err == nil {
							break
						}
						if !errors.Is(err, context.Canceled) && !errors.Is(err, errDied) || restarts == 300 {
							t.Fatalf("restart %d: %v\n%s", restarts, err, w.logged)
						}
						time.Sleep(time.Duration(restarts*7%40) * time.Millisecond) // in which the cell goes on
					}
					if res.Reason != loop.ReasonSteps || !res.Status.Ledger.Balanced() || restarts < 8 {
						t.Fatalf("ended by %v after %d restarts, ledger %+v\n%s", res.Reason, restarts, res.Status.Ledger, w.logged)
					}
					w.end()
					if err := <-w.ended; !endedWell(err) {
						t.Errorf("the cell ended by %v", err)
					}
					for _, rec := range w.records(t) {
						if ev := rec.Event; ev != nil && ev.Slot >= 2 && ev.Kind == loop.RolloutFailed || rec.Action != nil && rec.Action.Kind == loop.AbortRollout && rec.Action.Engine > 0 && rec.Action.Reason == loop.ReasonRestart {
							t.Errorf("line %d: %v %v", rec.Line, rec.Event, rec.Action)
						}
					}
					for load, n := range w.loads {
						if n != 1 {
							t.Errorf("%s was loaded %d times", load, n)
						}
					}
					w.checkActions(t)
				})
			})
		}
	}
}

// TestCellIsCutOff: while no connection stands, the cell plays on until each of its slots waits for a word. With the
// connection all is said, and nothing has failed.
func TestCellIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := asyncConfig()
		w := newLinkedWorld(cfg, 3, 0)
		w.startCell(t)
		for i := range 6 {
			at := time.Duration(1+4*i) * 300 * time.Millisecond
			time.AfterFunc(at, func() { w.wire.cut(true) })
			time.AfterFunc(at+time.Duration(i)*150*time.Millisecond, func() { w.wire.cut(false) })
		}
		w.leadsWithoutLoss(t)
	})
}

// TestCellIsKilled: a cell dies and comes back as another process, also while another still believes that it is the cell.
func TestCellIsKilled(t *testing.T) {
	for name, lives := range map[string]bool{"killed": false, "two at once": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := asyncConfig()
				cfg.TrainSteps = 480 // of 0.1 s; the place is taken within 5 s where a hello is lost
				w := newLinkedWorld(cfg, 4, 0.05)
				w.startCell(t)
				kills, replaced := 5, 0
				var killing sync.Mutex
				var next func()
				next = func() {
					killing.Lock()
					defer killing.Unlock()
					if kills--; kills < 0 {
						return
					}
					end, ended := w.end, w.ended
					if lives {
						w.startCell(t)
						if err := <-ended; err != nil && !endedWell(err) {
							replaced++
						}
						end()
					} else {
						end()
						<-ended
						w.startCell(t)
					}
					time.AfterFunc(700*time.Millisecond, next)
				}
				time.AfterFunc(500*time.Millisecond, next)
				res, err := w.lead(t, t.Context())
				killing.Lock()
				defer killing.Unlock()
				if err != nil || res.Reason != loop.ReasonSteps || !res.Status.Ledger.Balanced() {
					t.Fatalf("ended by %v: %v, ledger %+v\n%s", res.Reason, err, res.Status.Ledger, w.logged)
				}
				w.end()
				<-w.ended
				if kills >= 0 || lives && replaced != 5 {
					t.Errorf("%d kills are left, and %d processes were replaced", kills, replaced)
				}
			})
		})
	}
}

// TestWordsWaitForOthers: a word of a cell begins a turn of the loop when the turn before is 20 ms old, and no word waits longer. One
// of weights does not wait.
func TestWordsWaitForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const apart = 20 * time.Millisecond
		w := newLinkedWorld(asyncConfig(), 1, 0)
		type turn struct {
			at         time.Time
			own, words int
		}
		turns, heard := []turn{{}}, sync.Map{}
		name := func(ev *loop.Event) string {
			return fmt.Sprint(ev.Kind, ev.Engine, ev.Slot, ev.Group, ev.Sample, ev.Attempt, ev.Version)
		}
		change := w.change
		w.change = func(o *live.Options) {
			change(o)
			o.Observe = func(ev *loop.Event, _ *metrics.Measured, _ []loop.Action) {
				now := time.Now()
				if !turns[len(turns)-1].at.Equal(now) {
					turns = append(turns, turn{at: now})
				}
				last := &turns[len(turns)-1]
				at, isWord := now, false
				if first, ok := heard.Load(name(ev)); ok {
					at, isWord = first.(time.Time), true
				}
				switch {
				case ev.Kind == loop.Tick:
				case !isWord:
					last.own++
				case ev.Kind == loop.WeightsLoaded || ev.Kind == loop.WeightsSwitched:
					last.own++
					if !at.Equal(now) {
						t.Errorf("%v at %v waited for %v", ev.Kind, now, now.Sub(at))
					}
				default:
					last.words++
					if now.Sub(at) > apart {
						t.Errorf("%v at %v waited for %v", ev.Kind, now, now.Sub(at))
					}
				}
			}
		}
		w.startCell(t)
		r := w.runtime(t, nil)
		ear := link.NewEar(func(ev *cell.Event) error {
			heard.Store(name(&ev.Event), time.Now())
			return r.Receive(ev)
		}, t.Logf)
		w.wire.hear(ear.Take)
		if _, err := r.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.end()
		<-w.ended
		gathered := 0
		for i, at := range turns[2:] {
			if after := at.at.Sub(turns[i+1].at); at.own == 0 && at.words > 0 && after < apart {
				t.Errorf("turn %d has words alone, and begins %v after the one before", i+2, after)
			}
			if at.words > 1 {
				gathered++
			}
		}
		if gathered < 5 {
			t.Errorf("%d of %d turns have several words", gathered, len(turns))
		}
	})
}
