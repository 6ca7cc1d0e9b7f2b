package live

import (
	"errors"
	"slices"

	"github.com/headway-rl/headway/drive/cell"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/metrics"
)

// newCell returns the cell that executes in this process. It follows the log as far as the goroutine that owns the loop has
// appended it. What it answers comes by heard.
func (r *Runtime) newCell() (*cell.Cell, error) {
	engines := slices.Clone(r.opt.Engines)
	for i := range engines {
		if !r.cfg.Owns(int32(i)) {
			engines[i] = nil
		}
	}
	return cell.New(r.ctx, cell.Options{
		Engines: engines, Environment: r.opt.Environment, Scorer: r.opt.Scorer, Payloads: r.opt.Store, Space: &r.space,
		Clock: r.clock, Post: r.heard, Logf: r.logf, Rules: r.cfg, Followed: r.enc.Seq(),
	})
}

// heard takes what the cell in this process says, from any goroutine.
func (r *Runtime) heard(ev *cell.Event) {
	if ev.Kind == loop.EngineLost { // which answers nothing that the loop has asked for
		r.loseEngine(r.opt.Engines[ev.Engine].Name(), errors.New(ev.Error))
		return
	}
	c := r.completionOf(ev)
	if ev.Fatal {
		c.fatal = r.cell.Err()
	}
	r.post(c)
}

// completionOf is an event of a cell, on its way to the loop.
func (r *Runtime) completionOf(ev *cell.Event) completion {
	c := completion{event: ev.Event, origin: ev.Origin, generateNS: ev.GenerateNS, measured: metrics.Measured{VersionTokens: ev.VersionTokens, ByVersion: ev.ByVersion,
		EnvironmentNS: ev.EnvironmentNS, Spans: ev.Spans, Resumed: ev.Resumed, StateLag: ev.StateLag}}
	if ev.Error != "" {
		c.err = errors.New(ev.Error)
	}
	switch {
	case ev.Down && r.opt.RejoinAfter > 0: // to try it again without a pause would only fail again
		c.event = loop.Event{Time: ev.Time, Kind: loop.EngineLost, Engine: ev.Engine, Reason: loop.ReasonEngine}
	case ev.Kind == loop.RolloutScored && r.cfg.Control != nil && r.cfg.Control.Tokens:
		c.event.Made = ev.ByVersion
	}
	return c
}

// diskChanged takes that the run begins to wait for room, or no longer waits.
func (r *Runtime) diskChanged(cause error) {
	r.outside.wake() // so that it is seen
	if r.opt.OnDiskFull != nil {
		r.opt.OnDiskFull(cause)
	}
}
