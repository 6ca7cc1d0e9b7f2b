package looptest

import (
	"math"
	"slices"

	"github.com/headway-rl/headway/loop"
)

// apply books an event and collects what must follow from it. It reports
// whether starts wait for the rest of the instant.
func (c *Checker) apply(ev loop.Event) (settling bool) {
	switch ev.Kind {
	case loop.RunStarted:
		c.runStarted()
	case loop.Recovered:
		c.recovered()
	case loop.StopRequested:
		c.stopping = true
		if c.lease.id == 0 {
			c.finish(loop.ReasonStopped)
		}
	case loop.SettingRequested:
		c.settingRequested(ev)
	case loop.EngineUnavailable:
		c.engineUnavailable(ev)
	case loop.GroupMeasured:
		c.groupMeasured(ev)
		return c.settling
	case loop.TrainStepEnded:
		c.trainStepEnded(ev)
		return true
	case loop.TrainStepFailed:
		c.trainStepFailed(ev)
	case loop.LeaseReturned:
		c.leaseReturned(ev)
	case loop.TrainerRestored:
		c.trainerRestored(ev)
		return true
	case loop.TrainerReady:
		c.asked = c.cfg.TrainerAsks
		c.selectBatch()
		return c.settling
	case loop.WeightsLoaded:
		c.weightsLoaded(ev)
		return true
	case loop.WeightsSwitched:
		c.weightsSwitched(ev)
		return true
	case loop.SyncFailed:
		c.syncFailed(ev)
	case loop.EngineLost:
		c.engineLost(ev)
	case loop.EngineJoined:
		c.engineJoined(ev)
	case loop.Tick:
	case loop.FirstToken:
		c.firstToken(ev)
		return c.settling
	case loop.RolloutScored, loop.RolloutFailed, loop.RolloutAborted, loop.RolloutInterrupted:
		c.rolloutEnded(ev)
	default:
		c.counts.Unknown++
	}
	return false
}

func (c *Checker) finish(why loop.Reason) {
	c.finished = true
	c.expect(loop.Action{Kind: loop.FinishRun, Reason: why, Version: c.version})
}

func (c *Checker) expect(a loop.Action) { c.want = append(c.want, a) }

// named returns the slot an event names, nil if it names nothing that is under way.
func (c *Checker) named(ev loop.Event) *slotModel {
	if ev.Slot < 0 || int(ev.Slot) >= len(c.slots) {
		c.counts.Late++
		return nil
	}
	s := &c.slots[ev.Slot]
	if !s.taken || s.group != ev.Group || s.sample != ev.Sample || s.attempt != ev.Attempt {
		c.counts.Late++
		return nil
	}
	return s
}

func (c *Checker) firstToken(ev loop.Event) {
	s := c.named(ev)
	if s == nil || s.unwanted {
		return
	}
	g := c.groups[s.group]
	if ev.Version >= 0 && ev.Version < g.start {
		g.start, g.token = ev.Version, true
		c.abortStale()
		return
	}
	if g.token || g.count(scored) > 0 {
		return
	}
	g.token = true
	g.start = max(g.start, min(ev.Version, c.lowestServed()))
}

func (c *Checker) rolloutEnded(ev loop.Event) {
	s := c.named(ev)
	if s == nil {
		return
	}
	unwanted := s.unwanted
	*s = slotModel{engine: s.engine}
	if unwanted {
		return
	}
	g := c.groups[ev.Group]
	switch ev.Kind {
	case loop.RolloutInterrupted:
		c.sampleInterrupted(g, ev.Sample, ev.Tokens)
	case loop.RolloutAborted:
		c.failSample(g, ev.Sample, loop.ReasonEngine)
	case loop.RolloutFailed:
		c.failSample(g, ev.Sample, ev.Reason)
	default:
		c.sampleScored(g, ev)
	}
}

func (c *Checker) sampleScored(g *groupModel, ev loop.Event) {
	s := &g.samples[ev.Sample]
	r := float64(ev.Reward)
	switch {
	case ev.Mark == loop.MarkPruned:
		c.ends[loop.EndPruned]++
		s.state = pruned
		c.unstamp(g) // it counts for nothing, like one that failed
		c.sampleOver(g, loop.EndPruned, loop.ReasonPruned)
	case math.IsNaN(r) || math.IsInf(r, 0):
		c.failSample(g, ev.Sample, loop.ReasonEnvironment)
	default:
		s.state, s.reward, s.solved = scored, ev.Reward, ev.Mark == loop.MarkSolved
		g.rejected = g.rejected || ev.Mark == loop.MarkReject
		c.tokensScored(g, ev)
		c.sampleOver(g, loop.EndNone, loop.ReasonNone)
	}
}

// failSample books the end of an attempt in flight; its slot is booked by the caller.
func (c *Checker) failSample(g *groupModel, k int32, why loop.Reason) {
	c.ends[loop.EndFailed]++
	s := &g.samples[k]
	s.state = retrying
	if why != loop.ReasonRestart && why != loop.ReasonCapacity {
		s.failures++
	}
	if s.failures >= c.cfg.MaxAttempts || why == loop.ReasonData {
		s.state = lost
	}
	c.unstamp(g)
	if s.state != lost {
		c.retries = append(c.retries, retryModel{g.id, k})
		return
	}
	if c.cfg.OnFailure == loop.DropGroup && g.count(lost) > len(g.samples)-c.cfg.GroupSize {
		c.endGroup(g, loop.EndFailed, why)
		return
	}
	c.sampleOver(g, loop.EndFailed, why)
}

// count counts the samples in any of the states.
func (g *groupModel) count(states ...sampleState) int {
	n := 0
	for _, s := range g.samples {
		if slices.Contains(states, s.state) {
			n++
		}
	}
	return n
}

// uniform reports whether all rewards of the group are equal.
func (g *groupModel) uniform() bool {
	var rewards []float32
	for _, s := range g.samples {
		if s.state == scored {
			rewards = append(rewards, s.reward)
		}
	}
	return slices.Min(rewards) == slices.Max(rewards)
}

func (c *Checker) groupReady(g *groupModel) {
	g.ready, g.turn = c.version, c.readied
	c.readied++
	c.measureLevel(g)
	c.control.now.ready++
	switch {
	case g.rejected:
		c.endGroup(g, loop.EndFiltered, loop.ReasonRejected)
	case c.cfg.FilterZeroAdvantage && g.uniform():
		c.endGroup(g, loop.EndFiltered, loop.ReasonZeroAdvantage)
	case c.cfg.FilterSolveRate && !c.inBand(g):
		c.endGroup(g, loop.EndFiltered, loop.ReasonSolveRate)
	case len(c.queue) == c.cfg.QueueGroups && c.wastesNothing():
		c.control.now.passed++
		c.arrivals++
		g.place = inHeld
		c.held = append(c.held, g.id)
		c.expect(c.notice(loop.GroupHeld, g))
	default:
		c.control.now.passed++
		c.arrivals++
		if len(c.queue) == c.cfg.QueueGroups {
			if given := c.makeRoomFor(g); given == g {
				return
			}
		}
		c.enqueue(g)
		c.selectBatch()
		c.interruptAtBatch()
	}
}

// wastesNothing reports whether the policy promises to drop nothing for want of room.
func (c *Checker) wastesNothing() bool {
	switch c.cfg.Policy {
	case loop.PolicyBlock, loop.PolicyBounded, loop.PolicyThreshold:
		return true
	}
	return false
}

// makeRoomFor ends what a full queue gives up as a group arrives, perhaps that
// group, and returns it; nil where the policy or the order of readiness decides.
func (c *Checker) makeRoomFor(g *groupModel) *groupModel {
	if !c.drawsFresh() || c.groups[c.queue[0]].turn < c.freshFrom {
		c.makeRoom()
		return nil
	}
	x := int(loop.Draw(c.cfg.Seed, c.draws) % uint64(c.arrivals))
	c.draws++
	given := g
	if x < len(c.queue) {
		given = c.groups[c.queue[len(c.queue)-1-x]]
	}
	c.endGroup(given, loop.EndEvicted, loop.ReasonFull)
	return given
}

// drawsFresh reports whether batches are drawn among the groups that became
// ready since the one before was selected.
func (c *Checker) drawsFresh() bool {
	return c.cfg.Select == loop.SelectFresh && c.cfg.Policy != loop.PolicyReplay
}

// fresh returns the queued groups that became ready since the last selection, the newest first.
func (c *Checker) fresh() []loop.GroupID {
	var ids []loop.GroupID
	for _, id := range slices.Backward(c.queue) {
		if c.groups[id].turn >= c.freshFrom {
			ids = append(ids, id)
		}
	}
	return ids
}

// makeRoom ends what a full queue gives up first.
func (c *Checker) makeRoom() {
	if c.cfg.Policy == loop.PolicyReplay {
		c.evict()
		return
	}
	c.endGroup(c.groups[c.queue[0]], loop.EndEvicted, loop.ReasonFull)
}

// notice is what a group's notices have in common.
func (c *Checker) notice(kind loop.ActionKind, g *groupModel) loop.Action {
	return loop.Action{Kind: kind, Group: g.id, Count: int32(g.count(scored)), Version: c.version, StartVersion: g.start, ReadyVersion: g.ready}
}

func (c *Checker) enqueue(g *groupModel) {
	g.place = inQueue
	c.queue = append(c.queue, g.id)
	c.expect(c.notice(loop.GroupQueued, g))
}

func (c *Checker) endGroup(g *groupModel, end loop.End, why loop.Reason) {
	c.cutRest(g)
	if end == loop.EndEvicted {
		c.hold.cost.evicted++
	}
	c.ends[end] += int64(g.count(scored))
	a := c.notice(loop.GroupEnded, g)
	a.End, a.Reason = end, why
	c.expect(a)
	c.requeue(g, end, why)
	c.forget(g, end)
}

// unwant books that the rollout in a slot is to be stopped. A lost engine cannot be
// asked, unless what runs it answers for it.
func (c *Checker) unwant(slot int32, why loop.Reason) {
	s := &c.slots[slot]
	if c.engines[s.engine].state == gone && !c.cfg.ResumeLost {
		*s = slotModel{engine: s.engine}
		return
	}
	s.unwanted = true
	c.expect(loop.Action{Kind: loop.AbortRollout, Engine: s.engine, Slot: slot, Group: s.group, Sample: s.sample, Attempt: s.attempt, Reason: why})
}

func (c *Checker) forget(g *groupModel, end loop.End) {
	delete(c.groups, g.id)
	c.over[g.id] = end
	is := func(id loop.GroupID) bool { return id == g.id }
	c.queue = slices.DeleteFunc(c.queue, is)
	c.held = slices.DeleteFunc(c.held, is)
}

// selectBatch leases what the idle trainer must get.
func (c *Checker) selectBatch() {
	if c.lease.id != 0 || c.stopping || c.finished || c.cfg.TrainerBlocked && c.target != loop.NoVersion {
		return
	}
	if c.cfg.TrainerAsks && !c.asked {
		return
	}
	if c.discards() {
		for _, id := range slices.Clone(c.queue) {
			if g := c.groups[id]; c.version-g.start > c.cfg.MaxStaleness {
				c.endReady(g, loop.EndDiscarded, loop.ReasonStale)
			}
		}
	}
	if len(c.queue) < c.cfg.BatchGroups {
		return
	}
	c.lastLease++
	c.lease = leaseModel{id: c.lastLease, attempt: 1, version: c.version}
	for range c.cfg.BatchGroups {
		g := c.groups[c.preferred()]
		g.place = inLease
		c.queue = slices.DeleteFunc(c.queue, func(id loop.GroupID) bool { return id == g.id })
		c.lease.groups = append(c.lease.groups, g.id)
	}
	c.taken += len(c.lease.groups)
	c.freshFrom, c.arrivals = c.readied, 0
	c.wantTrainStep()
	c.cutSurplus()
	for len(c.held) > 0 && len(c.queue) < c.cfg.QueueGroups {
		g := c.groups[c.held[0]]
		c.held = c.held[1:]
		c.enqueue(g)
	}
	c.abortStale()
}

// discards reports whether groups past the budget are kept from the trainer.
func (c *Checker) discards() bool {
	return c.cfg.Policy == loop.PolicyMax || c.cfg.Policy == loop.PolicyReplay && c.cfg.MaxStaleness > 0
}

// preferred returns the queued group that the selection order puts first.
func (c *Checker) preferred() loop.GroupID {
	if c.cfg.Policy == loop.PolicyReplay {
		return c.drawn()
	}
	if ids := c.fresh(); c.drawsFresh() && len(ids) > c.cfg.BatchGroups-len(c.lease.groups) {
		x := loop.Draw(c.cfg.Seed, c.draws) % uint64(len(ids))
		c.draws++
		return ids[x]
	}
	return slices.MinFunc(c.queue, func(x, y loop.GroupID) int {
		a, b := c.groups[x], c.groups[y]
		switch {
		case c.cfg.Select == loop.SelectNewest, c.cfg.Select == loop.SelectFresh:
			return b.turn - a.turn
		case c.cfg.Select == loop.SelectOldestVersion && a.start != b.start:
			return int(a.start - b.start)
		}
		return a.turn - b.turn
	})
}

func (c *Checker) wantTrainStep() {
	c.asked = false
	c.hold.leased = c.now
	for _, id := range c.lease.groups {
		a := c.notice(loop.GroupLeased, c.groups[id])
		a.Lease, a.Attempt, a.Version = c.lease.id, c.lease.attempt, c.lease.version
		c.expect(a)
	}
	c.expect(loop.Action{Kind: loop.StartTrainStep, Lease: c.lease.id, Attempt: c.lease.attempt,
		Count: int32(len(c.lease.groups)), Version: c.lease.version})
}

// abortStale ends the generating groups that can no longer meet the budget.
func (c *Checker) abortStale() {
	for id := loop.GroupID(1); id <= c.lastGroup; id++ {
		g := c.groups[id]
		if g != nil && g.place == generating && g.start != loop.NoVersion && c.hopeless(g.start) {
			c.endGroup(g, loop.EndDiscarded, loop.ReasonStale)
		}
	}
}

// hopeless reports whether a stamp exceeds the budget even at the next step that can begin.
func (c *Checker) hopeless(v loop.Version) bool {
	next := c.version
	if c.lease.id != 0 {
		next = c.version + 1
	}
	return c.cfg.Policy == loop.PolicyMax && c.cfg.Abort && next-v > c.cfg.MaxStaleness
}

func (c *Checker) leaseNamed(ev loop.Event) bool {
	if c.lease.id == 0 || ev.Lease != c.lease.id || ev.Attempt != c.lease.attempt {
		c.counts.Late++
		return false
	}
	return true
}

func (c *Checker) trainStepEnded(ev loop.Event) {
	if !c.leaseNamed(ev) {
		return
	}
	if ev.Version != c.version+1 {
		c.counts.Late++
		return
	}
	c.control.batch = tokenModel{}
	for _, id := range c.lease.groups {
		g := c.groups[id]
		a := c.notice(loop.GroupTrained, g)
		a.Lease, a.Attempt, a.Version = c.lease.id, c.lease.attempt, c.lease.version
		c.expect(a)
		c.tokensTrained(g)
		if c.cfg.Policy == loop.PolicyReplay {
			c.keepTrained(g)
			continue
		}
		c.ends[loop.EndTrained] += int64(g.count(scored))
		c.forget(g, loop.EndTrained)
	}
	c.lease = leaseModel{}
	c.version++
	c.control.quietAt = c.now
	c.adaptHold(c.hold.stepEnded(c.now))
	c.stepMeasured()
	c.sortQueue()
	for len(c.queue) > c.cfg.QueueGroups {
		c.makeRoom()
	}
	c.versionPublished()
}

// versionPublished books what follows from the trainer's next version.
func (c *Checker) versionPublished() {
	switch {
	case c.cfg.TrainSteps > 0 && c.version >= c.cfg.TrainSteps:
		c.finish(loop.ReasonSteps)
	case c.stopping:
		c.finish(loop.ReasonStopped)
	default:
		c.startSync()
		c.selectBatch()
		c.abortStale()
	}
}

// trainerRestored books a version that no batch made.
func (c *Checker) trainerRestored(ev loop.Event) {
	if ev.Version != c.version+1 {
		c.counts.Late++
		return
	}
	if c.lease.id != 0 {
		c.takeBack()
	}
	c.version++
	c.restored = c.version
	c.hold.leased, c.hold.ended = never, never
	c.control.quietAt = c.now
	if c.cfg.Policy == loop.PolicySynchronous && !c.keepsSurplus() {
		for id := loop.GroupID(1); id <= c.lastGroup; id++ {
			if g := c.groups[id]; g != nil {
				c.endGroup(g, loop.EndDiscarded, loop.ReasonStale)
			}
		}
	}
	c.versionPublished()
	c.interruptAtBatch()
}

// keepsSurplus reports whether the synchronous schedule may train on what is stale:
// groups beyond a batch that it has interrupted.
func (c *Checker) keepsSurplus() bool { return c.cfg.ExtraGroups > 0 && c.cfg.InterruptAtBatch }

func (c *Checker) trainStepFailed(ev loop.Event) {
	if !c.leaseNamed(ev) {
		return
	}
	c.lease.failures++
	if exhausted := c.lease.failures >= c.cfg.TrainAttempts; exhausted || c.stopping {
		c.takeBack()
		why := loop.ReasonStopped
		if exhausted {
			why = loop.ReasonTrainer
		}
		c.finish(why)
		return
	}
	c.lease.attempt++
	c.wantTrainStep()
}

func (c *Checker) leaseReturned(ev loop.Event) {
	if !c.leaseNamed(ev) {
		return
	}
	c.takeBack()
	if c.stopping {
		c.finish(loop.ReasonStopped)
		return
	}
	c.selectBatch()
	c.interruptAtBatch()
}

// sortQueue puts the queue into the order in which its groups became ready.
func (c *Checker) sortQueue() {
	slices.SortFunc(c.queue, func(x, y loop.GroupID) int { return c.groups[x].turn - c.groups[y].turn })
}

// takeBack puts the leased groups where they stood, and keeps the queue within its capacity.
func (c *Checker) takeBack() {
	for _, id := range c.lease.groups {
		c.groups[id].place = inQueue
	}
	c.queue = append(c.queue, c.lease.groups...)
	c.taken = max(0, c.taken-len(c.lease.groups))
	c.lease = leaseModel{}
	c.sortQueue()
	for len(c.queue) > c.cfg.QueueGroups {
		if !c.wastesNothing() {
			c.makeRoom()
			continue
		}
		last := c.queue[len(c.queue)-1]
		c.queue = c.queue[:len(c.queue)-1]
		c.groups[last].place = inHeld
		c.held = slices.Insert(c.held, 0, last)
	}
}
