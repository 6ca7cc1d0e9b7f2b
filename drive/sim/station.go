package sim

import "github.com/headway-rl/headway/loop"

// place is a service of which only so many rollouts have a share at once.
type place uint8

const (
	atSandbox place = iota // has one, from its start on
	atStarter
	atTool
	atVerifier
	atScorer
	atPool
	placeCount
)

// waiter is an agent in a queue, if its ticket is still the agent's.
type waiter struct {
	agent  *agent
	ticket uint32
}

// line is a queue of agents, the first to come first. Who leaves it early stays in
// it with an old ticket.
type line struct {
	waiters []waiter
	head    int
}

func (l *line) push(a *agent) {
	if l.head > len(l.waiters)/2 && len(l.waiters) == cap(l.waiters) {
		l.waiters = l.waiters[:copy(l.waiters, l.waiters[l.head:])]
		l.head = 0
	}
	l.waiters = append(l.waiters, waiter{a, a.ticket})
}

// pop returns the next agent that still waits, nil for none.
func (l *line) pop() *agent {
	for l.head < len(l.waiters) {
		w := l.waiters[l.head]
		l.waiters[l.head] = waiter{}
		l.head++
		if w.agent.ticket == w.ticket {
			return w.agent
		}
	}
	l.waiters, l.head = l.waiters[:0], 0
	return nil
}

// station serves a limited number of agents at once; limit 0 is no limit.
type station struct {
	limit, busy int
	line        line
}

// enter has an agent served, or wait for it; served reports which.
func (s *station) enter(a *agent) (served bool) {
	if s.free() {
		s.busy++
		return true
	}
	s.line.push(a)
	return false
}

// free reports whether another agent would be served at once.
func (s *station) free() bool { return s.limit == 0 || s.busy < s.limit }

// leave frees a server and returns the agent that has it next, nil for none.
func (s *station) leave() *agent {
	s.busy--
	if s.limit > 0 && s.busy < s.limit {
		if a := s.line.pop(); a != nil {
			s.busy++
			return a
		}
	}
	return nil
}

// timer is the time at which an agent goes on, if its ticket is still the agent's.
type timer struct {
	at              int64
	group           loop.GroupID // of the agent when this was set: it may be another's by now
	sample, attempt int32
	ticket          uint32
	agent           *agent
}

func (t *timer) before(o *timer) bool {
	if t.at != o.at {
		return t.at < o.at
	}
	if t.group != o.group {
		return t.group < o.group
	}
	if t.sample != o.sample {
		return t.sample < o.sample
	}
	return t.attempt < o.attempt
}

// beforeSlot orders a timer before the end of a rollout's phase at the same time.
func (t *timer) beforeSlot(s *slot) bool {
	return t.group < s.group || t.group == s.group && t.sample < s.sample
}

// timers is a heap of them, the first of all at its root.
type timers struct{ heap []timer }

func (t *timers) push(at int64, a *agent) {
	h := append(t.heap, timer{at, a.group, a.sample, a.attempt, a.ticket, a})
	for i := len(h) - 1; i > 0; {
		parent := (i - 1) / 2
		if !h[i].before(&h[parent]) {
			break
		}
		h[i], h[parent] = h[parent], h[i]
		i = parent
	}
	t.heap = h
}

// next returns the first timer that still counts, nil for none.
func (t *timers) next() *timer {
	for len(t.heap) > 0 {
		if top := &t.heap[0]; top.agent.ticket == top.ticket {
			return top
		}
		t.pop()
	}
	return nil
}

func (t *timers) pop() {
	h := t.heap
	last := len(h) - 1
	h[0] = h[last]
	h[last] = timer{}
	h = h[:last]
	for i := 0; ; {
		first := i
		for child := 2*i + 1; child <= 2*i+2 && child < last; child++ {
			if h[child].before(&h[first]) {
				first = child
			}
		}
		if first == i {
			break
		}
		h[i], h[first] = h[first], h[i]
		i = first
	}
	t.heap = h
}
