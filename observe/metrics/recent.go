package metrics

import "github.com/headway-rl/headway/loop"

// RecentSteps is how many train periods Recent looks back on.
const RecentSteps = 32

// Recent follows queue health over the newest train periods. It has the groups that entered and left the queue,
// the waits of both sides and the binding side, all of the same steps. Its zero value has seen none.
type Recent struct {
	ring [RecentSteps]stretch
	n    int
	last stretch // from the window's beginning to the last step
}

// stretch is what is summed over some time.
type stretch struct {
	step    loop.Version
	ns      int64
	startNS int64 // of the measured window that it is in
	window  window
	outside outside
}

// RecentFigures are those of some train periods, from step FromStep to step ToStep.
type RecentFigures struct {
	FromStep, ToStep loop.Version
	// WindowS is how long they took, PeriodS one of them, StepS its train step, in seconds.
	WindowS, PeriodS, StepS float64
	Throughput              Throughput
	// TrainerIdle and TrainerAbsent are shares of the time, RolloutIdle of the slots' time. Acceptance is the share of
	// ready groups that were not filtered, Dropped that of groups that the queue evicted or discarded.
	TrainerIdle, TrainerAbsent, RolloutIdle, Acceptance, Dropped float64
	// TokensPerS counts trained tokens.
	TokensPerS float64
}

// Stepped takes the end of a train step, once the recorder has observed it.
func (x *Recent) Stepped(r *Recorder) {
	r.settle()
	now := stretch{step: r.run.Version, ns: r.run.NowNS - r.window.start, startNS: r.window.start, window: r.window, outside: r.outside}
	now.window.histogram = nil
	for _, g := range [...]*gauge{&now.outside.reading, &now.outside.validating} {
		g.to(r.run.NowNS, g.now)
	}
	before := &x.last
	if before.startNS != now.startNS || before.step == 0 && now.window.steps == 1 {
		before = &stretch{startNS: now.startNS} // the window began since
	}
	switch now.window.steps - before.window.steps {
	case 0:
		if now.window.steps > 0 { // a version without a step: the period goes on
			return
		}
	case 1:
		one := now
		one.add(before, -1)
		x.ring[x.n%RecentSteps] = one
		x.n++
	}
	x.last = now
}

// add takes another stretch's sums so many times.
func (s *stretch) add(o *stretch, times int64) {
	s.ns += times * o.ns
	from := o.sums()
	for i, p := range s.sums() {
		*p += times * *from[i]
	}
}

// sums are those that queue health is made of.
func (s *stretch) sums() []*int64 {
	w, o := &s.window, &s.outside
	list := []*int64{&w.steps, &w.rollouts, &w.trainedTokens, &w.trainNS, &w.trainerIdleNS, &w.absentNS, &w.syncIdleNS, &w.validatesIdleNS, &w.activeNS, &w.awayNS,
		&w.sampled, &w.ready, &w.accepted, &w.durationNS, &w.environmentNS, &o.environmentNS, &o.slotNS, &o.reading.sumNS, &o.validating.sumNS}
	for _, end := range [...]loop.End{loop.EndTrained, loop.EndEvicted, loop.EndDiscarded} {
		list = append(list, &w.waste.groups[end])
	}
	for i := range o.parts {
		list = append(list, &o.parts[i])
	}
	return list
}

// Figures are those of the periods seen; false where there is none.
func (x *Recent) Figures(r *Recorder) (f RecentFigures, known bool) {
	var all stretch
	n := min(x.n, RecentSteps)
	for i := x.n - n; i < x.n; i++ {
		all.add(&x.ring[i%RecentSteps], 1)
	}
	w := &all.window
	if n == 0 || all.ns <= 0 {
		return f, false
	}
	// The recorder of these periods alone.
	part := Recorder{run: r.run, window: *w, outside: all.outside}
	part.run.NowNS = all.ns
	part.outside.reading.at, part.outside.validating.at = all.ns, all.ns
	f = RecentFigures{FromStep: x.ring[(x.n-n)%RecentSteps].step, ToStep: x.ring[(x.n-1)%RecentSteps].step, WindowS: float64(all.ns) / 1e9,
		PeriodS: float64(all.ns) / 1e9 / float64(n), StepS: ratio(w.trainNS, w.steps) / 1e9, TrainerIdle: ratio(w.trainerIdleNS, all.ns), TrainerAbsent: ratio(w.absentNS, all.ns),
		RolloutIdle: w.slotsIdle(r.slots() * all.ns), Acceptance: 1, TokensPerS: float64(w.trainedTokens) / (float64(all.ns) / 1e9)}
	if w.ready > 0 {
		f.Acceptance = ratio(w.accepted, w.ready)
		f.Dropped = ratio(w.waste.groups[loop.EndEvicted]+w.waste.groups[loop.EndDiscarded], w.ready)
	}
	f.Throughput = part.throughput(f.WindowS)
	utilization := 0.0
	if t := f.Throughput; t.ConsumptionRolloutsPerS > 0 {
		utilization = t.ProductionRolloutsPerS / t.ConsumptionRolloutsPerS
	}
	f.Throughput.Binding = part.binding(utilization*f.Acceptance*w.waste.usable(), f.RolloutIdle)
	return f, true
}
