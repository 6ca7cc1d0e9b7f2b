package live

import (
	"context"
	"fmt"
	"sync"

	"github.com/headway-rl/headway/drive/cell"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/trace"
)

// leases say which cells of other processes are lost, because they were silent for longer than their lease. Any goroutine may
// call.
type leases struct {
	// present is the time in which this process could hear, in nanoseconds, never falling.
	present func() int64

	mu sync.Mutex
	// cells are in the order of their numbers. There are none until the run hears.
	cells []lease
	// waiting counts words that wait for room. Nothing is heard behind them.
	waiting int
}

// lease is that of a cell.
type lease struct {
	heard int64 // the time of the last word
	lost  bool
}

// begin gives each cell a whole lease, unless it is lost to begin with.
func (l *leases) begin(lost []bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, lost := range lost {
		l.cells = append(l.cells, lease{l.present(), lost})
	}
}

// hear renews the lease of a cell. It reports whether the cell was lost.
func (l *leases) hear(number int) (back bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := &l.cells[number-1]
	back = c.lost
	*c = lease{heard: l.present()}
	return back
}

// wait says that a word waits for room. Once it has some, each cell has a whole lease.
func (l *leases) wait() (room func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.waiting--
		for i := range l.cells {
			l.cells[i].heard = l.present()
		}
	}
}

// lose returns the numbers of cells that are lost now, each once until it is heard again.
func (l *leases) lose() (numbers []int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting > 0 {
		return nil
	}
	for i := range l.cells {
		if c := &l.cells[i]; !c.lost && l.present()-c.heard > cell.Lease.Nanoseconds() {
			c.lost = true
			numbers = append(numbers, i+1)
		}
	}
	return numbers
}

// lost reports whether a cell is lost.
func (l *leases) lost(number int32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return number > 0 && int(number) <= len(l.cells) && l.cells[number-1].lost
}

// awaits reports whether a cell may be lost.
func (l *leases) awaits() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.cells {
		if !l.cells[i].lost {
			return true
		}
	}
	return false
}

// beginLeases begins with cells that have an engine that is not lost. Another is lost until it is heard.
func (r *Runtime) beginLeases() {
	lost := make([]bool, len(r.opt.Cells))
	for i := range lost {
		lost[i] = true
		for _, engine := range r.enginesOf(i + 1) {
			lost[i] = lost[i] && r.l.Lost(engine)
		}
	}
	r.leases.begin(lost)
}

// loseSilent tells the loop of cells whose lease has run out.
func (r *Runtime) loseSilent() {
	if len(r.opt.Cells) == 0 || r.finished {
		return
	}
	r.lookedAt = r.clock()
	for _, number := range r.leases.lose() {
		r.loseCell(number, trace.Origin{}, r.lookedAt, fmt.Errorf("cell %s has said nothing for %v", r.opt.Cells[number-1], cell.Lease))
	}
}

// lookDue is when leases are looked at next, loop.NoTick for never.
func (r *Runtime) lookDue() int64 {
	if len(r.opt.Cells) == 0 || !r.leases.awaits() {
		return loop.NoTick
	}
	return r.lookedAt + cell.Lease.Nanoseconds()/4
}

// loseCell has the loop lose the engines of a cell, and says in its place that what it played has failed.
func (r *Runtime) loseCell(number int, o trace.Origin, at int64, why error) {
	engines := r.enginesOf(number)
	reason := loop.ReasonEngine
	if o.Cell != "" { // another process of it takes over
		reason = loop.ReasonRestart
	}
	for _, i := range engines {
		if !r.l.Lost(i) {
			r.deliver(&completion{event: loop.Event{Time: at, Kind: loop.EngineLost, Engine: int32(i), Reason: reason}, origin: o, err: why})
		}
	}
	for _, i := range engines {
		for _, ev := range r.l.Unanswered(i) {
			ev.Time = at
			r.deliver(&completion{event: ev})
		}
	}
}

// take has the loop take what a cell has said. While there is no room for it, nothing else is heard. A cell that follows
// another writer says more than this one has asked for: words leave the inbox to the effects.
func (r *Runtime) take(c completion) error {
	select {
	case r.words <- c:
		return nil
	default:
	}
	defer r.leases.wait()()
	select {
	case r.words <- c:
		return nil
	case <-r.ctx.Done():
		return context.Cause(r.ctx)
	}
}
