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
	paused      float64 // time per period in which engines stand and the trainer does not, over t_step
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
	if e.paused > 0 && !e.reason.blind() {
		e.overlap(p)
	} else {
		e.solve(p)
	}
	if with != CorrectAll {
		e.omit()
	}
	return e
}

// solve solves the queue for the settings as they are.
func (e *effective) solve(p *Point) {
	e.rho = p.Acceptance * e.produced
	e.unit = GroupTime(e.slots, p.BatchRollouts, 1, e.produced)
	e.arrivals(p.Acceptance)
}

// overlap solves it for paused engines and a trainer that goes on. In the engines'
// own time, which stands while they pause, a step that finds its batch ready takes
// 1 − x, as the pause after the last update is part of it; one that waits for its
// batch starts after the pause and takes 1. The share s of steps that wait gives
// the mean, 1 − x(1−s), and follows from it: it falls as ρ rises, so that halving
// finds the one there is.
func (e *effective) overlap(p *Point) {
	produced, low, high := e.produced, 0.0, 1.0
	e.stopped = e.paused
	within := min(e.paused, 1) // a step cannot gain more than all of its time
	for range pausedHalvings {
		middle := (low + high) / 2
		e.stepScale = max(1-within*(1-middle), 1e-3)
		e.produced = produced * e.stepScale
		e.solve(p)
		if e.stock.starved > middle {
			low = middle
		} else {
			high = middle
		}
	}
	share, accepted := e.stock.starved, p.Acceptance*produced
	if within*share*(1-share) > pausedMixed || accepted >= 1 && accepted*(1-e.paused) <= 1 {
		e.reason = ReasonPausedNear
	}
}

// pausedMixed bounds the variance that a pause gives to steps in the engines' own
// time, x·s(1−s), up to which their mean stands for them: against the simulator
// staleness is within 1.5 % below ρ = 1, and 3 % off at 0.08.
const pausedMixed = 0.05

// longPause is the t_s/t_step up to which several steps a sync may share it evenly
// although one of them takes it all: against the simulator staleness is within
// 1.5 % for 2 to 8 steps a sync, and 3 % off at 0.1.
const longPause = 0.05

// pausedHalvings leave 0.2 % of the share of steps that wait.
const pausedHalvings = 9

// arrivals solves the queue for the variability of arrivals.
func (e *effective) arrivals(acceptance float64) {
	e.arriving = arrivals{dispersion: &e.shape.dispersion, acceptance: acceptance, unit: e.unit, rho: e.rho, groups: e.groups}
	ideal := Period(e.rho)
	step := e.arriving.index(ideal)
	spread := math.Sqrt(max(step, 1e-12) / e.groups)
	starved := normalCDF((1 - e.rho) / spread)
	late := e.arriving.late(starved)
	if e.queueFactor == 1 {
		e.stock = stock{count: 1, weight: [levels]float64{1}, starved: starved}
		e.period = max(1+late, ideal)
		return
	}
	e.walk = step
	for range 3 { // the stock forgets over so many steps, which depends on the walk itself
		e.walk = e.arriving.index(ideal * (1 + memoryShare*stockMemory(e.queueFactor, e.rho, e.walk, e.groups)))
	}
	e.stock = newStock(e.queueFactor, e.rho, math.Sqrt(e.walk), e.groups)
	// Arrivals catch up while the trainer waits, as they do for a single batch.
	if plain := positivePart(1-e.rho, spread); plain > 1e-12 {
		e.stock.missing *= min(late*e.rho/plain, 1)
	}
	e.period = e.stock.period(e.rho)
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
// docs/theory-corrections.md.
const memoryShare = 0.5

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
// At C/S of
// [gangGroups] and more staleness is within 2 % of the simulator's, within 3 %
// near ρ = 1; with fewer groups in flight the wait is of another kind (4 % at 4).
func (e *effective) gang(p *Point) {
	if p.Start != StartGang || e.shape.size == 1 {
		return
	}
	if e.slots < gangGroups*float64(e.shape.size) {
		e.reason = ReasonGang
		return
	}
	working := e.slots - float64(e.shape.size-1)/2
	e.produced *= working / e.slots
	e.slots = working
}

// gangGroups is the least C/S of start order gang.
const gangGroups = 16

// sync applies the weight sync. With x = t_s/t_step per step, and T in the
// engines' own time where they pause:
//
//	in flight, trainer free      + t_s/T
//	in flight, trainer blocked   F(ρ(1+x)), the step is t_step + t_s
//	paused, trainer blocked      F(ρ), T + t_s: everything stands
//	paused, trainer free         F(ρ(1−x(1−s))), T + t_s, s the share of steps that wait
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
	case p.SyncEvery > 1 && whole > longPause && (p.SyncMode == SyncInFlight || p.SyncTrainer == TrainerFree):
		e.reason = ReasonUnevenSync
	case p.SyncMode == SyncInFlight:
		e.stepScale = 1 + x
		e.produced *= 1 + x
	case p.SyncTrainer == TrainerBlocked:
		e.stopped = x
	default:
		e.paused = x
	}
}

// relative turns T over the effective step into T over t_step.
func (e *effective) relative(period float64) float64 { return period*e.stepScale + e.stopped }

// lag is what several steps a sync add to the mean, versions.
func (e *effective) lag() float64 { return (e.every - 1) / 2 }
