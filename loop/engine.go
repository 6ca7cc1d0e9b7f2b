package loop

type engineState uint8

const (
	engineServing engineState = iota
	// engineJoining has no weights yet that it may serve, or unknown ones.
	engineJoining
	engineLost
)

type syncPhase uint8

const (
	phaseIdle syncPhase = iota
	phaseLoading
	phaseLoaded
	// phaseEmptying waits for its rollouts to be interrupted before it switches (SyncRestart).
	phaseEmptying
	phaseSwitching
)

// engine is a rollout engine as the loop sees it.
type engine struct {
	State  engineState
	Phase  syncPhase
	Served Version
	// Loading is the version of the load under way, Attempt its number over the run.
	Loading  Version
	Attempt  int32
	Failures int32
	// Active counts slots that are taken, Free lists the others, the next one last.
	Active int32
	Free   []int32
	// Away says where the engine is with the pool.
	Away away `json:",omitempty"`
	// Asked is how often the pool was asked for it.
	Asked int32 `json:",omitempty"`
}

// canStart reports whether the engine takes new rollouts now.
func (l *Loop) canStart(e *engine) bool {
	return e.State == engineServing && len(e.Free) > 0 && (e.Phase == phaseIdle || l.startsInSync(e)) && (l.cfg.Policy != PolicyMax || !l.hopeless(e.Served))
}

// startsInSync reports whether an engine takes rollouts in its phase of a sync.
func (l *Loop) startsInSync(e *engine) bool {
	switch l.cfg.Sync {
	case SyncPause:
		return e.Phase != phaseSwitching
	case SyncDrain:
		return false
	case SyncRestart:
		return e.Phase != phaseEmptying && e.Phase != phaseSwitching
	}
	return true
}

// pickEngine returns the engine with the most free slots that takes rollouts,
// the first of equals; none if there is none.
func (l *Loop) pickEngine() int32 {
	best, free := none, 0
	for i := range l.s.Engines {
		e := &l.s.Engines[i]
		if len(e.Free) > free && (e.Phase == phaseIdle && e.State == engineServing && l.cfg.Policy != PolicyMax || l.canStart(e)) {
			best, free = int32(i), len(e.Free)
		}
	}
	return best
}

func (l *Loop) freeSlots() int {
	sum := 0
	for i := range l.s.Engines {
		if e := &l.s.Engines[i]; l.canStart(e) {
			sum += len(e.Free)
		}
	}
	return sum
}

// minServed returns the lowest version a serving engine serves.
func (l *Loop) minServed() Version {
	lowest := NoVersion
	for i := range l.s.Engines {
		if e := &l.s.Engines[i]; e.State == engineServing && (lowest == NoVersion || e.Served < lowest) {
			lowest = e.Served
		}
	}
	return lowest
}

// allServe reports whether every serving engine serves v.
func (l *Loop) allServe(v Version) bool {
	for i := range l.s.Engines {
		if e := &l.s.Engines[i]; e.State == engineServing && e.Served != v {
			return false
		}
	}
	return true
}

// startSync begins to bring the newest version to the serving engines, unless a
// sync is running (it finishes first) or the newest is not due yet.
func (l *Loop) startSync() {
	s := &l.s
	v := l.syncDue()
	if s.Sync.Target != NoVersion || v == NoVersion {
		return
	}
	l.bring(v)
}

// bring begins a sync to a version.
func (l *Loop) bring(v Version) {
	s := &l.s
	for i := range s.Engines {
		if e := &s.Engines[i]; e.State == engineServing && e.Served < v {
			s.Sync.Target, s.Times.SyncAt = v, s.Now
			e.Failures = 0
			l.load(int32(i), v)
		}
	}
}

// syncDue returns the version that a sync is to bring, NoVersion if none is due.
func (l *Loop) syncDue() Version {
	s := &l.s
	v := l.newestWeights()
	if v == s.Sync.Completed || !l.cfg.TrainerAsks && v-s.Sync.Completed < Version(l.rules.syncEvery) {
		return NoVersion
	}
	return v
}

// newestWeights returns the newest version that has weights. A trainer that asks for its
// batches publishes those of every SyncEvery-th version, and those that it went back
// to; any other publishes all.
func (l *Loop) newestWeights() Version {
	s := &l.s
	if !l.cfg.TrainerAsks {
		return s.Trained
	}
	return max(s.Trained-s.Trained%Version(l.rules.syncEvery), s.Restored)
}

// load has an engine fetch a version.
func (l *Loop) load(i int32, v Version) {
	e := &l.s.Engines[i]
	e.Phase, e.Loading = phaseLoading, v
	e.Attempt++
	l.emit(Action{Kind: LoadWeights, Engine: i, Version: v, Attempt: e.Attempt})
}

// join has an engine without known weights fetch v, to serve afterwards.
func (l *Loop) join(i int32, v Version) {
	e := &l.s.Engines[i]
	e.State, e.Served, e.Failures = engineJoining, NoVersion, 0
	l.load(i, v)
}

// loadNamed returns the engine whose load, in the given phase, an event names.
func (l *Loop) loadNamed(ev *Event, phase syncPhase) *engine {
	if ev.Engine < 0 || int(ev.Engine) >= len(l.s.Engines) {
		l.late()
		return nil
	}
	e := &l.s.Engines[ev.Engine]
	if e.Phase != phase || e.Loading != ev.Version || e.Attempt != ev.Attempt {
		l.late()
		return nil
	}
	return e
}

func (l *Loop) onWeightsLoaded(ev *Event) {
	e := l.loadNamed(ev, phaseLoading)
	if e == nil {
		return
	}
	e.Phase = phaseLoaded
	if e.State == engineJoining {
		if l.behind(e.Loading) {
			l.load(ev.Engine, l.fleetVersion())
			return
		}
		l.switchEngine(ev.Engine)
		return
	}
	l.advanceSync()
}

// behind reports whether v is below what a joining engine may serve: it never
// serves below the fleet's minimum, which may have risen while it loaded.
func (l *Loop) behind(v Version) bool {
	return v < max(l.minServed(), l.s.Sync.Completed)
}

// fleetVersion is the version a joining engine is to fetch: what the fleet serves or is about to. Where
// none serves it is the newest that is due, since the one before may be nobody's any more: it
// may have been held by a process that has ended.
func (l *Loop) fleetVersion() Version {
	v := max(l.s.Sync.Target, l.s.Sync.Completed)
	if l.minServed() == NoVersion {
		v = max(v, l.syncDue())
	}
	return v
}

// advanceSync switches the engines that are ready for it: each for itself, or
// all of them together once the last is.
func (l *Loop) advanceSync() {
	s := &l.s
	if s.Sync.Target == NoVersion {
		return
	}
	if l.cfg.Sync == SyncRestart {
		l.emptyEngines()
	}
	all := true
	for i := range s.Engines {
		e := &s.Engines[i]
		if e.State != engineServing || e.Phase == phaseIdle || e.Phase == phaseSwitching || e.goes() {
			continue
		}
		if !l.readyToSwitch(e) {
			all = false
		} else if l.cfg.RollingSwitch {
			l.switchEngine(int32(i))
		}
	}
	if !all || l.cfg.RollingSwitch {
		return
	}
	for i := range s.Engines {
		if e := &s.Engines[i]; e.State == engineServing && !e.goes() && l.readyToSwitch(e) {
			l.switchEngine(int32(i))
		}
	}
}

// goes reports whether an engine is given back in this very step, and so switches to nothing any more.
func (e *engine) goes() bool {
	return e.Away == engineLeaving && e.Active == 0 && e.Phase != phaseLoading
}

func (l *Loop) readyToSwitch(e *engine) bool {
	if l.cfg.Sync == SyncRestart {
		return e.Phase == phaseEmptying && e.Active == 0
	}
	return e.Phase == phaseLoaded && (l.cfg.Sync != SyncDrain || e.Active == 0)
}

// emptyEngines interrupts the rollouts of the engines that are to switch now:
// each for itself, or all of them once the last has loaded.
func (l *Loop) emptyEngines() {
	s := &l.s
	for i := range s.Engines {
		if e := &s.Engines[i]; e.State == engineServing && e.Phase == phaseLoading && !l.cfg.RollingSwitch {
			return
		}
	}
	for i := range s.Engines {
		if e := &s.Engines[i]; e.State == engineServing && e.Phase == phaseLoaded {
			e.Phase = phaseEmptying
			l.interruptEngine(int32(i))
		}
	}
}

func (l *Loop) switchEngine(i int32) {
	e := &l.s.Engines[i]
	e.Phase = phaseSwitching
	l.emit(Action{Kind: SwitchWeights, Engine: i, Version: e.Loading, Attempt: e.Attempt})
}

func (l *Loop) onWeightsSwitched(ev *Event) {
	e := l.loadNamed(ev, phaseSwitching)
	if e == nil {
		return
	}
	if ev.Version < e.Served {
		l.broken("engine %d fell from v%d to v%d", ev.Engine, e.Served, ev.Version)
	}
	if e.State == engineJoining && l.behind(ev.Version) {
		l.load(ev.Engine, l.fleetVersion())
		return
	}
	e.Served, e.Phase, e.Failures = ev.Version, phaseIdle, 0
	if e.State == engineJoining {
		e.State = engineServing
		switch {
		case l.s.Sync.Target > e.Served:
			l.load(ev.Engine, l.s.Sync.Target) // it came in the middle of a sync, and takes part
		case l.s.Sync.Target == NoVersion && e.Served > l.s.Sync.Completed && l.allServe(e.Served):
			l.synced(e.Served) // it came alone, with what a sync would bring
		case l.s.Sync.Target == NoVersion && e.Served > l.s.Sync.Completed:
			l.bring(max(e.Served, l.syncDue())) // another came with less meanwhile
		default:
			l.startSync() // one may have become due while no engine served
		}
	}
	l.completeSync()
}

// completeSync ends the sync once no engine takes part in it any more, and goes
// on to the newest version if that is due; versions between are skipped.
func (l *Loop) completeSync() {
	s := &l.s
	if s.Sync.Target == NoVersion {
		return
	}
	for i := range s.Engines {
		if e := &s.Engines[i]; e.State == engineServing && e.Phase != phaseIdle {
			return
		}
	}
	l.synced(s.Sync.Target)
}

// synced notes that all engines that serve have a version, and goes on to the newest if that is due.
func (l *Loop) synced(v Version) {
	s := &l.s
	s.Sync.Completed, s.Sync.Target, s.Taken = v, NoVersion, 0
	l.learnSync()
	l.emit(Action{Kind: SyncCompleted, Version: v})
	l.startSync()
	l.selectBatch()
}

// onSyncFailed tries a failed load again; the engine goes on serving what it
// has. A failed switch leaves it with unknown weights: its rollouts fail, or are
// interrupted (ResumeLost), and it joins anew. After the last attempt the engine
// counts as lost.
func (l *Loop) onSyncFailed(ev *Event) {
	if ev.Engine < 0 || int(ev.Engine) >= len(l.s.Engines) {
		l.late()
		return
	}
	e := &l.s.Engines[ev.Engine]
	switching := e.Phase == phaseSwitching
	if !switching && e.Phase != phaseLoading || e.Loading != ev.Version || e.Attempt != ev.Attempt {
		l.late()
		return
	}
	e.Failures++
	if int(e.Failures) >= l.cfg.MaxAttempts {
		l.loseEngine(ev.Engine, ReasonSync)
		return
	}
	if switching {
		e.Phase = phaseIdle
		if l.cfg.ResumeLost {
			l.interruptEngine(ev.Engine)
		} else {
			l.abortRollouts(ev.Engine, ReasonSync)
		}
		e.State, e.Served = engineJoining, NoVersion
	}
	l.load(ev.Engine, l.fleetVersion())
	l.advanceSync()
	l.completeSync()
}

// abortRollouts fails every attempt on an engine that lives on, and keeps each
// slot until the engine says that the rollout has stopped.
func (l *Loop) abortRollouts(engine int32, why Reason) {
	s := &l.s
	for i := range s.Slots {
		sl := s.Slots[i]
		if sl.Engine != engine || !sl.holdsAttempt() {
			continue
		}
		l.abort(int32(i), why)
		l.failSample(sl.Group, sl.Sample, why)
	}
}

func (l *Loop) onEngineLost(ev *Event) {
	if ev.Engine < 0 || int(ev.Engine) >= len(l.s.Engines) || l.s.Engines[ev.Engine].State == engineLost {
		l.late()
		return
	}
	why := ReasonEngine
	if ev.Reason == ReasonRestart && l.cfg.ResumeRestart && !l.cfg.Owns(ev.Engine) {
		why = ReasonRestart
	}
	l.loseEngine(ev.Engine, why)
}

// loseEngine takes an engine out: its rollouts fail, or are interrupted to go on
// elsewhere (ResumeLost), and it leaves the sync's barrier. They stand interrupted where
// another process is its cell from now on (ReasonRestart).
func (l *Loop) loseEngine(i int32, why Reason) {
	s := &l.s
	e := &s.Engines[i]
	e.State, e.Phase, e.Served = engineLost, phaseIdle, NoVersion
	e.Free = e.Free[:0]
	l.countFree()
	cell := l.cfg.CellOf(i)
	ends := l.endsCell(cell)
	for k := range s.Slots {
		sl := &s.Slots[k]
		if sl.Engine != i && !(ends && l.cfg.CellOf(sl.Engine) == cell) {
			continue
		}
		switch {
		case why == ReasonRestart && sl.holdsAttempt():
			l.stand(int32(k))
			l.freeSlot(int32(k))
		case l.cfg.ResumeLost && !ends && why != ReasonRestart:
			l.interruptLost(int32(k), why)
		case sl.holdsAttempt():
			l.failAttempt(int32(k), why)
		case sl.State == slotAborting:
			l.freeSlot(int32(k))
		}
	}
	switch {
	case ends && why == ReasonRestart:
		l.sayStanding(i)
	case ends:
		l.failBacklog(cell, why)
	}
	l.advanceSync()
	l.completeSync()
}

func (l *Loop) onEngineJoined(ev *Event) {
	if ev.Engine < 0 || int(ev.Engine) >= len(l.s.Engines) || l.s.Engines[ev.Engine].State != engineLost {
		l.late()
		return
	}
	s := &l.s
	if s.Control != nil && !l.welcomes(ev) {
		return
	}
	l.freeSlotsOf(ev.Engine)
	l.countFree()
	l.join(ev.Engine, l.fleetVersion())
}
