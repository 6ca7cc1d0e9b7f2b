package remote

import (
	"slices"
	"time"

	"github.com/headway-rl/headway/api/protocol"
)

// How long a worker is remembered after its last word.
const (
	// known is how long it counts as known.
	known = time.Minute
	// mourned is how long one that let a claim expire is named as silent.
	mourned = 10 * time.Minute
	// workersMin is how many are kept before the forgotten ones are looked for.
	workersMin = 256
)

// worker is what is known of a process that calls.
type worker struct {
	// last is when its last call began or ended; open counts calls under way, claims what it holds.
	last         int64
	open, claims int
	// lost: a claim of it has expired since its last call.
	lost bool
}

// workers are those that have called lately. The environment's mutex guards them.
type workers struct {
	byName map[string]*worker
	// pruneAt is the number at which those to be forgotten are looked for.
	pruneAt int
}

func newWorkers() workers { return workers{byName: make(map[string]*worker), pruneAt: workersMin} }

// enter notes that a call has begun, leave that it has ended.
func (ws *workers) enter(name string, now int64) {
	w := ws.byName[name]
	if w == nil {
		if len(ws.byName) >= ws.pruneAt {
			ws.prune(now)
		}
		w = &worker{}
		ws.byName[name] = w
	}
	w.open++
	w.last, w.lost = now, false
}

func (ws *workers) leave(name string, now int64) {
	w := ws.byName[name]
	w.open--
	w.last = now
}

// hold and drop count the claims of a worker, lose notes that it let one expire.
func (ws *workers) hold(name string) { ws.byName[name].claims++ }
func (ws *workers) drop(name string) { ws.byName[name].claims-- }
func (ws *workers) lose(name string) { ws.byName[name].lost = true }

// heard reports whether a worker has a call open, or had one that ended after a time.
func (ws *workers) heard(name string, after int64) bool {
	w := ws.byName[name]
	return w.open > 0 || w.last > after
}

// prune forgets those that nobody asks after.
func (ws *workers) prune(now int64) {
	for name, w := range ws.byName {
		if w.open > 0 || w.claims > 0 {
			continue
		}
		if age := time.Duration(now - w.last); age > mourned || !w.lost && age > known {
			delete(ws.byName, name)
		}
	}
	ws.pruneAt = max(workersMin, 2*len(ws.byName))
}

// silent reports whether the watchdog should name it.
func (w *worker) silent(now int64, ttl time.Duration) bool {
	if w.open > 0 {
		return false
	}
	age := time.Duration(now - w.last)
	return w.claims > 0 && age > ttl/2 || w.lost && age <= mourned
}

// Status lists the workers and the waiting rollouts.
func (e *Dispatcher) Status() protocol.Workers {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.opt.Clock()
	st := protocol.Workers{Claimed: e.claimed, Offered: e.offers.Len()}
	for name, w := range e.workers.byName {
		if w.open > 0 || time.Duration(now-w.last) <= known {
			st.Known++
		}
		if w.silent(now, e.opt.ClaimTTL) {
			st.Silent = append(st.Silent, name)
		}
	}
	slices.Sort(st.Silent)
	return st
}
