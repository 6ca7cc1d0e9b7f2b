package serving

// queue is a row of calls.
type queue struct {
	calls []*call
	head  int
}

func (q *queue) len() int    { return len(q.calls) - q.head }
func (q *queue) empty() bool { return q.len() == 0 }

// first returns the first, nil for none.
func (q *queue) first() *call {
	if q.empty() {
		return nil
	}
	return q.calls[q.head]
}

// takeFirst removes it.
func (q *queue) takeFirst() *call {
	c := q.first()
	if c == nil {
		return nil
	}
	q.calls[q.head] = nil
	if q.head++; q.head == len(q.calls) {
		q.calls, q.head = q.calls[:0], 0
	}
	return c
}

// putLast appends a call, and uses the room before the head once it is half of all.
func (q *queue) putLast(c *call) {
	if q.head > 64 && q.head > len(q.calls)/2 {
		n := copy(q.calls, q.calls[q.head:])
		clear(q.calls[n:])
		q.calls, q.head = q.calls[:n], 0
	}
	q.calls = append(q.calls, c)
}

// putFirst puts a call before all others.
func (q *queue) putFirst(c *call) {
	if q.head == 0 {
		q.calls = append(q.calls, nil)
		copy(q.calls[1:], q.calls)
		q.calls[0] = c
		return
	}
	q.head--
	q.calls[q.head] = c
}

// decoders are the calls that decode: a heap by when they end, on the replica's clock, and by when they came.
type decoders []*call

// before orders two ends.
func before(a, b *call) bool {
	return a.until < b.until || a.until == b.until && a.result < b.result
}

func (d *decoders) push(c *call) {
	*d = append(*d, c)
	d.up(len(*d)-1, c)
}

func (d *decoders) remove(c *call) {
	at, last := int(c.heap), len(*d)-1
	moved := (*d)[last]
	(*d)[last] = nil
	*d = (*d)[:last]
	c.heap = -1
	if moved == c {
		return
	}
	if at > 0 && before(moved, (*d)[(at-1)/2]) {
		d.up(at, moved)
		return
	}
	d.down(at, moved)
}

// up places a call at a position or above.
func (d *decoders) up(at int, c *call) {
	for at > 0 {
		parent := (at - 1) / 2
		above := (*d)[parent]
		if !before(c, above) {
			break
		}
		(*d)[at] = above
		above.heap = int32(at)
		at = parent
	}
	(*d)[at] = c
	c.heap = int32(at)
}

// down places a call at a position or below.
func (d *decoders) down(at int, c *call) {
	for {
		child := 2*at + 1
		if child >= len(*d) {
			break
		}
		if child+1 < len(*d) && before((*d)[child+1], (*d)[child]) {
			child++
		}
		below := (*d)[child]
		if !before(below, c) {
			break
		}
		(*d)[at] = below
		below.heap = int32(at)
		at = child
	}
	(*d)[at] = c
	c.heap = int32(at)
}

// event is something that will happen: at its time those of lower kind first, then of lower index.
type event struct {
	at    int64
	kind  uint8
	stamp uint32 // of a turn that still counts
	index int32  // of a session, a load or a replica
}

// Kinds of events.
const (
	weightsChange uint8 = iota
	callComes
	cacheLoaded
	engineTurns
)

// sooner orders events.
func (e event) sooner(o event) bool {
	switch {
	case e.at != o.at:
		return e.at < o.at
	case e.kind != o.kind:
		return e.kind < o.kind
	}
	return e.index < o.index
}

// events is a heap of them.
type events []event

func (h *events) push(e event) {
	*h = append(*h, e)
	at := len(*h) - 1
	for at > 0 {
		parent := (at - 1) / 2
		if !e.sooner((*h)[parent]) {
			break
		}
		(*h)[at] = (*h)[parent]
		at = parent
	}
	(*h)[at] = e
}

func (h *events) pop() event {
	first, last := (*h)[0], len(*h)-1
	e := (*h)[last]
	*h = (*h)[:last]
	for at := 0; last > 0; {
		child := 2*at + 1
		if child+1 < last && (*h)[child+1].sooner((*h)[child]) {
			child++
		}
		if child >= last || !(*h)[child].sooner(e) {
			(*h)[at] = e
			break
		}
		(*h)[at] = (*h)[child]
		at = child
	}
	return first
}
