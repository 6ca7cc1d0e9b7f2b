// Package scenario runs a plan. Production planes, a broker, engines, a trainer, workers and an observer are put on
// hosts of the machine. The plan's faults come over them and are healed, and then the run has to end.
package scenario

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headway-rl/headway/app/parts"
	"github.com/headway-rl/headway/cmd/lab/world/history"
	"github.com/headway-rl/headway/cmd/lab/world/machine"
	"github.com/headway-rl/headway/cmd/lab/world/plan"
	"github.com/headway-rl/headway/engine/enginetest"
)

// patience is how long a run may make no step once everything is healed.
const patience = 3 * time.Minute

// World is a plan that is running.
type World struct {
	// History is everything that the hosts saw and did.
	History []history.Line
	// Ending is where log and weights lie.
	Ending history.Ending
	// Faults counts them by kind, Pairs by the call that was under way and the fault with its role.
	Faults, Pairs map[string]int64
	// Stuck says why the run did not end; empty where it did.
	Stuck string

	plan    plan.Plan
	machine *machine.World
	began   time.Time
	actors  map[string]*actor
	order   []*actor
	pending sync.WaitGroup
	// mu guards what follows and the history.
	mu    sync.Mutex
	open  map[string]int
	asked []*asked
	twice map[string]bool
	mute  map[string]bool
	deaf  map[string]bool
	// servers are the programs of engines, by name.
	servers map[string]*enginetest.PolicyServer
	// lasting counts the faults that overlap, by what they switch.
	lasting map[string]int
	// awaited are the events for which faults wait.
	awaited []*awaited
	// logged has a value for each write of a broker to the log, as long as the scribe has not asked since.
	logged chan struct{}
	// begun is how often a broker has begun, as far as the scribe has to know.
	begun atomic.Int64
	// unread is why the scribe's copy of the log is of no use.
	unread atomic.Pointer[error]
	// shares are the newest attempts in which ranks have done their shares, by lease, version and rank.
	shares map[[3]int64]int64
	// drains have planes and cells stop in order, by the host on which they serve.
	drains map[*machine.Host]func()
	// certificates are those of receivers, by name, and trusted all of them.
	certificates map[string]tls.Certificate
	trusted      *x509.CertPool
	// ended: the trainer was told that the run has its steps, or a plane has ended with them.
	ended atomic.Bool
}

// actor is a program that runs on a host, and is started again after it has ended.
type actor struct {
	name string
	dir  string // of its files
	host atomic.Pointer[machine.Host]
	down atomic.Bool
	// leaving is the last program that was told to stop; nil for none.
	leaving atomic.Pointer[leaving]
	run     func(*machine.Host) error
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// roleOf is a host's name without its number.
func roleOf(host string) string { return strings.TrimRight(host, "0123456789") }

// Run runs a plan in the working directory, which is empty, and returns when the run has ended or is stuck.
func Run(p plan.Plan) (*World, error) {
	w := &World{
		plan: p, machine: machine.New(p.Seed), actors: map[string]*actor{}, open: map[string]int{}, twice: map[string]bool{}, mute: map[string]bool{}, deaf: map[string]bool{}, servers: map[string]*enginetest.PolicyServer{}, lasting: map[string]int{},
		Faults: map[string]int64{}, Pairs: map[string]int64{}, began: time.Now(), logged: make(chan struct{}, max(1, p.Brokers)),
		drains: map[*machine.Host]func(){}, shares: map[[3]int64]int64{},
	}
	if err := writeModel("model", p.Store.Prompt, w.floats()); err != nil {
		return nil, err
	}
	w.place()
	w.machine.Wrote, w.machine.Sent = w.wrote, w.sent
	if err := w.certify(); err != nil {
		return nil, err
	}
	if err := w.writeDocuments(); err != nil {
		return nil, err
	}
	for _, a := range w.order {
		w.begin(a)
	}
	w.pending.Add(len(p.Faults))
	for _, f := range p.Faults {
		go w.meet(f)
	}
	healed := make(chan struct{})
	go func() { w.pending.Wait(); close(healed) }()
	w.await(healed)
	w.unheard("", "the world has ended")
	w.Ending = history.Ending{Dir: filepath.Join("runs", runName), Finished: w.ended.Load()}
	if p.Store.NoTrace {
		w.Ending.Log = scribed
	}
	if err := w.unread.Load(); err != nil {
		return nil, *err
	}
	return w, nil
}

// await returns when the trainer has been told of the run's end, or when the run makes no step though all is healed.
func (w *World) await(healed chan struct{}) {
	var limit <-chan time.Time
	steps := 0
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for !w.ended.Load() {
		select {
		case <-healed:
			w.note("world", "healed", "everything")
			healed, limit, steps = nil, time.After(patience), w.Steps()
		case <-limit:
			if now := w.Steps(); now > steps { // it goes on, and wants longer
				steps, limit = now, time.After(patience)
				continue
			}
			w.Stuck = fmt.Sprintf("the run has made no step for %s after everything was healed", patience)
			return
		case <-tick.C:
		}
	}
	time.Sleep(15 * time.Second) // the planes write down what they have acknowledged, and end
}

// place makes the hosts.
func (w *World) place() {
	p := w.plan
	switch {
	case p.Brokers > 0:
		for i := range p.Brokers {
			name := fmt.Sprint("broker", i)
			w.put(name, name, p.Durable, w.serveBroker)
		}
	case !p.Embedded:
		w.put("broker", "broker", p.Durable, w.serveBroker)
	}
	for i := range p.Engines {
		w.put(fmt.Sprint("engine", i), "", false, func(h *machine.Host) error { return w.serveEngine(h, i) })
	}
	for i := range p.Planes {
		w.put(fmt.Sprint("plane", i), "runs", p.Durable, w.servePlane)
	}
	for _, number := range p.Cells() {
		name := plan.CellName(number)
		w.put(name, parts.CellDir(filepath.Join("runs", runName), name), p.Durable, w.serveCell)
	}
	for rank := range max(p.Trainer.Ranks, 1) {
		w.put(rankHost(rank), "", false, func(h *machine.Host) error { return w.serveTrainer(h, rank) })
		w.actors[rankHost(rank)].host.Load().Narrow(p.Trainer.Window)
	}
	for i := range p.Workers {
		w.put(fmt.Sprint("worker", i), "", false, w.serveWorker)
	}
	for i := range p.Receivers {
		name := fmt.Sprint("receiver", i)
		w.put(name, name, true, func(h *machine.Host) error { return w.serveReceiver(h, i) })
	}
	w.put("observer", "", false, w.serveObserver)
	if p.Store.NoTrace {
		w.put("scribe", "", false, w.serveScribe)
	}
}

func (w *World) put(name, dir string, durable bool, run func(*machine.Host) error) {
	a := &actor{name: name, dir: dir, run: run}
	a.host.Store(w.machine.Host(name, durable))
	w.actors[name] = a
	w.order = append(w.order, a)
}

// begin starts an actor's program, and starts it again a second after it has ended with an error.
func (w *World) begin(a *actor) {
	w.note(a.name, "start", "")
	w.wake(a)
	h := a.host.Load()
	h.Go(func() {
		err := a.run(h)
		w.note(a.name, "note", fmt.Sprint("ended: ", err))
		if l := a.leaving.Load(); l != nil && l.host == h {
			close(l.ended)
			return
		}
		if err != nil {
			w.machine.Go(func() { w.fall(a, h) })
		}
	})
}

// fall ends a program that has given up, with all that it left running, and starts it again after a second.
func (w *World) fall(a *actor, h *machine.Host) {
	if a.down.Load() || a.host.Load() != h {
		return // a fault has ended it
	}
	a.down.Store(true)
	h.Kill()
	w.unheard(a.name, "the caller has ended")
	w.note(a.name, "dead", "it has given up")
	time.Sleep(time.Second)
	a.host.Store(h.Next())
	a.down.Store(false)
	w.begin(a)
}

// programs names the programs that run on the hosts of a role, or on one host.
func (w *World) programs(hosts string) string {
	var ids strings.Builder
	for _, a := range w.order {
		if roleOf(a.name) == hosts || a.name == hosts {
			fmt.Fprintln(&ids, a.host.Load().ID)
		}
	}
	return ids.String()
}

func (w *World) planeURLs() []string {
	var urls []string
	for i := range w.plan.Planes {
		urls = append(urls, "http://"+w.actors[fmt.Sprint("plane", i)].host.Load().IP+apiPort)
	}
	return urls
}
