package loop

// holdsAttempt reports whether an attempt that has not ended is in the slot.
func (sl *slot) holdsAttempt() bool {
	return sl.State == slotRunning || sl.State == slotInterrupting
}

// paused reports whether rollouts stand still until the next batch is wanted (InterruptAtBatch).
func (l *Loop) paused() bool {
	s := &l.s
	if l.cfg.Policy == PolicySynchronous && (s.Lease.ID != 0 || !l.allServe(s.Trained)) {
		return true
	}
	return s.Queue.Len >= l.cfg.BatchGroups
}

// interruptAll asks every rollout in flight to stop and keep its tokens.
func (l *Loop) interruptAll() {
	for i := range l.s.Slots {
		if l.s.Slots[i].State == slotRunning {
			l.interrupt(int32(i))
		}
	}
}

// interruptAtBatch does so where a whole batch waits, and the rule is to.
func (l *Loop) interruptAtBatch() {
	if l.cfg.InterruptAtBatch && l.s.Queue.Len >= l.cfg.BatchGroups {
		l.interruptAll()
	}
}

// interruptEngine does the same for one engine.
func (l *Loop) interruptEngine(engine int32) {
	for i := range l.s.Slots {
		if sl := &l.s.Slots[i]; sl.Engine == engine && sl.State == slotRunning {
			l.interrupt(int32(i))
		}
	}
}

func (l *Loop) interrupt(slotIndex int32) {
	sl := &l.s.Slots[slotIndex]
	sl.State = slotInterrupting
	l.emit(Action{Kind: InterruptRollout, Engine: sl.Engine, Slot: slotIndex, Group: sl.ID, Sample: sl.Sample, Attempt: sl.Attempt})
}

// onRolloutInterrupted parks a rollout with the tokens it has, whether it was
// asked for or the engine did so of itself.
func (l *Loop) onRolloutInterrupted(ev *Event) {
	sl := l.occupied(ev, true)
	if sl == nil {
		return
	}
	s := &l.s
	gi, k := sl.Group, sl.Sample
	smp := l.sample(gi, k)
	if s.Control != nil {
		l.measureSpan(ev.Slot)
	}
	if ev.Tokens > smp.Tokens { // else it waited for its environment, and has no further span
		smp.Spans++
		smp.Tokens = ev.Tokens
	}
	if l.cfg.MaxSpans > 0 && int(smp.Spans) >= l.cfg.MaxSpans {
		l.startAfresh(gi, k)
	} else {
		l.park(sl)
	}
	l.freeSlot(ev.Slot)
}

// park has an attempt wait for another slot than the one it is in.
func (l *Loop) park(sl *slot) {
	l.sample(sl.Group, sl.Sample).Slot = parked
	l.s.Backlog.push(retry{Group: sl.Group, Sample: sl.Sample, Cached: l.cachedOn(sl.Engine), Cell: l.cfg.CellOf(sl.Engine)})
}

// stand has the attempt in a slot wait for another slot, whose process is gone. The slot is the caller's.
func (l *Loop) stand(slotIndex int32) {
	sl := &l.s.Slots[slotIndex]
	l.park(sl)
	l.s.Groups[sl.Group].TokenSeen = true // the log may lack the first of it
}

// sayStanding names the attempts that stand interrupted in the cell of an engine, for its new process.
func (l *Loop) sayStanding(engine int32) {
	for _, r := range l.s.Backlog.all() {
		if r.Cell == l.cfg.CellOf(engine) && l.sample(r.Group, r.Sample).Slot == parked {
			a := l.underWay(r.Group, r.Sample)
			a.Kind, a.Engine, a.Slot = InterruptRollout, engine, none
			l.emit(a)
		}
	}
}

// interruptLost has what a slot of a lost engine holds go on elsewhere with the tokens it
// has: the driver keeps them, and says when it has let go of the engine. A loss counts as
// one of the rollout's failures, so that one that brings engines down does not wander for
// ever: it fails with the last.
func (l *Loop) interruptLost(slotIndex int32, why Reason) {
	sl := &l.s.Slots[slotIndex]
	if !sl.holdsAttempt() {
		return
	}
	gi, k := sl.Group, sl.Sample
	smp := l.sample(gi, k)
	if int(smp.Failures)+1 >= l.cfg.MaxAttempts {
		l.abort(slotIndex, why)
		l.failSample(gi, k, why)
		return
	}
	smp.Failures++
	if sl.State == slotRunning {
		l.interrupt(slotIndex)
	}
}

// startAfresh cancels an attempt made of as many spans as may be, to be tried again.
func (l *Loop) startAfresh(gi, k int32) {
	s := &l.s
	g, smp := &s.Groups[gi], l.sample(gi, k)
	l.emit(Action{Kind: AbortRollout, Slot: -1, Group: g.ID, Sample: k, Attempt: smp.Attempt, Reason: ReasonSpans})
	smp.Slot, smp.Spans, smp.Tokens = none, 0, 0
	g.InFlight--
	s.Ledger.InFlight--
	s.Ledger.Cancelled++
	l.restamp(gi)
	s.Retries.push(retry{Group: gi, Sample: k})
}

// restamp forgets the stamp of a group of which nothing made under it is left.
func (l *Loop) restamp(gi int32) {
	if g := &l.s.Groups[gi]; g.InFlight == 0 && g.Scored == 0 {
		g.Start, g.TokenSeen = NoVersion, false
	}
}

// resume gives a slot of an engine to an interrupted rollout. An engine that
// lags behind lowers the group's stamp, as in issue.
func (l *Loop) resume(e, gi, k int32) {
	s := &l.s
	eng, g, smp := &s.Engines[e], &s.Groups[gi], l.sample(gi, k)
	last := len(eng.Free) - 1
	slotIndex := eng.Free[last]
	eng.Free = eng.Free[:last]
	eng.Active++
	l.free--
	l.taken++
	if s.Control != nil {
		s.Control.Began[slotIndex] = s.Now
	}
	smp.Slot = slotIndex
	s.Slots[slotIndex] = slot{ID: g.ID, Group: gi, Sample: k, Attempt: smp.Attempt, Engine: e, State: slotRunning}
	if eng.Served < g.Start {
		g.Start = eng.Served
	}
	l.emit(Action{Kind: ResumeRollout, Engine: e, Slot: slotIndex, Group: g.ID, Sample: k, Attempt: smp.Attempt, Version: eng.Served, StartVersion: g.Start})
}

// resumeNext gives a slot to the interrupted rollout that has waited longest for one, of those that may go on at an engine
// that takes rollouts now: the given one, or where it was interrupted, or any of its cell. It reports false if there is none.
func (l *Loop) resumeNext(e int32) bool {
	s := &l.s
	full := none // a cell without room: most that wait are of one
	for i, r := range s.Backlog.all() {
		if l.cfg.StaysInCell && r.Cell == full {
			continue
		}
		at := e
		if l.cfg.StaysInCell && l.cfg.CellOf(e) != r.Cell {
			at = l.pickOf(r.Cell)
		}
		if at == none {
			full = r.Cell
			continue
		}
		s.Backlog.remove(i)
		l.resume(l.cachedAt(r, at), r.Group, r.Sample)
		return true
	}
	return false
}

// pickOf is pickEngine for the engines of a cell.
func (l *Loop) pickOf(cell int32) int32 {
	best, free := none, 0
	for i := range l.s.Engines {
		if e := &l.s.Engines[i]; l.cfg.CellOf(int32(i)) == cell && len(e.Free) > free && l.canStart(e) {
			best, free = int32(i), len(e.Free)
		}
	}
	return best
}

// endsCell reports whether a cell is at its end: none of its engines is left. Cell 0 ends with the driver's process.
func (l *Loop) endsCell(cell int32) bool {
	if cell == 0 || !l.cfg.StaysInCell {
		return false
	}
	for i := range l.s.Engines {
		if l.s.Engines[i].State != engineLost && l.cfg.CellOf(int32(i)) == cell {
			return false
		}
	}
	return true
}

// failBacklog fails every interrupted rollout of a cell: what it has went with the cell.
func (l *Loop) failBacklog(cell int32, why Reason) {
	for _, r := range l.s.Backlog.cut(cell) {
		if l.sample(r.Group, r.Sample).Slot == parked { // else its group has ended with another of them
			l.failSample(r.Group, r.Sample, why)
		}
	}
}

// pruned ends the rollout in a slot if a rule on itself stopped it; its group goes on without it.
func (l *Loop) pruned(ev *Event, sl *slot) bool {
	if ev.Mark != MarkPruned {
		return false
	}
	s := &l.s
	gi := sl.Group
	g := &s.Groups[gi]
	l.sample(gi, sl.Sample).Slot = none
	g.InFlight--
	s.Ledger.InFlight--
	s.Ledger.Pruned++
	l.restamp(gi)
	l.freeSlot(ev.Slot)
	l.loseSample(gi, EndPruned, ReasonPruned)
	return true
}
