package live

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/headway-rl/headway/drive/cell"
	"github.com/headway-rl/headway/loop/trace"
)

// receipts has the newest event that was taken of each cell in another process, from any goroutine. It begins with those
// that the log shows.
type receipts struct {
	mu    sync.Mutex
	taken cellOrigins
	// times are those of the newest events of cells in other processes.
	times map[string]int64
}

// cellOrigins has an event of each cell, by its name.
type cellOrigins map[string]trace.Origin

// take reports whether an event is the next one of its cell, and fits, and notes it. One that was taken before is not
// taken again. The time rises with every event of a cell: the log is in the order of time, and has to show them in that of
// the cell, so that the last one stands for all. An error refuses the event.
func (r *receipts) take(o trace.Origin, time *int64, fits func() error) (taken bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.taken[o.Cell]
	switch {
	case o.Incarnation < before.Incarnation || o.Incarnation < 1:
		return false, &cell.Refusal{Why: cell.Replaced(o.Cell, o.Incarnation, before.Incarnation)}
	case o.Incarnation > before.Incarnation:
		before = trace.Origin{Incarnation: o.Incarnation}
	}
	switch next := before.Sequence + 1; {
	case o.Sequence < next && o.Sequence > 0:
		return false, nil
	case o.Sequence != next:
		return false, &cell.Refusal{Want: next, Why: fmt.Sprintf("live: cell %s, incarnation %d: event %d comes without those from %d on", o.Cell, o.Incarnation, o.Sequence, next)}
	}
	if err := fits(); err != nil {
		return false, err
	}
	r.taken[o.Cell] = o
	*time = max(*time, r.times[o.Cell]+1)
	r.times[o.Cell] = *time
	return true, nil
}

// logged notes an event that is in the log with its origin, unless a later one of its cell is.
func (c cellOrigins) logged(o trace.Origin) {
	if o.Cell != "" && c[o.Cell].Precedes(o) {
		c[o.Cell] = o
	}
}

// list returns the events in the order of the cells' names.
func (c cellOrigins) list() (all []trace.Origin) {
	for _, name := range slices.Sorted(maps.Keys(c)) {
		all = append(all, c[name])
	}
	return all
}
