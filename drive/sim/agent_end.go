package sim

import (
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/metrics"
)

// report has an agent tell the loop that it is done or failed: now, or without a
// slot when it has one again. It does so by a timer, as everything else.
func (r *runner) report(a *agent, how state) {
	r.to(a, how)
	if a.slot >= 0 {
		r.agents.timers.push(r.now, a)
	}
}

// scoreAgent delivers the score of an agent's rollout.
func (r *runner) scoreAgent(a *agent) {
	s := &r.slots[a.slot]
	parts := &r.agents.parts
	*parts = a.parts
	ev := loop.Event{Time: r.now, Kind: loop.RolloutScored, Slot: a.slot, Group: a.group, Sample: a.sample, Attempt: a.attempt,
		Tokens: s.counted, Reward: s.reward, Mark: s.mark}
	generateNS := parts[metrics.PartQueue] + parts[metrics.PartPrefill] + parts[metrics.PartDecode]
	m := metrics.Measured{VersionTokens: s.versionTokens, ByVersion: s.made, Spans: int(s.runs), Resumed: s.spans > 0, StateLag: int64(s.stateLag),
		Parts: parts, ToolCalls: a.turn, EnvironmentNS: r.now - a.begunNS - generateNS - parts[metrics.PartInterrupted]}
	if r.cfg.countsTokens() {
		ev.Made = s.made
	}
	r.endAgent(a)
	s.group = 0
	r.events++
	r.sinceStep++
	r.deliver(ev, generateNS, m)
}

// failAgent delivers the failure of an agent's rollout.
func (r *runner) failAgent(a *agent) {
	s := &r.slots[a.slot]
	ev := loop.Event{Time: r.now, Kind: loop.RolloutFailed, Slot: a.slot, Group: a.group, Sample: a.sample, Attempt: a.attempt,
		Tokens: s.counted, Reason: a.outcome}
	r.endAgent(a)
	s.group = 0
	r.sinceStep++
	r.deliver(ev, 0, metrics.Measured{})
}

// endAgent takes an agent out of wherever it is, with its sandbox.
func (r *runner) endAgent(a *agent) {
	w := r.agents
	was := a.state
	a.forget()
	a.ticket++ // out of every line
	a.state = done
	switch was {
	case prefills, waitsPrefill:
		r.stopPrefill(a, was)
	case starts:
		r.leaveStarter(a)
	case calls:
		r.leave(atTool)
	case judged:
		r.leave(atVerifier)
	case scored:
		r.leave(atScorer)
	}
	if a.sandbox {
		a.sandbox = false
		w.sandboxes--
		r.rec.SandboxesLive(r.now, w.sandboxes)
		r.giveBack(a)
	}
	if a.slot >= 0 {
		r.slots[a.slot].agent = nil
	}
	w.live--
	w.free = append(w.free, a)
}

// stopPrefill takes an agent that waits for a prefill or has one out of it.
func (r *runner) stopPrefill(a *agent, was state) {
	switch r.agents.cfg.Prefill {
	case PrefillPool:
		if was == prefills {
			r.leave(atPool)
		}
	case PrefillEngine:
		r.leaveEngine(a)
	}
}

// parkAgent takes an agent out of its slot. What it does at an engine stops there,
// and what it has is to be read again, but for what the engine's cache still has when it comes back.
func (r *runner) parkAgent(a *agent) {
	was := a.state
	s := &r.slots[a.slot]
	r.keepContext(a, was, a.read+int64(s.counted))
	switch was {
	case waitsPrefill, prefills, decodes, ready:
		r.to(a, ready)
		r.stopPrefill(a, was)
	default:
		r.charge(a)
	}
	a.unread, a.reread = a.read+int64(s.counted), s.counted > 0
	a.slot = -1
}

// charge books an agent's time so far to its state.
func (r *runner) charge(a *agent) {
	a.parts[partOf[a.state]] += r.now - a.since
	a.since = r.now
}

// resumeAgent has an agent go on in a slot.
func (r *runner) resumeAgent(a *agent, slotIndex int32) {
	r.charge(a)
	a.slot = slotIndex
	if in := a.context.in; in != nil && in != &r.agents.contexts[r.slots[slotIndex].engine] {
		a.forget()
	}
	switch a.state {
	case ready:
		r.toEngine(a)
	case done, failed:
		r.report(a, a.state)
	}
}

// prefiller is what an engine has to read under PrefillEngine: one rollout at a time,
// while the others stand still.
type prefiller struct {
	agent *agent // nil: it reads nothing
	line  line
}

// askEngine has an agent's engine read for it, or first for others.
func (r *runner) askEngine(a *agent) {
	r.to(a, waitsPrefill)
	engine := r.slots[a.slot].engine
	r.agents.prefill[engine].line.push(a)
	if r.agents.prefill[engine].agent == nil {
		r.nextPrefill(engine)
	}
}

// nextPrefill has an engine read for the next agent that waits, and go on with the
// others if there is none.
func (r *runner) nextPrefill(engine int32) {
	p := &r.agents.prefill[engine]
	p.agent = p.line.pop()
	r.hold(&r.engines[engine], heldByPrefill, p.agent != nil)
	if p.agent != nil {
		r.read(p.agent)
	}
}

// leaveEngine takes an agent out of its engine's prefill; in the line its ticket is
// no longer valid.
func (r *runner) leaveEngine(a *agent) {
	if engine := r.slots[a.slot].engine; r.agents.prefill[engine].agent == a {
		r.nextPrefill(engine)
	}
}

// holdEngine has an engine stand still for a reason, or go on, with all that it reads.
func (r *runner) holdEngine(engine int32, why holds, on bool) {
	e := &r.engines[engine]
	stood := e.stands()
	r.hold(e, why, on)
	if r.agents != nil && r.agents.cfg.Prefill != PrefillPool && e.stands() != stood {
		r.holdReading(engine, !stood)
	}
}

// hold is engine.hold, of which the recorder is told.
func (r *runner) hold(e *engine, why holds, on bool) {
	before := e.does()
	e.hold(r.now, why, on)
	if now := e.does(); now != before {
		r.doing[before]--
		r.doing[now]++
		r.rec.EnginesHeld(r.now, r.doing[reads], r.doing[validates])
	}
}

// holdReading has what an engine reads for its rollouts stand still, or go on.
func (r *runner) holdReading(engine int32, still bool) {
	slots := r.engines[engine].slots
	for i := range slots {
		a := slots[i].agent
		if a == nil || r.agents.cfg.Prefill == PrefillEngine && r.agents.prefill[engine].agent != a {
			continue
		}
		switch {
		case still && a.state == prefills:
			a.leftNS -= r.now - a.since
			r.to(a, waitsPrefill)
		case !still && a.state == waitsPrefill:
			r.wait(a, prefills, a.leftNS)
		}
	}
}
