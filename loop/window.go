package loop

// window is what some of the newest train steps measured, in sums.
type window struct {
	figures
	// steps is their number, timed that of those whose period is known.
	steps, timed int64
}

// window sums up at most n of the newest train steps.
func (l *Loop) window(n int) window { return l.windowBefore(l.s.Control.Count, n) }

// windowBefore sums up at most n of the train steps before the one of that number, as far as they are kept.
func (l *Loop) windowBefore(end int64, n int) window {
	c := l.s.Control
	var w window
	for k := end - 1; k >= max(end-int64(n), c.Count-int64(len(c.Steps)), 0); k-- {
		f := &c.Steps[k%int64(len(c.Steps))]
		w.steps++
		if f.PeriodNS > 0 {
			w.timed++
		}
		w.Groups += f.Groups
		w.Staleness += f.Staleness
		w.Weight += f.Weight
		w.Within += f.Within
		w.Live += f.Live
		w.PeriodNS += f.PeriodNS
		w.StepNS += f.StepNS
		w.BusyNS += f.BusyNS
		w.Ready += f.Ready
		w.Accepted += f.Accepted
		w.Dropped += f.Dropped
	}
	return w
}

// mean is the mean staleness in versions, -1 if nothing was trained.
func (w *window) mean() float64 { return over(w.Staleness, w.Groups) }

// share is the share within the goal's versions, -1 if nothing was trained.
func (w *window) share() float64 { return over(w.Within, w.Weight) }

// over divides, and returns -1 for what is not known.
func over(sum, count int64) float64 {
	if count == 0 {
		return -1
	}
	return float64(sum) / float64(count)
}
