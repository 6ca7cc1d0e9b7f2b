package theory

import "cmp"

// Point is one setting of a search. Its fields may differ from candidate to
// candidate, while lengths, environment and group size stay. Fields mean what they
// mean in [Input]; zero fields take the defaults given there.
type Point struct {
	// ConcurrencyRollouts is C, BatchRollouts is B, QueueFactor is q = Q/B.
	ConcurrencyRollouts, BatchRollouts, QueueFactor float64
	// Utilization is ρ of decoding alone. 0 derives it from DecodeTokensPerS and
	// StepS: ρ = C·s_R·t_step/(B·E[L]).
	Utilization float64
	// DecodeTokensPerS is s_R, the decode speed of one slot while this setting's
	// slots are busy; StepS is t_step in seconds. Either may be 0 where
	// Utilization is given and neither sync nor environment takes time: periods
	// are then relative to the step.
	DecodeTokensPerS, StepS float64
	// Policy, Select, Start, SyncMode and SyncTrainer are names as in Input.
	Policy, Select, Start string
	MaxStaleness          int     // the budget of policy max, versions
	StalenessThreshold    float64 // θ of policy threshold, a share of a sync's rollouts
	PartialRollout        bool    // policy threshold: interrupt what is in flight at a sync
	Acceptance            float64 // share of groups that are not filtered
	SyncTimeS             float64 // t_s in seconds
	SyncMode, SyncTrainer string
	SyncEvery             int // train steps per sync
	BudgetVersions        int // for ShareAboveBudget; 0 for none
}

// point is the part of an input that may differ in a search.
func (in *Input) point() Point {
	return Point{
		ConcurrencyRollouts: in.ConcurrencyRollouts, BatchRollouts: in.BatchRollouts, QueueFactor: in.QueueFactor,
		Utilization: in.Utilization, DecodeTokensPerS: in.DecodeTokensPerS, StepS: in.StepS,
		Policy: in.Policy, Select: in.Select, Start: in.Start, MaxStaleness: in.MaxStaleness,
		StalenessThreshold: in.StalenessThreshold, PartialRollout: in.PartialRollout, Acceptance: in.Acceptance,
		SyncTimeS: in.SyncTimeS, SyncMode: in.SyncMode, SyncTrainer: in.SyncTrainer, SyncEvery: in.SyncEvery,
		BudgetVersions: in.BudgetVersions,
	}
}

// complete fills in defaults, and what follows from the mean length in tokens.
func (p *Point) complete(meanTokens float64) {
	set := func(field *string, value string) {
		*field = cmp.Or(*field, value)
	}
	set(&p.Policy, PolicyDrop)
	set(&p.Select, SelectOldest)
	set(&p.Start, StartStream)
	set(&p.SyncMode, SyncInFlight)
	set(&p.SyncTrainer, TrainerFree)
	p.QueueFactor = cmp.Or(p.QueueFactor, 1)
	p.Acceptance = cmp.Or(p.Acceptance, 1)
	p.SyncEvery = cmp.Or(p.SyncEvery, 1)
	if work := p.BatchRollouts * meanTokens; work > 0 {
		decoded := p.ConcurrencyRollouts * p.DecodeTokensPerS
		if p.Utilization == 0 {
			p.Utilization = decoded * p.StepS / work
		}
		if p.StepS == 0 && decoded > 0 {
			p.StepS = work * p.Utilization / decoded
		}
	}
}

// within is false for NaN, too.
func within(x, low, high float64) bool { return x >= low && x <= high }

// valid reports whether a completed point is one that [Input.Validate] accepts,
// without saying what is wrong.
func (p *Point) valid(groupSize int, environment bool) bool {
	s := float64(groupSize)
	return within(p.ConcurrencyRollouts, 1, maxRollouts) && within(p.BatchRollouts, s, maxRollouts) &&
		within(p.QueueFactor, 1, maxQueueFactor) && within(p.Utilization, 1/maxUtilization, maxUtilization) &&
		within(p.Acceptance, 1e-6, 1) && within(p.SyncTimeS, 0, maxSeconds) && within(p.StepS, 0, maxSeconds) &&
		within(p.StalenessThreshold, 0, maxQueueFactor) && p.SyncEvery >= 1 && p.SyncEvery <= maxSyncEvery &&
		(p.SyncTimeS == 0 && !environment || p.StepS > 0) && p.MaxStaleness >= 0 && p.BudgetVersions >= 0 &&
		(p.Start != StartGang || p.ConcurrencyRollouts >= s) && p.named()
}

// named reports whether every name is known.
func (p *Point) named() bool {
	if !CoversPolicy(p.Policy) {
		return false
	}
	switch p.Select {
	case SelectOldest, SelectNewest, SelectOldestVersion, SelectFresh:
	default:
		return false
	}
	switch p.SyncMode {
	case SyncInFlight, SyncPause, SyncRestart, SyncDrain:
	default:
		return false
	}
	return (p.Start == StartStream || p.Start == StartGang) && (p.SyncTrainer == TrainerFree || p.SyncTrainer == TrainerBlocked)
}
