package loop

// away says where an engine is between the run and the pool that starts and stops engines. Engine i is
// wanted if i is below SettingEngines: a pool that names its members takes the last one first.
type away uint8

const (
	// engineOurs is the run's, there or lost.
	engineOurs away = iota
	// engineLeaving takes nothing new, and is given back when its rollouts have ended.
	engineLeaving
	// engineAway is the pool's.
	engineAway
	// engineStarting has been asked for.
	engineStarting
)

// refusalSteps is the number of train steps before a pool that could not give an engine is asked for it again.
const refusalSteps = 8

// fitFleet asks the pool for the engines that are wanted and not there, and has those leave that are not wanted.
func (l *Loop) fitFleet() {
	s := &l.s
	want := int(s.Control.At[SettingEngines])
	for i := range s.Engines {
		e := &s.Engines[i]
		switch {
		case i < want && e.Away == engineLeaving:
			l.stay(int32(i))
		case i < want && e.Away == engineAway && (s.Control.Refused == NoVersion || s.Trained >= s.Control.Refused+refusalSteps):
			e.Away = engineStarting
			l.acquire(int32(i))
		case i >= want && e.Away == engineOurs:
			l.leave(int32(i))
		}
	}
	l.countFree()
	l.releaseEmpty()
}

func (l *Loop) acquire(i int32) {
	e := &l.s.Engines[i]
	e.Asked++
	l.emit(Action{Kind: AcquireEngine, Engine: i, Attempt: e.Asked})
}

// leave has an engine take nothing new. One that is lost is not waited for.
func (l *Loop) leave(i int32) {
	e := &l.s.Engines[i]
	e.Away = engineLeaving
	e.Free = e.Free[:0]
	l.departs = true
}

// stay takes an engine that was to leave back.
func (l *Loop) stay(i int32) {
	e := &l.s.Engines[i]
	if e.State == engineLost { // nobody tries one again that was to leave
		e.Away = engineStarting
		l.acquire(i)
		return
	}
	e.Away = engineOurs
	l.freeSlotsOf(i)
}

// freeSlotsOf lists the free slots of an engine that has none listed, the lowest to be taken first.
func (l *Loop) freeSlotsOf(i int32) {
	s := &l.s
	for k := len(s.Slots) - 1; k >= 0; k-- {
		if s.Slots[k].Engine == i && s.Slots[k].State == slotFree {
			s.Engines[i].Free = append(s.Engines[i].Free, int32(k))
		}
	}
}

// releaseEmpty gives the engines back that were to leave, hold no rollout and neither load nor switch.
func (l *Loop) releaseEmpty() {
	s := &l.s
	l.departs = false
	for i := range s.Engines {
		e := &s.Engines[i]
		if e.Away != engineLeaving {
			continue
		}
		if e.Active > 0 || e.Phase == phaseLoading || e.Phase == phaseSwitching {
			l.departs = true
			continue
		}
		e.Away = engineAway
		l.emit(Action{Kind: ReleaseEngine, Engine: int32(i)})
		if e.State != engineLost {
			l.loseEngine(int32(i), ReasonCapacity)
		}
		l.leaveCell(int32(i))
	}
}

// leaveCell fails what stands interrupted in the cell of an engine that was given back, if no other is left there: it could
// go on nowhere.
func (l *Loop) leaveCell(i int32) {
	cell := l.cfg.CellOf(i)
	for k := range l.s.Engines {
		if e := &l.s.Engines[k]; l.cfg.CellOf(int32(k)) == cell && (e.Away == engineOurs || e.Away == engineLeaving) {
			return
		}
	}
	if l.cfg.StaysInCell {
		l.failBacklog(cell, ReasonCapacity)
	}
}

// welcomes reports whether an engine that says it is there is to join: one that was asked for, as often
// as it says, or one that was lost and is the run's. One that is not wanted any more goes at once.
func (l *Loop) welcomes(ev *Event) bool {
	s := &l.s
	e := &s.Engines[ev.Engine]
	if e.Away == engineAway || e.Away == engineLeaving || e.Away == engineStarting && ev.Attempt != e.Asked {
		l.late()
		return false
	}
	if e.Away == engineStarting && int(ev.Engine) >= int(s.Control.At[SettingEngines]) {
		e.Away = engineAway
		l.emit(Action{Kind: ReleaseEngine, Engine: ev.Engine})
		return false
	}
	e.Away = engineOurs
	return true
}

func (l *Loop) onEngineUnavailable(ev *Event) {
	s := &l.s
	if ev.Engine < 0 || int(ev.Engine) >= len(s.Engines) || s.Engines[ev.Engine].Away != engineStarting || s.Engines[ev.Engine].Asked != ev.Attempt {
		l.late()
		return
	}
	s.Engines[ev.Engine].Away = engineAway
	s.Control.Refused = s.Trained
}

// beginFleet leaves the engines to the pool that are not to be there from the start.
func (l *Loop) beginFleet() {
	for i := int(l.s.Control.At[SettingEngines]); i < len(l.s.Engines); i++ {
		e := &l.s.Engines[i]
		e.State, e.Away = engineLost, engineAway
	}
}

// recoverFleet asks anew for what the process that ended had asked for, and gives back what was to leave:
// nothing runs on it any more. Rollouts of another cell go on, so that its engines leave as before.
func (l *Loop) recoverFleet() {
	s := &l.s
	l.departs = false
	for i := range s.Engines {
		e := &s.Engines[i]
		if e.Away == engineLeaving && !l.cfg.Owns(int32(i)) {
			l.departs = true
			continue
		}
		if e.Away == engineOurs {
			continue
		}
		e.State, e.Phase, e.Served = engineLost, phaseIdle, NoVersion
		switch e.Away {
		case engineLeaving:
			e.Away = engineAway
			l.emit(Action{Kind: ReleaseEngine, Engine: int32(i)})
			l.leaveCell(int32(i))
		case engineStarting:
			l.acquire(int32(i))
		}
	}
}

// EngineState says what an engine is doing: serving, joining, lost, starting (asked for), leaving
// (it is to be given back) or away (the pool's).
func (l *Loop) EngineState(engine int) string {
	e := &l.s.Engines[engine]
	switch e.Away {
	case engineLeaving:
		return "leaving"
	case engineAway:
		return "away"
	case engineStarting:
		return "starting"
	}
	switch e.State {
	case engineLost:
		return "lost"
	case engineJoining:
		return "joining"
	}
	return "serving"
}
