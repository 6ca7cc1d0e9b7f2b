package loop

// ready admits a group whose last rollout has been scored: the policy filters,
// queues, holds or makes room for it, and the trainer gets a batch if one is full.
func (l *Loop) ready(gi int32) {
	s := &l.s
	g := &s.Groups[gi]
	g.Ready, g.Turn = s.Trained, s.NextTurn
	s.NextTurn++
	if l.cfg.Levels > 0 {
		l.measureLevel(gi)
	}
	if s.Control != nil {
		s.Control.Now.Ready++
	}
	switch {
	case g.Rejected:
		l.endGroup(gi, EndFiltered, ReasonRejected)
		return
	case l.cfg.FilterZeroAdvantage && !g.Uneven:
		l.endGroup(gi, EndFiltered, ReasonZeroAdvantage)
		return
	case l.cfg.FilterSolveRate && !l.inBand(gi):
		l.endGroup(gi, EndFiltered, ReasonSolveRate)
		return
	}
	s.Fresh++
	if s.Control != nil {
		s.Control.Now.Accepted++
	}
	if s.Queue.Len >= l.rules.queue {
		if l.holdsOutside() {
			g.State = groupHeld
			s.pushBack(&s.Held, gi)
			l.emit(Action{Kind: GroupHeld, Group: g.ID, Count: g.Scored, Version: s.Trained, StartVersion: g.Start, ReadyVersion: g.Ready})
			return
		}
		if l.fresh() && s.Groups[s.Queue.Head].Turn >= s.FreshFrom {
			if l.endOneOf(gi) == gi {
				return
			}
		} else {
			l.evict()
		}
	}
	l.enqueue(gi)
	l.selectBatch()
	l.interruptAtBatch()
}

// holdsOutside reports whether the policy drops nothing, and keeps out what a full queue has no room for.
func (l *Loop) holdsOutside() bool {
	return l.cfg.Policy == PolicyBlock || l.cfg.Policy == PolicyThreshold
}

// evict makes room in the queue.
func (l *Loop) evict() {
	gi := l.s.Queue.Head
	if l.cfg.Policy == PolicyReplay {
		gi = l.evictReplay()
	}
	l.endGroup(gi, EndEvicted, ReasonFull)
}

func (l *Loop) enqueue(gi int32) {
	s := &l.s
	g := &s.Groups[gi]
	g.State = groupQueued
	s.pushBack(&s.Queue, gi)
	s.Ledger.Waiting -= int64(g.Scored)
	s.Ledger.Queued += int64(g.Scored)
	l.emit(Action{Kind: GroupQueued, Group: g.ID, Count: g.Scored, Version: s.Trained, StartVersion: g.Start, ReadyVersion: g.Ready})
}

// selectBatch leases the next G ready groups to an idle trainer: the start of a train step.
func (l *Loop) selectBatch() {
	s := &l.s
	if s.Lease.ID != 0 || s.Stopping || s.Finished != ReasonNone {
		return
	}
	if l.cfg.TrainerAsks && !s.Asked || l.cfg.TrainerBlocked && s.Sync.Target != NoVersion {
		return
	}
	if l.cfg.Policy == PolicyMax || l.cfg.Policy == PolicyReplay && l.cfg.MaxStaleness > 0 {
		l.discardStale()
	}
	if s.Queue.Len < l.cfg.BatchGroups {
		return
	}
	s.Lease.ID, s.Lease.Attempt, s.Lease.Failures, s.Lease.Version = s.NextLease, 1, 0, s.Trained
	s.NextLease++
	s.Lease.Groups = s.Lease.Groups[:0]
	if l.cfg.Balance {
		l.countQueued(false)
	}
	for range l.cfg.BatchGroups {
		gi := l.nextGroup()
		g := &s.Groups[gi]
		s.remove(&s.Queue, gi)
		g.State = groupLeased
		s.Lease.Groups = append(s.Lease.Groups, gi)
		s.Ledger.Queued -= int64(g.Scored)
		s.Ledger.Leased += int64(g.Scored)
	}
	if l.cfg.Balance {
		l.countQueued(true)
	}
	s.Taken += len(s.Lease.Groups)
	s.FreshFrom, s.Fresh = s.NextTurn, 0
	l.emitTrainStep()
	l.admitHeld()
	l.abortStale()
	if l.cfg.Policy == PolicySynchronous && l.cfg.ExtraGroups > 0 {
		l.endSurplus()
	}
}

// endSurplus stops what was opened beyond the batch that is full now.
func (l *Loop) endSurplus() {
	if l.cfg.InterruptAtBatch {
		l.interruptAll()
		return
	}
	surplus := func(g *group) bool { return g.State != groupFree && g.State != groupLeased }
	for gi := l.nextGroupBy(0, surplus); gi != none; {
		id := l.s.Groups[gi].ID
		l.endGroup(gi, EndCancelled, ReasonSurplus)
		gi = l.nextGroupBy(id, surplus)
	}
}

// nextGroupBy returns the group with the lowest ID above the given one that is
// such, none if there is none: the arena is in no order of its own.
func (l *Loop) nextGroupBy(after GroupID, such func(*group) bool) int32 {
	best := none
	for i := range l.s.Groups {
		g := &l.s.Groups[i]
		if g.ID > after && (best == none || g.ID < l.s.Groups[best].ID) && such(g) {
			best = int32(i)
		}
	}
	return best
}

// emitTrainStep names the batch's groups, then starts the step.
func (l *Loop) emitTrainStep() {
	s := &l.s
	s.Times.LeaseAt, s.Asked = s.Now, false
	for _, gi := range s.Lease.Groups {
		g := &s.Groups[gi]
		a := Action{Kind: GroupLeased, Group: g.ID, Lease: s.Lease.ID, Attempt: s.Lease.Attempt, Count: g.Scored,
			Version: s.Lease.Version, StartVersion: g.Start, ReadyVersion: g.Ready}
		if _, pqs, iqs := a.Staleness(); pqs < 0 || iqs < 0 || g.Start < 0 {
			l.broken("a group with a negative or unknown staleness was leased: %v", a)
		}
		l.emit(a)
	}
	l.emit(Action{Kind: StartTrainStep, Lease: s.Lease.ID, Attempt: s.Lease.Attempt, Count: int32(len(s.Lease.Groups)), Version: s.Lease.Version})
}

// nextGroup returns the queued group that the selection order puts first.
func (l *Loop) nextGroup() int32 {
	s := &l.s
	if l.cfg.Policy == PolicyReplay {
		return l.sampleReplay()
	}
	switch l.cfg.Select {
	case SelectFresh:
		return l.sampleFresh()
	case SelectNewest:
		return s.Queue.Tail
	case SelectOldestVersion:
		best := s.Queue.Head
		for i := s.Groups[best].Next; i != none; i = s.Groups[i].Next {
			if s.Groups[i].Start < s.Groups[best].Start {
				best = i
			}
		}
		return best
	}
	return s.Queue.Head
}

// admitHeld lets ready groups that waited outside a full queue in.
func (l *Loop) admitHeld() {
	s := &l.s
	for s.Held.Len > 0 && s.Queue.Len < l.rules.queue {
		gi := s.Held.Head
		s.remove(&s.Held, gi)
		l.enqueue(gi)
	}
}

// discardStale ends queued groups past the budget. This sweep is what keeps
// PolicyMax's promise; abortStale only saves work.
func (l *Loop) discardStale() {
	s := &l.s
	for i := s.Queue.Head; i != none; {
		next := s.Groups[i].Next
		if s.Trained-s.Groups[i].Start > l.cfg.MaxStaleness {
			l.endGroup(i, EndDiscarded, ReasonStale)
		}
		i = next
	}
}

// abortStale cancels groups in flight that can no longer meet the budget at the
// earliest step that could train on them: the next one, while a step runs.
func (l *Loop) abortStale() {
	if l.cfg.Policy != PolicyMax || !l.cfg.Abort {
		return
	}
	s := &l.s
	hopeless := func(g *group) bool {
		return g.State == groupRunning && g.Start != NoVersion && l.hopeless(g.Start)
	}
	for gi := l.nextGroupBy(0, hopeless); gi != none; {
		id := s.Groups[gi].ID
		l.endGroup(gi, EndDiscarded, ReasonStale)
		gi = l.nextGroupBy(id, hopeless)
	}
}

// hopeless reports whether rollouts stamped v are not to be in flight: even the
// earliest step that could train on them would exceed the budget. An engine
// that serves v gets no work until it has switched.
func (l *Loop) hopeless(v Version) bool {
	if l.cfg.Policy != PolicyMax || !l.cfg.Abort {
		return false
	}
	earliest := l.s.Trained
	if l.s.Lease.ID != 0 {
		earliest++
	}
	return earliest-v > l.cfg.MaxStaleness
}

// leaseNamed reports whether an event names the batch at the trainer.
func (l *Loop) leaseNamed(ev *Event) bool {
	ls := &l.s.Lease
	if ls.ID == 0 || ls.ID != ev.Lease || ls.Attempt != ev.Attempt {
		l.late()
		return false
	}
	return true
}

func (l *Loop) onTrainStepEnded(ev *Event) {
	s := &l.s
	if !l.leaseNamed(ev) {
		return
	}
	if ev.Version != s.Trained+1 {
		l.late()
		return
	}
	if s.Control != nil {
		l.measureBatch()
	}
	periodNS := l.learnStep()
	for _, gi := range s.Lease.Groups {
		g := &s.Groups[gi]
		l.emit(Action{Kind: GroupTrained, Group: g.ID, Lease: s.Lease.ID, Attempt: s.Lease.Attempt, Count: g.Scored,
			Version: s.Lease.Version, StartVersion: g.Start, ReadyVersion: g.Ready})
		if l.cfg.Policy == PolicyReplay {
			s.Extras[gi].Uses++
			continue
		}
		s.Ledger.Leased -= int64(g.Scored)
		s.Ledger.Trained += int64(g.Scored)
		l.releaseGroup(gi)
	}
	if l.cfg.Policy == PolicyReplay {
		l.keep()
	}
	s.Lease.ID = 0
	s.Trained = ev.Version
	if l.cfg.HoldAdaptive {
		l.learnCost(periodNS)
	}
	if s.Control != nil {
		l.measureStep()
	}
	for s.Queue.Len > l.rules.queue { // trained groups came back to a full buffer
		l.evict()
	}
	l.onVersion()
	if s.Control != nil && s.Finished == ReasonNone {
		l.steer()
	}
}

// onVersion goes on from a version that the trainer has published, by a step or
// by going back to an earlier state.
func (l *Loop) onVersion() {
	s := &l.s
	switch {
	case l.cfg.TrainSteps > 0 && s.Trained >= l.cfg.TrainSteps:
		l.finish(ReasonSteps)
	case s.Stopping:
		l.finish(ReasonStopped)
	default:
		l.startSync()
		l.selectBatch()
		l.abortStale()
	}
}

func (l *Loop) onTrainStepFailed(ev *Event) {
	s := &l.s
	if !l.leaseNamed(ev) {
		return
	}
	s.Lease.Failures++
	switch {
	case int(s.Lease.Failures) >= l.cfg.TrainAttempts:
		l.returnLease()
		l.finish(ReasonTrainer)
		return
	case s.Stopping:
		l.returnLease()
		l.finish(ReasonStopped)
		return
	}
	s.Lease.Attempt++
	l.emitTrainStep()
}

func (l *Loop) onLeaseReturned(ev *Event) {
	if !l.leaseNamed(ev) {
		return
	}
	l.returnLease()
	if l.s.Stopping {
		l.finish(ReasonStopped)
		return
	}
	l.selectBatch()
	l.interruptAtBatch()
}

// onTrainerReady remembers that the trainer asks, until its next step begins.
func (l *Loop) onTrainerReady() {
	l.s.Asked = l.cfg.TrainerAsks
	l.selectBatch()
}

// onTrainerRestored takes the version of a trainer that went back to an earlier
// state. What is queued lives through that version like any other, and is one
// staler for it. The synchronous schedule trains on nothing stale, and starts anew.
func (l *Loop) onTrainerRestored(ev *Event) {
	s := &l.s
	if ev.Version != s.Trained+1 {
		l.late()
		return
	}
	if s.Lease.ID != 0 {
		l.returnLease()
	}
	s.Trained = ev.Version
	if l.cfg.TrainerAsks {
		s.Restored = ev.Version
	}
	s.Times.LeaseAt, s.Times.EndAt = unknownTime, unknownTime // the period was cut short
	if s.Control != nil {
		s.Control.QuietAt = s.Now
		l.alarm = l.nextAlarm()
	}
	if l.cfg.Policy == PolicySynchronous && !l.keepsSurplus() {
		l.discardAll()
	}
	l.onVersion()
	l.interruptAtBatch()
}

// keepsSurplus reports whether the synchronous schedule interrupts what exceeds
// its batch and trains on it later.
func (l *Loop) keepsSurplus() bool { return l.cfg.ExtraGroups > 0 && l.cfg.InterruptAtBatch }

// discardAll ends every group that is not at the trainer as stale.
func (l *Loop) discardAll() {
	all := func(g *group) bool { return g.State != groupFree && g.State != groupLeased }
	for gi := l.nextGroupBy(0, all); gi != none; {
		id := l.s.Groups[gi].ID
		l.endGroup(gi, EndDiscarded, ReasonStale)
		gi = l.nextGroupBy(id, all)
	}
}

// returnLease puts the batch back into the queue where it stood in the order of
// readiness, which is the head if the oldest are selected. What exceeds the
// capacity is the oldest, which goes; a policy that drops nothing holds
// the newest outside instead.
func (l *Loop) returnLease() {
	s := &l.s
	for _, gi := range s.Lease.Groups {
		g := &s.Groups[gi]
		g.State = groupQueued
		s.insert(&s.Queue, gi)
		s.Ledger.Leased -= int64(g.Scored)
		s.Ledger.Queued += int64(g.Scored)
	}
	s.Taken = max(s.Taken-len(s.Lease.Groups), 0)
	s.Lease.ID = 0
	for s.Queue.Len > l.rules.queue {
		if !l.holdsOutside() {
			l.evict()
			continue
		}
		l.putOutside()
	}
}

// putOutside has the newest group of the queue wait outside it.
func (l *Loop) putOutside() {
	s := &l.s
	gi := s.Queue.Tail
	g := &s.Groups[gi]
	s.remove(&s.Queue, gi)
	s.pushFront(&s.Held, gi)
	g.State = groupHeld
	s.Ledger.Queued -= int64(g.Scored)
	s.Ledger.Waiting += int64(g.Scored)
}
