package cell

import (
	"context"
	"sync"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// besideSampler samples in a slot that is not the loop's.
type besideSampler struct {
	engine *sharedEngine
	id     port.RolloutID
	turn   int
}

// Sample implements port.Sampler.
func (b *besideSampler) Sample(ctx context.Context, req port.SampleRequest) (port.Generation, error) {
	r := port.GenerateRequest{Rollout: b.id, Turn: b.turn, Prompt: req.Prompt, Media: req.Media, MaxTokens: req.MaxTokens, Check: req.Check, Sampling: req.Sampling, OnTokens: req.OnTokens}
	b.turn++
	wanted, cancel := context.WithCancel(ctx)
	defer cancel()
	if req.Dropped != nil {
		go func() {
			select {
			case <-req.Dropped:
				cancel()
			case <-wanted.Done():
			}
		}()
	}
	g, err := b.engine.beside(wanted, r)
	if (err != nil || g.Pruned) && req.Dropped != nil && isClosed(req.Dropped) && ctx.Err() == nil {
		return port.Generation{}, port.ErrDropped
	}
	return g, err
}

// sharedEngine is an engine of the run that evaluates beside it. What it evaluates stands still while it switches,
// and goes on with the tokens it has: engines that are to be empty then are.
type sharedEngine struct {
	port.Engine
	// slots are those to evaluate in. Taken are so many of them, under the lock of the share. changed is called without a
	// lock when the engine serves, or does not any more.
	slots, taken int
	changed      func()

	switching sync.Mutex // one switch at a time

	mu sync.Mutex
	// stop interrupts what runs; switched ends the wait of what may not run, nil while it may. Running counts the former,
	// and idle is closed when there is none any more.
	stop, switched, idle chan struct{}
	running              int
	// serves: it has a version to evaluate. gone is how often it was lost or given back.
	serves bool
	gone   int
}

// Inner implements port.Wrapper.
func (e *sharedEngine) Inner() any { return e.Engine }

// Switch implements port.Engine.
func (e *sharedEngine) Switch(ctx context.Context, version loop.Version, hold bool) error {
	e.switching.Lock()
	defer e.switching.Unlock()
	e.mu.Lock()
	gone := e.gone
	e.switched = make(chan struct{})
	close(e.stop)
	idle := make(chan struct{})
	if e.idle = idle; e.running == 0 {
		close(idle)
	}
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		close(e.switched)
		e.switched, e.idle, e.stop = nil, nil, make(chan struct{})
	}()
	select {
	case <-idle:
	case <-ctx.Done():
		return ctx.Err()
	}
	err := e.Engine.Switch(ctx, version, hold)
	e.serve(err == nil, gone)
	return err
}

// serve takes that the engine serves a version, or does not, unless it has gone since it was so often gone.
func (e *sharedEngine) serve(serves bool, gone int) {
	e.mu.Lock()
	changed := e.serves != serves && e.gone == gone
	if changed {
		e.serves = serves
	}
	e.mu.Unlock()
	if changed {
		e.changed()
	}
}

// leave takes that the engine is lost or given back. It serves again from its next switch on.
func (e *sharedEngine) leave() {
	e.mu.Lock()
	e.gone++
	gone := e.gone
	e.mu.Unlock()
	e.serve(false, gone)
}

func (e *sharedEngine) isServing() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.serves
}

// beside generates a response, with as many interruptions as the engine switches.
func (e *sharedEngine) beside(ctx context.Context, r port.GenerateRequest) (port.Generation, error) {
	for {
		stop, err := e.begin(ctx)
		if err != nil {
			return port.Generation{}, err
		}
		r.Interrupt = stop
		g, err := generate(ctx, e.Engine, r)
		e.end()
		if err == nil {
			err = checkGeneration(e.Name(), r, g)
		}
		if err != nil || !g.Interrupted {
			return g, err
		}
		r.Prefix = g.Prefix()
	}
}

// begin waits until the engine does not switch.
func (e *sharedEngine) begin(ctx context.Context) (stop <-chan struct{}, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for e.switched != nil {
		switched := e.switched
		e.mu.Unlock()
		select {
		case <-switched:
		case <-ctx.Done():
		}
		e.mu.Lock()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	e.running++
	return e.stop, nil
}

func (e *sharedEngine) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.running--; e.running == 0 && e.idle != nil {
		close(e.idle)
	}
}
