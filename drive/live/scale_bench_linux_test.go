package live_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/headway-rl/headway/drive/cell"
	"github.com/headway-rl/headway/drive/cell/link"
	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/observe/metrics"
)

const (
	slotsOfCell   = 4096
	enginesOfCell = 4
	scaleGroup    = 8
	// scaleTokens is how long a response is.
	scaleTokens = 30_000
	// scaleBegins is the number of events by which all cells have joined, and all slots play.
	scaleBegins = 8000
)

// playedCell says what a cell with 4,096 rollouts would say, and executes nothing.
type playedCell struct {
	run  *scaleRun
	name string

	mu      sync.Mutex
	changed *sync.Cond
	last    int64             // its newest event's sequence
	answers []cell.Event      // of actions that are answered at once
	playing map[int32]*played // by slot
	slots   []int32           // those that play
	open    int               // events that the loop has not decided on
	over    bool
}

// played is a rollout that begins with its first token, and then ends.
type played struct {
	event loop.Event
	said  time.Time
}

// scaleRun is a run over played cells.
type scaleRun struct {
	ear   *link.Ear
	cells []*playedCell
	// window bounds the events of a cell that the loop has not decided on; every, if not 0, is the time between two events of a
	// cell.
	window  int
	every   time.Duration
	decided int
	waits   []time.Duration
	most    int
	cpu     time.Duration
	end     func()
}

// scaleStore keeps no log, and has payloads of every rollout.
type scaleStore struct {
	*longStore
	header trace.Header
}

func (s *scaleStore) Header() (trace.Header, bool) { return s.header, true }

func (s *scaleStore) Samples(g loop.GroupID) ([]port.Sample, error) {
	all := make([]port.Sample, scaleGroup)
	for i := range all {
		all[i].ID = port.RolloutID{Group: g, Sample: int32(i), Attempt: 1}
	}
	return all, nil
}

func (c *playedCell) add(ev cell.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers = append(c.answers, ev)
	c.changed.Signal()
}

func (c *playedCell) start(a *loop.Action) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.playing[a.Slot] = &played{event: loop.Event{Kind: loop.FirstToken, Slot: a.Slot, Group: a.Group, Sample: a.Sample, Attempt: a.Attempt, Version: a.Version}}
	c.slots = append(c.slots, a.Slot)
	c.changed.Signal()
}

// decided says how long the event of a slot has waited.
func (c *playedCell) decided(slot int32) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open--
	c.changed.Signal()
	p := c.playing[slot]
	if p.event.Kind == loop.FirstToken {
		p.event.Kind, p.event.Tokens = loop.RolloutScored, scaleTokens
		c.slots = append(c.slots, slot)
	} else {
		delete(c.playing, slot)
	}
	return time.Since(p.said)
}

// next is the event to say next, if the run has not ended.
func (c *playedCell) next(rng *rand.Rand) (ev cell.Event, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.over && len(c.answers) == 0 && (len(c.slots) == 0 || c.open >= c.run.window) {
		c.changed.Wait()
	}
	c.last++
	origin := trace.Origin{Cell: c.name, Incarnation: 1, Sequence: c.last}
	if len(c.answers) > 0 {
		ev = c.answers[0]
		c.answers = c.answers[1:]
		ev.Origin = origin
		return ev, true
	}
	if c.over {
		return ev, false
	}
	i := rng.IntN(len(c.slots))
	p := c.playing[c.slots[i]]
	c.slots[i] = c.slots[len(c.slots)-1]
	c.slots = c.slots[:len(c.slots)-1]
	c.open++
	ev = cell.Event{Event: p.event, Origin: origin}
	if p.event.Kind == loop.RolloutScored {
		ev.Facts = cell.Facts{GenerateNS: 1, Spans: 1, ByVersion: []loop.VersionTokens{{Version: p.event.Version, Tokens: scaleTokens}}, VersionTokens: int64(p.event.Version) * scaleTokens}
	}
	p.said = time.Now()
	return ev, true
}

// speak says everything until the run ends.
func (c *playedCell) speak(seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	for due := time.Now(); ; {
		if c.run.every > 0 {
			if due = due.Add(c.run.every); time.Until(due) > 0 {
				time.Sleep(time.Until(due))
			}
		}
		ev, ok := c.next(rng)
		if !ok {
			return
		}
		word, err := ev.Word()
		if err != nil {
			panic(err) // a defect of this file
		}
		c.run.ear.Take(c.name, word)
	}
}

// observe is told of each event that the loop has decided on.
func (s *scaleRun) observe(ev *loop.Event, _ *metrics.Measured, actions []loop.Action) {
	switch ev.Kind {
	case loop.FirstToken, loop.RolloutScored:
		wait := s.cells[ev.Slot/slotsOfCell].decided(ev.Slot)
		s.decided++
		switch {
		case s.decided == scaleBegins:
			s.cpu = processorTime()
		case s.decided > scaleBegins:
			s.waits = append(s.waits, wait)
		}
		if s.decided == scaleBegins+s.most {
			s.cpu = processorTime() - s.cpu
			s.end()
		}
	}
	for i := range actions {
		a := &actions[i]
		switch a.Kind {
		case loop.StartRollout:
			s.cells[a.Slot/slotsOfCell].start(a)
		case loop.LoadWeights:
			s.cells[a.Engine/enginesOfCell].add(cell.Event{Event: loop.Event{Kind: loop.WeightsLoaded, Engine: a.Engine, Version: a.Version, Attempt: a.Attempt}})
		case loop.SwitchWeights:
			s.cells[a.Engine/enginesOfCell].add(cell.Event{Event: loop.Event{Kind: loop.WeightsSwitched, Engine: a.Engine, Version: a.Version, Attempt: a.Attempt}})
		}
	}
}

func processorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// runScale runs so many cells until the loop has decided on so many events.
func runScale(b *testing.B, cells, events int, every time.Duration) *scaleRun {
	cfg := loop.Config{GroupSize: scaleGroup, BatchGroups: 512, TrainSteps: 1 << 30, QueueGroups: 1024, RollingSwitch: true}
	e := &instant{}
	s := &scaleRun{window: 256, every: every, most: events}
	o := live.Options{Environment: fakeEnvironment{}, Trainer: e, Weights: &e.weights, Observe: s.observe, RejoinAfter: time.Second}
	for i := range cells {
		c := &playedCell{run: s, name: fmt.Sprint("cell", i), playing: map[int32]*played{}}
		c.changed = sync.NewCond(&c.mu)
		s.cells, o.Cells = append(s.cells, c), append(o.Cells, c.name)
		for k := range enginesOfCell {
			cfg.EngineSlots, cfg.EngineCells = append(cfg.EngineSlots, slotsOfCell/enginesOfCell), append(cfg.EngineCells, i+1)
			o.Engines = append(o.Engines, live.Elsewhere(fmt.Sprint(c.name, "-", k), slotsOfCell/enginesOfCell))
		}
	}
	o.Header = trace.Header{Loop: cfg}
	o.Store = &scaleStore{&longStore{memoryStore: &memoryStore{}}, o.Header}
	began := time.Now()
	o.Clock = func() int64 { return time.Since(began).Nanoseconds() }
	r, err := live.New(o)
	if err != nil {
		b.Fatal(err)
	}
	s.ear = link.NewEar(r.Receive, b.Logf)
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	s.end = cancel
	var speaking sync.WaitGroup
	for i, c := range s.cells {
		var engines []cell.EngineHello
		for k := range enginesOfCell {
			n := i*enginesOfCell + k
			engines = append(engines, cell.EngineHello{Engine: int32(n), Name: o.Engines[n].Name(), Slots: cfg.EngineSlots[n]})
		}
		hello := cell.NewHello("", o.Header, cfg, engines)
		c.add(cell.Event{Event: loop.Event{Kind: loop.EngineJoined}, Hello: &hello})
		speaking.Go(func() { c.speak(uint64(i)) })
	}
	_, err = r.Run(ctx)
	for _, c := range s.cells {
		c.mu.Lock()
		c.over = true
		c.changed.Signal()
		c.mu.Unlock()
	}
	speaking.Wait()
	if s.decided < scaleBegins+events {
		b.Fatalf("%d events, and the run ended: %v", s.decided, err)
	}
	return s
}

// BenchmarkCells measures the processor time of an event of cells in other processes, from its words to the lines of the log,
// snapshots included. What the played cells take is in it, and no network or disk. A second run, of 2,000 events a second in
// all, says how long an event waits for its decision.
func BenchmarkCells(b *testing.B) {
	for _, cells := range []int{1, 2, 4, 8, 32} {
		b.Run(fmt.Sprint(cells), func(b *testing.B) {
			for b.Loop() {
				fast := runScale(b, cells, 300_000, 0)
				b.ReportMetric(float64(fast.cpu.Microseconds())/float64(fast.most), "µs/event")
				slow := runScale(b, cells, 20_000, time.Duration(cells)*time.Second/2000)
				slices.Sort(slow.waits)
				for _, p := range []int{50, 99} {
					b.ReportMetric(float64(slow.waits[len(slow.waits)*p/100].Microseconds()), fmt.Sprintf("µs-waited-p%d", p))
				}
				b.ReportMetric(float64(slow.waits[len(slow.waits)-1].Microseconds()), "µs-waited-most")
			}
		})
	}
}
