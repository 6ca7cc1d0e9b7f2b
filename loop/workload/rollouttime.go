package workload

import (
	"fmt"
	"math"
)

// Resolution of the discretised times, and the number of groups that the seeded
// estimate draws. Both keep E[max] within about 0.2 % (tested).
const (
	timeCells      = 192
	estimateGroups = 1 << 15
)

// RolloutTimes are the distributions, in ns, of the time that rollouts and groups occupy their
// slots. It is generation at a constant decode speed plus environment time, the slot held through
// both.
type RolloutTimes struct {
	Rollout Distribution // one rollout
	Group   Distribution // the longest of a group's siblings
}

// NewRolloutTimes combines lengths at nsPerToken with an environment for groups of s
// siblings. How it is computed depends on the models:
//
//   - no environment: exact, from the length distribution;
//   - independent siblings: by quadrature, both models cut into about 400 cells
//     that get finer in the tail, convolved, and raised to the power s;
//   - siblings resampled together: by a seeded estimate over 32768 groups, the
//     same on every call. Its standard error is about 0.3 % of the mean for
//     lengths with a coefficient of variation of one half.
//
// env may be nil. It panics if nsPerToken is not positive and finite or s is
// below 1, since callers validate.
func NewRolloutTimes(lengths *Lengths, nsPerToken float64, env *Times, s int) RolloutTimes {
	if !(nsPerToken > 0) || math.IsInf(nsPerToken, 0) || s < 1 {
		panic(fmt.Sprintf("workload: times at %v ns a token for groups of %d", nsPerToken, s))
	}
	if env.Zero() {
		return RolloutTimes{
			Rollout: lengths.marginal.Scale(nsPerToken),
			Group:   lengths.MaxDistribution(s).Scale(nsPerToken),
		}
	}
	if lengths.Grouped() || env.Grouped() {
		return estimateTimes(lengths, nsPerToken, env, s)
	}
	one := convolve(lengths.marginal.thinned(timeCells).Scale(nsPerToken), env.cells(timeCells))
	return RolloutTimes{Rollout: one, Group: one.Max(s)}
}

// cells cuts the model into a discrete distribution with the same mean.
func (s *Times) cells(limit int) Distribution {
	switch s.kind {
	case KindEmpirical:
		return s.times.sorted.thinned(limit)
	case KindFixed:
		return ascending([]float64{s.Mean()}, []float64{1})
	}
	// A fine grid of quantiles whose steps shrink geometrically in the tail,
	// thinned to conditional means and rescaled to the exact mean.
	var values, probs []float64
	const fine = 4096
	left := 1.0
	for left > 1e-9 {
		step := min(1.0/fine, left/64)
		if left < 2e-9 {
			step = left
		}
		values = append(values, s.Inverse(1-left+step/2))
		probs = append(probs, step)
		left -= step
	}
	d, err := NewDistribution(values, probs)
	if err != nil {
		panic(fmt.Sprintf("workload: cells of a %s service: %v", s.kind, err))
	}
	d = d.thinned(limit)
	return d.Scale(s.Mean() / d.Mean())
}

// convolve returns the distribution of the sum of two independent values.
func convolve(a, b Distribution) Distribution {
	values := make([]float64, 0, a.Len()*b.Len())
	weights := make([]float64, 0, a.Len()*b.Len())
	for i, x := range a.values {
		for j, y := range b.values {
			values = append(values, x+y)
			weights = append(weights, a.probs[i]*b.probs[j])
		}
	}
	d, err := NewDistribution(values, weights)
	if err != nil {
		panic(fmt.Sprintf("workload: sum of two distributions: %v", err))
	}
	return d
}

// estimateTimes draws whole groups, since siblings are not independent.
func estimateTimes(lengths *Lengths, nsPerToken float64, env *Times, s int) RolloutTimes {
	tokens := NewSource(0, StreamEstimate)
	service := tokens
	if !lengths.Grouped() || !env.Grouped() {
		service = NewSource(1, StreamEstimate)
	}
	one := make([]float64, 0, estimateGroups*s)
	longest := make([]float64, 0, estimateGroups)
	for g := range uint64(estimateGroups) {
		slowest := 0.0
		for i := range uint32(s) {
			t := float64(lengths.Draw(tokens, g, i, 1))*nsPerToken + float64(env.Draw(service, g, i, 1))
			one = append(one, t)
			slowest = max(slowest, t)
		}
		longest = append(longest, slowest)
	}
	return RolloutTimes{Rollout: evenly(one), Group: evenly(longest)}
}

// evenly gives every value the same weight.
func evenly(values []float64) Distribution {
	weights := make([]float64, len(values))
	for i := range weights {
		weights[i] = 1
	}
	d, err := NewDistribution(values, weights)
	if err != nil {
		panic(fmt.Sprintf("workload: drawn times: %v", err))
	}
	return d
}
