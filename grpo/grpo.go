// Package grpo holds the arithmetic of group-relative policy optimization
// (Shao et al. 2024) as pure functions on plain numbers: advantages within a
// group, the clipped token loss with its derivative, and the statistics that
// tell how far off-policy a batch is. The rollout's own log-probs are the old
// log-probs: nothing is recomputed, so that the importance ratio covers both
// staleness and any difference in numerics between engine and trainer.
package grpo

import (
	"fmt"
	"math"
)

// deviationFloor keeps the advantage of a group with almost equal rewards
// finite: a smaller standard deviation counts as no signal at all.
const deviationFloor = 1e-6

// Advantages writes into dst the advantages of one group's rollouts: reward
// minus the group's mean, and with normalize divided by the group's standard
// deviation (that of the population). A group whose rewards are all equal has
// advantages of zero. dst and rewards must have the same length.
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

// ratioLimit bounds |log ratio| before it is exponentiated. A token beyond it
// is out of any band; the bound keeps loss and statistics finite.
const ratioLimit = 20

// Ratio is the importance ratio p_trainer/p_rollout of a token.
func Ratio(logpTrainer, logpRollout float32) float64 {
	return math.Exp(min(max(float64(logpTrainer)-float64(logpRollout), -ratioLimit), ratioLimit))
}

// TokenLoss is −min(r·A, clip(r, 1−ε, 1+ε)·A) for one token, and its derivative
// by the trainer's log-prob: −r·A, or 0 where the clipped branch is the
// smaller one.
func TokenLoss(logpTrainer, logpRollout, advantage float32, epsilon float64) (loss, derivative float64) {
	r, a := Ratio(logpTrainer, logpRollout), float64(advantage)
	clipped := min(max(r, 1-epsilon), 1+epsilon) * a
	if clipped < r*a {
		return -clipped, 0
	}
	return -r * a, -r * a
}

// Statistics sums up how far off-policy the tokens of one train step are.
// The zero value has seen no token; add with Add, join parts with Merge.
type Statistics struct {
	// Tokens seen; the sums below are over them.
	Tokens int
	// Outside counts tokens whose ratio is outside [1−ε, 1+ε]; Clipped those of
	// them that lost their gradient, since the other side of the band still has it.
	Outside, Clipped int
	// Loss sums the tokens' losses, LogRatio their log p_trainer − log p_rollout.
	Loss, LogRatio float64
	// Weight and WeightSquare sum the ratios and their squares.
	Weight, WeightSquare float64
}

// Add takes in one token and returns the derivative of its loss by the
// trainer's log-prob.
func (s *Statistics) Add(logpTrainer, logpRollout, advantage float32, epsilon float64) (derivative float64) {
	loss, derivative := TokenLoss(logpTrainer, logpRollout, advantage, epsilon)
	r := Ratio(logpTrainer, logpRollout)
	s.Tokens++
	s.Loss += loss
	s.LogRatio += float64(logpTrainer) - float64(logpRollout)
	s.Weight += r
	s.WeightSquare += r * r
	if r < 1-epsilon || r > 1+epsilon {
		s.Outside++
		if derivative == 0 && advantage != 0 {
			s.Clipped++
		}
	}
	return derivative
}

// Merge takes in the tokens another part of the same step has seen.
func (s *Statistics) Merge(o Statistics) {
	s.Tokens += o.Tokens
	s.Outside += o.Outside
	s.Clipped += o.Clipped
	s.Loss += o.Loss
	s.LogRatio += o.LogRatio
	s.Weight += o.Weight
	s.WeightSquare += o.WeightSquare
}

// MeanLoss is the mean token loss; 0 without tokens.
func (s Statistics) MeanLoss() float64 { return s.perToken(s.Loss) }

// ClipFraction is the share of tokens with a ratio outside the band: below
// 0.05 is healthy, past 0.25 the estimator is broken.
func (s Statistics) ClipFraction() float64 { return s.perToken(float64(s.Outside)) }

// ActiveClipFraction is the share of tokens that lost their gradient.
func (s Statistics) ActiveClipFraction() float64 { return s.perToken(float64(s.Clipped)) }

// MeanLogRatio is the mean of log p_trainer − log p_rollout, in nats: within
// ±0.05 is healthy, a persistent drift means stale weights or a mismatch in
// numerics.
func (s Statistics) MeanLogRatio() float64 { return s.perToken(s.LogRatio) }

// EffectiveSampleSize is ESS/N = (Σw)²/(N·Σw²) of the importance ratios, from
// above 0 to 1 (Kong 1992); 1 without tokens.
func (s Statistics) EffectiveSampleSize() float64 {
	if s.Tokens == 0 {
		return 1
	}
	return s.Weight * s.Weight / (float64(s.Tokens) * s.WeightSquare)
}

func (s Statistics) perToken(sum float64) float64 {
	if s.Tokens == 0 {
		return 0
	}
	return sum / float64(s.Tokens)
}
