package main

import (
	"math"
	"sync"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/record"
)

// share is how much of the run is done, from 0 to 1.
func share(p record.Progress) float64 {
	if p.Steps <= 0 {
		return 0
	}
	return math.Min(float64(p.Step)/float64(p.Steps), 1)
}

// screen is a way to show progress. Its methods are called from one goroutine.
type screen interface {
	// show replaces what is shown.
	show(p record.Progress)
	// note adds a line that stays.
	note(text string)
	// Close shows the last state for good and leaves the terminal as it was.
	Close()
}

// progressView shows a run's progress without ever holding the run up: what the
// screen has not taken when the next update comes is replaced by it.
type progressView struct {
	updates chan record.Progress
	notes   chan string
	closing chan struct{}
	closed  chan struct{}
	once    sync.Once

	mu          sync.Mutex
	stop, abort func()
	interrupts  int
}

// notesMax bounds how many notes wait for a slow screen; later ones are lost.
const notesMax = 64

// newProgressView starts showing progress on standard error: as a live view when
// that is a terminal and nothing speaks against it, else as plain lines. intro
// is printed first. The view must be closed.
func newProgressView(a *app.Process, show progressOptions, intro string) *progressView {
	v := &progressView{
		updates: make(chan record.Progress, 1),
		notes:   make(chan string, notesMax),
		closing: make(chan struct{}),
		closed:  make(chan struct{}),
	}
	var on screen
	if show.Plain || a.Getenv("TERM") == "dumb" || !a.IsTerminal(a.Stderr) {
		on = newLines(a, intro)
	} else {
		on = newTerminal(a, intro, v.interrupt)
	}
	go v.feed(on)
	return v
}

// feed hands everything to the screen until the view is closed.
func (v *progressView) feed(on screen) {
	defer close(v.closed)
	defer on.Close()
	for {
		select {
		case p := <-v.updates:
			on.show(p)
		case text := <-v.notes:
			on.note(text)
		case <-v.closing:
			v.drain(on)
			return
		}
	}
}

// drain hands over what was sent before the view was closed.
func (v *progressView) drain(on screen) {
	for {
		select {
		case p := <-v.updates:
			on.show(p)
		case text := <-v.notes:
			on.note(text)
		default:
			return
		}
	}
}

// Update shows a newer state. It never blocks, and is called from one goroutine.
func (v *progressView) Update(p record.Progress) {
	for {
		select {
		case v.updates <- p:
			return
		default:
		}
		select {
		case <-v.updates: // replaced: nobody needs the older one
		default:
		}
	}
}

// Message adds a line that stays. It never blocks.
func (v *progressView) Message(text string) {
	select {
	case v.notes <- text:
	default:
	}
}

// onInterrupt says what Ctrl-C in the live view does: stop the first time, abort
// from the second on. Outside of it Ctrl-C is the signal it always was.
func (v *progressView) onInterrupt(stop, abort func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.stop, v.abort = stop, abort
}

// interrupt is called by the live view for every Ctrl-C.
func (v *progressView) interrupt() {
	v.mu.Lock()
	stop, abort := v.stop, v.abort
	if stop != nil {
		v.interrupts++
	}
	times := v.interrupts
	v.mu.Unlock()
	switch {
	case stop == nil: // nothing runs yet that could stop
	case times == 1:
		stop()
	default:
		abort()
	}
}

// Close shows the last state and waits until the terminal is as it was. It may
// be called more than once.
func (v *progressView) Close() {
	v.once.Do(func() { close(v.closing) })
	<-v.closed
}
