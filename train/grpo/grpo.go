// Package grpo holds the arithmetic of group-relative policy optimization
// (Shao et al. 2024) as pure functions on plain numbers and slices, for every trainer. It has
// advantages within a group. It has the losses and masks that correct for tokens sampled by another
// policy, each with its derivative. It has the statistics that tell how far off-policy a batch is,
// and how far it will be at a lag. It divides a batch into balanced micro-batches.
//
// A token has up to three log-probs. The first is by the behaviour policy that sampled it. That is
// the rollout's own, never recomputed, so that the ratio covers staleness and any difference in
// numerics between engine and trainer alike. The second is by the proximal policy that the train step
// began with, and the third by the policy being trained. With one gradient step a batch the last two
// are the same.
//
// Where the sampler cut its distribution (top-k, top-p, min-p), the first is over the ids that it kept.
// The other two then belong over the same ids, which a sampling mask names: the ratio is exact. Over
// all ids, every ratio is multiplied by the probability of what was kept.
package grpo

import (
	"fmt"
	"math"
)

// deviationFloor keeps the advantage of a group with almost equal rewards
// finite: a smaller standard deviation counts as no signal at all.
const deviationFloor = 1e-6

// Advantages writes into dst the advantages of one group's rollouts. An advantage is the reward minus
// the group's mean. With normalize it is divided by the group's standard deviation (that of the
// population). A group whose rewards are all equal has advantages of zero. dst and rewards must have
// the same length.
func Advantages(dst, rewards []float32, normalize bool) {
	if len(dst) != len(rewards) {
		panic(fmt.Sprintf("grpo: room for %d advantages of %d rewards", len(dst), len(rewards)))
	}
	if len(rewards) == 0 {
		return
	}
	var mean, square float64
	for _, r := range rewards {
		mean += float64(r)
	}
	mean /= float64(len(rewards))
	for _, r := range rewards {
		square += (float64(r) - mean) * (float64(r) - mean)
	}
	deviation := math.Sqrt(square / float64(len(rewards)))
	scale := 1.0
	switch {
	case deviation < deviationFloor:
		scale = 0
	case normalize:
		scale = 1 / deviation
	}
	for i, r := range rewards {
		dst[i] = float32((float64(r) - mean) * scale)
	}
}
