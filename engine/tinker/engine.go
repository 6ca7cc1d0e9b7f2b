package tinker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	service "github.com/headway-rl/headway/internal/tinker"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// PieceDefault is Options.Piece where that is 0.
const PieceDefault = 256

// Errors that callers tell apart.
var (
	// ErrClosed is wrapped by what generations end with when the engine is closed under them.
	ErrClosed = errors.New("the engine is closed")
	// ErrLied is wrapped by the error of a response that cannot be, or cannot be trained on. Examples are tokens
	// outside the vocabulary, missing log-probs, more tokens than were asked for, and an end without the token
	// that ended it.
	ErrLied = errors.New("the service's answer cannot be")
)

// Options of an engine.
type Options struct {
	// Name in logs and status; Slots is how many responses it samples at once, at least 1.
	Name  string
	Slots int
	// Service samples; see [FromSession]. It is the caller's to close, after the engine.
	Service Service
	// Path is where the trainer has saved a version at the service, or an error that says why there is none.
	Path func(version loop.Version) (path string, err error)
	// Piece is the most tokens of one request; 0 means PieceDefault.
	Piece int
	// Sampling is how tokens are drawn where a request does not say; nil is the policy as it is.
	Sampling *port.Sampling
	// Vocabulary is the number of token ids; 0 for unknown, and then none is too high.
	Vocabulary int
	// Ends are the ids that end a sequence, at least one: services stop at what they are given alone.
	Ends []int32
	// Logf is told news for people; nil for none.
	Logf func(format string, args ...any)
}

// Validate reports the first option that cannot be.
func (o Options) Validate() error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("engine %s: %w", o.Name, fmt.Errorf(format, args...))
	}
	switch {
	case o.Slots < 1:
		return fail("%d slots, want at least 1", o.Slots)
	case o.Service == nil || o.Path == nil:
		return fail("Service or Path is missing")
	case o.Piece < 0 || o.Vocabulary < 0:
		return fail("Piece is %d and Vocabulary %d, want neither below 0", o.Piece, o.Vocabulary)
	case len(o.Ends) == 0:
		return fail("Ends is missing: a service stops at the tokens that it is given alone, so no response would end before its greatest length")
	}
	for _, end := range o.Ends {
		if end < 0 || o.Vocabulary > 0 && int(end) >= o.Vocabulary {
			return fail("the token %d ends a response, and the vocabulary has %d", end, o.Vocabulary)
		}
	}
	if o.Sampling != nil {
		if err := sayable(o.Sampling); err != nil {
			return fail("%w", err)
		}
	}
	return nil
}

// Engine is a service as a [port.Engine]. Before the first Switch generations wait.
type Engine struct {
	opt Options
	// life ends with Close.
	life context.Context
	end  context.CancelFunc
	// under counts the generations under way.
	under sync.WaitGroup
	// switching has room for the one Load or Switch that is under way.
	switching chan struct{}
	counts    counts
	behind    sync.Once // the service samples on behind stops, and somebody was told

	mu sync.Mutex
	// changed is closed, and another put into its place, whenever something below changes that is waited for.
	changed chan struct{}
	loaded  *weights // nil for none; only who is in switching writes it
	served  *weights // nil for unknown
	// held: a switch under hold is under way. why: what made the weights unknown, nil before the first switch.
	// down: why the service could not be asked last, nil since it could.
	held    bool
	why     error
	down    error
	closed  bool
	claimed int // slots
	running int // pieces
}

// weights are a version at the service. Who samples a piece holds them; the last one that does drops them.
type weights struct {
	version loop.Version
	path    string
	// making has room for the one that makes sampler anew.
	making  chan struct{}
	sampler atomic.Pointer[Sampler]
}

// counts are what a Status sums up.
type counts struct{ tokens, pieces, abandoned, retries, unused atomic.Int64 }

var _ port.Engine = (*Engine)(nil)

// New returns an engine that has asked its service nothing yet. Close stops it.
func New(o Options) (*Engine, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o.Piece = cmp.Or(o.Piece, PieceDefault)
	if o.Logf == nil {
		o.Logf = func(string, ...any) {}
	}
	if s := o.Sampling; !s.Policy() {
		o.Logf("engine %s: tokens are drawn otherwise than by the policy (temperature %g, top_p %g, top_k %d), and the log-probs of such services are the policy's own, as far as is known: ratios to them are off",
			o.Name, s.Temperature, s.TopP, s.TopK)
	}
	e := &Engine{opt: o, switching: make(chan struct{}, 1), changed: make(chan struct{})}
	e.life, e.end = context.WithCancel(context.Background())
	return e, nil
}

// Name implements [port.Engine].
func (e *Engine) Name() string { return e.opt.Name }

// Slots implements [port.Engine].
func (e *Engine) Slots() int { return e.opt.Slots }

// Close implements [port.Engine]: it returns when running work has ended. It may be called more than once.
func (e *Engine) Close() error {
	e.mu.Lock()
	e.closed = true
	e.notify()
	e.end() // before whoever it stopped returns, which takes the lock: from then on nothing is loaded
	e.mu.Unlock()
	e.under.Wait()
	e.switching <- struct{}{} // a load or switch ends with the engine's life
	e.turnOver()
	return nil
}

// Status says how an engine is doing.
type Status struct {
	// State is new (no switch yet), serving, switching (it waits for pieces under way), unknown (a switch failed),
	// down or closed. Cause says why for the last three.
	State, Cause string
	// Version is what it serves, loop.NoVersion for unknown.
	Version loop.Version
	// Running counts responses under way, Tokens those that were sampled here and count, and Pieces the requests that
	// were answered. Abandoned counts those that were not waited for. Retries counts those that were made again
	// because the service had forgotten the sampler or failed the piece. Unused counts the tokens behind the cut of a
	// response.
	Running                                    int
	Tokens, Pieces, Abandoned, Retries, Unused int64
}

// Status returns the engine's present state.
func (e *Engine) Status() Status {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := &e.counts
	s := Status{
		State: "serving", Version: loop.NoVersion, Running: e.claimed, Tokens: c.tokens.Load(), Pieces: c.pieces.Load(),
		Abandoned: c.abandoned.Load(), Retries: c.retries.Load(), Unused: c.unused.Load(),
	}
	if e.served != nil {
		s.Version = e.served.version
	}
	switch {
	case e.closed:
		s.State, s.Cause = "closed", ErrClosed.Error()
	case e.held:
		s.State = "switching"
	case e.down != nil:
		s.State, s.Cause = "down", e.down.Error()
	case e.served == nil && e.why != nil:
		s.State, s.Cause = "unknown", e.why.Error()
	case e.served == nil:
		s.State = "new"
	}
	return s
}

// fail names the engine in an error.
func (e *Engine) fail(format string, args ...any) error {
	return fmt.Errorf("engine %s: %w", e.opt.Name, fmt.Errorf(format, args...))
}

// notify wakes who waits for a change; e.mu must be held.
func (e *Engine) notify() {
	close(e.changed)
	e.changed = make(chan struct{})
}

// answered reports whether an error is what the service has said.
func answered(err error) bool {
	_, said := errors.AsType[*service.Error](err)
	return said
}

// reached notes whether the service could be asked, and adds to an error that it could not that the engine is down.
func (e *Engine) reached(err error) error {
	down := errors.Is(err, service.ErrDown)
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case down:
		e.down = err
		return fmt.Errorf("%w: %w", port.ErrEngineDown, err)
	case err == nil || answered(err):
		e.down = nil
	}
	return err
}
