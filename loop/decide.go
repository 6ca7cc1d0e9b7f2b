package loop

import "math"

// What the controller keeps to. docs/control-law.md derives the numbers.
const (
	// marginLeast and marginMost bound the part of the goal that is left as a margin: marginErrors standard errors
	// of a window that is foreseen.
	marginLeast, marginMost, marginErrors = 0.012, 0.15, 1.7
	// noiseWeight is the weight of the newest step in what is learned of noise, noiseStart what that is taken for
	// at first, and noiseShare where the goal is a share.
	noiseWeight, noiseStart, noiseShare = 1.0 / 128, 0.006 * 0.006, 0.03 * 0.03
	// filterNoise is the variance that comes from filters, times the groups of a window over those lost for one that
	// passes, and filterNoiseShare that where the goal is a share.
	filterNoise, filterNoiseShare = 0.7, 0.2
	// riseErrors is how many standard errors half a window must be above the line to be taken for a rise, and slopeErrors the
	// square of how many a slope must have to be taken for one.
	riseErrors, slopeErrors = 3.5, 3
	// idleLeast is the share of time that a trainer waits at least before more groups are let live for it.
	idleLeast = 0.005
	// restSteps is the number of train steps from one move of a setting to the next.
	restSteps = 4
	// upMost and downMost are the largest moves of live groups and of slots, as parts of what they are.
	upMost, downMost = 0.08, 0.25
	// deadband is what a move up must at least be of what the setting is; any is at least a quarter of the margin.
	// slotsDeadband is that of slots, in either direction.
	deadband, slotsDeadband = 0.02, 0.04
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
	l.learnNoise()
	if set, moves := l.lever(); moves {
		l.scale(set)
	}
	if c.Count >= int64(l.cfg.Control.Window) {
		l.pullOthers()
	}
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

// scale moves the lever to where the goal is expected to hold, with the margin, over the window to come. That is
// Little's law where part of what is live is never trained.
func (l *Loop) scale(set Setting) {
	s, c, n := &l.s, l.s.Control, l.cfg.Control.Window
	r, at := l.reach(set), c.At[set]
	if s.Trained-c.MovedAt[set] < l.restOf(set) {
		return
	}
	to, why := l.permits(set), ReasonAbove
	switch {
	case to < 0:
		return
	case to < at:
		to = max(to, at*(1-downMost))
	case c.Count-c.Since >= int64(n) && l.starves(n):
		to, why = min(to, max(at*(1+upMost), at+l.least(set))), ReasonRoom
	default:
		return
	}
	to = r.fit(set, l.grain(set, to))
	least := l.margin() / 4
	if to > at {
		least = max(least, deadband)
	}
	if set == SettingSlots { // what they make of staleness is known less well
		least = max(2*least, slotsDeadband)
	}
	if math.Abs(to-at) >= least*at && (to < at) == (why == ReasonAbove) { // what reach leaves out may be where it stands
		l.move(set, to, why)
	}
}

// reach is a setting's range without what changes nothing: between two syncs groups are live for as many steps.
func (l *Loop) reach(set Setting) Range {
	r := l.cfg.Control.Ranges[set]
	if set == SettingLive {
		r.Least = min(max(r.Least, float64((l.rules.syncEvery-1)*l.cfg.BatchGroups)), r.Most)
	}
	return r
}

// restOf is the number of train steps that a setting stays after a move: a window where somebody asked for it.
func (l *Loop) restOf(set Setting) Version {
	if l.s.Control.Why[set] == ReasonRequested {
		return Version(max(l.cfg.Control.Window, restSteps))
	}
	return restSteps
}

// permits is where the lever is expected to keep the goal, with the margin; -1 if nothing is known.
func (l *Loop) permits(set Setting) float64 {
	c := l.s.Control
	u := l.foresee()
	most := l.cfg.Control.Ranges[set].Most
	if u <= 0 {
		if l.excess(l.cfg.Control.Window) == 0 {
			return most
		}
		return -1
	}
	to := (1 - l.margin()) / u
	if set == SettingSlots {
		w := l.window(l.cfg.Control.Window)
		stood := min(float64(w.BusyNS)/float64(max(w.PeriodNS, 1)), c.At[set])
		to *= stood / l.liveOver(&w)
	}
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
	idle, dropped := l.slack(n)
	return idle > max(idleLeast, 2*dropped)
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
