package theory

import "math"

// The functions of this file are the published closed form for the queue-drop
// policy, oldest first, in the mean (docs/theory.md; Applied Compute, Predicting
// and Controlling Staleness in Fully Asynchronous RL Training, 2026). They
// check nothing: arguments are positive and finite, q >= 1 and M >= 1.

// PreQueue returns the mean pre-queue staleness in versions,
// PQS = C·M/(B·max(1, ρ)): a group's generation time over the period.
//
// Valid where slots are work-conserving (start order stream) and decode speed does
// not depend on the number of active slots. The relative error of the sum with
// [InQueue] is at most 0.7 % below ρ = 0.7 and 1–2 % above ρ = 1.3. These are
// means, for tailness of 30 and more. Single cells of low tail, small C/B and high
// ρ reach 20 %.
func PreQueue(concurrency, batch, tail, rho float64) float64 {
	return concurrency * tail / (batch * max(1, rho))
}

// InQueue returns the mean in-queue staleness in versions: ρ where the trainer
// waits for rollouts (ρ < 1), (2q+ρ−1)/(2ρ) where the queue is full (ρ >= 1).
// The branches meet at ρ = 1 only for q = 1, and the second tends to ½.
//
// Valid where group times spread over at least half a period, so that a group's
// age in periods becomes a count of updates by adding ½. At ρ = 1 with q >= 2
// neither branch holds; see [Estimator].
func InQueue(queueFactor, rho float64) float64 {
	if rho < 1 {
		return rho
	}
	return (2*queueFactor + rho - 1) / (2 * rho)
}

// Period returns T/t_step = max(1, 1/ρ): the trainer alone when train-bound, a
// batch's generation when rollout-bound. t_period = B·E[L]/min(v_R, v_T) with
// t_step = B·E[L]/v_T.
func Period(rho float64) float64 { return max(1, 1/rho) }

// GroupTime returns t_generate/t_step = C·M/(B·ρ): how long a group generates,
// from t_generate = C·M·E[L]/v_R.
func GroupTime(concurrency, batch, tail, rho float64) float64 {
	return concurrency * tail / (batch * rho)
}

// BetaCritical returns the largest β* = c_T/c_R at which the train-bound side can
// reach a period with less staleness than the rollout-bound side. It is 1/(6q − 4
// + 4·√((q−1)(2q−1))): ½ at q = 1, 0.0670 at q = 2 (docs/theory-rules.md). Valid for q
// >= 1 with concurrency proportional to the rollout GPUs.
func BetaCritical(queueFactor float64) float64 {
	q := queueFactor
	return 1 / (6*q - 4 + 4*math.Sqrt((q-1)*(2*q-1)))
}
