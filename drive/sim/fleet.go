package sim

import "github.com/headway-rl/headway/loop"

// elastic reports whether engines come and go as the loop asks for them.
func (c *Config) elastic() bool {
	return c.Loop.Control != nil && c.Loop.Control.Ranges[loop.SettingEngines].Moves()
}

// acquire answers AcquireEngine: the engine is there a time later.
func (r *runner) acquire(a *loop.Action) {
	r.schedule(loop.Event{Time: r.now + r.cfg.EngineStartNS, Kind: loop.EngineJoined, Engine: a.Engine, Attempt: a.Attempt})
}

// fleetJoins has an engine come that was asked for. While an outage of it lasts it does not come: at its
// end, or not for now where that has none. It reports false where it does not come yet.
func (r *runner) fleetJoins(ev *loop.Event) bool {
	if !r.engines[ev.Engine].lost {
		return true
	}
	if back := r.faults.goneUntil[ev.Engine]; back != forever {
		again := *ev
		again.Time = max(back, r.now) + 1
		r.schedule(again)
		return false
	}
	ev.Kind, ev.Reason = loop.EngineUnavailable, loop.ReasonEngine
	return true
}
