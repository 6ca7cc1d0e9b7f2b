package theory

import (
	"math"
	"sync"
)

// Estimate is the best closed-form answer for a [Point].
type Estimate struct {
	// Covered says that closed forms hold here to their published accuracy
	// (docs/theory-accuracy.md); Reason says why not. A caller simulates then. Figures
	// that no form gives are 0; those given in spite of a Reason are rough.
	Covered bool
	Reason  Reason
	// Utilization is the effective ρ after environment, sync and acceptance.
	Utilization float64
	// PQS, IQS and Mean are mean staleness in versions, PQS + IQS = Mean.
	PQS, IQS, Mean float64
	// P50, P95 and P99 are quantiles of staleness in versions.
	P50, P95, P99 int
	// ShareAboveBudget is the share of trained groups over BudgetVersions; 0
	// without a budget. Under [ReasonDiscards] it is the share over MaxStaleness
	// that policy drop would train.
	ShareAboveBudget float64
	// TokenStaleness is the mean over tokens in versions; 0 where it has no
	// closed form (environments, correlated moments unknown).
	TokenStaleness float64
	// PeriodRelative is T/t_step, 0 where unknown; PeriodS is T in seconds, 0 where
	// the step time is unknown.
	PeriodRelative, PeriodS float64
	// DroppedShare is the share of ready groups that are never trained: evicted
	// from the queue, or filtered.
	DroppedShare float64
	// SettlingSteps is how long a run warms up before its means mean anything.
	SettlingSteps float64
	// Published is the uncorrected closed form of the same point.
	Published Published
}

// Published is the published closed form on effective inputs, versions and T
// over t_step.
type Published struct{ PQS, IQS, Mean, PeriodRelative float64 }

// Estimator answers many points for one workload, as [Predict] does for one: both
// are the same forms. Prepare it once; Estimate takes microseconds, allocates
// nothing once warm, and may be called from several goroutines.
type Estimator struct {
	in    Input
	mean  float64 // E[L] in tokens; 0 where only a multiplier is known
	plain *tail   // without an environment
	with  Corrections
	mu    sync.Mutex
	rungs sync.Map // of decode speeds, where an environment's share depends on it
}

// NewEstimator prepares for the lengths (or tail multiplier), the environment
// and the group size of in, whose other fields do not matter. The error is that
// of [Input.Validate].
func NewEstimator(in Input) (*Estimator, error) {
	in = Input{GroupSize: in.GroupSize, TailMultiplier: in.TailMultiplier, Lengths: in.Lengths, Environment: in.Environment,
		ConcurrencyRollouts: 1, BatchRollouts: float64(max(in.GroupSize, 1)), Utilization: 1, DecodeTokensPerS: 1}.WithDefaults()
	if err := in.Validate(); err != nil {
		return nil, err
	}
	e := &Estimator{in: in, with: CorrectAll}
	if in.Lengths != nil {
		e.mean = in.Lengths.Mean()
	}
	if in.Environment.Zero() {
		t, err := tailOf(&in, 1)
		if err != nil {
			return nil, err
		}
		e.plain = &t
	}
	return e, nil
}

// rung is the ratio of neighbouring decode speeds for which an environment's
// rollout times are tabulated; a point takes the nearest, so that the shape of
// its times is that of a speed at most 4.4 % off. Its mean time is exact. Each
// rung that a search touches costs some 50 ms once.
const rung = 1.0 / 8 // of an octave

// tail returns the tables for a decode speed.
func (e *Estimator) tail(decode float64) (*tail, error) {
	if e.plain != nil {
		return e.plain, nil
	}
	key := int(math.Round(math.Log2(decode) / rung))
	if t, ok := e.rungs.Load(key); ok {
		return t.(*tail), nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if t, ok := e.rungs.Load(key); ok {
		return t.(*tail), nil
	}
	t, err := tailOf(&e.in, 1e9/math.Exp2(float64(key)*rung))
	if err != nil {
		return nil, err
	}
	e.rungs.Store(key, &t)
	return &t, nil
}

// Estimate answers one point. Where the point is not a valid setting the reason
// is [ReasonInvalid]; [Input.Validate] says what is wrong.
func (e *Estimator) Estimate(p Point) Estimate {
	p.complete(e.mean)
	environment := !e.in.Environment.Zero()
	if !p.valid(e.in.GroupSize, environment) {
		return Estimate{Reason: ReasonInvalid}
	}
	decode, overhead := 1.0, 0.0
	if environment {
		decode = p.Utilization * p.BatchRollouts * e.mean / (p.StepS * p.ConcurrencyRollouts)
		overhead = e.in.Environment.Mean() / 1e9 * decode / e.mean
	}
	t, err := e.tail(decode)
	if err != nil {
		return Estimate{Reason: ReasonInvalid}
	}
	return estimate(&p, t, overhead, e.with)
}

// With returns an estimator that makes only some corrections, to see what each of
// them is worth; it shares what was prepared.
func (e *Estimator) With(c Corrections) *Estimator {
	return &Estimator{in: e.in, mean: e.mean, plain: e.plain, with: c}
}

// estimate answers a valid point; overhead is E[environment]/E[generation].
func estimate(p *Point, t *tail, overhead float64, with Corrections) Estimate {
	switch p.Policy {
	case PolicySynchronous:
		return estimateSynchronous(p, t, overhead)
	case PolicyThreshold:
		return estimateThreshold(p, t, overhead, with)
	}
	e := effectiveOf(p, t.shape, overhead, with)
	out := Estimate{Utilization: e.rho, Reason: e.reason}
	if e.reason.blind() {
		return out
	}
	var d Distribution
	e.distribution(&d)
	out.Published = e.published(p, t.multiplier)
	out.Reason = t.reasonOf(p, &e, &d)
	out.period(p, &e)
	out.PQS = out.Published.PQS
	out.SettlingSteps = Settling(p.QueueFactor, e.rho, e.walk, e.groups, out.Published.Mean)
	switch {
	case out.Reason == ReasonDiscards:
		out.ShareAboveBudget = d.ShareAbove(p.MaxStaleness)
	case !out.Reason.blind():
		out.staleness(p, t, &e, &d)
	}
	out.Covered = out.Reason == ReasonNone
	return out
}

// period fills in what does not need the queue's order.
func (out *Estimate) period(p *Point, e *effective) {
	out.PeriodRelative = e.relative(e.period)
	out.PeriodS = out.PeriodRelative * p.StepS
	out.DroppedShare = max(0, 1-1/(e.produced*e.period))
}

// Corrections are what the estimate adds to the published closed form, a set.
type Corrections uint8

// The corrections, in the order in which docs/theory-accuracy.md adds them.
const (
	// CorrectQueue has the queue's stock follow its stationary law instead of being
	// empty below ρ = 1 and full above.
	CorrectQueue Corrections = 1 << iota
	// CorrectLate has the trainer wait for batches that are late by chance.
	CorrectLate
	// CorrectSelection has a starved selection fall on an arrival.
	CorrectSelection
	// CorrectStagger has siblings start one after another.
	CorrectStagger
	// CorrectUpdates has updates that wait for arrivals be as irregular as these.
	CorrectUpdates
	// CorrectAll is all of them. No correction at all is not the published form: it
	// still counts whole versions, from the distribution of times.
	CorrectAll = CorrectQueue | CorrectLate | CorrectSelection | CorrectStagger | CorrectUpdates
)

// has reports whether a correction is in the set.
func (c Corrections) has(one Corrections) bool { return c&one != 0 }

// staleness fills in means and quantiles.
func (out *Estimate) staleness(p *Point, t *tail, e *effective, d *Distribution) {
	d.sum(out)
	out.IQS = min(d.inQueue(), out.Mean) // equal where groups take no time
	out.PQS = out.Mean - out.IQS
	if p.BudgetVersions > 0 {
		out.ShareAboveBudget = d.ShareAbove(p.BudgetVersions)
	}
	if t.maxSum > 0 {
		stagger := float64(e.shape.size-1) / e.slots
		if !e.with.has(CorrectStagger) {
			stagger = 0
		}
		out.TokenStaleness = d.tokenMean(e.shape.tokensOf(stagger, t.maxSum-t.meanSquare/2))
	}
}

// published is the uncorrected closed form on effective inputs.
func (e *effective) published(p *Point, multiplier float64) Published {
	ideal := Period(e.rho)
	out := Published{
		PQS:            e.unit*multiplier/ideal + e.publish/ideal + e.lag(),
		IQS:            InQueue(p.QueueFactor, e.rho),
		PeriodRelative: e.relative(ideal),
	}
	out.Mean = out.PQS + out.IQS
	return out
}
