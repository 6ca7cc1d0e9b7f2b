package theory

import "math"

// ThresholdLag returns the mean staleness, in weight syncs, under policy threshold
// with partial rollout where the threshold binds. Between two syncs (1+θ)KG groups
// less those carried over start, and KG are trained. Just after a sync, exactly
// ⌊(1+θ)KG⌋ − KG are therefore open or queued. By the discrete Little's law a
// trained group has waited ⌊(1+θ)KG⌋/(KG) − 1 syncs. K is the train steps a sync,
// G the groups of a batch.
//
// Exact, where all that may start before a sync does. Where rollouts are too slow
// for that, the lag is that without a threshold. A sync that drains rollouts in
// flight gives less.
func ThresholdLag(theta, every, groups float64) float64 {
	batch := every * groups
	// A product such as 1.1·640 may fall just short of a whole number.
	return math.Floor((1+theta)*batch*(1+1e-12))/batch - 1
}

// nearThreshold is how far the lag without a threshold must be from the
// threshold's own, relatively, for either to hold.
const nearThreshold = 0.25

// unbounded is a queue factor that never overflows below ρ = 1.
const unbounded = 64

// estimateThreshold takes the smaller of the lag that the threshold allows and
// that of an unbounded queue.
func estimateThreshold(p *Point, t *tail, overhead float64, with Corrections) Estimate {
	free := *p
	every := float64(p.SyncEvery)
	free.Policy, free.SyncEvery, free.SyncTimeS = PolicyDrop, 1, p.SyncTimeS/every
	free.QueueFactor = unbounded * every
	free.SyncMode, free.SyncTrainer = SyncInFlight, TrainerBlocked
	out := estimate(&free, t, overhead, with)
	if out.Reason.blind() {
		return out
	}
	bound := ThresholdLag(p.StalenessThreshold, every, math.Floor(p.BatchRollouts/float64(t.shape.size)))
	loose := out.Mean / every // F/K: the unbounded lag in syncs
	// Of the K steps of a sync the j-th trains on what is j versions older still.
	inside := (every - 1) / 2
	answer := Estimate{Utilization: out.Utilization, Published: out.Published, SettlingSteps: out.SettlingSteps,
		PeriodRelative: out.PeriodRelative, PeriodS: out.PeriodS}
	// A trainer that goes on during a sync holds a batch that the rule does not count. Groups that a filter rejects are
	// admitted, and carried over by nobody.
	uncounted := p.SyncTrainer == TrainerFree || p.Acceptance < 1 && loose >= bound
	switch {
	case !p.PartialRollout || uncounted || math.Abs(loose-bound) < nearThreshold*max(loose, bound):
		answer.Reason = ReasonThreshold
		return answer
	case loose < bound:
		answer.Mean = out.Mean + inside
	default:
		// Admission waits, and with it the trainer: how long depends on the tail.
		answer.Mean, answer.PeriodRelative, answer.PeriodS = bound*every+inside, 0, 0
	}
	answer.Covered = true
	return answer
}
