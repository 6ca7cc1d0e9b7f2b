package upstream

import (
	"cmp"
	"slices"
	"sync"
)

// turnsPast is how many questions are put to others first once an engine has not answered one.
const turnsPast = 64

// turns says in which order engines are asked: the least busy first, and of those that are as busy each in its
// turn. One that did not answer comes after all others until they were asked turnsPast times. Servers of another
// kind than the first engine's come behind those of its kind: the same template can be read otherwise there.
type turns struct {
	mu      sync.Mutex
	next    int
	engines []turnOf
}

type turnOf struct {
	// open counts the questions that it has not answered yet, past those that are put to others first; other is 1
	// for a server of another kind.
	open, past, other int
}

func newTurns(engines []*Engine) *turns {
	t := &turns{engines: make([]turnOf, len(engines))}
	first := slices.IndexFunc(engines, func(e *Engine) bool { _, ok := e.opt.Dialect.(Templater); return ok })
	for i, e := range engines {
		if first >= 0 && e.opt.Dialect.Kind() != engines[first].opt.Dialect.Kind() {
			t.engines[i].other = 1
		}
	}
	return t
}

// order returns all engines, the one to ask first at the front.
func (t *turns) order() []int {
	t.mu.Lock()
	defer t.mu.Unlock()
	order := make([]int, len(t.engines))
	for i := range order {
		order[i] = (t.next + i) % len(order)
		t.engines[i].past = max(0, t.engines[i].past-1)
	}
	slices.SortStableFunc(order, func(a, b int) int {
		x, y := t.engines[a], t.engines[b]
		return cmp.Or(cmp.Compare(x.past, y.past), cmp.Compare(x.other, y.other), cmp.Compare(x.open, y.open))
	})
	t.next = (order[0] + 1) % len(order)
	return order
}

func (t *turns) begin(engine int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.engines[engine].open++
}

// end notes that an engine has answered, or has not.
func (t *turns) end(engine int, answered bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.engines[engine].open--
	if t.engines[engine].past = 0; !answered {
		t.engines[engine].past = turnsPast
	}
}
