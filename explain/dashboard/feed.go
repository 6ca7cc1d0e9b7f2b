package dashboard

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/metrics"
)

// Feed brings a live run to a model without holding it up. Each event is copied into a bounded buffer, which a
// goroutine empties. Where that does not keep up, events are counted and left out.
type Feed struct {
	model *Model
	// signal has a word when there is something to take.
	signal chan struct{}

	mu      sync.Mutex
	filling batch
	missed  int64
	spare   batch
}

// batch is what a run said since the last look. The actions of event i are actions[ends[i-1]:ends[i]].
type batch struct {
	events   []loop.Event
	measured []metrics.Measured
	ends     []int
	actions  []loop.Action
	figures  []StepFigures
	kept     []Readable
}

// Bounds of what waits to be taken: some 20 MB.
const (
	feedEvents  = 1 << 16
	feedOthers  = 1 << 12
	feedActions = 4 * feedEvents
	// feedPause is the least time between two looks: a viewer is sent nothing sooner.
	feedPause = 50 * time.Millisecond
)

// NewFeed returns a feed of a model. Nothing is taken until Run.
func NewFeed(m *Model) *Feed {
	return &Feed{model: m, signal: make(chan struct{}, 1)}
}

// Observe takes one event. It copies what it is given, and never waits.
func (f *Feed) Observe(ev *loop.Event, m *metrics.Measured, actions []loop.Action) {
	f.mu.Lock()
	b := &f.filling
	first := len(b.events) == 0
	if len(b.events) >= feedEvents || len(b.actions) >= feedActions {
		f.missed++
		f.mu.Unlock()
		return
	}
	b.events, b.measured = append(b.events, *ev), append(b.measured, *m)
	b.actions = append(b.actions, actions...)
	b.ends = append(b.ends, len(b.actions))
	f.mu.Unlock()
	if first {
		f.wake()
	}
}

// Figures takes what the trainer said of a step, after the step's event.
func (f *Feed) Figures(s StepFigures) {
	f.mu.Lock()
	if len(f.filling.figures) < feedOthers {
		f.filling.figures = append(f.filling.figures, s)
	}
	f.mu.Unlock()
	f.wake()
}

// Keep takes a group for the rollout reader.
func (f *Feed) Keep(r Readable) {
	f.mu.Lock()
	if len(f.filling.kept) < feedOthers {
		f.filling.kept = append(f.filling.kept, r)
	}
	f.mu.Unlock()
	f.wake()
}

func (f *Feed) wake() {
	select {
	case f.signal <- struct{}{}:
	default: // it has been said already
	}
}

// Run takes what comes until the context ends, and then what is left. Call it once.
func (f *Feed) Run(ctx context.Context) {
	pause := time.NewTimer(feedPause)
	defer pause.Stop()
	for {
		select {
		case <-f.signal:
			f.Take()
		case <-ctx.Done():
			f.Take()
			f.model.End("")
			return
		}
		pause.Reset(feedPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
		}
	}
}

// Take brings what waits to the model. The goroutine of Run calls it, or a test does without one.
func (f *Feed) Take() {
	f.mu.Lock()
	b, missed := f.filling, f.missed
	f.filling, f.missed = f.spare, 0
	f.spare = batch{}
	f.mu.Unlock()
	f.model.take(&b, missed)
	b.clear()
	f.mu.Lock()
	f.spare = b
	f.mu.Unlock()
}

// clear empties a batch and keeps its room.
func (b *batch) clear() {
	clear(b.measured) // which hold pointers
	clear(b.kept)
	clear(b.figures)
	*b = batch{b.events[:0], b.measured[:0], b.ends[:0], b.actions[:0], b.figures[:0], b.kept[:0]}
}

// takeAtOnce is how many events are taken under the lock at a time, so that those who look need not wait for long.
const takeAtOnce = 1024

// takeSome observes the events from one to another. Of a run whose events were missed, what comes next may not fit what was
// observed before: then the dashboard stops, and never the run.
func (m *Model) takeSome(b *batch, first, stop, from int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	defer func() {
		if broken := recover(); broken != nil {
			m.problem = fmt.Sprintf("the dashboard stopped at an event that does not fit what it has seen (%d events were missed): %v", m.missed, broken)
		}
	}()
	for i := first; i < stop && m.problem == ""; i++ {
		m.observe(&b.events[i], &b.measured[i], b.actions[from:b.ends[i]])
		from = b.ends[i]
	}
}

// take observes a batch.
func (m *Model) take(b *batch, missed int64) {
	from := 0
	for i := 0; i < len(b.events); {
		stop := min(i+takeAtOnce, len(b.events))
		m.takeSome(b, i, stop, from)
		i, from = stop, b.ends[stop-1]
	}
	for _, f := range b.figures {
		m.Figures(f)
	}
	for _, r := range b.kept {
		m.Keep(r)
	}
	if missed > 0 {
		m.mu.Lock()
		m.missed += missed
		m.mu.Unlock()
	}
	m.Tell()
}
