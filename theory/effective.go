package theory

import "math"

// effective are the settings after every correction that acts on the inputs of
// the closed form. Times are in units of the effective step.
type effective struct {
	with        Corrections
	shape       *shape
	slots       float64 // C that work on average
	rho         float64 // trainable rollouts arriving over rollouts consumed, while both work
	produced    float64 // rho before acceptance
	unit        float64 // a mean rollout's time/step
	publish     float64 // t_publish/step: version at the trainer before engines serve it
	every       float64 // train steps per sync
	stepScale   float64 // effective step over t_step
	stopped     float64 // time per period in which everything stands, over t_step
	groups      float64 // G
	queueFactor float64 // q
	stock       stock   // groups waiting above a batch
	arriving    arrivals
	period      float64 // corrected T/step, without stopped
	walk        float64 // index of dispersion over the stock's memory
	reason      Reason  // why no closed form holds
}

// effectiveOf applies gang start, sync and acceptance, in that order. overhead
// is E[environment]/E[generation].
func effectiveOf(p *Point, s *shape, overhead float64, with Corrections) effective {
	e := effective{
		with:        with,
		shape:       s,
		slots:       p.ConcurrencyRollouts,
		produced:    p.Utilization / (1 + overhead),
		stepScale:   1,
		every:       float64(p.SyncEvery),
		groups:      p.BatchRollouts / float64(s.size),
		queueFactor: p.QueueFactor,
	}
	e.gang(p)
	e.sync(p)
	e.rho = p.Acceptance * e.produced
	e.unit = GroupTime(e.slots, p.BatchRollouts, 1, e.produced)
	e.arrivals(p.Acceptance)
	if with != CorrectAll {
		e.omit()
	}
	return e
}

// arrivals solves the queue for the variability of arrivals.
func (e *effective) arrivals(acceptance float64) {
	e.arriving = arrivals{dispersion: &e.shape.dispersion, acceptance: acceptance, unit: e.unit, rho: e.rho, groups: e.groups}
	a := &e.arriving
	step := a.index(Period(e.rho))
	if e.queueFactor > 1 {
		walk := step
		// The stock forgets over so many steps, which depends on the walk itself.
		for range 3 {
			walk = a.index(Period(e.rho) * (1 + memoryShare*stockMemory(e.queueFactor, e.rho, walk, e.groups)))
		}
		e.stock = newStock(e.queueFactor, e.rho, math.Sqrt(walk), e.groups)
		e.walk = walk
		// Arrivals catch up while the trainer waits, as they do for a single batch.
		plain := positivePart(1-e.rho, math.Sqrt(step/e.groups))
		if single := a.late(normalCDF((1 - e.rho) / math.Sqrt(max(step, 1e-12)/e.groups))); plain > 1e-12 {
			e.stock.missing *= min(single*e.rho/plain, 1)
		}
		e.period = e.stock.period(e.rho)
		return
	}
	starved := normalCDF((1 - e.rho) / math.Sqrt(max(step, 1e-12)/e.groups))
	e.stock = stock{count: 1, weight: [levels]float64{1}, starved: starved}
	e.period = max(1+a.late(starved), Period(e.rho))
}

// omit takes back what is not to be corrected.
func (e *effective) omit() {
	if !e.with.has(CorrectQueue) {
		starved := e.stock.starved
		e.stock = stock{count: 1, weight: [levels]float64{1}, starved: starved}
		if e.rho >= 1 {
			e.stock.value[0] = e.queueFactor - 1
		}
	}
	if !e.with.has(CorrectLate) {
		e.period = Period(e.rho)
	}
}

// memoryShare is over which part of the stock's memory arrivals add up before
// they meet an end of the queue: fitted, the one constant that is. See
// docs/theory.md.
const memoryShare = 0.5

// arrivals are the ready groups of one setting, by time in steps.
type arrivals struct {
	dispersion *Dispersion
	acceptance float64
	unit       float64 // a mean rollout's time
	rho        float64
	groups     float64
}

// index is the index of dispersion over a window of so many steps.
func (a *arrivals) index(steps float64) float64 {
	return a.acceptance*a.dispersion.At(steps/a.unit) + 1 - a.acceptance
}

// growth is dV/dN, by how much the variance grows with every further arrival.
func (a *arrivals) growth(steps float64) float64 {
	const near = 0.15
	return ((1+near)*a.index((1+near)*steps) - (1-near)*a.index((1-near)*steps)) / (2 * near)
}

// latePoints is the resolution of the integral of [arrivals.late].
const latePoints = 24

// late is E[(X−1)⁺] for the time X, in steps, in which a batch arrives: the
// integral of P(N(x) < G) over x > 1, N(x) normal of mean ρGx and variance
// c²(x)·ρGx. The variance of the longer window counts, not that of the step: what
// is missing after one step arrives faster than on average. N is whole, hence
// the ½; a window that starts with an arrival (the share starved of them) has
// ½(1 − dV/dN) fewer arrivals than one that starts at any time.
func (a *arrivals) late(starved float64) float64 {
	sum, last := 0.0, 0.0
	// Up to where so few arrivals are five deviations off.
	end := 1/a.rho + 8*math.Sqrt(a.index(1/a.rho)/a.groups)/a.rho + 2/(a.rho*a.groups)
	if end <= 1 {
		return 0
	}
	step := (end - 1) / latePoints
	need := 1 - (0.5-starved*(1-a.growth(1/a.rho))/2)/a.groups
	for i := range latePoints + 1 {
		x := 1 + step*float64(i)
		short := normalCDF((a.rho*x - need) / -math.Sqrt(max(a.index(x)*a.rho*x/a.groups, 1e-12)))
		if i > 0 {
			sum += (short + last) / 2
		}
		last = short
	}
	return sum * step
}

// stockMemory is how many steps the stock takes to forget where it was: the
// relaxation time of a Brownian motion of drift ρ−1 and variance c²/G on a width
// of q−1, 1/(π²c²/(2G(q−1)²) + (ρ−1)²G/(2c²)).
func stockMemory(queueFactor, rho, variance, groups float64) float64 {
	width, drift := queueFactor-1, rho-1
	variance = max(variance, 1e-6) / groups
	return 2 / (math.Pi*math.Pi*variance/(width*width) + drift*drift/variance)
}

// gang lowers the slots that work: with start order gang between 0 and S−1 freed
// slots wait for the rest of a group, about (S−1)/2, which lowers production too.
// Against the simulator staleness is within 1.5 % at C/S of 16 and more; with
// few groups in flight the wait is of another kind.
func (e *effective) gang(p *Point) {
	if p.Start != StartGang || e.shape.size == 1 {
		return
	}
	if e.slots < 4*float64(e.shape.size) {
		e.reason = ReasonGang
		return
	}
	working := e.slots - float64(e.shape.size-1)/2
	e.produced *= working / e.slots
	e.slots = working
}

// sync applies the weight sync. With x = t_s/t_step per step:
//
//	in flight, trainer free      + t_s/T
//	in flight, trainer blocked   F(ρ(1+x)), the step is t_step + t_s
//	paused, trainer blocked      F(ρ), T + t_s: everything stands
//	paused, trainer free         F(ρ(1−x)) if that is train-bound; F(ρ), T + t_s if ρ < 1
func (e *effective) sync(p *Point) {
	if p.SyncMode == SyncDrain || p.SyncMode == SyncRestart && p.SyncTimeS > 0 {
		e.reason = ReasonSyncMode
		return
	}
	if p.SyncTimeS == 0 {
		return
	}
	whole := p.SyncTimeS / p.StepS
	x := whole / e.every
	accepted := p.Acceptance * e.produced
	switch {
	case p.SyncMode == SyncInFlight && p.SyncTrainer == TrainerFree:
		e.publish = whole
		if whole > e.every*Period(accepted) {
			e.reason = ReasonLongSync
		}
	case p.SyncMode == SyncInFlight:
		e.stepScale = 1 + x
		e.produced *= 1 + x
	case p.SyncTrainer == TrainerBlocked:
		e.stopped = x
	case accepted*(1-x) > 1:
		e.produced *= 1 - x
	case accepted < 1:
		e.stopped = x
	default:
		e.reason = ReasonPausedNear
	}
}

// relative turns T over the effective step into T over t_step.
func (e *effective) relative(period float64) float64 { return period*e.stepScale + e.stopped }

// lag is what several steps a sync add to the mean, versions.
func (e *effective) lag() float64 { return (e.every - 1) / 2 }
