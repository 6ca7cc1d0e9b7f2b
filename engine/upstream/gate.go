package upstream

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// stream is one call to the server that is under way.
type stream struct {
	id string
	// caps and label are of the time it began.
	caps  *Capabilities
	label string
	// version is what a token that arrives now counts as; lastAt is when one did, on the engine's clock.
	version atomic.Int64
	lastAt  atomic.Int64
	// halted is why it is to end, nil for not; halting is closed with it, gone when nobody reads it
	// any more, over when the server has been told as well.
	halted  atomic.Pointer[halt]
	halting chan struct{}
	gone    chan struct{}
	over    chan struct{}
}

func newStream() *stream {
	return &stream{halting: make(chan struct{}), gone: make(chan struct{}), over: make(chan struct{})}
}

// stop asks a stream to end; the first reason counts.
func (s *stream) stop(why *halt) {
	if s.halted.CompareAndSwap(nil, why) {
		close(s.halting)
	}
}

// gate keeps tokens from being recorded from a resume on until the new weights are verified.
type gate struct {
	open   chan struct{} // closed by whoever has verified, or failed to
	failed bool          // before open is closed
}

// pause is a time in which the server should sample nothing. What arrives in it had been sampled
// before, if the server keeps its word: a response that ends meanwhile waits until that is known.
type pause struct {
	since int64         // on the engine's clock
	over  chan struct{} // closed when it is known
	sham  bool          // before over is closed
}

// trust waits until it is known whether what a stream has brought in a pause can be believed.
func (e *Engine) trust(ctx context.Context, s *stream) error {
	p := e.pause.Load()
	if p == nil || s.lastAt.Load() <= p.since {
		return nil
	}
	select {
	case <-p.over:
	case <-ctx.Done():
		return ctx.Err()
	case <-e.life.Done():
		return haltClosed
	}
	if p.sham {
		return haltSpoilt
	}
	return nil
}

// claim takes a slot; release gives it back.
func (e *Engine) claim(id port.RolloutID) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return e.fail("%w", ErrClosed)
	}
	if e.claimed == e.opt.Slots {
		return e.fail("rollout %v asks for a slot while all %d are in use", id, e.opt.Slots)
	}
	e.claimed++
	return nil
}

func (e *Engine) release() {
	e.mu.Lock()
	e.claimed--
	e.mu.Unlock()
}

// enter waits until the server may be asked to sample, and registers a stream with the version
// that it serves. Through a switch it waits as long as that takes; for weights that a failed
// switch has left unknown as long as a server may be silent, then that counts as a loss. It
// returns haltInterrupt where interrupt is closed meanwhile.
func (e *Engine) enter(ctx context.Context, interrupt <-chan struct{}) (*stream, error) {
	var patience <-chan time.Time
	for {
		s, wait, err := e.tryEnter()
		if s != nil || err != nil {
			return s, err
		}
		if wait.unknown && patience == nil {
			timer := time.NewTimer(e.opt.Silent)
			defer timer.Stop()
			patience = timer.C
		}
		select {
		case <-wait.changed:
		case <-interrupt:
			return nil, haltInterrupt
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-patience:
			if wait.unknown {
				return nil, e.fail("%w: no switch has made its weights known again for %v: %w", port.ErrEngineDown, e.opt.Silent, wait.why)
			}
			patience = nil
		}
	}
}

// closedFor is why nobody can enter now.
type closedFor struct {
	changed <-chan struct{}
	unknown bool // by unknown weights, not by a switch under way
	why     error
}

func (e *Engine) tryEnter() (*stream, closedFor, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.closed:
		return nil, closedFor{}, e.fail("%w", ErrClosed)
	case e.held:
		return nil, closedFor{changed: e.changed}, nil
	case e.down != nil:
		return nil, closedFor{}, e.fail("%w: %w", port.ErrEngineDown, e.down)
	case e.served == loop.NoVersion && e.why == nil:
		return nil, closedFor{}, e.fail("it serves nothing yet: Load and Switch come before the first Generate")
	case e.served == loop.NoVersion:
		return nil, closedFor{changed: e.changed, unknown: true, why: e.why}, nil
	}
	s := newStream()
	s.caps, s.label = e.caps, e.label(e.served)
	s.version.Store(int64(e.served))
	s.lastAt.Store(e.now())
	e.streams[s] = struct{}{}
	return s, closedFor{}, nil
}

// leave forgets a stream that is not read any more, and of whose end the server knows.
func (e *Engine) leave(s *stream) {
	e.mu.Lock()
	delete(e.streams, s)
	close(s.over)
	e.mu.Unlock()
}

// hold keeps anybody from entering until unhold.
func (e *Engine) hold() {
	e.mu.Lock()
	e.held = true
	e.switches++
	e.broke = false
	e.mu.Unlock()
}

// conclude lets streams flow again after a switch that has succeeded. It fails where a connection has broken
// off meanwhile and the server tells no label: it may be another one than was given the weights. Scores do
// not help: another one's differ from those before as well.
func (e *Engine) conclude() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.broke || e.labelled || !e.opt.Delivery.given() {
		e.held = false
		return nil
	}
	return errNameless
}

// breaks reports whether a switch is under way, which then judges the server, and notes for it whether a
// connection has broken off.
func (e *Engine) breaks(transport bool) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.held && transport {
		e.broke = true
	}
	return e.held
}

func (e *Engine) unhold() {
	e.openedAt.Store(e.now())
	e.mu.Lock()
	e.held = false
	e.notify()
	e.mu.Unlock()
}

// holding reports whether a switch is under way.
func (e *Engine) holding() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.held
}

// serve makes version what tokens count as from now on, of running streams too.
func (e *Engine) serve(version loop.Version, label string, caps *Capabilities) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.served, e.caps, e.down, e.why = version, caps, nil, nil
	e.labels[e.label(version)] = version
	if e.labelled = label != ""; e.labelled {
		e.labels[label] = version
	}
	for s := range e.streams {
		if s.halted.Load() == nil {
			s.version.Store(int64(version))
		}
	}
	e.notify()
}

// forget says that the weights are unknown from now on, and ends all streams. What the server can is
// asked anew by the next Load: it may be another one.
func (e *Engine) forget(why error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.served, e.caps, e.why = loop.NoVersion, nil, why
	reason := haltUnknown
	if errors.Is(why, haltSpoilt) {
		reason = haltSpoilt
	}
	for s := range e.streams {
		s.stop(reason)
	}
	e.notify()
}

// errReturned is why the weights of a server are unknown that was given back.
var errReturned = errors.New("it was given back to its fleet")

// Returned implements [port.Returned].
func (e *Engine) Returned() { e.forget(errReturned) }

// lose says that the server is gone, and ends all streams. What it can is asked anew when it is back.
func (e *Engine) lose(why error) error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return e.fail("%w", ErrClosed)
	}
	first := e.down == nil
	e.served, e.down, e.caps = loop.NoVersion, why, nil
	for s := range e.streams {
		s.stop(haltDown)
	}
	e.notify()
	if first {
		e.counts.losses.Add(1)
	}
	e.mu.Unlock()
	if first { // not under the lock: it may ask for the status
		e.opt.Logf("engine %s: it is down: %v", e.opt.Name, why)
	}
	return e.fail("%w: %w", port.ErrEngineDown, why)
}

// cut ends all streams and waits until nobody reads them any more and the server has been told, as
// long as that may take. What arrives of one that is still read counts for nothing.
func (e *Engine) cut(ctx context.Context, why *halt) error {
	e.mu.Lock()
	ending := make([]*stream, 0, len(e.streams))
	for s := range e.streams {
		s.stop(why)
		ending = append(ending, s)
	}
	e.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, cutLimit)
	defer cancel()
	for _, s := range ending {
		select {
		case <-s.over:
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				e.opt.Logf("engine %s: a response that was cut off is still being read: %s", e.opt.Name, s.id)
				return nil
			}
			return ctx.Err()
		}
	}
	return nil
}

// versionOf finds the version that a server's label means.
func (e *Engine) versionOf(label string) (loop.Version, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	version, ok := e.labels[label]
	return version, ok
}
