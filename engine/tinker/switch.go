package tinker

import (
	"context"

	"github.com/headway-rl/headway/loop"
)

// Load implements [port.Engine]: it asks the service for a sampler of the version. Nothing is sampled
// with it before it is served: a service that keeps one version of an adapter in memory would go forth and back.
// A load that fails changes nothing.
func (e *Engine) Load(ctx context.Context, version loop.Version) error {
	ctx, end, err := e.turn(ctx)
	if err != nil {
		return err
	}
	defer end()
	path, err := e.opt.Path(version)
	if err != nil {
		return e.fail("loading version %d: %w", version, err)
	}
	sampler, err := e.opt.Service.NewSampler(ctx, path)
	if err = e.reached(err); err != nil {
		return e.fail("loading version %d from %s: %w", version, path, err)
	}
	w := &weights{version: version, path: path, making: make(chan struct{}, 1)}
	w.sampler.Store(&sampler)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.loaded = w
	return nil
}

// Switch implements [port.Engine]. Pieces that begin from now on are sampled by the version. Under hold it first waits
// for running pieces, as long as they take or ctx lasts, and none begins meanwhile. Without it they go on by the
// version before, and their tokens count as its. A version that is not the loaded one is refused and changes nothing.
// After any other error the weights are unknown, and pieces wait for the next Switch.
func (e *Engine) Switch(ctx context.Context, version loop.Version, hold bool) error {
	ctx, end, err := e.turn(ctx)
	if err != nil {
		return err
	}
	defer end()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.loaded == nil || e.loaded.version != version {
		was := loop.NoVersion
		if e.loaded != nil {
			was = e.loaded.version
		}
		return e.fail("cannot switch to version %d, the loaded one is %d", version, was)
	}
	if hold {
		err = e.drain(ctx)
	}
	defer e.notify()
	if err != nil {
		e.served, e.why = nil, err
		return e.fail("switching to version %d: waiting until the pieces under way have ended: %w", version, err)
	}
	e.served, e.why = e.loaded, nil
	return nil
}

// drain waits until no piece is under way and lets none begin; e.mu must be held, and is given up while it waits.
func (e *Engine) drain(ctx context.Context) error {
	e.held = true
	defer func() { e.held = false }()
	for e.running > 0 {
		if err := e.wait(ctx); err != nil {
			return err
		}
	}
	if e.closed { // which has ended the pieces, and perhaps not ctx yet
		return ErrClosed
	}
	return context.Cause(ctx)
}

// wait waits for the next change or the end of ctx; e.mu must be held, and is given up meanwhile.
func (e *Engine) wait(ctx context.Context) error {
	changed := e.changed
	e.mu.Unlock()
	defer e.mu.Lock()
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// turn waits until no other Load or Switch is under way. The context that it returns ends with the engine's life too;
// end lets the next one.
func (e *Engine) turn(ctx context.Context) (inner context.Context, end func(), err error) {
	select {
	case e.switching <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	if e.life.Err() != nil {
		e.turnOver()
		return nil, nil, e.fail("%w", ErrClosed)
	}
	inner, stop := e.alive(ctx)
	return inner, func() {
		stop(nil)
		e.turnOver()
	}, nil
}

func (e *Engine) turnOver() { <-e.switching }

// alive is a context that ends with the engine's life as well, by ErrClosed.
func (e *Engine) alive(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(e.life, func() { cancel(ErrClosed) })
	return ctx, func(why error) {
		stop()
		cancel(why)
	}
}
