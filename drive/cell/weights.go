package cell

import (
	"context"
	"errors"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// underWay is a load or a switch that has not been answered; the zero value is none.
type underWay struct {
	version loop.Version
	attempt int32
}

// answers reports whether an event is the answer.
func (u underWay) answers(ev *loop.Event) bool {
	return u.attempt > 0 && u == underWay{ev.Version, ev.Attempt}
}

// sync has an engine fetch a version or serve it, beside the rest, and posts how it ended.
func (c *Cell) sync(a *loop.Action) {
	c.syncs[a.Engine] = underWay{a.Version, a.Attempt}
	engine, hold := c.opt.Engines[a.Engine], c.opt.Rules.Sync == loop.SyncPause
	ev := Event{Event: loop.Event{Kind: loop.WeightsLoaded, Engine: a.Engine, Version: a.Version, Attempt: a.Attempt}}
	do := engine.Load
	if a.Kind == loop.SwitchWeights {
		ev.Kind = loop.WeightsSwitched
		do = func(ctx context.Context, v loop.Version) error { return engine.Switch(ctx, v, hold) }
	}
	c.running.Go(func() {
		if err := do(c.ctx, ev.Version); err != nil {
			ev.Kind, ev.Reason, ev.Error = loop.SyncFailed, loop.ReasonSync, err.Error()
			ev.Down = errors.Is(err, port.ErrEngineDown)
		}
		ev.Time = c.opt.Clock()
		c.outbox.sayInTurn(c.ctx, &ev)
	})
}
