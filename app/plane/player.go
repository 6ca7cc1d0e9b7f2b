package plane

import (
	"context"

	"github.com/headway-rl/headway/api/protocol"
)

// openPlayer opens what rollouts are played with here, where they are.
func (p *Plane) openPlayer(ctx context.Context, clock func() int64) error {
	if p.CodeTask != nil {
		p.CodeTask.Logf, p.CodeTask.Spans = p.logf, p.Spans
		if err := p.OpenCode(ctx); err != nil {
			return err
		}
		p.CodeTask.Clock.Store(&clock)
	}
	if p.player == nil {
		return nil
	}
	p.OnClose(p.player.Close) // its sandboxes before what their episodes ask
	return p.player.Open(ctx, p.Cfg, p.Dir, p.Dir, p.App.Now, p.logf, p.Spans)
}

// play has this process play the rollouts, where it is to, until the context ends.
func (p *Plane) play(ctx context.Context, cancel context.CancelCauseFunc, clock func() int64) {
	if p.player == nil {
		return
	}
	if err := p.player.Run(ctx, p.Workers, p.gateway, clock); err != nil {
		cancel(err)
	}
}

// environmentStatus is what the control plane's own players, sandboxes and verifier do, nil where
// somebody else's play.
func (p *Plane) environmentStatus() *protocol.EnvironmentStatus {
	if p.player == nil {
		return p.codeStatus()
	}
	return p.player.Status(p.App.Now())
}

// codeStatus is what the sandboxes of the task code do, nil where it is another task.
func (p *Plane) codeStatus() *protocol.EnvironmentStatus {
	w := p.CodeTask
	if w == nil || w.Clock.Load() == nil { // the pool is there before the clock is
		return nil
	}
	return &protocol.EnvironmentStatus{Kind: p.Cfg.Environment.Kind, Sandboxes: w.Pool.Status()}
}
