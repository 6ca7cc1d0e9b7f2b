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
	// Covered says that closed forms hold here to their published accuracy
	// (docs/theory-accuracy.md); Reason names why not ([Reason]), "" where covered. A
	// command simulates where they do not.
	Covered bool   `json:"covered"`
	Reason  Reason `json:"reason"`
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
	// DroppedShare is the share of ready groups that are never trained.
	DroppedShare Figure `json:"dropped_share"`
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

// Predict gives the closed form of a setting and the gain of single changes of it.
// The error is that of [Input.Validate]; a setting that is valid but not covered
// gives unknown figures and a warning.
func Predict(in Input) (Prediction, error) {
	in = in.WithDefaults()
	if err := in.Validate(); err != nil {
		return Prediction{}, err
	}
	shape, err := tailOf(&in, in.nsPerToken())
	if err != nil {
		return Prediction{}, err
	}
	p := predict(&in, &shape)
	p.Levers = levers(in, &shape, p)
	if p.Warnings == nil {
		p.Warnings = []string{} // an empty list in JSON, not null
	}
	return p, nil
}

// predict is Predict without the levers, which themselves predict, for a valid
// input.
func predict(in *Input, t *tail) Prediction {
	point := in.point()
	out := estimate(&point, t, in.overhead(), CorrectAll)
	p := Prediction{
		Utilization:    out.Utilization,
		TailMultiplier: t.multiplier,
		Smooth:         in.Policy == PolicySynchronous || t.spread >= lockedSpread,
		Covered:        out.Covered,
		Reason:         out.Reason,
		SettlingSteps:  out.SettlingSteps,
		Regime:         RolloutBound,
	}
	if p.Utilization >= 1 {
		p.Regime = TrainBound
	}
	switch in.Policy {
	case PolicySynchronous:
		p.synchronous(in, t, &out)
	case PolicyThreshold:
		p.threshold(in, &out)
	default:
		p.asynchronous(in, t, &point, &out)
	}
	if out.Reason != ReasonNone && (in.Policy != PolicySynchronous || out.Reason != ReasonBarrier) {
		p.Warnings = append(p.Warnings, reasonText(&point, t, &out))
	}
	return p
}

// periods are both printed figures of a period over t_step.
func periods(in *Input, relative float64) PeriodFigures {
	figures := PeriodFigures{RelativeToStep: Known(relative)}
	if in.StepS > 0 {
		figures.S = Known(relative * in.StepS)
	}
	return figures
}

// asynchronous fills in the figures of the queue's policies.
func (p *Prediction) asynchronous(in *Input, t *tail, point *Point, out *Estimate) {
	p.Warnings = assumptions(in, t, out)
	if out.Reason.untimed() {
		return
	}
	p.Period = periods(in, out.Published.PeriodRelative)
	p.PQS = Known(out.Published.PQS)
	if out.Reason.blind() {
		return
	}
	p.means(in, t, out)
	e := effectiveOf(point, t.shape, in.overhead(), CorrectAll)
	p.Distribution = &Distribution{}
	e.distribution(p.Distribution)
	p.Warnings = append(p.Warnings, accuracyWarnings(&e, p)...)
}

// means sets what needs the in-queue part.
func (p *Prediction) means(in *Input, t *tail, out *Estimate) {
	p.IQS = Known(out.Published.IQS)
	p.Staleness = Staleness{Mean: Known(out.Published.Mean),
		P50: Known(float64(out.P50)), P95: Known(float64(out.P95)), P99: Known(float64(out.P99))}
	if in.BudgetVersions > 0 {
		p.Staleness.ShareAboveBudget = Known(out.ShareAboveBudget)
	}
	p.Dominant = DominantIQS
	if out.Published.PQS >= out.Published.IQS {
		p.Dominant = DominantPQS
	}
	if t.maxSum > 0 {
		p.TokenStaleness = Known(out.TokenStaleness)
	}
	p.DroppedShare = Known(out.DroppedShare)
	p.Corrected = Corrected{PQS: Known(out.PQS), IQS: Known(out.IQS), Mean: Known(out.Mean), Period: periods(in, out.PeriodRelative)}
}

// threshold fills in what is known under policy threshold.
func (p *Prediction) threshold(in *Input, out *Estimate) {
	if !out.Covered {
		return
	}
	p.Staleness.Mean, p.Corrected.Mean = Known(out.Mean), Known(out.Mean)
	if out.PeriodRelative > 0 {
		p.Period, p.Corrected.Period = periods(in, out.Published.PeriodRelative), periods(in, out.PeriodRelative)
	}
}

// synchronous fills in a schedule that is never stale.
func (p *Prediction) synchronous(in *Input, t *tail, out *Estimate) {
	p.PQS, p.IQS, p.TokenStaleness = Known(0), Known(0), Known(0)
	p.Staleness = Staleness{Mean: Known(0), P50: Known(0), P95: Known(0), P99: Known(0)}
	p.Corrected = Corrected{PQS: Known(0), IQS: Known(0), Mean: Known(0)}
	if in.BudgetVersions > 0 {
		p.Staleness.ShareAboveBudget = Known(0)
	}
	switch {
	case in.Acceptance < 1:
		p.Warnings = append(p.Warnings, "a filtered synchronous batch is refilled or short, depending on the run: its period is not predicted; simulate")
		return
	case in.BatchRollouts > maxBarrier:
		p.Warnings = append(p.Warnings, fmt.Sprintf("the barrier of a synchronous batch is computed up to %d rollouts; simulate", maxBarrier))
		return
	}
	longest, exact := Barrier(t.rollout, t.group, in.ConcurrencyRollouts, in.BatchRollouts, in.GroupSize)
	if !exact {
		p.Warnings = append(p.Warnings, "concurrency does not cover the batch: the barrier is a list-scheduling makespan, estimated from seeded draws of independent rollouts (± 1 %)")
	}
	point := in.point()
	out.barrier(&point, longest)
	p.Covered, p.Reason, out.Reason = true, ReasonNone, ReasonNone
	p.Period = periods(in, out.PeriodRelative)
	p.Corrected.Period = p.Period
}

// WarningTailAssumed is the warning of a tail that was given as a multiplier alone. The user who gave it can give a
// shape; a measured one has no shape to give.
const WarningTailAssumed = "the tail is a bare multiplier: quantiles and token staleness assume a lognormal that has it"

// assumptions say what the figures assume.
func assumptions(in *Input, t *tail, out *Estimate) []string {
	var list []string
	if t.assumed {
		list = append(list, WarningTailAssumed)
	}
	if in.Start == StartGang && in.GroupSize > 1 {
		list = append(list, fmt.Sprintf("start gang keeps about %.1f of %.0f slots waiting for the rest of a group; this is counted", float64(in.GroupSize-1)/2, in.ConcurrencyRollouts))
	}
	if in.SyncEvery > 1 {
		list = append(list, fmt.Sprintf("one sync in %d steps adds (%d−1)/2 versions on average", in.SyncEvery, in.SyncEvery))
	}
	if out.Covered && in.Policy == PolicyBlock {
		list = append(list, "policy block rarely acts at this ρ: figures are those of drop")
	}
	if out.Covered && in.Policy == PolicyMax {
		list = append(list, fmt.Sprintf("policy max hardly acts where drop exceeds the budget of %d in fewer than %g %% of groups", in.MaxStaleness, 100*harmless))
	}
	return list
}

// accuracyWarnings say where the published mean is not the best one.
func accuracyWarnings(e *effective, p *Prediction) []string {
	mean, _ := p.Staleness.Mean.Value()
	corrected := p.Corrected.Mean.Or(mean)
	off := math.Abs(corrected-mean) > 0.02*mean
	switch {
	case !p.Smooth:
		return nil // said as the reason
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
