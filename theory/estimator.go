package theory

import "math"

// Point is one setting of a search: what may differ from candidate to candidate
// while lengths, environment and group size stay. Fields mean what they mean in
// [Input]; zero fields take the defaults given there.
type Point struct {
	// ConcurrencyRollouts is C, BatchRollouts is B, QueueFactor is q = Q/B.
	ConcurrencyRollouts, BatchRollouts, QueueFactor float64
	// Utilization is ρ of decoding alone. 0 derives it from DecodeTokensPerS and
	// StepS: ρ = C·s_R·t_step/(B·E[L]).
	Utilization float64
	// DecodeTokensPerS is s_R, the decode speed of one slot while this setting's
	// slots are busy; StepS is t_step in seconds. Either may be 0 where
	// Utilization is given: periods are then relative to the step.
	DecodeTokensPerS, StepS float64
	// Policy, Select, Start, SyncMode and SyncTrainer are names as in Input.
	Policy, Select, Start string
	MaxStaleness          int     // the budget of policy max, versions
	StalenessThreshold    float64 // θ of policy threshold, share of a sync's rollouts
	PartialRollout        bool    // policy threshold interrupts what is in flight at a sync
	Acceptance            float64 // share of groups that are not filtered
	SyncTimeS             float64 // t_s in seconds
	SyncMode, SyncTrainer string
	SyncEvery             int // train steps per sync
	BudgetVersions        int // for ShareAboveBudget; 0 for none
}

// Estimate is the best closed-form answer for a [Point]. Where Covered is false
// only Reason, Utilization and, if positive, the periods mean anything.
type Estimate struct {
	// Covered says that closed forms hold here to their published accuracy
	// (docs/accuracy.md); Reason says why not. A caller simulates then.
	Covered bool
	Reason  Reason
	// Utilization is the effective ρ after environment, sync and acceptance.
	Utilization float64
	// PQS, IQS and Mean are corrected mean staleness in versions, PQS + IQS = Mean.
	PQS, IQS, Mean float64
	// P50, P95 and P99 are quantiles of staleness in versions.
	P50, P95, P99 int
	// ShareAboveBudget is the share of trained groups over BudgetVersions; 0
	// without a budget.
	ShareAboveBudget float64
	// TokenStaleness is the mean over tokens in versions; 0 where it has no
	// closed form.
	TokenStaleness float64
	// PeriodRelative is T/t_step and PeriodS is T in seconds; PeriodS is 0 where
	// the step time is unknown.
	PeriodRelative, PeriodS float64
	// DroppedShare is the share of ready groups that are never trained: evicted
	// from the queue or filtered.
	DroppedShare float64
	// SettlingSteps is how long a run warms up before its means mean anything.
	SettlingSteps float64
	// Published is the uncorrected closed form of the same point.
	Published struct{ PQS, IQS, Mean, PeriodRelative float64 }
}

// Estimator answers many points for one workload. Prepare it once; Estimate is
// then safe for concurrent use.
type Estimator struct {
	in    Input
	shape tail
	mean  float64 // E[L] in tokens; 0 where only a multiplier is known
}

// NewEstimator prepares for the lengths (or tail multiplier), the environment
// and the group size of in. The other fields are the defaults of points: only
// DecodeTokensPerS matters, where there is an environment. The error is that of
// [Input.Validate].
func NewEstimator(in Input) (*Estimator, error) {
	in = in.WithDefaults()
	if err := in.Validate(); err != nil {
		return nil, err
	}
	shape, err := tailOf(in)
	if err != nil {
		return nil, err
	}
	e := &Estimator{in: in, shape: shape}
	if in.Lengths != nil {
		e.mean = in.Lengths.Mean()
	}
	return e, nil
}

// Estimate answers one point.
func (e *Estimator) Estimate(p Point) Estimate {
	in := e.in
	in.ConcurrencyRollouts, in.BatchRollouts, in.QueueFactor = p.ConcurrencyRollouts, p.BatchRollouts, p.QueueFactor
	in.Utilization, in.DecodeTokensPerS, in.StepS = p.Utilization, p.DecodeTokensPerS, p.StepS
	in.Policy, in.Select, in.Start, in.MaxStaleness = p.Policy, p.Select, p.Start, p.MaxStaleness
	in.Acceptance, in.SyncTimeS, in.SyncMode, in.SyncTrainer, in.SyncEvery = p.Acceptance, p.SyncTimeS, p.SyncMode, p.SyncTrainer, p.SyncEvery
	in.BudgetVersions = p.BudgetVersions
	if in.Utilization == 0 && e.mean > 0 {
		in.Utilization = p.ConcurrencyRollouts * p.DecodeTokensPerS * p.StepS / (p.BatchRollouts * e.mean)
	}
	in = in.WithDefaults()
	prediction, err := predict(in)
	if err != nil {
		return Estimate{Reason: ReasonInvalid}
	}
	return estimateOf(prediction)
}

// estimateOf reads the estimate out of a prediction.
func estimateOf(p Prediction) Estimate {
	e := Estimate{
		Utilization: p.Utilization,
		PQS:         p.Corrected.PQS.Or(0), IQS: p.Corrected.IQS.Or(0), Mean: p.Corrected.Mean.Or(0),
		P50: int(p.Staleness.P50.Or(0)), P95: int(p.Staleness.P95.Or(0)), P99: int(p.Staleness.P99.Or(0)),
		ShareAboveBudget: p.Staleness.ShareAboveBudget.Or(0), TokenStaleness: p.TokenStaleness.Or(0),
		PeriodRelative: p.Corrected.Period.RelativeToStep.Or(0), PeriodS: p.Corrected.Period.S.Or(0),
		SettlingSteps: p.SettlingSteps,
	}
	_, e.Covered = p.Corrected.Mean.Value()
	if !e.Covered {
		e.Reason = ReasonPolicy
	}
	if e.Covered && e.PeriodRelative > 0 {
		e.DroppedShare = math.Max(0, 1-1/(p.Utilization*e.PeriodRelative))
	}
	e.Published.PQS, e.Published.IQS = p.PQS.Or(0), p.IQS.Or(0)
	e.Published.Mean, e.Published.PeriodRelative = p.Staleness.Mean.Or(0), p.Period.RelativeToStep.Or(0)
	return e
}
