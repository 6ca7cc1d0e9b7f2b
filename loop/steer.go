package loop

import "math"

// silentPeriods is how many typical train periods, times SettingSyncEvery, without the end of a step are a silence.
const silentPeriods = 8

// beginControl says where the settings stand as the run starts.
func (l *Loop) beginControl() {
	c := l.s.Control
	for set := range settingCount {
		if l.cfg.Control.Ranges[set].Moves() {
			c.Why[set] = ReasonStart
			l.emit(Action{Kind: SettingChanged, Setting: set, Value: c.At[set], Reason: ReasonStart})
		}
	}
	if l.cfg.Control.goal() {
		l.controlBecomes(ControlSettling)
	}
}

// recoverControl goes on after the process that ended: what it had under way is gone, and with it the
// times of that.
func (l *Loop) recoverControl() {
	c := l.s.Control
	for i := range c.Began {
		c.Began[i] = unknownTime
	}
	c.Now, c.QuietAt = figures{}, l.s.Now
	l.recoverFleet()
	l.alarm = l.nextAlarm()
}

// controlBecomes notes a change of the controller's state.
func (l *Loop) controlBecomes(state ControlState) {
	c := l.s.Control
	if c.State == state {
		return
	}
	c.State = state
	a := Action{Kind: ControlChanged, Control: state, Version: l.s.Trained, Value: l.measured()}
	if state == ControlUnreachable {
		a.Setting, a.Value = c.Binding, c.Nearest
	}
	l.emit(a)
}

// onSettingRequested moves a setting because somebody outside asked for it. Who asks for engines
// knows more than the pool's last answer says: it is asked again at once.
func (l *Loop) onSettingRequested(ev *Event) {
	ctl := l.cfg.Control
	v := ev.Value()
	if ctl == nil || ev.Setting >= settingCount || !ctl.Ranges[ev.Setting].Moves() || math.IsNaN(v) {
		l.late()
		return
	}
	if ev.Setting == SettingEngines {
		l.s.Control.Refused = NoVersion
	}
	l.move(ev.Setting, ctl.Ranges[ev.Setting].fit(ev.Setting, v), ReasonRequested)
	if ev.Setting == SettingEngines {
		l.fitFleet() // the number may be the same, and the pool have refused
	}
}

// nextAlarm is when the controller gives up waiting for the end of a train step, NoTick for never.
func (l *Loop) nextAlarm() int64 {
	c := l.s.Control
	if c == nil || !l.cfg.Control.goal() || c.State == ControlSilent || l.s.Times.Period == 0 {
		return NoTick
	}
	return c.QuietAt + silentPeriods*l.s.Times.Period*int64(l.rules.syncEvery)
}

// onAlarm notes that nothing has been measured for long. The settings stay: what is not
// measured is no reason to move them.
func (l *Loop) onAlarm() {
	l.controlBecomes(ControlSilent)
	l.alarm = NoTick
}

// measured is what the goal is measured to be: the mean staleness, or the share; -1 if nothing is known.
func (l *Loop) measured() float64 {
	w := l.window(l.cfg.Control.Window)
	if l.cfg.Control.Mean > 0 {
		return w.mean()
	}
	return w.share()
}

// steer looks at what a train step's end has measured, and moves settings.
func (l *Loop) steer() {
	c := l.s.Control
	if l.cfg.Control.Ranges[SettingEngines].Moves() {
		l.fitFleet()
	}
	if !l.cfg.Control.goal() {
		return
	}
	l.judgeStep()
	if l.regimeChanged() {
		c.Since = c.Count
	}
	l.controlBecomes(l.outlook())
	l.decide()
	l.alarm = l.nextAlarm()
}

// judgeStep counts whether the goal holds over the window that ends with the step, and of its own batch.
func (l *Loop) judgeStep() {
	c := l.s.Control
	if c.Count < int64(l.cfg.Control.Window) {
		return
	}
	c.Judged++
	if w := l.window(l.cfg.Control.Window); l.holds(&w) {
		c.Held++
	}
	if last := l.window(1); l.holds(&last) {
		c.HeldBatches++
	}
}

// holds reports whether what was measured is within the goal.
func (l *Loop) holds(w *window) bool {
	ctl := l.cfg.Control
	return (ctl.Mean == 0 || w.mean() <= ctl.Mean) && (ctl.Share == 0 || w.share() >= ctl.Share)
}

// regimeSteps is the number of syncs over whose steps the mean period is compared with that of the steps before,
// regimeFactor how far apart they are in two regimes, regimeErrors how many standard errors at least,
// regimeSlots the part of the slots that comes or goes, and settleSteps the number of steps from which a regime is judged.
const (
	regimeSteps  = 4
	regimeFactor = 1.4
	regimeErrors = 4
	regimeSlots  = 0.2
	settleSteps  = 8
)

// regimeChanged reports whether what was measured so far says little of what is to come: a good part of the slots
// came or went, the trainer's silence ended, or the period is another.
func (l *Loop) regimeChanged() bool {
	c := l.s.Control
	if capacity := l.capacity(); math.Abs(float64(capacity-c.Capacity)) > regimeSlots*float64(max(c.Capacity, 1)) {
		c.Capacity = capacity
		return true
	}
	return c.State == ControlSilent || l.periodChanged()
}

// capacity is the number of slots of the engines that are there.
func (l *Loop) capacity() int {
	sum := 0
	for i := range l.s.Engines {
		if l.s.Engines[i].State != engineLost {
			sum += l.cfg.EngineSlots[i]
		}
	}
	return sum
}

// periodChanged reports whether the last steps took another time than those before, by more than they scatter.
func (l *Loop) periodChanged() bool {
	c := l.s.Control
	last := regimeSteps * l.rules.syncEvery
	n := int(min(c.Count-c.Since, int64(len(c.Steps))))
	if n < 3*last {
		return false
	}
	now, before := l.window(last), l.windowBefore(c.Count-int64(last), n-last)
	if min(now.timed, before.timed) == 0 {
		return false
	}
	a, b := float64(now.PeriodNS)/float64(now.timed), float64(before.PeriodNS)/float64(before.timed)
	square := 0.0
	for k := c.Count - int64(n); k < c.Count-int64(last); k++ {
		off := float64(c.Steps[k%int64(len(c.Steps))].PeriodNS) - b
		square += float64(off * off)
	}
	err := math.Sqrt(square/float64(before.timed)) / math.Sqrt(float64(last))
	return max(a, b) > float64(min(a, b)*regimeFactor) && math.Abs(a-b) > regimeErrors*err
}

// outlook is the state that follows from what was measured.
func (l *Loop) outlook() ControlState {
	c, window := l.s.Control, l.span(l.cfg.Control.Window)
	if w := l.window(window); c.Count >= int64(window) && !l.holds(&w) {
		if set, exhausted := l.exhausted(); exhausted && l.s.Trained-l.movedLast() >= Version(window) {
			c.Binding, c.Nearest = set, l.measured()
			return ControlUnreachable
		}
	}
	n := int(min(c.Count-c.Since, int64(window)))
	if n < min(settleSteps, window) {
		return ControlSettling
	}
	if w := l.window(n); l.holds(&w) {
		return ControlKeeping
	}
	return ControlCorrecting
}

// movedLast is the version at which a setting was moved last.
func (l *Loop) movedLast() Version {
	last := Version(0)
	for set, v := range l.s.Control.MovedAt {
		if l.cfg.Control.Ranges[set].Moves() {
			last = max(last, v)
		}
	}
	return last
}

// excess is what was measured over what the goal permits: 1 just keeps it, more breaks it. -1 is unknown.
func (l *Loop) excess(n int) float64 { return l.excessBefore(l.s.Control.Count, n) }

func (l *Loop) excessBefore(end int64, n int) float64 {
	ctl := l.cfg.Control
	u := -1.0
	w := l.windowBefore(end, n)
	if ctl.Mean > 0 && w.Groups > 0 {
		u = w.mean() / ctl.Mean
	}
	if ctl.Share > 0 && w.Weight > 0 {
		u = max(u, l.quantile(end, n, ctl.Share)/float64(ctl.Within+1))
	}
	return u
}

// quantile is the staleness below which a share of what n steps trained on is, with the staleness of
// each spread evenly over its version.
func (l *Loop) quantile(end int64, n int, share float64) float64 {
	c := l.s.Control
	var by [ages]int64
	total := int64(0)
	for k := end - 1; k >= max(end-int64(n), 0); k-- {
		for age, weight := range c.agesAt(k) {
			by[age] += weight
			total += weight
		}
	}
	want, below := float64(share*float64(total)), 0.0
	for age, weight := range by {
		if w := float64(weight); below+w >= want && w > 0 {
			return float64(age) + (want-below)/w
		}
		below += float64(weight)
	}
	return ages
}
