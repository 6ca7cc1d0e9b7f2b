package loop

import "math"

// What the controller keeps to. docs/control.md derives the numbers.
const (
	// marginLeast and marginMost bound the part of the goal that is left as a margin: scatters standard
	// deviations of a window's mean.
	marginLeast, marginMost, scatters = 0.012, 0.12, 1.6
	// scatterWeight is the weight of the newest step in the mean square of the scatter, scatterStart what
	// that is taken for at first.
	scatterWeight, scatterStart, scatterShare = 1.0 / 64, 0.006 * 0.006, 0.04 * 0.04
	// filterScatter is the variance of a window's mean that comes from filtering, times groups over the share lost.
	filterScatter = 0.4
	// idleLeast is the share of time that a trainer waits at least before more groups are let live for it.
	idleLeast = 0.005
	// restSteps is the number of train steps from one move of a setting to the next.
	restSteps = 4
	// upMost and downMost are the largest moves of live groups and of slots, as parts of what they are.
	upMost, downMost = 0.08, 0.25
	// deadband is what a move up must at least be of what the setting is; any is at least a third of the margin.
	deadband = 0.02
	// liveParts is the number of parts of a group in which live groups are counted.
	liveParts = 8
)

// decide moves the setting that stands for staleness towards what the goal permits, and others where that one is
// at the end of its range, or where it costs nothing.
func (l *Loop) decide() {
	c := l.s.Control
	if c.State == ControlSettling {
		return
	}
	l.learnScatter()
	if set, moves := l.lever(); moves {
		l.scale(set)
	}
	if c.Count >= int64(l.cfg.Control.Window) {
		l.pullOthers()
	}
}

// learnScatter takes how far what a live group amounts to is from what it was one window ago. Twice a
// window's own variance is expected of that where nothing drifts, and more where something does.
func (l *Loop) learnScatter() {
	c, n := l.s.Control, l.cfg.Control.Window
	if c.Count-c.Since < int64(2*n) {
		return
	}
	now, before := l.perLive(c.Count, n), l.perLive(c.Count-int64(n), n)
	if !(now > 0 && before > 0) {
		return
	}
	off := 2 * (now - before) / (now + before)
	c.Scatter += (float64(off*off)/2 - c.Scatter) * scatterWeight
}

// perLive is the excess over the goal that a live group stood for.
func (l *Loop) perLive(end int64, n int) float64 {
	w := l.windowBefore(end, n)
	if w.Live == 0 {
		return -1
	}
	return l.excessBefore(end, n) / (float64(w.Live) / float64(w.steps))
}

// margin is the part of the goal that is left free. A window's mean scatters at least as filters have it: of the
// groups live just after an update, a share that is drawn anew is trained, and each lives through some of them.
func (l *Loop) margin() float64 {
	c := l.s.Control
	scatter := c.Scatter
	if w := l.window(l.cfg.Control.Window); w.Ready > 0 {
		lost := 1 - float64(w.Accepted)/float64(w.Ready)
		scatter = max(scatter, filterScatter*lost/float64(l.cfg.BatchGroups*l.cfg.Control.Window))
	}
	return min(max(scatters*math.Sqrt(scatter), marginLeast), marginMost)
}

// lever is the setting that staleness is proportional to.
func (l *Loop) lever() (Setting, bool) {
	for _, set := range [...]Setting{SettingLive, SettingSlots} {
		if l.cfg.Control.Ranges[set].Moves() {
			return set, true
		}
	}
	return 0, false
}

// scale moves the lever in proportion: what was live at a staleness u times the goal's is to be live no more than
// over u. That is Little's law where part of what is live is never trained. Two windows have to agree that there
// is room; one that has used half of the margin up is enough for the way down.
func (l *Loop) scale(set Setting) {
	s, c, n := &l.s, l.s.Control, l.cfg.Control.Window
	r, at := l.cfg.Control.Ranges[set], c.At[set]
	if s.Trained-c.MovedAt[set] < restSteps {
		return
	}
	one, two := l.permits(set, n), l.permits(set, 2*n)
	if one < 0 {
		return
	}
	to, why := min(one, two), ReasonRoom
	if half := l.margin() / 2; l.excess(n) > 1-half || l.excess(n/2) > 1+half {
		to, why = min(one, (one+two)/2), ReasonAbove
	}
	switch {
	case to < at && why == ReasonAbove:
		to = max(to, at*(1-downMost))
	case to > at && why == ReasonRoom && c.Count-c.Since >= int64(n) && l.starves(n):
		to = min(to, max(at*(1+upMost), at+l.least(set)))
	default:
		return
	}
	to = r.fit(set, l.grain(set, to))
	least := l.margin() / 3
	if to > at {
		least = max(least, deadband)
	}
	if math.Abs(to-at) >= least*at {
		l.move(set, to, why)
	}
}

// permits is where the lever would have kept the goal, with the margin, over n steps or as many as there are of
// this regime; -1 if nothing is known.
func (l *Loop) permits(set Setting, n int) float64 {
	c := l.s.Control
	n = int(min(c.Count-c.Since, int64(n)))
	u, w := l.excess(n), l.window(n)
	if u < 0 || w.steps == 0 {
		return -1
	}
	stood := float64(w.Live) / float64(w.steps)
	if set == SettingSlots {
		stood = min(float64(w.BusyNS)/float64(max(w.PeriodNS, 1)), c.At[set])
	}
	most := l.cfg.Control.Ranges[set].Most
	if u == 0 {
		return most
	}
	to := stood * (1 - l.margin()) / (u * l.rising())
	if set == SettingLive {
		to += betweenSyncs(l.rules.syncEvery, l.cfg.BatchGroups)
	}
	return min(to, most)
}

// betweenSyncs is how many groups fewer than SettingLive are live just after an update, in the mean: for each step
// since the last sync a batch less may be.
func betweenSyncs(every, batch int) float64 { return float64(every-1) / 2 * float64(batch) }

// starves reports whether the trainer waits for batches, for twice the share of time that groups have of which are
// dropped past the filters: else more would be dropped, and be too much as soon as nothing is.
func (l *Loop) starves(n int) bool {
	w := l.window(n)
	if w.PeriodNS == 0 {
		return false
	}
	idle := float64(w.PeriodNS-w.StepNS) / float64(w.PeriodNS)
	dropped := float64(w.Dropped-(w.Ready-w.Accepted)) / float64(max(w.Accepted, 1))
	return idle > max(idleLeast, 2*dropped)
}

// rising is by how much more of what is live is expected to be trained than over the last window, 1 for no more:
// filters let a share of the ready groups pass, and where that share has risen since the window before, by
// more than its standard error, it goes on to rise.
func (l *Loop) rising() float64 {
	c, n := l.s.Control, l.cfg.Control.Window
	if c.Count-c.Since < int64(2*n) {
		return 1
	}
	now, before := l.window(n), l.windowBefore(c.Count-int64(n), n)
	if min(now.Accepted, before.Accepted) == 0 {
		return 1
	}
	a, b := float64(now.Accepted)/float64(now.Ready), float64(before.Accepted)/float64(before.Ready)
	err := math.Sqrt(a*(1-a)/float64(now.Ready) + b*(1-b)/float64(before.Ready))
	return 1 + max(a-b-err, 0)/b
}

// least is the least difference that there is between two values of a setting.
func (l *Loop) least(set Setting) float64 {
	if set == SettingLive {
		return 1.0 / liveParts
	}
	return 1
}

// grain rounds a value down to what the setting can be.
func (l *Loop) grain(set Setting, v float64) float64 {
	switch {
	case set == SettingLive:
		return math.Floor(v*liveParts) / liveParts
	case set.whole():
		return math.Floor(v)
	}
	return math.Round(v*100) / 100
}
