package grpo

import "math"

// ratioLimit bounds |log ratio| before it is exponentiated. A token beyond it
// is out of any band; the bound keeps loss and statistics finite.
const ratioLimit = 20

// Ratio is the importance ratio π_new/π_old of a token, or of a sequence, from log-probs.
func Ratio(logpNew, logpOld float32) float64 { return ratioOf(float64(logpNew) - float64(logpOld)) }

func ratioOf(logRatio float64) float64 {
	return math.Exp(min(max(logRatio, -ratioLimit), ratioLimit))
}

// The functions below are the loss of one token and its derivative by logp, the
// log-prob of the policy being trained. Where a weight carries no gradient the
// derivative is that of the formula with the weight held.

// clipLoss is −min(r·A, clip(r, 1−low, 1+high)·A), r = exp(logp − old), the loss
// of PPO (Schulman et al. 2017, eq. 7; low and high apart: DAPO, Yu et al. 2025).
// The derivative is −r·A, or 0 where the clipped branch is the smaller one.
func clipLoss(r, a, low, high float64) (loss, derivative float64) {
	if clipped := min(max(r, 1-low), 1+high) * a; clipped < r*a {
		return -clipped, 0
	}
	return -r * a, -r * a
}

// weighted is −w·A·logp, with derivative −w·A: the policy gradient with a
// weight that holds no gradient. With w = 1 it is plain REINFORCE (Williams
// 1992); with w from [TruncatedWeight] truncated importance sampling, with
// w = [ClippedWeight] CISPO.
func weighted(weight, a float64, logp float32) (loss, derivative float64) {
	d := -weight * a
	return d * float64(logp), d
}

// TruncatedWeight is min(max(r, floor), ceiling) (Ionides 2008), r the ratio of a
// token, or of a sequence from [SequenceLogRatio].
func TruncatedWeight(r, floor, ceiling float64) float64 { return min(max(r, floor), ceiling) }

// ClippedWeight is clip(r, 1−low, 1+high), the weight of CISPO (MiniMax-M1 2025, eq. 5).
func ClippedWeight(r, low, high float64) float64 { return min(max(r, 1-low), 1+high) }
