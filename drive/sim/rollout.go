package sim

import (
	"fmt"
	"math"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/metrics"
)

func (r *runner) startRollout(a *loop.Action) {
	s := &r.slots[a.Slot]
	s.group, s.sample, s.attempt, s.phase = a.Group, a.Sample, a.Attempt, generating
	attempt := Rollout{Group: a.Group, Sample: a.Sample, Attempt: a.Attempt, Level: a.Level, Prompt: a.Prompt, Version: a.Version}
	w := r.cfg.Work.Rollout(attempt)
	planned := w.Tokens
	if r.cfg.PruneTokens > 0 && w.Tokens > r.cfg.PruneTokens {
		w.Tokens, w.Reward, w.Mark, w.EnvironmentNS = r.cfg.PruneTokens, 0, loop.MarkPruned, 0
	}
	s.tokens, s.environmentNS, s.reward, s.mark = w.Tokens, w.EnvironmentNS, w.Reward, w.Mark
	s.counted, s.versionTokens, s.start, s.generatedNS = 0, 0, r.now, 0
	s.spans, s.runs, s.stateLag, s.cut, s.resumed = 0, 0, 0, false, false
	s.begunNS, s.readNS = r.now, 0
	if r.cfg.TokenVersions {
		if s.made = s.made[:0]; s.made == nil {
			s.made = make([]metrics.VersionTokens, 0, 8)
		}
	}
	s.firstNS, s.tokenNS = r.cfg.NSPerToken, r.cfg.NSPerToken
	if r.agents != nil {
		r.startAgent(a.Slot, planned, attempt)
		return
	}
	s.work = math.Round(float64(w.Tokens) * r.cfg.NSPerToken)
	if r.cfg.Paced {
		s.firstNS, s.tokenNS = max(w.FirstNS, 1), max(w.TokenNS, 1)
		s.work = math.Round(s.firstNS + float64(w.Tokens-1)*s.tokenNS)
	}
	if startNS := r.cfg.StartNS + w.StartNS; startNS > 0 {
		s.phase = starting
		r.env.set(a.Slot, keyOf(float64(r.now+startNS)), r.slots)
		return
	}
	r.takeUp(a.Slot)
}

// takeUp has the engine begin, or go on, with the rollout in a slot.
func (r *runner) takeUp(slotIndex int32) {
	s := &r.slots[slotIndex]
	e := &r.engines[s.engine]
	if r.cfg.Lockstep {
		ns := r.cfg.NSPerToken
		step := e.stepAfter(r.now, ns)
		r.setActive(e, e.active+1)
		s.work = e.origin + (step+float64(s.tokens-s.counted))*ns
		if s.counted > 0 {
			s.phase = generating
			e.running.set(slotIndex, keyOf(s.work), r.slots)
			return
		}
		s.phase, s.firstVersion = prefilling, loop.NoVersion
		e.running.set(slotIndex, keyOf(e.origin+(step+1)*ns), r.slots)
		return
	}
	r.setActive(e, e.active+1)
	s.phase = generating
	s.work += e.workDone(r.now)
	next := s.work
	if r.cfg.Paced && s.counted == 0 {
		s.phase, s.firstVersion = prefilling, loop.NoVersion
		next = s.firstAt()
	}
	e.running.set(slotIndex, keyOf(next), r.slots)
}

// endPhase ends the phase of the rollout in a slot, and with the last one the rollout.
func (r *runner) endPhase(slotIndex int32) {
	s := &r.slots[slotIndex]
	switch s.phase {
	case outside:
		r.score(slotIndex, &r.env)
	case starting:
		r.env.set(slotIndex, never, r.slots)
		r.readUntilNow(s)
		r.takeUp(slotIndex)
	case prefilling:
		r.firstToken(slotIndex)
	default:
		r.endGeneration(slotIndex)
	}
}

func (r *runner) endGeneration(slotIndex int32) {
	s := &r.slots[slotIndex]
	e := &r.engines[s.engine]
	if s.counted < s.tokens {
		s.add(s.tokens, e.served)
	}
	r.setActive(e, e.active-1)
	switch {
	case s.agent != nil:
		r.turnEnded(s.agent)
	case s.environmentNS == 0:
		r.score(slotIndex, &e.running)
	default:
		s.phase = outside
		s.generatedNS += r.now - s.start
		s.work = float64(r.now + s.environmentNS)
		e.running.set(slotIndex, never, r.slots)
		r.env.set(slotIndex, keyOf(s.work), r.slots)
	}
}

// firstToken reports the first token of the rollout in a slot.
func (r *runner) firstToken(slotIndex int32) {
	s := &r.slots[slotIndex]
	e := &r.engines[s.engine]
	s.phase = generating
	e.running.set(slotIndex, keyOf(s.work), r.slots)
	v := s.firstVersion // a step is one version's under Lockstep
	if s.agent != nil {
		s.agent.told = true
		if v = loop.NoVersion; s.counted > 0 { // made before its engine stood still at that instant
			v = loop.Version(s.oldest)
		}
	}
	if v == loop.NoVersion {
		v = e.served
	}
	r.deliver(loop.Event{Time: r.now, Kind: loop.FirstToken, Slot: slotIndex, Group: s.group, Sample: s.sample, Attempt: s.attempt, Version: v}, 0, metrics.Measured{})
}

// endsIn returns the tree that holds the next end of what runs in a slot.
func (s *slot) endsIn(r *runner) *tree {
	if s.phase == starting || s.phase == outside {
		return &r.env
	}
	return &r.engines[s.engine].running
}

// score delivers the end of the rollout in a slot, whose end is on top of the
// given tree; most often another takes its place there at once.
func (r *runner) score(slotIndex int32, ended *tree) {
	s := &r.slots[slotIndex]
	ev := loop.Event{Time: r.now, Kind: loop.RolloutScored, Slot: slotIndex, Group: s.group, Sample: s.sample, Attempt: s.attempt,
		Tokens: s.tokens, Reward: s.reward, Mark: s.mark}
	m := metrics.Measured{VersionTokens: s.versionTokens, EnvironmentNS: s.environmentNS,
		ByVersion: s.made, Spans: int(s.runs), Resumed: s.spans > 0, StateLag: int64(s.stateLag)}
	if r.cfg.countsTokens() {
		ev.Made = s.made
	}
	generateNS := s.generatedNS
	if s.phase != outside {
		generateNS += r.now - s.start
	}
	if s.resumed {
		m.Parts = r.partsOf(s, generateNS)
	}
	s.group = 0
	r.events++
	r.sinceStep++
	r.deliver(ev, generateNS, m)
	if s.group == 0 || s.endsIn(r) != ended {
		ended.set(slotIndex, never, r.slots)
	}
}

// partsOf splits the latency of a rollout that ends now and was interrupted: what it
// neither generated nor read nor was in its environment it stood without a slot.
func (r *runner) partsOf(s *slot, generateNS int64) *metrics.Parts {
	r.parts = metrics.Parts{metrics.PartPrefill: s.readNS, metrics.PartDecode: generateNS - s.readNS, metrics.PartEnvironment: s.environmentNS,
		metrics.PartInterrupted: r.now - s.begunNS - generateNS - s.environmentNS}
	return &r.parts
}

// readUntilNow counts what a resumed rollout's engine has read in its present span.
func (r *runner) readUntilNow(s *slot) {
	if s.resumed {
		s.readNS += max(r.now-s.start-r.cfg.StartNS, 0)
	}
}

// abortRollout stops a rollout at once, or gives up one that stands interrupted.
func (r *runner) abortRollout(a *loop.Action) {
	if a.Slot < 0 {
		if kept, ok := r.backlog.take(a.Group, a.Sample, a.Attempt); ok && kept.agent != nil {
			r.endAgent(kept.agent)
		}
		return
	}
	s := &r.slots[a.Slot]
	if !s.is(a.Group, a.Sample, a.Attempt) {
		return
	}
	r.stop(a.Slot)
	if s.agent != nil {
		r.endAgent(s.agent)
	}
	s.group = 0
	r.schedule(loop.Event{Time: r.now, Kind: loop.RolloutAborted, Slot: a.Slot, Group: a.Group, Sample: a.Sample, Attempt: a.Attempt, Tokens: s.counted})
}

// interruptRollout has a rollout stop and keep what it has: at once, or under
// Lockstep at the end of the running decode step if it takes part in it. Whatever
// ends at that instant ends first.
//
// A rollout that is in its environment keeps no engine busy, and a sync that
// empties the engine must not wait for a tool. It answers at once, too; its
// environment goes on meanwhile, and is over by so much sooner when the rollout
// has a slot again.
func (r *runner) interruptRollout(a *loop.Action) {
	s := &r.slots[a.Slot]
	ev := loop.Event{Time: r.now, Kind: loop.RolloutInterrupted, Slot: a.Slot, Group: a.Group, Sample: a.Sample, Attempt: a.Attempt}
	if e := &r.engines[s.engine]; r.cfg.Lockstep && !e.lost && e.held == 0 && (s.phase == generating || s.phase == prefilling) {
		ev.Time = max(e.stepEnd(r.now, r.cfg.NSPerToken), r.now)
	}
	r.schedule(ev)
}

// interrupted takes the rollout that an event names out of its slot into the
// backlog. It reports false if that rollout has ended in the meantime.
func (r *runner) interrupted(ev *loop.Event) bool {
	s := &r.slots[ev.Slot]
	if !s.is(ev.Group, ev.Sample, ev.Attempt) {
		return false
	}
	r.stop(ev.Slot)
	ev.Tokens = s.counted
	if s.cut = true; s.counted > 0 {
		s.spans++
	}
	if s.agent != nil {
		r.parkAgent(s.agent)
	}
	r.backlog.put(s)
	s.group, s.agent, s.made = 0, nil, nil
	return true
}

// stop ends the phase of the rollout in a slot before its time, and leaves in the
// slot the tokens it has and what it still has to do.
func (r *runner) stop(slotIndex int32) {
	s := &r.slots[slotIndex]
	if s.agent != nil && s.phase == outside {
		return // nothing of it is at the engine
	}
	s.endsIn(r).set(slotIndex, never, r.slots)
	switch s.phase {
	case outside:
		return // its environment ends when it ends
	case starting:
		r.readUntilNow(s)
	default:
		e := &r.engines[s.engine]
		e.settle(r.now)
		e.account(s)
		s.work = max(s.work-e.clock, 0)
		r.setActive(e, e.active-1)
		s.phase = starting
	}
	s.generatedNS += r.now - s.start
}

// resumeRollout has an interrupted rollout go on in a slot, after its engine has
// filled the cache with the tokens it has.
func (r *runner) resumeRollout(a *loop.Action) {
	kept, ok := r.backlog.take(a.Group, a.Sample, a.Attempt)
	if !ok {
		panic(fmt.Sprintf("sim: %v, but nothing of that name stands interrupted", a))
	}
	s := &r.slots[a.Slot]
	kept.engine = s.engine
	*s = kept
	s.start, s.resumed = r.now, true
	if s.runs > 0 {
		s.stateLag = int32(a.Version) - s.oldest
	}
	if s.agent != nil {
		if s.phase, s.stateLag = outside, 0; s.agent.acted {
			s.stateLag = int32(a.Version) - s.agent.actedBy
		}
		r.resumeAgent(s.agent, a.Slot)
		return
	}
	if s.phase == outside {
		r.env.set(a.Slot, keyOf(max(s.work, float64(r.now))), r.slots)
		return
	}
	r.prefillTokens += int64(s.counted)
	if delay := r.cfg.StartNS + int64(math.Round(float64(s.counted)*r.cfg.PrefillNSPerToken/r.engines[s.engine].relative)); delay > 0 {
		r.env.set(a.Slot, keyOf(float64(r.now+delay)), r.slots)
		return
	}
	r.takeUp(a.Slot)
}
