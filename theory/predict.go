package theory

import (
	"fmt"
	"math"
)

// Regimes and dominant sources, as printed.
const (
	RolloutBound = "rollout-bound" // ρ < 1: the trainer waits for rollouts
	TrainBound   = "train-bound"   // ρ >= 1: rollouts wait for the trainer
	DominantPQS  = "pqs"
	DominantIQS  = "iqs"
)

// Prediction is everything the closed forms say of one setting. Its JSON is
// that of `headway predict --json`.
type Prediction struct {
	// Regime is rollout-bound or train-bound, by Utilization.
	Regime string `json:"regime"`
	// Utilization is the effective ρ, after acceptance, environment and sync.
	Utilization float64 `json:"utilization"`
	// TailMultiplier is M, of times where an environment takes any.
	TailMultiplier float64 `json:"tail_multiplier"`
	// PQS and IQS are the published closed form on effective inputs, versions.
	PQS Figure `json:"pqs"`
	IQS Figure `json:"iqs"`
	// Staleness is their sum, and the quantiles of [Distribution].
	Staleness Staleness `json:"staleness"`
	// TokenStaleness is the mean over tokens, versions, where weights change
	// under running rollouts.
	TokenStaleness Figure `json:"token_staleness"`
	// Period is the mean time between updates.
	Period PeriodFigures `json:"period"`
	// Dominant is the larger of PQS and IQS: pqs or iqs; empty if unknown.
	Dominant string `json:"dominant"`
	// Corrected is the best estimate of the same figures.
	Corrected Corrected `json:"corrected"`
	// SettlingSteps is how long a run or simulation must warm up before its
	// means can be compared with these.
	SettlingSteps float64 `json:"settling_steps"`
	// Levers are what single changes would buy.
	Levers []Lever `json:"levers"`
	// Smooth is false where staleness jumps with the settings (phase locking), so
	// that digits after the first mean nothing.
	Smooth bool `json:"smooth"`
	// Warnings say what the figures assume and where they do not hold.
	Warnings []string `json:"warnings"`
	// Distribution is the distribution behind the quantiles; nil where unknown.
	Distribution *Distribution `json:"-"`
}

// Staleness is the mean and the quantiles of staleness in versions.
type Staleness struct {
	Mean Figure `json:"mean"`
	P50  Figure `json:"p50"`
	P95  Figure `json:"p95"`
	P99  Figure `json:"p99"`
	// ShareAboveBudget is the share of trained groups over BudgetVersions;
	// unknown where no budget was given.
	ShareAboveBudget Figure `json:"share_above_budget"`
}

// PeriodFigures is T relative to t_step and, where t_step is known, in seconds.
type PeriodFigures struct {
	RelativeToStep Figure `json:"relative_to_step"`
	S              Figure `json:"s"`
}

// Corrected holds the figures with the finite queue near ρ = 1 and the floor
// of the staleness count. PQS + IQS = Mean.
type Corrected struct {
	PQS    Figure        `json:"pqs"`
	IQS    Figure        `json:"iqs"`
	Mean   Figure        `json:"mean"`
	Period PeriodFigures `json:"period"`
}

// Predict gives the closed form of a setting and what single changes of it
// would buy. The error is that of [Input.Validate]; a setting that is valid but
// not covered gives unknown figures and a warning.
func Predict(in Input) (Prediction, error) {
	in = in.WithDefaults()
	p, err := predict(in)
	if err != nil {
		return Prediction{}, err
	}
	p.Levers = levers(in, p)
	if p.Warnings == nil {
		p.Warnings = []string{} // an empty list in JSON, not null
	}
	return p, nil
}

// predict is Predict without the levers, which themselves predict.
func predict(in Input) (Prediction, error) {
	if err := in.Validate(); err != nil {
		return Prediction{}, err
	}
	shape, err := tailOf(in)
	if err != nil {
		return Prediction{}, err
	}
	if in.Policy == PolicySynchronous {
		return predictSynchronous(in, shape), nil
	}
	e := effectiveOf(in, shape)
	p := Prediction{
		Utilization:    e.rho,
		TailMultiplier: shape.multiplier,
		Smooth:         shape.spread >= lockedSpread,
		Warnings:       e.warnings,
	}
	p.Regime = regime(e.rho)
	c := coverageOf(in, e)
	p.Warnings = append(p.Warnings, c.warnings...)
	if c.period {
		p.Period = e.periodFigures(in, Period(e.rho))
	}
	if c.preQueue {
		p.PQS = Known(e.groupTime/Period(e.rho) + e.publish/Period(e.rho) + e.lag)
	}
	if c.staleness {
		p.fillStaleness(in, e)
	}
	p.SettlingSteps = Settling(in.QueueFactor, e.rho, e.variability, e.groups, p.Staleness.Mean.Or(0))
	p.Warnings = append(p.Warnings, accuracyWarnings(in, e, p)...)
	return p, nil
}

// regime names the side that binds.
func regime(rho float64) string {
	if rho < 1 {
		return RolloutBound
	}
	return TrainBound
}

// fillStaleness sets everything that needs the in-queue part.
func (p *Prediction) fillStaleness(in Input, e effective) {
	pqs, _ := p.PQS.Value()
	iqs := InQueue(in.QueueFactor, e.rho)
	p.IQS = Known(iqs)
	p.Staleness.Mean = Known(pqs + iqs)
	p.Dominant = DominantIQS
	if pqs >= iqs {
		p.Dominant = DominantPQS
	}
	if e.tail.maxSum > 0 {
		acceptance := e.rho / e.produced
		token := acceptance * TokenPreQueue(e.slots, in.BatchRollouts, e.tail.maxSum, e.tail.meanSquare, e.rho)
		p.TokenStaleness = Known(token + iqs + e.publish/Period(e.rho) + e.lag)
	}
	p.Corrected.Period = e.periodFigures(in, e.period)
	d := newDistribution(e)
	corrected := d.Mean() + e.lag
	correctedPQS := e.groupTime/e.period + e.publish/e.period + e.lag
	p.Corrected.Mean = Known(corrected)
	p.Corrected.PQS = Known(correctedPQS)
	p.Corrected.IQS = Known(corrected - correctedPQS)
	if e.lag > 0 {
		return // the lag of several steps per sync spreads the quantiles
	}
	p.Distribution = d
	p.Staleness.P50 = Known(float64(d.Quantile(0.50)))
	p.Staleness.P95 = Known(float64(d.Quantile(0.95)))
	p.Staleness.P99 = Known(float64(d.Quantile(0.99)))
	if in.BudgetVersions > 0 {
		p.Staleness.ShareAboveBudget = Known(d.ShareAbove(in.BudgetVersions))
	}
}

// effective are the settings after every correction that acts on the inputs of
// the closed form. Times are in units of the effective step.
type effective struct {
	tail        tail
	slots       float64 // C that work on average
	rho         float64 // trainable rollouts arriving over rollouts consumed, while both work
	produced    float64 // rho before acceptance
	groupTime   float64 // E[D]/step
	publish     float64 // t_publish/step: version at the trainer before engines serve it
	lag         float64 // versions the engines are behind because syncs skip steps
	stepScale   float64 // effective step over t_step
	stopped     float64 // time per period in which everything stands, over t_step
	groups      float64 // G
	queueFactor float64 // q
	variability float64 // c
	stock       stock   // groups waiting above a batch
	period      float64 // corrected T/step, without stopped
	simulate    string  // why no closed form holds; "" if one does
	warnings    []string
}

// effectiveOf applies environment, sync and acceptance, in that order.
func effectiveOf(in Input, shape tail) effective {
	e := effective{
		tail:        shape,
		produced:    in.Utilization / (1 + shape.overhead),
		stepScale:   1,
		groups:      in.BatchRollouts / float64(in.GroupSize),
		queueFactor: in.QueueFactor,
		variability: ArrivalVariability(shape.spread),
	}
	e.slots = e.gang(in)
	e.sync(in)
	e.rho = in.Acceptance * e.produced
	e.groupTime = GroupTime(e.slots, in.BatchRollouts, shape.multiplier, e.produced)
	c := StockVariability(e.variability, e.queueFactor, e.groupTime/Period(e.rho))
	c = thinned(c, in.Acceptance)
	e.variability = thinned(e.variability, in.Acceptance)
	e.stock = newStock(e.queueFactor, e.rho, c, e.groups)
	e.period = e.stock.period(e.rho, c, e.groups)
	if shape.assumed {
		e.warnings = append(e.warnings, "the tail is a bare multiplier: quantiles and token staleness assume a lognormal that has it")
	}
	return e
}

// thinned is the c of arrivals of which a share a is kept at random: the kept
// count has variance a²·c²n + a(1−a)n over a mean of an, so c² becomes
// a·c² + 1 − a.
func thinned(c, a float64) float64 { return math.Sqrt(a*c*c + 1 - a) }

// gang returns the slots that work on average: with start order gang between 0
// and S−1 freed slots wait for the rest of a group, about (S−1)/2, which lowers
// production too. Against the simulator staleness is within 1.5 % at C/S of 16
// and more; with few groups in flight the wait is of another kind.
func (e *effective) gang(in Input) (slots float64) {
	slots = in.ConcurrencyRollouts
	if in.Start != StartGang || in.GroupSize == 1 {
		return slots
	}
	idle := float64(in.GroupSize-1) / 2
	if slots < 4*float64(in.GroupSize) {
		e.simulate = "start gang with fewer than four groups in flight leaves many slots idle: no closed form; simulate"
		return slots
	}
	e.warnings = append(e.warnings, fmt.Sprintf("start gang keeps about %.1f of %.0f slots waiting for the rest of a group; this is counted", idle, slots))
	e.produced *= (slots - idle) / slots
	return slots - idle
}

// sync applies the weight sync (the table of theory.md §2). With x = t_s/t_step
// per step:
//
//	in flight, trainer free      + t_s/T
//	in flight, trainer blocked   F(ρ(1+x)), the step is t_step + t_s
//	paused, trainer blocked      F(ρ), T + t_s: everything stands
//	paused, trainer free         F(ρ(1−x)) if that is train-bound; F(ρ), T + t_s if ρ < 1
func (e *effective) sync(in Input) {
	every := float64(in.SyncEvery)
	if in.SyncEvery > 1 {
		e.lag = (every - 1) / 2
		e.warnings = append(e.warnings, fmt.Sprintf("one sync in %d steps adds (%d−1)/2 versions on average; quantiles are not predicted", in.SyncEvery, in.SyncEvery))
	}
	if in.SyncTimeS == 0 {
		if in.SyncMode == SyncDrain {
			e.simulate = "a drained sync empties the engines in every period: no closed form; simulate"
		}
		return
	}
	whole := in.SyncTimeS / in.StepS
	x := whole / every
	accepted := in.Acceptance * e.produced
	switch {
	case in.SyncMode == SyncDrain || in.SyncMode == SyncRestart:
		e.simulate = fmt.Sprintf("sync mode %s changes how long rollouts take: no closed form; simulate", in.SyncMode)
	case in.SyncMode == SyncInFlight && in.SyncTrainer == TrainerFree:
		e.publish = whole
		if whole > every*Period(accepted) {
			e.simulate = "a weight sync that takes longer than a train period skips versions: no closed form; simulate"
		}
	case in.SyncMode == SyncInFlight:
		e.stepScale = 1 + x
		e.produced *= 1 + x
	case in.SyncTrainer == TrainerBlocked:
		e.stopped = x
	case accepted*(1-x) > 1:
		e.produced *= 1 - x
	case accepted < 1:
		e.stopped = x
	default:
		e.simulate = fmt.Sprintf("paused engines turn the run from train-bound (ρ = %.2f) to rollout-bound: no closed form near there; simulate", accepted)
	}
}

// periodFigures turns T over the effective step into both printed figures.
func (e effective) periodFigures(in Input, relative float64) PeriodFigures {
	total := relative*e.stepScale + e.stopped
	figures := PeriodFigures{RelativeToStep: Known(total)}
	if in.StepS > 0 {
		figures.S = Known(total * in.StepS)
	}
	return figures
}

// accuracyWarnings say where the figures given are less accurate.
func accuracyWarnings(in Input, e effective, p Prediction) []string {
	var list []string
	mean, known := p.Staleness.Mean.Value()
	if known {
		list = append(list, meanWarnings(e, mean, p)...)
	}
	if in.ConcurrencyRollouts < float64(in.GroupSize) {
		list = append(list, "concurrency below one group: siblings run one after another, the longest of them no longer sets the group's time; simulate")
	}
	return list
}

// meanWarnings say where the published mean is not the best one.
func meanWarnings(e effective, mean float64, p Prediction) []string {
	corrected := p.Corrected.Mean.Or(mean)
	off := math.Abs(corrected-mean) > 0.02*mean
	switch {
	case !p.Smooth:
		return []string{"not smooth: rollouts take nearly equal times, so groups fall in step with the trainer (phase locking) and staleness is a staircase in the settings; read the mean as ± ½ and simulate"}
	case off && math.Abs(e.rho-1) <= 0.2:
		return []string{fmt.Sprintf(
			"near ρ = 1 (effective %.2f) the queue is neither empty nor full: the corrected staleness %.2f and period %.2f of a step are the better estimate, and a run needs about %.0f steps to settle",
			e.rho, corrected, p.Corrected.Period.RelativeToStep.Or(1), p.SettlingSteps)}
	case off:
		return []string{fmt.Sprintf(
			"group times spread over less than a period, so the published ½ for counting updates is off: the corrected staleness %.2f is the better estimate", corrected)}
	}
	return nil
}

// lockedSpread is the coefficient of variation of rollout times below which
// groups fall in step with the trainer. Against the simulator corrected means
// are off by up to 70 % at 0, by at most 4 % at 0.026 (tailness 2).
const lockedSpread = 0.02
