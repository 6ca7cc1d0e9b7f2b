package cell

import (
	"context"
	"errors"
	"fmt"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// Load has an engine fetch a version, by a LoadWeights.
func (c *Cell) Load(a loop.Action) {
	c.sync(a, loop.WeightsLoaded, func(e port.Engine) error { return e.Load(c.ctx, a.Version) })
}

// Switch has an engine serve a version, by a SwitchWeights.
func (c *Cell) Switch(a loop.Action) {
	c.sync(a, loop.WeightsSwitched, func(e port.Engine) error { return e.Switch(c.ctx, a.Version, c.opt.Hold) })
}

// sync runs a load or a switch beside the commands, and posts how it ended.
func (c *Cell) sync(a loop.Action, done loop.EventKind, do func(port.Engine) error) {
	c.running.Go(func() {
		ev := Event{Event: loop.Event{Kind: done, Engine: a.Engine, Version: a.Version, Attempt: a.Attempt}}
		if err := do(c.opt.Engines[a.Engine]); err != nil {
			ev.Kind, ev.Reason, ev.Error = loop.SyncFailed, loop.ReasonSync, err.Error()
			ev.Down = errors.Is(err, port.ErrEngineDown)
		}
		ev.Time = c.opt.Clock()
		c.opt.Post(ev)
	})
}

// Serve has an engine serve a version before the loop begins, and returns when it does. Any goroutine may call it.
func (c *Cell) Serve(ctx context.Context, engine int, v loop.Version) error {
	e := c.opt.Engines[engine]
	if err := e.Load(ctx, v); err != nil {
		return fmt.Errorf("cell: engine %s: loading version %d: %w", e.Name(), v, err)
	}
	if err := e.Switch(ctx, v, false); err != nil {
		return fmt.Errorf("cell: engine %s: switching to version %d: %w", e.Name(), v, err)
	}
	return nil
}
