package live

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// outside collects what a trainer that lives elsewhere says, from any goroutine,
// until the goroutine that owns the loop takes it.
type outside struct {
	mu sync.Mutex
	// ready: the trainer asks for a batch.
	ready bool
	// restored are versions that no batch made, in their order, each once.
	restored []loop.Version
	// lost names engines that are gone, each with why.
	lost map[string]error
	// requests are values that settings were asked to have, the last of each.
	requests map[loop.Setting]float64
	// signal has room for one: that there is something to take.
	signal chan struct{}
}

// errGone is the last error of an engine that was said to be gone.
var errGone = errors.New("it was reported as gone")

// TrainerReady says that the trainer asks for a batch (loop.Config.TrainerAsks).
// Any goroutine may call it, at any time and any number of times, and it never
// blocks. A repeated call counts once, and a call after the run's end has no
// effect.
func (r *Runtime) TrainerReady() {
	o := &r.outside
	o.mu.Lock()
	o.ready = true
	o.mu.Unlock()
	o.wake()
}

// TrainerRestored says that the trainer went back to an earlier state and that this
// has been published as version. It is taken once the loop is at the version
// before. It may be called like TrainerReady.
func (r *Runtime) TrainerRestored(version loop.Version) {
	o := &r.outside
	o.mu.Lock()
	if i, there := slices.BinarySearch(o.restored, version); !there {
		o.restored = slices.Insert(o.restored, i, version)
	}
	o.mu.Unlock()
	o.wake()
}

// EngineLost says that an engine is gone, and with it the rollouts it played. The
// loop tries these again elsewhere, and the engine after a while
// (Options.RejoinAfter). A name that no engine has is without effect. It may be
// called like TrainerReady.
func (r *Runtime) EngineLost(name string) { r.loseEngine(name, errGone) }

// loseEngine is EngineLost with a reason for the log.
func (r *Runtime) loseEngine(name string, why error) {
	o := &r.outside
	o.mu.Lock()
	if o.lost == nil {
		o.lost = make(map[string]error)
	}
	if o.lost[name] == nil {
		o.lost[name] = why
	}
	o.mu.Unlock()
	o.wake()
}

// Request asks for a setting's value, which the loop takes as far as the setting's range permits
// (loop.Control). It may be called like TrainerReady; of several requests for one setting the last counts.
func (r *Runtime) Request(setting loop.Setting, value float64) {
	o := &r.outside
	o.mu.Lock()
	if o.requests == nil {
		o.requests = make(map[loop.Setting]float64)
	}
	o.requests[setting] = value
	o.mu.Unlock()
	o.wake()
}

func (o *outside) wake() {
	select {
	case o.signal <- struct{}{}:
	default: // it has been said already
	}
}

// takeRestored returns whether the version after at was restored, and forgets those up to it.
func (o *outside) takeRestored(at loop.Version) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	found := false
	for len(o.restored) > 0 && o.restored[0] <= at+1 {
		found = found || o.restored[0] == at+1
		o.restored = slices.Delete(o.restored, 0, 1)
	}
	return found
}

// takeLost returns the engines that are gone, with why.
func (o *outside) takeLost() map[string]error {
	o.mu.Lock()
	defer o.mu.Unlock()
	lost := o.lost
	o.lost = nil
	return lost
}

func (o *outside) takeRequests() map[loop.Setting]float64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	requests := o.requests
	o.requests = nil
	return requests
}

func (o *outside) takeReady() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	ready := o.ready
	o.ready = false
	return ready
}

// hear delivers what was said from outside. A version comes after the step before
// it, however their words raced; one that has passed is forgotten.
func (r *Runtime) hear() {
	for !r.finished && r.outside.takeRestored(r.l.Version()) {
		r.deliver(&completion{event: loop.Event{Time: r.clock(), Kind: loop.TrainerRestored, Version: r.l.Version() + 1}})
	}
	requests := r.outside.takeRequests()
	for _, setting := range slices.Sorted(maps.Keys(requests)) {
		if !r.finished {
			r.deliver(&completion{event: loop.Request(setting, requests[setting], r.clock())})
		}
	}
	lost := r.outside.takeLost()
	for i, e := range r.opt.Engines { // in their order, which is the log's
		if why := lost[e.Name()]; why != nil && !r.finished && !r.l.Lost(i) {
			r.deliver(&completion{event: loop.Event{Time: r.clock(), Kind: loop.EngineLost, Engine: int32(i), Reason: loop.ReasonEngine}, err: why})
		}
	}
	// Asking twice is asking once: the log need not hear of it again.
	if r.outside.takeReady() && !r.finished && r.cfg.TrainerAsks && !r.l.Asked() {
		r.deliver(&completion{event: loop.Event{Time: r.clock(), Kind: loop.TrainerReady}})
	}
}

// findRestored looks for versions that were published right before the process
// ended, and whose event the log does not have: no batch made them.
func (r *Runtime) findRestored() error {
	for v := r.l.Version() + 1; ; v++ {
		lease, there, err := r.opt.Weights.Committed(v)
		if err != nil || !there {
			return err
		}
		if lease == 0 {
			r.TrainerRestored(v)
		}
	}
}

// lostEnd says, as an error, that the log has lost its end: above its newest version there is one of a lease that the
// log never gave out, or one with none right below it. The loop gives out leases in their order, and each is in the
// log before a trainer sees it, a deposed writer's too.
func (r *Runtime) lostEnd() error {
	listed, ok := port.As[port.Lister](r.opt.Weights)
	if !ok {
		return nil
	}
	versions, err := listed.Versions()
	if err != nil {
		return fmt.Errorf("live: the versions that are published: %w", err)
	}
	at := r.l.Version()
	for next := at + 1; len(versions) > 0; versions = versions[1:] {
		v := versions[0]
		if v <= at {
			continue
		}
		lease, there, err := r.opt.Weights.Committed(v)
		switch {
		case err != nil:
			return err
		case there && (v != next || lease >= r.l.NextLease()):
			return fmt.Errorf("live: %w: it ends at version %d and lease %d, and version %d of lease %d is published, the newest of all is %d. "+
				"Restore the log from a copy. To give up what was trained since version %d, move the versions above it out of the run's weights",
				ErrLogLost, at, r.l.NextLease()-1, v, lease, versions[len(versions)-1], at)
		}
		next = v + 1
	}
	return nil
}

// setAside takes versions out of the run that the log cannot come to: above its newest one
// there may be the version of the batch that is at the trainer, and versions that no batch
// made. Any other is of a writer that had been deposed, and so is what follows it. The newest goes
// first, so that a process that dies meanwhile leaves no gap.
func (r *Runtime) setAside() error {
	weights, ok := port.As[port.Asider](r.opt.Weights)
	if !ok {
		return nil
	}
	status, foreign := r.l.Status(), []loop.Version(nil)
	for v := status.Version + 1; ; v++ {
		lease, there, err := r.opt.Weights.Committed(v)
		if err != nil {
			return err
		}
		if !there {
			break
		}
		if len(foreign) > 0 || lease != 0 && (v != status.Version+1 || lease != status.Lease) {
			foreign = append(foreign, v)
			r.logf("version %d of lease %d is not of this run's log, which ends at version %d with lease %d at the trainer (0: none): it is set aside", v, lease, status.Version, status.Lease)
		}
	}
	for _, v := range slices.Backward(foreign) {
		if err := weights.SetAside(v); err != nil {
			return err
		}
	}
	return nil
}
