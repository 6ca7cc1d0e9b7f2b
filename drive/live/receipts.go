package live

import (
	"maps"
	"slices"
	"sync"

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

// take reports whether an event is the next one of its cell, and notes it. Another one was taken before, or lacks one
// before it, which the cell repeats with it. The time rises with every event of a cell: the log is in the order of time, and
// has to show them in that of the cell, so that the last one stands for all.
func (r *receipts) take(o trace.Origin, time *int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.taken[o.Cell]
	if o.Incarnation > before.Incarnation {
		before = trace.Origin{Incarnation: o.Incarnation}
	}
	if o.Incarnation != before.Incarnation || o.Sequence != before.Sequence+1 {
		return false
	}
	r.taken[o.Cell] = o
	*time = max(*time, r.times[o.Cell]+1)
	r.times[o.Cell] = *time
	return true
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
