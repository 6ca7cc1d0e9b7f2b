package upstream

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

// Engine is a server as a [port.Engine]. Load and Switch come before the first Generate, for every
// delivery: they ask the server for its features and make its weights known.
type Engine struct {
	opt   Options
	nonce string
	born  time.Time // the zero of the engine's clock
	// life ends with Close; background goroutines end with it and are counted in group.
	life  context.Context
	end   context.CancelFunc
	group sync.WaitGroup

	// switching has room for the one Load or Switch that is under way.
	switching chan struct{}
	loaded    loaded            // belongs to who is in switching
	met       meeting           // with the sender, the same
	shapes    map[string]string // of the first version's tensors, the same
	score     fingerprint       // of the weights that were verified last, the same
	stood     []float32         // what the server computed before the update under way, nil for unknown, the same
	confirmed string            // the label that the server has confirmed last, empty for none, the same
	tried     trial             // the update that was asked for last, the same
	// until is when the meeting or the switch under way is given up, nil for none.
	until     atomic.Pointer[time.Time]
	owed      atomic.Bool   // a pause that no resume has ended yet
	owing     *Capabilities // of the server that is paused, the same as loaded
	resuming  atomic.Bool   // a goroutine tries to
	calls     atomic.Int64  // numbers calls at the server
	arrivedAt atomic.Int64  // when a token arrived last, on the engine's clock
	// recordedAt is when one was recorded last, the same: not one that waits for the end of its stream.
	recordedAt atomic.Int64
	openedAt   atomic.Int64 // when streams could flow again last, the same
	gate       atomic.Pointer[gate]
	pause      atomic.Pointer[pause]
	deaf       atomic.Bool // an abort by id has not ended a stream in time

	// recognised is how many connections had been opened when the server last said what it serves.
	recognised atomic.Int64

	counts   counts
	channels channelCounts

	mu sync.Mutex
	// changed is closed, and another put into its place, whenever something below changes.
	changed chan struct{}
	caps    *Capabilities // nil before the first probe and after a loss
	served  loop.Version  // loop.NoVersion for unknown
	labels  map[string]loop.Version
	// labelled: the server says itself what it serves.
	labelled bool
	// held: a switch is under way. down: the server is gone. why: what made the weights unknown,
	// nil before the first switch.
	held     bool
	switches int64 // that have begun to hold
	broke    bool  // a connection has broken off since the switch under way began
	down     error
	why      error
	closed   bool
	claimed  int
	streams  map[*stream]struct{}
	checking *checkup
}

// loaded is a version that can be switched to.
type loaded struct {
	version loop.Version
	dir     string // as this process sees it; empty on DeliveryNone and DeliveryDistributed
	held    Held   // by the sender, on DeliveryDistributed
}

// content names the weights: the same for two versions only if theirs are the same.
func (l loaded) content() string {
	if l.dir == "" && l.held.Digest != "" {
		return digestMark + l.held.Digest
	}
	return l.dir
}

// digestMark begins the name of weights that lie in no directory.
const digestMark = "tensors of digest "

// counts are what a Status sums up.
type counts struct {
	tokens, retries, cuts, losses, disagreements, named atomic.Int64
}

var _ port.Engine = (*Engine)(nil)

// New returns an engine that has asked its server nothing yet. Close stops it.
func New(o Options) (*Engine, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	e := &Engine{
		opt: o.withDefaults(), nonce: newNonce(), born: time.Now(),
		switching: make(chan struct{}, 1), changed: make(chan struct{}),
		loaded: loaded{version: loop.NoVersion}, served: loop.NoVersion,
		labels: map[string]loop.Version{}, streams: map[*stream]struct{}{},
	}
	e.life, e.end = context.WithCancel(context.Background())
	return e, nil
}

// Name implements [port.Engine].
func (e *Engine) Name() string { return e.opt.Name }

// Slots implements [port.Engine].
func (e *Engine) Slots() int { return e.opt.Slots }

// now is the time on the engine's clock, in nanoseconds.
func (e *Engine) now() int64 { return int64(time.Since(e.born)) }

// fail names the engine in an error.
func (e *Engine) fail(format string, args ...any) error {
	return fmt.Errorf("engine %s: %w", e.opt.Name, fmt.Errorf(format, args...))
}

// notify wakes who waits for a change; e.mu must be held.
func (e *Engine) notify() {
	close(e.changed)
	e.changed = make(chan struct{})
}

// spawn runs f beside, until Close at the latest; false if that has been called.
func (e *Engine) spawn(f func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.group.Go(f)
	return true
}

// Probe asks the server anew what it can. It pauses the server for a moment: no switch may be under way beside it.
func (e *Engine) Probe(ctx context.Context) (Capabilities, error) {
	caps, err := e.opt.Dialect.Probe(ctx, e.opt.Server.within(questionLimit))
	if err != nil {
		return Capabilities{}, e.fail("asking %s what it can: %w", e.opt.Server.URL(), err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.caps = &caps
	e.deaf.Store(false)
	e.notify()
	return caps, nil
}

// Look asks the server what it can without a pause, and keeps nothing of the answer: another process may use the server. That a
// pause is one is then not proven.
func (e *Engine) Look(ctx context.Context) (Capabilities, error) {
	server := e.opt.Server.within(questionLimit)
	server.Guest = true
	caps, err := e.opt.Dialect.Probe(ctx, server)
	if err != nil {
		return Capabilities{}, e.fail("asking %s what it can: %w", e.opt.Server.URL(), err)
	}
	return caps, nil
}

// Capabilities returns what the server was last found to do, and false before it was asked and
// after it was lost.
func (e *Engine) Capabilities() (Capabilities, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.caps == nil {
		return Capabilities{}, false
	}
	return *e.caps, true
}

// known returns the capabilities, nil before the first probe and after a loss.
func (e *Engine) known() *Capabilities {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.caps
}

// ready returns the capabilities, which are asked for if they are unknown.
func (e *Engine) ready(ctx context.Context) (*Capabilities, error) {
	if caps := e.known(); caps != nil {
		return caps, nil
	}
	found, err := e.Probe(ctx)
	if err != nil {
		return nil, err
	}
	return &found, nil
}

// readyBeside is ready for who is not in a Load or Switch: the end of the pause that a probe tries would end that of a
// switch. It waits until the capabilities are known, or it is its turn to ask.
func (e *Engine) readyBeside(ctx context.Context) (*Capabilities, error) {
	limit := time.NewTimer(probeLimit)
	defer limit.Stop()
	for {
		e.mu.Lock()
		caps, changed := e.caps, e.changed
		e.mu.Unlock()
		if caps != nil {
			return caps, nil
		}
		select {
		case e.switching <- struct{}{}:
			defer e.turnOver()
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(e.life, cancel)()
			return e.ready(ctx)
		case <-changed:
		case <-limit.C:
			return nil, e.fail("nobody knows what its server can, and it could not be asked for %v", probeLimit)
		case <-e.life.Done():
			return nil, e.fail("%w", ErrClosed)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Status says how an engine is doing.
type Status struct {
	// State is new (no switch yet), serving, switching, unknown (a switch failed), down or closed;
	// Cause says why for the last three.
	State string
	Cause string
	// Until is when its running meeting with a sender, or its switch, is given up. It is the zero time
	// where none runs: nothing else of a load is bounded.
	Until time.Time
	// Version is what it serves, loop.NoVersion for unknown; Software as its server states it.
	Version  loop.Version
	Software string
	// Cache is what becomes of old keys and values in truth: CacheSalt where the server can salt.
	Cache string
	// Running counts responses under way, Tokens those that were sampled here, and Retries the calls
	// that went on with a broken response. Cuts counts those that went on after a switch, Losses the
	// times that the server was lost.
	Running                       int
	Tokens, Retries, Cuts, Losses int64
	// Disagreements counts tokens of which the server named another version than the barrier of
	// the switches would have; the server's word was taken. Named counts those of which it named
	// one at all.
	Disagreements, Named int64
	// Channels are the side channels of which answers had rows, or should have had; nil where none was asked for.
	Channels []ChannelStatus
}

// Status returns the engine's present state.
func (e *Engine) Status() Status {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := Status{
		State: "serving", Version: e.served, Running: len(e.streams), Cache: e.opt.Cache,
		Tokens: e.counts.tokens.Load(), Retries: e.counts.retries.Load(), Cuts: e.counts.cuts.Load(), Losses: e.counts.losses.Load(),
		Disagreements: e.counts.disagreements.Load(), Named: e.counts.named.Load(), Channels: e.channels.status(),
	}
	if until := e.until.Load(); until != nil {
		s.Until = *until
	}
	if e.caps != nil {
		s.Software, s.Cache = e.caps.Software, e.cache(e.caps)
	}
	switch {
	case e.closed:
		s.State, s.Cause = "closed", ErrClosed.Error()
	case e.held:
		s.State = "switching"
	case e.down != nil:
		s.State, s.Cause = "down", e.down.Error()
	case e.served == loop.NoVersion && e.why != nil:
		s.State, s.Cause = "unknown", e.why.Error()
	case e.served == loop.NoVersion:
		s.State = "new"
	}
	return s
}

// cache is how old keys and values are treated by what the server can: where it cannot salt, its
// cache of prefixes is dropped, so that nothing new is computed from what is old.
func (e *Engine) cache(caps *Capabilities) string {
	if caps.Uncached {
		return cacheNone
	}
	if e.opt.Cache != CacheSalt || caps.Salt {
		return e.opt.Cache
	}
	if caps.Flush {
		return CacheFlush
	}
	return CacheKeep
}

// Close implements [port.Engine]: it returns when running work has ended, a switch too. It may be
// called more than once.
func (e *Engine) Close() error {
	e.mu.Lock()
	first := !e.closed
	e.closed = true
	for s := range e.streams {
		s.stop(haltClosed)
	}
	e.notify()
	e.end() // before whoever it stopped returns, which takes the lock: from then on nothing is loaded
	e.mu.Unlock()
	e.group.Wait()
	if !first {
		return nil
	}
	err := e.settle()
	if restarter, ok := e.opt.Dialect.(Restarter); ok && e.opt.Delivery == DeliveryRestart {
		err = errors.Join(err, restarter.Stop())
	}
	e.opt.Server.Close()
	return err
}

// settle waits for the Load or Switch that is under way, which ends with the engine's life, tries
// once more to end a pause that is owed, and leaves the group with the sender: who ends the process
// next leaves no server paused, and none that waits for tensors.
func (e *Engine) settle() error {
	limit := time.NewTimer(closeLimit)
	defer limit.Stop()
	select {
	case e.switching <- struct{}{}:
		defer e.turnOver()
	case <-limit.C:
		return e.fail("it is closed, and a load or switch has not ended for %v", closeLimit)
	}
	ctx, cancel := context.WithTimeout(context.Background(), lastResumeLimit)
	defer cancel()
	defer e.part(ctx, lastResumeLimit)
	if !e.owed.Load() {
		return nil
	}
	if err := e.tryResume(ctx, e.owing); err != nil { // a server that is gone is not paused either
		e.opt.Logf("engine %s: %s may be left paused: %v", e.opt.Name, e.opt.Server.URL(), err)
	}
	return nil
}
