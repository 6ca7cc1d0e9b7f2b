package loop

import "math"

// foresee is what a live group is expected to stand for over the window to come, as an excess over the goal; -1 if
// nothing is known. A straight line is laid through the newest windows of the regime, with its slope shrunk by what
// noise alone makes of one (James and Stein's rule, its positive part), and followed one window on where it rises;
// where it falls, no further than the newest window: what has not fallen yet may not. A rise that has just begun is
// taken for one as soon as half a window shows it.
func (l *Loop) foresee() float64 {
	c, n := l.s.Control, l.span(l.cfg.Control.Window)
	known := int(c.Count - c.Since)
	if known <= n {
		return l.perLive(c.Count, known)
	}
	var at [windowsKept]float64 // the newest first
	k, mean := min(known/n, windowsKept), 0.0
	for i := range k {
		if at[i] = l.perLive(c.Count-int64(i*n), n); at[i] <= 0 {
			return l.perLive(c.Count, n)
		}
		mean += at[i] / float64(k)
	}
	noise := l.noise()
	slope := line(at[:k], noise)
	ahead := float64(k-1) / 2
	if slope > 0 {
		ahead++
	}
	level := mean + float64(slope*ahead)
	if recent := l.perLive(c.Count, n/2); recent > float64(level*(1+float64(riseErrors*math.Sqrt(2*noise)))) {
		level = recent
	}
	return level
}

// line is the slope of a line through values, the newest first, a value's distance: that of least squares, shrunk by
// what noise alone makes of one, the variance of a value as a part of it.
func line(at []float64, noise float64) float64 {
	k := float64(len(at))
	if k < 2 {
		return 0
	}
	square, mean, slope := k*(k*k-1)/12, 0.0, 0.0
	for i, v := range at {
		slope += float64(((k-1)/2-float64(i))*v) / square
		mean += v / k
	}
	if slope == 0 {
		return 0
	}
	return float64(slope * max(1-float64(slopeErrors*noise*mean*mean)/float64(square*slope*slope), 0))
}

// noise is the variance of what a live group stands for in a window, as a part. It is at least what filters make of
// it: of the groups live just after an update, a share that is drawn anew is trained, and each lives through some. And
// at least that of a quantile of so many groups, were their staleness spread evenly below it.
func (l *Loop) noise() float64 {
	ctl, n := l.cfg.Control, l.cfg.Control.Window
	noise, groups := l.s.Control.Noise, float64(l.cfg.BatchGroups*n)
	if w := l.window(n); w.Ready > 0 {
		of := filterNoise
		if ctl.Share > 0 {
			of = filterNoiseShare
		}
		noise = max(noise, of*float64(w.Ready-w.Accepted)/float64(max(w.Accepted, 1))/groups)
	}
	if ctl.Share > 0 {
		noise = max(noise, (1-ctl.Share)/(ctl.Share*groups))
	}
	return noise
}

// learnNoise takes how far three windows are from a straight line: six times the variance of one.
func (l *Loop) learnNoise() {
	c, n := l.s.Control, l.span(l.cfg.Control.Window)
	if c.Count-c.Since < int64(3*n) {
		return
	}
	now, before, first := l.perLive(c.Count, n), l.perLive(c.Count-int64(n), n), l.perLive(c.Count-int64(2*n), n)
	if min(now, before, first) <= 0 {
		return
	}
	bend := (now - 2*before + first) / before
	c.Noise += (min(float64(bend*bend)/6, 1) - c.Noise) * noiseWeight
}

// span is n steps or as many more as make whole syncs of them, as far as they are kept: staleness rises from sync to sync.
func (l *Loop) span(n int) int {
	every := l.rules.syncEvery
	whole := (n + every - 1) / every * every
	if whole*windowsKept > len(l.s.Control.Steps)*2 {
		return n
	}
	return whole
}

// perLive is the excess over the goal that a live group stood for in n steps; -1 if nothing is known.
func (l *Loop) perLive(end int64, n int) float64 {
	w := l.windowBefore(end, n)
	live := l.liveOver(&w)
	if live <= 0 {
		return -1
	}
	return l.excessBefore(end, n) / live
}

// liveOver is the mean number of live groups of a window's steps. Between two syncs the limit on what is live falls by a
// batch a step, as one is trained.
func (l *Loop) liveOver(w *window) float64 {
	if w.steps == 0 {
		return 0
	}
	return w.Live/float64(w.steps) - betweenSyncs(l.rules.syncEvery, l.cfg.BatchGroups)
}

// margin is the part of the goal that is left free: a window's own noise, and that of the line through four of them.
func (l *Loop) margin() float64 {
	return min(max(marginErrors*math.Sqrt(float64(1.25*l.noise())), marginLeast), marginMost)
}
