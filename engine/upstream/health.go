package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/headway-rl/headway/loop"
)

// Health asks the server whether it is well: by /health, or by the list of its models where it has
// no such path. Nil is a yes.
func (s *Server) Health(ctx context.Context) error {
	err := s.Call(ctx, http.MethodGet, "/health", nil, nil)
	if status := StatusOf(err); status == http.StatusNotFound || status == http.StatusMethodNotAllowed {
		return s.Call(ctx, http.MethodGet, "/v1/models", nil, nil)
	}
	return err
}

// checkup is a look at the server that several responses wait for at once.
type checkup struct {
	done chan struct{}
	// transport: it is about a connection that broke off, so that a server which tells no label is not believed.
	transport bool
	err       error // before done is closed
}

// checkUp looks whether the server is well and still serves what it should, after a call has
// broken off. An error says that it is lost, or that ctx or the response has ended.
func (e *Engine) checkUp(ctx context.Context, interrupt <-chan struct{}, b *broken) error {
	for {
		c := e.checkupFor(b)
		if c == nil {
			return e.fail("%w", ErrClosed)
		}
		select {
		case <-c.done:
		case <-interrupt:
			return haltInterrupt
		case <-ctx.Done():
			return ctx.Err()
		}
		if c.err != nil || c.transport || !b.transport {
			return c.err
		}
		// It was joined, and asked less than a broken connection wants to know.
	}
}

// checkupFor joins the checkup under way, or begins one; nil if the engine is closed.
func (e *Engine) checkupFor(b *broken) *checkup {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.checking == nil && !e.closed {
		c := &checkup{done: make(chan struct{}), transport: b.transport}
		e.checking = c
		e.group.Go(func() { e.look(c, b) })
	}
	return e.checking
}

// look is one checkup.
func (e *Engine) look(c *checkup, b *broken) {
	ctx, cancel := context.WithTimeout(e.life, probeLimit)
	defer cancel()
	undisturbed := e.unswitched()
	err := e.opt.Server.Health(ctx)
	if err != nil {
		err = fmt.Errorf("%w, and to the question whether it is well: %w", b, err)
	} else {
		err = e.sameWeights(ctx, b.transport)
	}
	switch {
	case e.life.Err() != nil:
		c.err = e.fail("%w", ErrClosed)
	case err != nil && undisturbed(): // else the switch judges it
		c.err = e.lose(err)
	}
	e.mu.Lock()
	e.checking = nil
	e.mu.Unlock()
	close(c.done)
}

// unswitched begins to watch for switches: what it returns reports whether none has been under way since.
func (e *Engine) unswitched() func() bool {
	now := func() (bool, int64) {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.held, e.switches
	}
	held, switches := now()
	return func() bool {
		_, after := now()
		return !held && after == switches
	}
}

// errRestarted is wrapped by the error of a server that does not serve what was put there.
var errRestarted = errors.New("it was started again, or somebody else has changed its weights")

// errNameless is that of a server of which nobody can know whether it does.
var errNameless = fmt.Errorf("%w, for all that is known: its connections broke off, and it does not say what it serves", errRestarted)

// sameWeights asks whether the server still serves weights that were put there from here. One that
// does not say is believed, unless its connections have broken off: it may have been started again.
func (e *Engine) sameWeights(ctx context.Context, transport bool) error {
	if !e.opt.Delivery.given() {
		return nil
	}
	e.mu.Lock()
	caps, labelled, served := e.caps, e.labelled, e.served
	e.mu.Unlock()
	switch {
	case caps == nil:
		return nil // lost meanwhile, and entering says so
	case !labelled && transport:
		return errNameless
	case !labelled:
		return nil
	}
	label, err := e.opt.Dialect.Version(ctx, e.opt.Server, caps)
	if err != nil {
		return fmt.Errorf("asking what it serves: %w", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	version, known := e.labels[label]
	// Through a switch it may say the version before or the one that comes.
	if still := !e.held && e.served == served; !known || still && version != served {
		return fmt.Errorf("%w: it says that it serves %.200q", errRestarted, label)
	}
	return nil
}

// recognise makes sure that who answers is the server whose weights are known, where a connection was
// opened since it was asked last, for whatever question: one that was started again has closed all that there were. Servers that name the version of every
// token are asked as well: of a response that breaks off they name none.
func (e *Engine) recognise(ctx context.Context) error {
	dials := e.opt.Server.dials.Load()
	if dials <= e.recognised.Load() {
		return nil
	}
	e.mu.Lock()
	silent, held := !e.labelled, e.held
	e.mu.Unlock()
	switch {
	case silent:
		return nil
	case held: // it may say anything meanwhile, and nothing has been recorded yet
		return &broken{cause: errors.New("a switch of weights began before the server was asked what it serves")}
	}
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	err := e.sameWeights(ctx, false)
	if errors.Is(err, errRestarted) {
		return e.lose(err)
	}
	if err != nil {
		return &broken{cause: err, transport: true}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.caps == nil || e.served == loop.NoVersion { // a response that was interrupted before that would be read on
		return &broken{cause: errors.New("its weights became unknown before the server said what it serves")}
	}
	e.recognised.Store(dials)
	return nil
}
