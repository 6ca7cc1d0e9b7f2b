package loop

import "math"

// fill gives free slots to rollouts: first to those that were interrupted, to
// those that must be tried again, then to the open group, then to new groups as far as admission permits.
func (l *Loop) fill() {
	s := &l.s
	if s.Stopping || s.Finished != ReasonNone || !s.Started || l.cfg.InterruptAtBatch && l.paused() {
		return
	}
	for l.free > 0 && l.taken < l.rules.slots {
		e := l.pickEngine()
		if e == none {
			return
		}
		switch {
		case s.Backlog.len() > 0 && l.resumeNext(e):
		case s.Retries.len() > 0:
			r := s.Retries.pop()
			l.issue(e, r.Group, r.Sample)
		case s.Open != none:
			group := s.Open
			l.issue(e, group, l.nextSample(&s.Open))
		case len(s.Opens) > 0:
			if e = l.siblingsAt(e); e == none {
				return
			}
			group := s.Opens[e]
			l.issue(e, group, l.nextSample(&s.Opens[e]))
		case l.mayOpen():
			s.Open = l.openGroup()
		default:
			return
		}
	}
}

// mayOpen is admission: whether the policy lets a new group start now.
func (l *Loop) mayOpen() bool {
	s := &l.s
	if l.rules.live < math.MaxInt64 && !l.belowLive() {
		return false
	}
	switch l.cfg.Policy {
	case PolicyBlock:
		if s.Queue.Len >= l.rules.queue { // groups are held only while it is full
			return false
		}
	case PolicySynchronous:
		if s.Lease.ID != 0 || s.LiveGroups >= l.cfg.BatchGroups+l.cfg.ExtraGroups || !l.allServe(s.Trained) {
			return false
		}
	case PolicyBounded:
		// What the engines serve is what counts: a slow sync must not add to the mean.
		if lag := int(s.Trained - l.minServed()); s.LiveGroups >= l.liveMax-lag*l.cfg.BatchGroups {
			return false
		}
	case PolicyThreshold:
		if s.LiveGroups-l.leasedGroups()+s.Taken >= l.liveMax {
			return false
		}
	}
	if l.cfg.TrainerAsks && s.Queue.Len >= l.rules.queue && !s.Asked && s.Lease.ID == 0 {
		return false // nobody is there to train: what would be evicted is as fresh as what would come
	}
	if l.cfg.PauseGroups > 0 && s.Queue.Len >= l.cfg.PauseGroups || l.cfg.Start == StartGang && min(l.freeSlots(), l.rules.slots-l.taken) < l.rules.size {
		return false
	}
	return l.rules.hold == 0 || !l.holding()
}

func (l *Loop) leasedGroups() int {
	if l.s.Lease.ID == 0 {
		return 0
	}
	return len(l.s.Lease.Groups)
}

// openGroup takes a group from the arena.
func (l *Loop) openGroup() int32 {
	s := &l.s
	if len(s.FreeGroups) == 0 {
		l.grow(len(s.Groups))
	}
	last := len(s.FreeGroups) - 1
	i := s.FreeGroups[last]
	s.FreeGroups = s.FreeGroups[:last]
	s.Groups[i] = group{ID: s.NextGroup, State: groupRunning, Start: NoVersion, Ready: NoVersion, Prev: none, Next: none}
	s.Extras[i] = extra{DriftAt: NoVersion}
	if s.Control != nil {
		l.measureOpened(i)
	}
	if l.prompts {
		p := l.nextPrompt()
		s.Extras[i].Prompt, s.Extras[i].Level = p.Prompt, p.Level
	}
	base := int(i) * l.stride
	for k := range l.stride {
		s.Samples[base+k] = sample{Slot: none}
	}
	s.NextGroup++
	s.LiveGroups++
	return i
}

// grow adds n groups to the arena.
func (l *Loop) grow(n int) {
	s := &l.s
	for range max(n, 1) {
		s.Groups = append(s.Groups, group{Prev: none, Next: none})
		s.Extras = append(s.Extras, extra{})
		for range l.stride {
			s.Samples = append(s.Samples, sample{Slot: none})
		}
	}
	if s.Control != nil {
		s.Control.grow(len(s.Groups))
	}
	for i := len(s.Groups) - 1; i >= len(s.Groups)-max(n, 1); i-- {
		s.FreeGroups = append(s.FreeGroups, int32(i))
	}
}

func (l *Loop) sample(group, k int32) *sample {
	return &l.s.Samples[int(group)*l.stride+int(k)]
}

// issue starts the next attempt of a sample on an engine with a free slot.
func (l *Loop) issue(e, gi, k int32) {
	eng := &l.s.Engines[e]
	last := len(eng.Free) - 1
	slotIndex := eng.Free[last]
	eng.Free = eng.Free[:last]
	eng.Active++
	l.free--
	l.taken++
	l.begin(eng, e, slotIndex, gi, k)
}

// begin starts the next attempt of a sample in a slot that has been taken. The
// group is stamped with the version that engine serves; a sibling on an engine
// that lags behind (a rolling switch) lowers the stamp, so that no token of a
// group is older than its stamp says.
func (l *Loop) begin(eng *engine, e, slotIndex, gi, k int32) {
	s := &l.s
	g, smp, sl := &s.Groups[gi], l.sample(gi, k), &s.Slots[slotIndex]
	id, served, start := g.ID, eng.Served, g.Start
	if start == NoVersion || served < start {
		start = served
		g.Start = served
	}
	attempt := smp.Attempt + 1
	smp.Attempt = attempt
	smp.Slot = slotIndex
	g.InFlight++
	// Field by field, as below: a composite literal is built aside and copied, which is a quarter of a step.
	sl.ID, sl.Group, sl.Sample, sl.Attempt, sl.State = id, gi, k, attempt, slotRunning
	if s.Control != nil {
		s.Control.Began[slotIndex] = s.Now
	}
	s.Ledger.Admitted++
	s.Ledger.InFlight++
	if len(l.out) == cap(l.out) {
		l.out = append(l.out, Action{})[:len(l.out)]
	}
	n := len(l.out)
	l.out = l.out[:n+1]
	a := &l.out[n]
	*a = Action{}
	a.Kind, a.Engine, a.Slot, a.Sample = StartRollout, e, slotIndex, k
	a.Group, a.Attempt = id, attempt // apart from Sample: what is stored in halves is slow to read as one
	a.Version, a.StartVersion = served, start
	if l.prompts {
		x := &s.Extras[gi]
		a.Prompt, a.Level = x.Prompt, x.Level
	}
}

// handOver gives the slot of a rollout that has just been scored to the next
// rollout, if it is plain that fill would: no other slot is free, nothing waits, and
// the engine takes part in no sync. It reports false, with nothing changed, if not.
func (l *Loop) handOver(slotIndex, e int32) bool {
	s := &l.s
	eng := &s.Engines[e]
	if l.free > 0 || !l.handsOver || eng.State != engineServing || eng.Phase != phaseIdle || eng.Active < 2 ||
		l.taken > l.rules.slots || eng.Away != engineOurs ||
		s.Backlog.len()+s.Retries.len() > 0 || s.Stopping {
		return false
	}
	open := &s.Open
	switch {
	case len(s.Opens) > 0:
		if l.siblingsAt(e) == none {
			return false
		}
		open = &s.Opens[e] // no other engine has a free slot
	case s.Open == none:
		if !l.mayOpen() {
			return false
		}
		s.Open = l.openGroup()
	}
	group := *open
	l.begin(eng, e, slotIndex, group, l.nextSample(open))
	return true
}

// nextSample returns the next sample of an open group, which is closed with its last.
func (l *Loop) nextSample(open *int32) int32 {
	g := &l.s.Groups[*open]
	k := g.Issued
	g.Issued++
	if int(g.Issued) == l.sizeOf(*open) {
		*open = none
	}
	return k
}

// occupied returns the slot an event names if that very attempt holds it. An
// event of an attempt that was aborted frees its slot and counts for nothing more.
func (l *Loop) occupied(ev *Event, completes bool) *slot {
	s := &l.s
	if ev.Slot < 0 || int(ev.Slot) >= len(s.Slots) {
		l.late()
		return nil
	}
	sl := &s.Slots[ev.Slot]
	if sl.State == slotFree || !sl.names(ev) {
		l.late()
		return nil
	}
	if sl.State == slotAborting {
		if completes {
			l.freeSlot(ev.Slot)
		}
		return nil
	}
	return sl
}

// names reports whether an event names the attempt in the slot.
func (sl *slot) names(ev *Event) bool {
	return sl.ID == ev.Group && sl.Sample == ev.Sample && sl.Attempt == ev.Attempt
}

func (l *Loop) freeSlot(i int32) {
	s := &l.s
	sl := &s.Slots[i]
	sl.State, sl.Group = slotFree, none
	eng := &s.Engines[sl.Engine]
	eng.Active--
	l.taken--
	if eng.State == engineLost || eng.Away == engineLeaving {
		return
	}
	eng.Free = append(eng.Free, i)
	l.free++
	if eng.Active == 0 && (l.cfg.Sync == SyncDrain || l.cfg.Sync == SyncRestart) {
		l.advanceSync()
	}
}

// freeOwnSlots makes every slot of every engine of cell 0 free, the lowest to be taken first.
func (l *Loop) freeOwnSlots() {
	s := &l.s
	for i := range s.Engines {
		if l.cfg.Owns(int32(i)) {
			s.Engines[i].Free = s.Engines[i].Free[:0]
			s.Engines[i].Active = 0
		}
	}
	for i := len(s.Slots) - 1; i >= 0; i-- {
		sl := &s.Slots[i]
		if !l.cfg.Owns(sl.Engine) {
			continue
		}
		sl.State, sl.Group = slotFree, none
		eng := &s.Engines[sl.Engine]
		if eng.Away == engineOurs {
			eng.Free = append(eng.Free, int32(i))
		}
	}
	l.countFree()
}

// countFree counts the free and the taken slots of all engines.
func (l *Loop) countFree() {
	l.free, l.taken = 0, 0
	for i := range l.s.Engines {
		l.free += len(l.s.Engines[i].Free)
		l.taken += int(l.s.Engines[i].Active)
	}
}

// onFirstToken may raise the group's stamp: its first token came from a later
// version than was served when it was issued. It never rises above what the
// slowest engine serves, since siblings may run there. What an engine made before
// it switched, failed or was lost may be told later, and lowers the stamp.
func (l *Loop) onFirstToken(ev *Event) {
	sl := l.occupied(ev, false)
	if sl == nil {
		return
	}
	g := &l.s.Groups[sl.Group]
	if v := ev.Version; v >= 0 && v < g.Start {
		g.Start, g.TokenSeen = v, true
		l.abortStale()
		return
	}
	if g.TokenSeen || g.Scored > 0 {
		return // a sibling had its first token before
	}
	g.TokenSeen = true
	if v := min(ev.Version, l.minServed()); v > g.Start {
		g.Start = v
	}
}

// onRolloutScored counts a rollout. It reports whether its slot has been given to
// the next one: nothing is left to fill then.
func (l *Loop) onRolloutScored(ev *Event) (handedOver bool) {
	s := &l.s
	var sl *slot
	if uint(ev.Slot) < uint(len(s.Slots)) {
		sl = &s.Slots[ev.Slot]
	}
	if sl == nil || sl.State != slotRunning || !sl.names(ev) {
		sl = l.occupied(ev, true)
	}
	if sl == nil || ev.Mark != MarkNone && l.pruned(ev, sl) {
		return false
	}
	if ev.Reward-ev.Reward != 0 { // NaN or infinite
		l.failAttempt(ev.Slot, ReasonEnvironment)
		return false
	}
	gi, k := sl.Group, sl.Sample
	g := &s.Groups[gi]
	l.sample(gi, k).Slot = none
	g.InFlight--
	s.Ledger.InFlight--
	s.Ledger.Waiting++
	if g.Scored == 0 {
		g.Reward = ev.Reward
	} else if g.Reward != ev.Reward {
		g.Uneven = true
	}
	if ev.Mark != MarkNone {
		l.marked(gi, ev.Mark)
	}
	g.Scored++
	complete := int(g.Scored+g.Lost) == l.sizeOf(gi)
	if s.Control != nil {
		l.measureSpan(ev.Slot)
		l.measureTokens(ev, gi)
	}
	enough := int(g.Scored) == l.cfg.GroupSize
	if !complete && !enough && l.handOver(ev.Slot, sl.Engine) {
		return true
	}
	l.freeSlot(ev.Slot)
	if complete {
		l.ready(gi)
	} else if enough { // with redundancy
		l.cancelInFlight(gi)
		l.ready(gi)
	}
	return false
}

// marked takes the mark on a scored rollout of a group.
func (l *Loop) marked(gi int32, v Mark) {
	switch v {
	case MarkReject:
		l.s.Groups[gi].Rejected = true
	case MarkSolved:
		l.s.Extras[gi].Solved++
	}
}

func (l *Loop) onRolloutFailed(ev *Event) {
	if sl := l.occupied(ev, true); sl != nil {
		l.failAttempt(ev.Slot, ev.Reason)
	}
}

// onRolloutAborted ends an abort that the loop asked for (occupied has freed the
// slot), or reports one that it did not ask for, which is a failure.
func (l *Loop) onRolloutAborted(ev *Event) {
	if sl := l.occupied(ev, true); sl != nil {
		l.failAttempt(ev.Slot, ReasonEngine)
	}
}

// failAttempt ends the attempt in a slot as failed and frees the slot.
func (l *Loop) failAttempt(slotIndex int32, why Reason) {
	gi, k := l.s.Slots[slotIndex].Group, l.s.Slots[slotIndex].Sample
	l.freeSlot(slotIndex)
	l.failSample(gi, k, why)
}

// failSample ends the attempt in flight of a sample as failed, and has it tried
// again, or gives the sample up after its last attempt. The slot is the caller's.
func (l *Loop) failSample(gi, k int32, why Reason) {
	s := &l.s
	g, smp := &s.Groups[gi], l.sample(gi, k)
	smp.Slot, smp.Spans, smp.Tokens = none, 0, 0
	g.InFlight--
	s.Ledger.InFlight--
	s.Ledger.Failed++
	l.restamp(gi)
	if why != ReasonRestart && why != ReasonCapacity {
		smp.Failures++
	}
	if why != ReasonData && int(smp.Failures) < l.cfg.MaxAttempts {
		s.Retries.push(retry{Group: gi, Sample: k})
		return
	}
	x := &s.Extras[gi]
	x.Failed++
	if l.cfg.OnFailure == DropGroup && int(x.Failed) > l.sizeOf(gi)-l.cfg.GroupSize {
		g.Lost++
		l.endGroup(gi, EndFailed, why)
		return
	}
	l.loseSample(gi, EndFailed, why)
}

// loseSample goes on without a sample that is never scored. The group ends where it cannot have GroupMin any
// more, and is ready where this was the last it waited for.
func (l *Loop) loseSample(gi int32, end End, why Reason) {
	g := &l.s.Groups[gi]
	g.Lost++
	size := l.sizeOf(gi)
	switch {
	case size-int(g.Lost) < max(l.cfg.GroupMin, 1):
		l.endGroup(gi, end, why)
	case int(g.Scored+g.Lost) == size:
		l.ready(gi)
	}
}

// endGroup ends a group: its attempts in flight are cancelled, its scored
// rollouts end as told, or as trained if a step of a replay has consumed them.
func (l *Loop) endGroup(gi int32, end End, why Reason) {
	s := &l.s
	g := &s.Groups[gi]
	if s.Extras[gi].Uses > 0 {
		end = EndTrained
	}
	scored := int64(g.Scored)
	switch g.State {
	case groupRunning:
		l.cancelInFlight(gi)
		s.Ledger.Waiting -= scored
	case groupHeld:
		s.remove(&s.Held, gi)
		s.Ledger.Waiting -= scored
	case groupQueued:
		s.remove(&s.Queue, gi)
		s.Ledger.Queued -= scored
	default:
		l.broken("g%d ended untrained in state %d, which is free or at the trainer", g.ID, g.State)
	}
	if end == EndEvicted {
		s.Cost.Evicted++
	}
	*s.Ledger.end(end) += scored
	if s.Control != nil {
		s.Control.Now.Dropped++
	}
	l.emit(Action{Kind: GroupEnded, Group: g.ID, End: end, Reason: why, Count: g.Scored, Version: s.Trained, StartVersion: g.Start, ReadyVersion: g.Ready})
	l.requeue(gi, end, why)
	l.releaseGroup(gi)
}

// cancelInFlight cancels every attempt of a group that has not ended, and has none begin.
func (l *Loop) cancelInFlight(gi int32) {
	s := &l.s
	g := &s.Groups[gi]
	for k := range int32(l.stride) {
		smp := l.sample(gi, k)
		switch smp.Slot {
		case none:
			continue
		case parked:
			l.emit(Action{Kind: AbortRollout, Slot: -1, Group: g.ID, Sample: k, Attempt: smp.Attempt})
		default:
			l.abort(smp.Slot, ReasonNone)
		}
		s.Ledger.InFlight--
		s.Ledger.Cancelled++
		smp.Slot = none
		g.InFlight--
	}
	s.Retries.drop(gi)
	s.Backlog.drop(gi)
	if s.Open == gi {
		s.Open = none
	}
	for e := range s.Opens {
		if s.Opens[e] == gi {
			s.Opens[e] = none
		}
	}
}

// abort asks the engine to stop the rollout in a slot, which stays taken until
// the engine says so. A lost engine is not asked: its slots are free already, but where
// the driver answers for it (ResumeLost).
func (l *Loop) abort(slotIndex int32, why Reason) {
	sl := &l.s.Slots[slotIndex]
	if l.s.Engines[sl.Engine].State == engineLost && !l.cfg.ResumeLost {
		l.freeSlot(slotIndex)
		return
	}
	l.emit(Action{Kind: AbortRollout, Engine: sl.Engine, Slot: slotIndex, Group: sl.ID, Sample: sl.Sample, Attempt: sl.Attempt, Reason: why})
	sl.State, sl.Group = slotAborting, none
}

func (l *Loop) releaseGroup(gi int32) {
	s := &l.s
	s.Groups[gi].State = groupFree
	s.FreeGroups = append(s.FreeGroups, gi)
	s.LiveGroups--
}
