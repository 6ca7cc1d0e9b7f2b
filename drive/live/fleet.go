package live

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// Defaults of Options.AcquireWithin and ReleaseWithin.
const (
	AcquireWithinDefault = 10 * time.Minute
	ReleaseWithinDefault = 2 * time.Minute
)

// errFleetSilent is wrapped by the error of a fleet that did not answer in time, errCalledOff by that of an
// acquisition behind which the engine is given back: nobody waits for it any more.
var (
	errFleetSilent = errors.New("the fleet has not answered in time")
	errCalledOff   = errors.New("the engine is not wanted any more")
)

// fleet is what the runtime knows of Options.Fleet. It belongs to the goroutine that owns the loop.
type fleet struct {
	// asked is what was asked last for each engine.
	asked []call
	// returning: a lost engine is being brought back, which the loop has not asked for.
	returning []bool
	// again is when engines are asked for that the fleet could not give, loop.NoTick for never.
	again int64
	// kept has an element above 0 for an engine that the fleet could not take back: when that is tried again. Any goroutine sets it.
	kept []atomic.Int64
}

func newFleet(engines int) fleet {
	f := fleet{asked: make([]call, engines), returning: make([]bool, engines), again: loop.NoTick, kept: make([]atomic.Int64, engines)}
	for i := range f.asked {
		f.asked[i] = newCall(func(error) {})
		close(f.asked[i].over)
	}
	return f
}

// call is one of a fleet's methods for one engine, which has its turn when the call before it is over.
type call struct {
	// over is closed when it has returned, or will not be made. late is closed when it has had its time, or
	// would have had it if those before had kept to theirs.
	over, late chan struct{}
	// callOff ends an acquisition, and does nothing to a release.
	callOff context.CancelCauseFunc
}

func newCall(callOff context.CancelCauseFunc) call {
	return call{over: make(chan struct{}), late: make(chan struct{}), callOff: callOff}
}

// await waits for the end of a call: of one that has had its time, no longer than so long.
func (c *call) await(ctx context.Context, limit time.Duration) error {
	select {
	case <-c.over:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.late:
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-c.over:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return fmt.Errorf("%w: %v, and its call before has not returned", errFleetSilent, limit)
	}
}

// askFleet asks for an engine, or gives one back, after what was asked for it before, and returns what
// waits for the answer. The limit runs from its turn. It is called by the goroutine that owns the loop, so
// that the order is the loop's; the wait may be anybody's. A call that never returns holds up nobody but
// what is asked of the same engine afterwards, which is answered in time too. Unless it must be made, as
// what gives an engine back, it is then not made any more.
func (r *Runtime) askFleet(engine int32, limit time.Duration, must bool, do func(ctx context.Context, engine int) error) (wait func() error) {
	wanted, callOff := context.WithCancelCause(r.ctx)
	before, own := r.fleet.asked[engine], newCall(callOff)
	if must {
		own.callOff = func(error) {}
	}
	r.fleet.asked[engine] = own
	answer := make(chan error, 3) // the first counts
	late := sync.OnceFunc(func() { close(own.late) })
	go func() {
		defer close(own.over)
		defer late()
		defer callOff(nil)
		if err := before.await(wanted, limit); err != nil {
			answer <- err
			late()
			if <-before.over; !must || wanted.Err() != nil {
				return
			}
		}
		ctx, cancel := context.WithTimeoutCause(wanted, limit, fmt.Errorf("%w: %v", errFleetSilent, limit))
		defer cancel()
		silent := context.AfterFunc(ctx, func() {
			answer <- context.Cause(ctx)
			late()
		})
		defer silent()
		err := do(ctx, int(engine))
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx) // both end at one instant, and the cause says whose limit it was
		}
		answer <- err
	}()
	return func() error { return <-answer }
}

// askEngine asks the fleet for an engine.
func (r *Runtime) askEngine(engine int32) (wait func() error) {
	r.fleet.kept[engine].Store(0)
	return r.askFleet(engine, r.opt.AcquireWithin, false, r.opt.Fleet.Acquire)
}

// acquire executes AcquireEngine. An engine that did not come in time is given back: it may still come.
func (r *Runtime) acquire(a loop.Action) {
	wait := r.askEngine(a.Engine)
	giveBack := func() { r.releaseEngine(a.Engine) }
	r.effect(func() completion {
		ev := loop.Event{Kind: loop.EngineJoined, Engine: a.Engine, Attempt: a.Attempt}
		err := wait()
		if err == nil {
			return completion{event: ev}
		}
		ev.Kind, ev.Reason = loop.EngineUnavailable, loop.ReasonEngine
		if errors.Is(err, errFleetSilent) || errors.Is(err, context.DeadlineExceeded) {
			ev.Reason = loop.ReasonTimeout
		}
		return completion{event: ev, err: err, after: giveBack}
	})
}

// releaseEngine gives an engine back, whose acquisition is called off if it is under way. Nothing of it is
// told to the loop. One that fails is tried again after ReleaseWithin.
func (r *Runtime) releaseEngine(engine int32) {
	r.fleet.kept[engine].Store(0)
	r.fleet.asked[engine].callOff(errCalledOff)
	wait := r.askFleet(engine, r.opt.ReleaseWithin, true, func(ctx context.Context, i int) error {
		err := r.opt.Fleet.Release(ctx, i)
		if err != nil {
			r.fleet.kept[i].Store(r.clock() + r.opt.ReleaseWithin.Nanoseconds())
			r.outside.wake() // so that a timer is set
		}
		return err
	})
	go func() {
		if err := wait(); err != nil && r.ctx.Err() == nil {
			r.logf("live: giving engine %s back: %v", r.opt.Engines[engine].Name(), err)
		}
	}()
}

// executeRelease executes ReleaseEngine, after a look whether the engine is as empty as the loop says.
func (r *Runtime) executeRelease(engine int32) error {
	if busy := r.playsOn(engine); busy != nil && !r.engines[engine].lost && r.cfg.Owns(engine) { // a cell may have been lost with it
		return fmt.Errorf("live: engine %s was to be given back while %v runs on it: this is a defect of the loop", r.opt.Engines[engine].Name(), *busy)
	}
	r.engines[engine] = quarantine{due: loop.NoTick}
	if r.opt.Fleet != nil {
		r.releaseEngine(engine)
	}
	return nil
}

// playsOn returns an attempt that is wanted and holds a slot of an engine, nil for none.
func (r *Runtime) playsOn(engine int32) *port.RolloutID {
	for e, h := range r.started.running() {
		if e == engine {
			return &h.id
		}
	}
	return nil
}

// bringBack has the fleet start an engine again that was lost, which the loop still counts on.
func (r *Runtime) bringBack(engine int) {
	wait := r.askEngine(int32(engine))
	r.fleet.returning[engine] = true
	r.effect(func() completion {
		return completion{event: loop.Event{Kind: loop.EngineJoined, Engine: int32(engine)}, returns: true, err: wait()}
	})
}

// returned takes the end of bringBack. It reports whether the loop is to hear of it: an engine that is
// not there yet stays lost, and is given back and tried again after a longer pause: one that runs and does
// not answer would never be started anew; one that was given up is the fleet's.
func (r *Runtime) returned(c *completion) bool {
	engine := int(c.event.Engine)
	r.fleet.returning[engine] = false
	if r.l.EngineState(engine) != "lost" {
		return false
	}
	if c.err == nil {
		r.engines[engine].lost = false // it may be lost again before it serves
		return true
	}
	r.engines[engine].err = c.err
	r.releaseEngine(int32(engine))
	r.quarantine(engine)
	return false
}

// ensure has the fleet make sure of an engine whose cell may play on. The loop loses it if it does not come.
func (r *Runtime) ensure(engine int) {
	wait := r.askEngine(int32(engine))
	go func() {
		if err := wait(); err != nil && r.ctx.Err() == nil && !errors.Is(err, errCalledOff) {
			r.loseEngine(r.opt.Engines[engine].Name(), err)
		}
	}()
}

// tendFleet looks for engines that nothing else would move: those that are lost and that nobody brings back, those that the
// fleet could not take back, and those that it could not give where no other is there.
func (r *Runtime) tendFleet() {
	if r.opt.Fleet == nil || r.finished {
		return
	}
	now := r.clock()
	for i := range r.engines {
		switch q := &r.engines[i]; r.l.EngineState(i) {
		case "lost":
			if !q.lost && !q.planned && !r.fleet.returning[i] { // it was lost while it left, and is to stay
				r.quarantine(i)
			}
		case "away":
			if due := r.fleet.kept[i].Load(); due > 0 && due <= now {
				r.releaseEngine(int32(i))
			}
		}
	}
	wished := r.deserted()
	switch pause := rejoinMost * r.opt.RejoinAfter.Nanoseconds(); {
	case wished == 0 || pause == 0:
		r.fleet.again = loop.NoTick
	case r.fleet.again == loop.NoTick:
		r.fleet.again = now + pause
	case r.fleet.again <= now:
		r.deliver(&completion{event: loop.Request(loop.SettingEngines, wished, now)})
		r.fleet.again = now + pause
	}
}

// deserted returns how many engines the run wants of its fleet, where none is there or to come and the fleet has one of those.
// It could not give it, and the loop asks again after train steps, of which there are none. Else it returns 0.
func (r *Runtime) deserted() float64 {
	first := -1 // that the fleet has
	for i := range r.engines {
		switch r.l.EngineState(i) {
		case "serving", "joining", "starting", "leaving":
			return 0
		case "away":
			if first < 0 {
				first = i
			}
		}
	}
	if first >= 0 {
		if wished := r.wished(); float64(first) < wished {
			return wished
		}
	}
	return 0
}

// wished is how many engines the run wants of its fleet.
func (r *Runtime) wished() float64 {
	if st := r.l.ControlStatus(); st != nil {
		for _, set := range st.Settings {
			if set.Name == loop.SettingEngines.String() {
				return set.Value
			}
		}
	}
	return 0
}

// comesBack has an engine that the loop counts as lost brought back by the fleet at once.
func (r *Runtime) comesBack(engine int) {
	r.engines[engine] = quarantine{lost: true, due: r.clock(), planned: r.engines[engine].planned}
}

// acquireFirst has the engines started that are to be there from the start, all at once, and the others
// given back that an earlier run may have left. It returns why those did not come that did not, and
// whether a Stop came first. Engines of other cells come when the run has begun: their cells wait for it.
func (r *Runtime) acquireFirst(ctx context.Context) (errs []error, stopped bool) {
	errs = make([]error, len(r.opt.Engines))
	if r.opt.Fleet == nil {
		return errs, false
	}
	var all sync.WaitGroup
	over := make(chan struct{})
	for i := range r.opt.Engines {
		if i >= r.startsWith() {
			r.releaseEngine(int32(i))
			continue
		}
		if !r.cfg.Owns(int32(i)) {
			r.comesBack(i)
			continue
		}
		answer, wait := make(chan error, 1), r.askEngine(int32(i))
		go func() { answer <- wait() }()
		all.Go(func() {
			select {
			case errs[i] = <-answer:
			case <-over:
			case <-ctx.Done():
				errs[i] = context.Cause(ctx)
			}
		})
	}
	came := make(chan struct{})
	go func() { defer close(came); all.Wait() }()
	select {
	case <-came:
	case <-r.stop:
		close(over)
		<-came
		r.finished, r.reason = true, loop.ReasonStopped
		return errs, true
	}
	return errs, false
}

// startsWith is the number of engines that are there when the run starts.
func (r *Runtime) startsWith() int {
	n := len(r.opt.Engines)
	if r.cfg.EnginesStart > 0 {
		n = r.cfg.EnginesStart
	}
	if c := r.cfg.Control; c != nil && c.Ranges[loop.SettingEngines].Moves() {
		of := c.Ranges[loop.SettingEngines]
		n = min(max(n, int(of.Least)), int(of.Most))
	}
	return n
}

// recoverFleet has the fleet make sure of the engines that the loop counts on, after a restart: those of
// programs on this machine ended with the process before, and those of cells elsewhere may not. It gives the others back:
// what was to give them back may have ended before it did.
func (r *Runtime) recoverFleet() {
	if r.opt.Fleet == nil || r.finished {
		return
	}
	for i := range r.opt.Engines {
		own := r.cfg.Owns(int32(i))
		switch state := r.l.EngineState(i); {
		case state == "away":
			r.releaseEngine(int32(i))
		case state == "lost" && !own:
			r.comesBack(i)
		case (state == "serving" || state == "joining") && !own:
			r.ensure(i)
		case state == "serving" || state == "joining":
			r.loseEngine(r.opt.Engines[i].Name(), errRecovered)
			r.engines[i].soon = true
		}
	}
}

// errRecovered is why an engine is lost at a restart of the run.
var errRecovered = errors.New("the run was restarted: the fleet is asked whether it is there")
