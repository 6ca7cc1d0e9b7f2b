package loop

import "math"

// What other settings move by, and how long the controller waits between two such moves, in windows.
const (
	holdStep, queuePart = 0.1, 0.25
	// roomLeast is the part of the goal that must be free before such a setting goes back.
	roomLeast = 0.15
	// droppedLeast is the share of groups dropped past the filters from which a longer hold is free.
	droppedLeast, freeStep = 0.03, 0.05
	// enginesIdle is the share of time that the trainer waits at least, and enginesBusy the share of slots in use,
	// for one engine more; enginesSpare is what production must at least be of consumption with one fewer.
	enginesIdle, enginesBusy, enginesSpare = 0.05, 0.9, 1.15
)

// others are the settings beside the lever that lower staleness, in the order in which they are taken: what
// changes the distribution of what is trained comes last. They go back in the reverse order.
var others = [...]struct {
	set Setting
	// towards is -1 for one that lowers staleness as it falls, 1 as it rises.
	towards float64
}{{SettingSyncEvery, -1}, {SettingHold, 1}, {SettingQueue, -1}, {SettingRedundancy, 1}}

// pullOthers moves a setting beside the lever, if there is a reason, and at most one in half a window.
func (l *Loop) pullOthers() {
	s, c, n := &l.s, l.s.Control, l.cfg.Control.Window
	since := s.Trained - c.OthersAt
	if since < Version(max(n/2, 1)) {
		return
	}
	lever, moves := l.lever()
	r := l.reach(lever)
	u := l.excess(l.span(n))
	switch {
	case u < 0:
	case u > 1 && (!moves || c.At[lever] <= r.Least):
		l.pull(ReasonAbove)
	case since < Version(2*n):
	case l.holdFreely():
	case (!moves || c.At[lever] >= r.Most || c.At[lever] > float64(1.25*r.Least)+1) && max(u, l.excess(2*n)) < 1-roomLeast-l.margin():
		l.pull(ReasonRoom)
	}
	if l.cfg.Control.Ranges[SettingEngines].Moves() && s.Trained-c.MovedAt[SettingEngines] >= Version(2*n) && c.Count >= int64(2*n) {
		l.scaleFleet(u)
	}
}

// pull moves the first of the other settings that can: to lower staleness for ReasonAbove, else back to where
// Config has it.
func (l *Loop) pull(why Reason) {
	for i := range others {
		o := others[i]
		if why == ReasonRoom {
			o = others[len(others)-1-i]
		}
		r, at := l.cfg.Control.Ranges[o.set], l.s.Control.At[o.set]
		if !r.Moves() {
			continue
		}
		if l.s.Trained-l.s.Control.MovedAt[o.set] < l.restOf(o.set) {
			continue
		}
		to := at + float64(o.towards*l.stepOf(o.set))
		if why == ReasonRoom {
			to = at - float64(o.towards*l.stepOf(o.set))
			if home := l.cfg.startOf(o.set); float64((to-home)*o.towards) < 0 { // not beyond
				to = home
			}
			if float64((at-to)*o.towards) <= 0 {
				continue
			}
		}
		if to = r.fit(o.set, l.grain(o.set, to)); to != at {
			l.s.Control.OthersAt = l.s.Trained
			l.move(o.set, to, why)
			return
		}
	}
}

// stepOf is what another setting moves by at once.
func (l *Loop) stepOf(set Setting) float64 {
	switch set {
	case SettingHold:
		return holdStep
	case SettingQueue:
		return max(float64(queuePart*float64(l.cfg.BatchGroups)), math.Floor(l.surplus()), 1)
	}
	return 1
}

// surplus is how many groups fewer ready ones would meet the goal: a batch is a version of the mean, and two of
// a share, which is seldom more than twice its mean. 0 while the goal holds.
func (l *Loop) surplus() float64 {
	ctl := l.cfg.Control
	return max(float64((l.excess(l.span(ctl.Window))-1)*ctl.versions())*float64(l.cfg.BatchGroups), 0)
}

// holdFreely moves the hold where that costs nothing: up while groups are dropped and the trainer never waits, and
// back while it does. It reports whether it did.
func (l *Loop) holdFreely() bool {
	c, r := l.s.Control, l.cfg.Control.Ranges[SettingHold]
	if !r.Moves() {
		return false
	}
	idle, dropped := l.slack(l.cfg.Control.Window)
	at, to := c.At[SettingHold], c.At[SettingHold]
	switch {
	case dropped > droppedLeast && idle < idleLeast:
		to += freeStep
	case idle > 2*idleLeast && c.Why[SettingHold] == ReasonFree:
		to = min(max(to-freeStep, l.cfg.startOf(SettingHold)), to) // somebody may have asked for less than at the start
	}
	if to = r.fit(SettingHold, l.grain(SettingHold, to)); to == at {
		return false
	}
	c.OthersAt = l.s.Trained
	l.move(SettingHold, to, ReasonFree)
	return true
}

// slack is the share of time that the trainer waited over n steps, and that of groups dropped past the filters.
func (l *Loop) slack(n int) (idle, dropped float64) {
	w := l.window(n)
	if w.PeriodNS == 0 {
		return 0, 0
	}
	return float64(w.PeriodNS-w.StepNS) / float64(w.PeriodNS), float64(w.Dropped-(w.Ready-w.Accepted)) / float64(max(w.Accepted, 1))
}

// scaleFleet asks for one engine more where the trainer waits, every slot is in use and the goal has room, or
// for one fewer where the others would still make more than is trained.
func (l *Loop) scaleFleet(u float64) {
	s, c, n := &l.s, l.s.Control, 2*l.cfg.Control.Window
	r, at := l.cfg.Control.Ranges[SettingEngines], c.At[SettingEngines]
	w := l.window(n)
	idle, _ := l.slack(n)
	slots := float64(min(l.capacity(), l.rules.slots))
	if w.PeriodNS == 0 || w.Groups == 0 || slots == 0 || s.Trained-c.MovedAt[SettingEngines] < l.restOf(SettingEngines) {
		return
	}
	lever, moves := l.lever()
	keeps := moves && lever == SettingLive // whatever the number of engines
	busy := min(float64(w.BusyNS)/float64(float64(w.PeriodNS)*slots), 1)
	production := float64(w.Accepted) / float64(float64(w.Groups)*max(busy, 0.01))
	switch {
	case u > 1 && at > r.Least && (!moves || c.At[lever] <= l.reach(lever).Least):
		l.move(SettingEngines, at-1, ReasonAbove)
	case idle > enginesIdle && busy > enginesBusy && at < r.Most && (keeps && u <= 1 || float64(u*(at+1)) < float64((1-l.margin())*at)):
		l.move(SettingEngines, at+1, ReasonForward)
	case idle < idleLeast && at > r.Least && float64(production*(at-1)) >= float64(enginesSpare*at):
		l.move(SettingEngines, at-1, ReasonCapacity)
	}
}

// exhausted reports whether every setting that would lower staleness is at the end of its range, and names
// the one that binds.
func (l *Loop) exhausted() (Setting, bool) {
	at := &l.s.Control.At
	binding, known := l.lever()
	if known && at[binding] > l.reach(binding).Least {
		return binding, false
	}
	for _, o := range others {
		r := l.cfg.Control.Ranges[o.set]
		if !r.Moves() {
			continue
		}
		if !known {
			binding, known = o.set, true
		}
		if o.towards < 0 && at[o.set] > r.Least || o.towards > 0 && at[o.set] < r.Most {
			return binding, false
		}
	}
	if !known {
		binding = SettingEngines
	}
	return binding, true
}
