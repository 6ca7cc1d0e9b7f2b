package sim

import (
	"math"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/workload"
	"github.com/headway-rl/headway/observe/metrics"
)

// state is where an agent is.
type state uint8

const (
	// ready needs an engine: it has none only while it stands without a slot.
	ready state = iota
	waitsPrefill
	prefills
	decodes
	waitsSandbox
	waitsStart
	starts
	waitsTool
	calls
	environs // in its environment after the last turn
	waitsVerifier
	judged
	waitsScorer
	scored
	// done and failed need a slot to be reported from.
	done
	failed
)

// partOf is the part of the latency that a state's time belongs to.
var partOf = [...]metrics.Part{
	ready: metrics.PartInterrupted, waitsPrefill: metrics.PartQueue, prefills: metrics.PartPrefill, decodes: metrics.PartDecode,
	waitsSandbox: metrics.PartSandboxWait, waitsStart: metrics.PartSandboxWait, starts: metrics.PartSandboxStart,
	waitsTool: metrics.PartToolWait, calls: metrics.PartTool, environs: metrics.PartEnvironment,
	waitsVerifier: metrics.PartVerifierWait, judged: metrics.PartVerifier,
	waitsScorer: metrics.PartScorerWait, scored: metrics.PartScorer, done: metrics.PartInterrupted, failed: metrics.PartInterrupted,
}

// agent is a rollout attempt under Config.Agents, in a slot or without one. What it
// has generated is in its slot, or in the backlog.
type agent struct {
	group           loop.GroupID
	sample, attempt int32
	slot            int32 // -1 without one
	state           state
	// ticket is another one in every state and every life: what waits for it bears one.
	ticket uint32
	// Of its calls, turn have been made; the present one has been tried so often.
	calls, turn, tries int32
	// turns are those of the recorded rollout that it plays; nil where they are drawn.
	turns []workload.RecordedTurn
	// tokens it generates in all, of a response of planned ones (more if it is pruned).
	tokens, planned int32
	// turnEnd is the number of tokens at which its present turn ends, 0 before its first.
	turnEnd int32
	// read is what it has read into the cache or has to: prompt and outputs. unread of all its
	// tokens are not in the cache.
	read, unread int64
	// inTurn: the present turn has begun and not ended. reread: what is unread had been read before.
	inTurn, reread bool
	sandbox        bool
	// up: its sandbox has started, for the uses-th rollout after its first. handed: it was there already, and
	// is being reset. refill: it is no rollout's agent, but starts a sandbox that is to stand ready.
	up, handed, refill bool
	uses               int32
	startTries         int32
	askedNS            int64 // when it asked for a start
	diesNS             int64 // when its sandbox is gone
	// acted: its sandbox's state is made by tokens of versions from actedBy on.
	acted         bool
	actedBy       int32
	outcome       loop.Reason
	told          bool  // its first token has been reported, or need not be
	leftNS        int64 // what is left to be read for it, from its present state's beginning on
	since         int64
	begunNS       int64
	environmentNS int64
	parts         metrics.Parts
	context       cached
}

// agents are all of a simulation's, with what serves them.
type agents struct {
	cfg       *Agents
	stations  [placeCount]station
	reviewers [reviewCount]reviewer
	prefill   []prefiller // of the engines, under PrefillEngine
	contexts  []contexts  // of the engines, under CacheTokens
	// found of all the asked tokens of contexts were in caches.
	found, asked int64
	timers       timers
	free         []*agent
	// live are those that have not ended, sandboxes those that they hold.
	live, sandboxes int
	// ready are the sandboxes that nobody has, each by the rollouts it has served; filling are those that
	// start to be so, and fills counts these.
	ready          []int32
	filling, fills int
	changing       bool
	// parts are those of the rollout being scored.
	parts metrics.Parts
	draw  struct{ calls, turn, tool, fault, start, startFault, life, session workload.Source }
}

func newAgents(cfg *Agents, engines int) *agents {
	w := &agents{cfg: cfg, prefill: make([]prefiller, engines), changing: !cfg.Change.Off()}
	if cfg.CacheTokens > 0 {
		w.contexts = make([]contexts, engines)
		for i := range w.contexts {
			w.contexts[i].prompts = map[sharedPrompt]promptUse{}
		}
	}
	w.stations[atTool].limit, w.stations[atPool].limit = cfg.ToolWorkers, cfg.PrefillWorkers
	w.reviewers = reviewersOf(cfg)
	for i := range w.reviewers {
		w.stations[w.reviewers[i].at].limit = w.reviewers[i].Workers
	}
	if s := cfg.Sandboxes; s != nil {
		w.stations[atSandbox].limit, w.stations[atStarter].limit = s.Limit, s.Starting
	}
	for _, d := range []struct {
		source *workload.Source
		stream workload.Stream
	}{
		{&w.draw.calls, workload.StreamCalls}, {&w.draw.turn, workload.StreamTurn}, {&w.draw.tool, workload.StreamTool},
		{&w.draw.fault, workload.StreamToolFault}, {&w.draw.start, workload.StreamSandbox},
		{&w.draw.startFault, workload.StreamStartFault}, {&w.draw.life, workload.StreamSandboxLife},
		{&w.draw.session, workload.StreamLength}, // as the work draws it
	} {
		*d.source = workload.NewSource(cfg.Seed, d.stream)
	}
	return w
}

// turnOf names the agent's present turn, and the try of its call.
func (a *agent) turnOf() workload.Turn {
	return workload.Turn{Group: uint64(a.group), Sample: uint32(a.sample), Attempt: uint32(a.attempt), Turn: uint32(a.turn), Try: uint32(a.tries)}
}

// callsOf is how many calls an attempt makes whose response has so many tokens.
func (w *agents) callsOf(t workload.Turn, planned int32, version loop.Version) int32 {
	if w.cfg.Tools.None() {
		return 0
	}
	factor := 1.0
	if w.changing {
		factor = w.cfg.Change.CallsFactor(int64(version))
	}
	return int32(min(w.cfg.Tools.Calls(w.draw.calls, t.Group, t.Sample, t.Attempt, factor), int(planned)-1))
}

// play has an agent play a recorded rollout.
func (w *agents) play(a *agent, prompt uint64) {
	a.turns = w.cfg.Sessions.Draw(w.draw.session, prompt, uint64(a.group), uint32(a.sample), uint32(a.attempt))
	a.calls = int32(len(a.turns) - 1)
	a.read, a.unread = int64(a.turns[0].ContextTokens), int64(a.turns[0].ReadTokens)
}

// callNS is how long a try of an agent's present call takes.
func (w *agents) callNS(a *agent) int64 {
	if a.turns != nil && w.cfg.SessionTimes {
		return a.turns[a.turn+1].GapNS
	}
	return w.cfg.Tools.CallNS(w.draw.tool, a.turnOf())
}

// observe gives an agent the result of its call to read, before its present turn. A recorded context may begin anew,
// so that what is read again after an interruption is that of the turn.
func (w *agents) observe(a *agent) {
	if a.turns == nil {
		a.read += int64(w.cfg.ToolTokens)
		a.unread += int64(w.cfg.ToolTokens)
		return
	}
	turn := a.turns[a.turn]
	if a.context.parked { // how much of it the new context has is not known
		a.forget()
	}
	if a.unread > 0 { // it stands without a slot, and its cache is gone
		a.unread = int64(turn.ContextTokens)
	} else {
		a.unread = int64(turn.ReadTokens)
	}
	a.read = int64(turn.ContextTokens) - int64(a.turnEnd)
}

// startNS is how long a try of a start takes.
func (w *agents) startNS(t workload.Turn) int64 {
	if w.cfg.Sandboxes.Start.Zero() {
		return 0
	}
	return w.cfg.Sandboxes.Start.Draw(w.draw.start, t.Group, t.Sample, t.Attempt^t.Try<<21)
}

// readNS is how long so many tokens take to be read, by an engine of that speed or by the pool.
func (w *agents) readNS(tokens int64, relative float64) int64 {
	ns := float64(tokens) * w.cfg.PrefillNSPerToken
	if w.cfg.Prefill != PrefillPool {
		ns /= relative
	}
	return int64(math.Round(ns))
}

// startAgent gives the rollout in a slot an agent and has it begin.
func (r *runner) startAgent(slotIndex int32, planned int32, attempt Rollout) {
	w, s := r.agents, &r.slots[slotIndex]
	var a *agent
	if last := len(w.free) - 1; last >= 0 {
		a, w.free = w.free[last], w.free[:last]
	} else {
		a = &agent{}
	}
	*a = agent{group: s.group, sample: s.sample, attempt: s.attempt, slot: slotIndex, ticket: a.ticket + 1, since: r.now, begunNS: r.now,
		tokens: s.tokens, planned: planned, read: int64(w.cfg.PromptTokens), unread: int64(w.cfg.PromptTokens), environmentNS: s.environmentNS,
		diesNS: math.MaxInt64}
	if w.cfg.Sessions != nil {
		w.play(a, attempt.PromptKey())
	} else {
		a.calls = w.callsOf(a.turnOf(), planned, attempt.Version)
	}
	w.live++
	r.fill()
	s.agent, s.phase = a, outside
	if w.cfg.Sandboxes != nil && w.cfg.Sandboxes.Early {
		r.wantSandbox(a)
		return
	}
	r.toEngine(a)
}

// to has an agent enter a state; what waited for it before does so no more.
func (r *runner) to(a *agent, next state) {
	part := partOf[a.state]
	if a.state == ready && a.slot >= 0 {
		part = metrics.PartQueue
	}
	a.parts[part] += r.now - a.since
	a.since, a.state = r.now, next
	a.ticket++
}

// wait has an agent stay in a state for so long.
func (r *runner) wait(a *agent, in state, ns int64) {
	r.to(a, in)
	r.agents.timers.push(r.now+ns, a)
}

// toEngine has an agent read what it has to and generate, once it has a slot.
func (r *runner) toEngine(a *agent) {
	r.to(a, ready)
	if a.slot < 0 {
		return
	}
	w := r.agents
	r.recall(a)
	if a.reread {
		r.prefillTokens += a.unread
		a.reread = false
	}
	if a.unread == 0 || w.cfg.PrefillNSPerToken == 0 {
		a.unread = 0
		r.decode(a)
		return
	}
	switch w.cfg.Prefill {
	case PrefillEngine:
		r.askEngine(a)
	case PrefillPool:
		if r.enter(atPool, a, waitsPrefill) {
			r.serve(atPool, a)
		}
	default:
		r.read(a)
	}
}

// read has an agent's engine read for it, once the engine does not stand still.
func (r *runner) read(a *agent) {
	a.leftNS = r.prefillNS(a)
	if r.engines[r.slots[a.slot].engine].stands() {
		r.to(a, waitsPrefill)
		return
	}
	r.wait(a, prefills, a.leftNS)
}

// prefillNS is how long an agent's engine, or a worker, reads what it has to.
func (r *runner) prefillNS(a *agent) int64 {
	return r.agents.readNS(a.unread, r.engines[r.slots[a.slot].engine].relative)
}

// decode has an agent generate what is left of its turn.
func (r *runner) decode(a *agent) {
	s := &r.slots[a.slot]
	if !a.inTurn {
		a.inTurn = true
		left, turns := int(a.planned-a.turnEnd), int(a.calls-a.turn+1)
		switch {
		case a.turns != nil:
			left = int(a.turns[a.turn].Tokens)
		case turns > 1:
			left = r.agents.cfg.Tools.Part(r.agents.draw.turn, a.turnOf(), left, turns)
		}
		a.turnEnd = min(a.turnEnd+int32(left), a.tokens)
		s.work = math.Round(float64(a.turnEnd-s.counted) * r.cfg.NSPerToken)
	}
	r.to(a, decodes)
	if k := a.context.in; k != nil {
		k.grow(a, a.read+int64(a.turnEnd), r.agents.cfg)
	}
	e := &r.engines[s.engine]
	s.tokens, s.phase, s.start = a.turnEnd, generating, r.now
	r.setActive(e, e.active+1)
	s.work += e.workDone(r.now)
	next := s.work
	if !a.told && r.now > a.begunNS {
		// Its group's stamp is the version that makes its first token, not the one served while it waits.
		s.phase = prefilling
		next -= float64(max(s.tokens-s.counted-1, 0)) * r.cfg.NSPerToken
	}
	a.told = a.told || s.phase == generating
	e.running.set(a.slot, keyOf(next), r.slots)
}

// turnEnded goes on where an agent has generated the tokens of its turn.
func (r *runner) turnEnded(a *agent) {
	s := &r.slots[a.slot]
	r.engines[s.engine].running.set(a.slot, never, r.slots)
	s.phase, a.inTurn = outside, false
	if k := a.context.in; k != nil {
		if a.turn < a.calls {
			k.leave(a, r.agents.cfg)
		} else {
			a.forget()
		}
	}
	if a.turn < a.calls || a.environmentNS > 0 {
		a.acted, a.actedBy = true, s.oldest
	}
	switch {
	case s.mark == loop.MarkPruned && a.turnEnd >= a.tokens:
		r.report(a, done)
	case a.turn < a.calls:
		a.tries = 0
		r.inSandbox(a)
	case a.environmentNS > 0:
		r.inSandbox(a)
	default:
		r.toReview(a, 0)
	}
}

// inSandbox has an agent go on in its sandbox, once it has one where it needs one.
func (r *runner) inSandbox(a *agent) {
	switch {
	case r.agents.cfg.Sandboxes != nil && !a.sandbox:
		r.wantSandbox(a)
	case a.turn < a.calls:
		if r.enter(atTool, a, waitsTool) {
			r.serve(atTool, a)
		}
	default:
		r.wait(a, environs, min(a.environmentNS, max(a.diesNS-r.now, 0)))
	}
}

func (r *runner) wantSandbox(a *agent) {
	if r.takeReady(a) {
		return
	}
	if r.enter(atSandbox, a, waitsSandbox) {
		r.serve(atSandbox, a)
	}
}

// enter has an agent wait at a station; served says that it need not.
func (r *runner) enter(at place, a *agent, in state) (served bool) {
	r.to(a, in)
	return r.agents.stations[at].enter(a)
}

// leave frees a place at a station for the next agent.
func (r *runner) leave(at place) {
	if next := r.agents.stations[at].leave(); next != nil {
		r.serve(at, next)
	}
}

// serve has a station serve an agent. Whatever follows does so by a timer, so that
// nothing is reported to the loop from within.
func (r *runner) serve(at place, a *agent) {
	w := r.agents
	switch at {
	case atSandbox:
		a.sandbox = true
		w.sandboxes++
		r.rec.SandboxesLive(r.now, w.sandboxes)
		a.startTries = 0
		r.askStart(a)
	case atStarter:
		r.startSandbox(a)
	case atTool:
		r.wait(a, calls, min(w.callNS(a), max(a.diesNS-r.now, 0)))
	case atVerifier:
		r.inReview(a, byVerifier)
	case atScorer:
		r.inReview(a, byScorer)
	case atPool:
		r.wait(a, prefills, r.prefillNS(a))
	}
}

// askStart has an agent's sandbox start, or wait until it may. What waits too long
// gives up.
func (r *runner) askStart(a *agent) {
	a.askedNS = r.now
	if r.enter(atStarter, a, waitsStart) {
		r.startSandbox(a)
	} else if limit := r.agents.cfg.Sandboxes.TimeoutNS; limit > 0 {
		r.agents.timers.push(r.now+limit, a)
	}
}

// startSandbox starts an agent's sandbox.
func (r *runner) startSandbox(a *agent) {
	w := r.agents
	s := w.cfg.Sandboxes
	turn := a.turnOf()
	turn.Turn, turn.Try = 0, uint32(a.startTries)
	ns := w.startNS(turn)
	a.outcome = loop.ReasonNone
	if s.FailureRate > 0 && w.draw.startFault.Float64(turn.Group, turn.Sample, turn.Attempt^turn.Try<<21) < s.FailureRate {
		a.outcome = loop.ReasonEnvironment
	}
	if left := a.askedNS + s.TimeoutNS - r.now; s.TimeoutNS > 0 && ns > left {
		ns, a.outcome = left, loop.ReasonTimeout
	}
	r.wait(a, starts, ns)
}

// started goes on where a start has ended, one way or the other.
func (r *runner) started(a *agent, how loop.Reason) {
	r.rec.SandboxStarted(r.now-a.askedNS, how)
	if a.refill {
		r.refilled(a, how)
		return
	}
	a.up = how == loop.ReasonNone
	if mean := r.agents.cfg.Sandboxes.MTBFNS; how == loop.ReasonNone && mean > 0 {
		u := r.agents.draw.life.Float64(uint64(a.group), uint32(a.sample), uint32(a.attempt)^uint32(a.startTries)<<21)
		a.diesNS = r.now + int64(min(-mean*math.Log(u), math.MaxInt64/4))
	}
	switch {
	case how == loop.ReasonNone && a.turnEnd == 0: // with the rollout
		r.toEngine(a)
	case how == loop.ReasonNone:
		r.inSandbox(a)
	case int(a.startTries) < r.agents.cfg.Sandboxes.Retries:
		a.startTries++
		r.askStart(a)
	default:
		a.outcome = how
		r.report(a, failed)
	}
}

// called goes on where a try of a tool call has ended.
func (r *runner) called(a *agent) {
	w := r.agents
	switch {
	case r.now >= a.diesNS:
		r.died(a)
	case !w.cfg.Tools.Failed(w.draw.fault, a.turnOf()):
		a.turn++
		w.observe(a)
		r.toEngine(a)
	case int(a.tries) < w.cfg.Tools.Retries():
		a.tries++
		r.rec.ToolFailed()
		r.inSandbox(a)
	default:
		r.rec.ToolFailed()
		a.outcome = loop.ReasonEnvironment
		r.report(a, failed)
	}
}

// died has an agent fail whose sandbox is gone.
func (r *runner) died(a *agent) {
	r.rec.SandboxLost()
	a.outcome = loop.ReasonEnvironment
	r.report(a, failed)
}

// timeUp goes on with an agent whose timer it was.
func (r *runner) timeUp(a *agent) {
	switch a.state {
	case prefills:
		r.prefilled(a)
	case waitsStart:
		r.started(a, loop.ReasonTimeout)
	case starts:
		r.leaveStarter(a)
		r.started(a, a.outcome)
	case calls:
		r.leave(atTool)
		r.called(a)
	case environs:
		if r.now >= a.diesNS {
			r.died(a)
		} else {
			r.toReview(a, 0)
		}
	case judged:
		r.endReview(a, byVerifier)
	case scored:
		r.endReview(a, byScorer)
	case done:
		r.scoreAgent(a)
	case failed:
		r.failAgent(a)
	}
}

// prefilled goes on with an agent whose tokens have been read.
func (r *runner) prefilled(a *agent) {
	a.unread = 0
	switch r.agents.cfg.Prefill {
	case PrefillPool:
		r.leave(atPool)
	case PrefillEngine:
		r.nextPrefill(r.slots[a.slot].engine)
	}
	r.decode(a)
}
