package sim

import (
	"math"

	"github.com/headway-rl/headway/loop"
)

// refillGroups keeps the draws of sandboxes that start ahead apart from those of rollouts.
const refillGroups = loop.GroupID(1) << 60

// takeReady gives an agent a sandbox that stands ready, if there is one.
func (r *runner) takeReady(a *agent) bool {
	w := r.agents
	last := len(w.ready) - 1
	if last < 0 {
		return false
	}
	uses := w.ready[last]
	w.ready = w.ready[:last]
	r.hand(a, uses)
	r.fill()
	return true
}

// hand gives an agent a sandbox that is up, for which its place is taken already.
func (r *runner) hand(a *agent, uses int32) {
	w := r.agents
	if !a.sandbox {
		a.sandbox = true
		w.sandboxes++
		r.rec.SandboxesLive(r.now, w.sandboxes)
		a.askedNS = r.now
	}
	a.handed, a.uses, a.outcome = true, uses, loop.ReasonNone
	reset := int64(0)
	if uses > 0 {
		reset = w.cfg.Sandboxes.ResetNS
	}
	r.wait(a, starts, reset)
}

// leaveStarter frees the starter of an agent whose sandbox started, and is used for the next: a rollout's,
// or one that is to stand ready.
func (r *runner) leaveStarter(a *agent) {
	if a.handed {
		a.handed = false
		return
	}
	r.leave(atStarter)
	r.fill()
}

// fill starts sandboxes that are to stand ready, as far as there are places and starters that no rollout
// waits for.
func (r *runner) fill() {
	w := r.agents
	if w.cfg.Sandboxes == nil {
		return
	}
	places, starters := &w.stations[atSandbox], &w.stations[atStarter]
	for len(w.ready)+w.filling < w.cfg.Sandboxes.Warm && places.free() && starters.free() {
		a := &agent{group: refillGroups + loop.GroupID(w.fills), slot: -1, refill: true, since: r.now, begunNS: r.now, diesNS: math.MaxInt64}
		w.fills++
		w.filling++
		places.busy++
		r.askStart(a)
	}
}

// refilled goes on where a sandbox that is to stand ready has started, or has not.
func (r *runner) refilled(a *agent, how loop.Reason) {
	r.agents.filling--
	a.ticket++
	if how == loop.ReasonNone {
		r.isReady(0)
		return
	}
	r.leave(atSandbox)
	r.fill()
}

// giveBack frees an agent's sandbox: for another rollout, or for good.
func (r *runner) giveBack(a *agent) {
	if a.up && int(a.uses)+1 < r.agents.cfg.Sandboxes.Uses && r.now < a.diesNS {
		r.isReady(a.uses + 1)
		return
	}
	r.leave(atSandbox)
	r.fill()
}

// isReady hands a sandbox that is up to the rollout that waits longest, or keeps it.
func (r *runner) isReady(uses int32) {
	w := r.agents
	if next := w.stations[atSandbox].line.pop(); next != nil {
		r.hand(next, uses)
		return
	}
	if next := w.stations[atStarter].line.pop(); next != nil {
		r.hand(next, uses) // which has a place of its own: this one's is free
		r.leave(atSandbox)
		r.fill()
		return
	}
	w.ready = append(w.ready, uses)
}
