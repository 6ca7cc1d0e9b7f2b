package embedded

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/loop/trace"
)

// Elastic is an engine that is started and stopped while a run goes on. While it is not there, every
// call ends with [port.ErrEngineDown]. It is safe for concurrent use.
type Elastic struct {
	opt Options

	mu    sync.Mutex
	there *Engine
	busy  bool
}

var (
	_ port.Engine = (*Elastic)(nil)
	_ port.Timed  = (*Elastic)(nil)
	_ port.Paced  = (*Elastic)(nil)
)

// NewElastic returns an engine that is not there yet.
func NewElastic(opt Options) (*Elastic, error) {
	if err := opt.Validate(); err != nil {
		return nil, err
	}
	return &Elastic{opt: opt}, nil
}

// Start makes the engine, without weights, unless it is there.
func (e *Elastic) Start() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.there != nil {
		return nil
	}
	made, err := New(e.opt)
	if err != nil {
		return err
	}
	made.SetTrainerBusy(e.busy)
	e.there = made
	return nil
}

// Stop closes the engine, unless it is not there.
func (e *Elastic) Stop() error {
	e.mu.Lock()
	was := e.there
	e.there = nil
	e.mu.Unlock()
	if was == nil {
		return nil
	}
	return was.Close()
}

// engine is the engine that is there.
func (e *Elastic) engine() (*Engine, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.there == nil {
		return nil, fmt.Errorf("engine %s: %w: it is not started", e.opt.Name, port.ErrEngineDown)
	}
	return e.there, nil
}

// Name implements [port.Engine].
func (e *Elastic) Name() string { return e.opt.Name }

// Slots implements [port.Engine].
func (e *Elastic) Slots() int { return e.opt.Slots }

// Generate implements [port.Engine].
func (e *Elastic) Generate(ctx context.Context, req port.GenerateRequest) (port.Generation, error) {
	there, err := e.engine()
	if err != nil {
		return port.Generation{}, err
	}
	return there.Generate(ctx, req)
}

// Load implements [port.Engine].
func (e *Elastic) Load(ctx context.Context, version loop.Version) error {
	there, err := e.engine()
	if err != nil {
		return err
	}
	return there.Load(ctx, version)
}

// Switch implements [port.Engine].
func (e *Elastic) Switch(ctx context.Context, version loop.Version, hold bool) error {
	there, err := e.engine()
	if err != nil {
		return err
	}
	return there.Switch(ctx, version, hold)
}

// Greedy is [Engine.Greedy].
func (e *Elastic) Greedy(ctx context.Context, version loop.Version, prompts [][]int32, maxTokens int) ([][]int32, error) {
	there, err := e.engine()
	if err != nil {
		return nil, err
	}
	return there.Greedy(ctx, version, prompts, maxTokens)
}

// SetTrainerBusy implements [port.Timed], for the engine that comes next too.
func (e *Elastic) SetTrainerBusy(busy bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.busy = busy; e.there != nil {
		e.there.SetTrainerBusy(busy)
	}
}

// TakeDecodeTimes implements [port.Timed]. The last measurements of an engine before it went are
// not told.
func (e *Elastic) TakeDecodeTimes() []trace.ServiceCell {
	if there, err := e.engine(); err == nil {
		return there.TakeDecodeTimes()
	}
	return nil
}

// TakePace implements [port.Paced].
func (e *Elastic) TakePace() port.Pace {
	if there, err := e.engine(); err == nil {
		return there.TakePace()
	}
	return port.Pace{}
}

// Close implements [port.Engine].
func (e *Elastic) Close() error { return e.Stop() }

// Fleet starts and stops elastic engines by their index: the driver of a fleet inside this process.
type Fleet []*Elastic

// Start starts an engine, unless it is there.
func (f Fleet) Start(_ context.Context, engine int) error { return f[engine].Start() }

// Alive returns nil: an engine of this process ends with it alone.
func (f Fleet) Alive(context.Context, int) error { return nil }

// Stop stops an engine, unless it is not there.
func (f Fleet) Stop(_ context.Context, engine int) error { return f[engine].Stop() }

// Close stops all engines.
func (f Fleet) Close() error {
	var errs []error
	for _, e := range f {
		errs = append(errs, e.Stop())
	}
	return errors.Join(errs...)
}
