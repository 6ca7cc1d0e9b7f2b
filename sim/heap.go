package sim

import "github.com/headway-rl/headway/loop"

// entry is a rollout that will reach the end of a phase at key: a time in
// nanoseconds, or an amount of an engine's work. Keys are whole numbers far below
// 2^53 wherever speeds are constant, so that float64 keeps them exact.
type entry struct {
	key     float64
	group   loop.GroupID
	sample  int32
	attempt int32
	slot    int32
}

// before orders entries as the loop wants the events of one instant.
func (e *entry) before(o *entry) bool {
	if e.key != o.key {
		return e.key < o.key
	}
	if e.group != o.group {
		return e.group < o.group
	}
	if e.sample != o.sample {
		return e.sample < o.sample
	}
	return e.attempt < o.attempt
}

// heap is a 4-ary heap of entries, the first to end on top.
type heap struct {
	items []entry
}

func (h *heap) push(e entry) {
	h.items = append(h.items, e)
	i := len(h.items) - 1
	for i > 0 {
		parent := (i - 1) / 4
		if !e.before(&h.items[parent]) {
			break
		}
		h.items[i] = h.items[parent]
		i = parent
	}
	h.items[i] = e
}

func (h *heap) pop() {
	last := len(h.items) - 1
	e := h.items[last]
	h.items = h.items[:last]
	if last > 0 {
		h.replaceTop(e)
	}
}

// replaceTop takes the top out and puts e in.
func (h *heap) replaceTop(e entry) {
	items := h.items
	i := 0
	for {
		first := 4*i + 1
		if first >= len(items) {
			break
		}
		best := first
		for c := first + 1; c < min(first+4, len(items)); c++ {
			if items[c].before(&items[best]) {
				best = c
			}
		}
		if !items[best].before(&e) {
			break
		}
		items[i] = items[best]
		i = best
	}
	items[i] = e
}
