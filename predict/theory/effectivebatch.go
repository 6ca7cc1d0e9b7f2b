package theory

import (
	"errors"
	"fmt"
	"math"
)

// BatchGroup is one group of a batch, as the effective batch sees it.
type BatchGroup struct {
	// Rewards of its rollouts, or any other scalar of what each contributes to the gradient, such as a projection of it.
	Rewards []float64
	// Ratios are the rollouts' importance weights after truncation; nil for all 1.
	Ratios []float64
	// Trained is the share of each rollout's tokens that no mask takes out; nil for all 1.
	Trained []float64
	// Filtered says that the group does not count: its rewards are all equal, or outside a solve-rate band.
	Filtered bool
}

// EffectiveBatch says how many independent rollouts a batch is worth.
//
// Definition. A batch's gradient is a mean of contributions x of its rollouts,
// weighted by w = importance ratio · share trained. With Var x = σ², the same for
// all, and correlation r between siblings (0 between groups), its variance is
//
//	σ²·Σ_groups[(1−r)·Σw² + r·(Σw)²] / (Σ_batch w)²
//
// and Effective is the number n of independent, unmasked, on-policy rollouts
// whose plain mean has that variance, σ²/n. Two known cases: equal weights give
// B/(1+(S−1)r) (Kish's design effect), r = 0 gives (Σw)²/Σw² (Kish's effective
// sample size). Filtered groups and rollouts of weight 0 count nothing.
//
// What it leaves out: contributions differ in variance (long rollouts, rare
// rewards), and r of rewards stands in for r of gradients where rewards are
// given: rewards of one prompt correlate because prompts differ in difficulty.
type EffectiveBatch struct {
	// Rollouts in the batch, filtered and masked ones included.
	Rollouts int
	// Counted are those of positive weight in groups that count.
	Counted int
	// Correlation between siblings ([SiblingCorrelation]), clamped to [0, 1].
	Correlation float64
	// Ratio is the effective share of Counted by weights alone, (Σw)²/(n·Σw²), in (0, 1].
	Ratio float64
	// Effective is B_eff, in rollouts; 0 where nothing counts.
	Effective float64
}

// EffectiveBatchOf estimates B_eff of batches, taken together: give the groups
// of several steps for a steadier correlation, and divide by their number. It
// refuses groups whose slices differ in length, and weights that are negative
// or no numbers.
func EffectiveBatchOf(groups []BatchGroup) (EffectiveBatch, error) {
	var out EffectiveBatch
	if len(groups) == 0 {
		return out, errors.New("effective batch: no groups: give at least one")
	}
	for i := range groups {
		if err := groups[i].validate(); err != nil {
			return out, fmt.Errorf("effective batch: group %d: %w", i+1, err)
		}
	}
	out.Correlation = clampedCorrelation(groups)
	var sum, squares, siblings float64
	for i := range groups {
		g := &groups[i]
		out.Rollouts += len(g.Rewards)
		if g.Filtered {
			continue
		}
		var inGroup float64
		for j := range g.Rewards {
			w := g.weight(j)
			if w > 0 {
				out.Counted++
			}
			inGroup += w
			squares += w * w
		}
		sum += inGroup
		siblings += inGroup * inGroup
	}
	if squares == 0 {
		return out, nil
	}
	r := out.Correlation
	out.Ratio = sum * sum / (float64(out.Counted) * squares)
	out.Effective = sum * sum / ((1-r)*squares + r*siblings)
	return out, nil
}

// clampedCorrelation is that of the groups that count; 0 where it cannot be told.
func clampedCorrelation(groups []BatchGroup) float64 {
	var counted [][]float64
	for i := range groups {
		if !groups[i].Filtered {
			counted = append(counted, groups[i].Rewards)
		}
	}
	r, err := SiblingCorrelation(counted)
	if err != nil {
		return 0
	}
	return math.Max(0, math.Min(r, 1))
}

// weight is a rollout's: its ratio times its share trained.
func (g *BatchGroup) weight(i int) float64 {
	w := 1.0
	if g.Ratios != nil {
		w = g.Ratios[i]
	}
	if g.Trained != nil {
		w *= g.Trained[i]
	}
	return w
}

// validate says what is wrong with a group.
func (g *BatchGroup) validate() error {
	n := len(g.Rewards)
	if g.Ratios != nil && len(g.Ratios) != n || g.Trained != nil && len(g.Trained) != n {
		return fmt.Errorf("%d rewards, %d ratios, %d shares trained: expected as many of each, or none of the latter", n, len(g.Ratios), len(g.Trained))
	}
	for i, reward := range g.Rewards {
		if math.IsNaN(reward) || math.IsInf(reward, 0) {
			return fmt.Errorf("reward %d is %g: expected a number", i+1, reward)
		}
		if w := g.weight(i); !(w >= 0) || math.IsInf(w, 0) {
			return fmt.Errorf("rollout %d weighs %g: expected a ratio of 0 or more, and a share between 0 and 1", i+1, w)
		}
		if g.Trained != nil && g.Trained[i] > 1 {
			return fmt.Errorf("share trained %d is %g: expected 0 to 1", i+1, g.Trained[i])
		}
	}
	return nil
}

// SiblingCorrelation estimates the correlation between two rollouts of one
// group from their rewards, by the one-way analysis of variance: with M_b and
// M_w the mean squares between and within groups and n₀ the groups' effective
// size, r = (M_b − M_w)/(M_b + (n₀−1)·M_w). It needs two groups and one of two
// rollouts or more. Small samples give values slightly outside [0, 1]. The
// zero-advantage groups of a filter carry most of r: estimate it over all
// groups for the prompts' own, over those that count for the batch's.
func SiblingCorrelation(groups [][]float64) (float64, error) {
	var k, n, total, sizes float64
	for _, g := range groups {
		if len(g) == 0 {
			continue
		}
		k++
		size := float64(len(g))
		n += size
		sizes += size * size
		for _, x := range g {
			if math.IsNaN(x) || math.IsInf(x, 0) {
				return 0, fmt.Errorf("sibling correlation: a reward is %g: expected a number", x)
			}
			total += x
		}
	}
	if k < 2 || n <= k {
		return 0, fmt.Errorf("sibling correlation: %.0f groups of %.0f rollouts: expected two groups or more, and one of two rollouts or more", k, n)
	}
	grand := total / n
	var between, within float64
	for _, g := range groups {
		if len(g) == 0 {
			continue
		}
		mean := 0.0
		for _, x := range g {
			mean += x / float64(len(g))
		}
		between += float64(len(g)) * (mean - grand) * (mean - grand)
		for _, x := range g {
			within += (x - mean) * (x - mean)
		}
	}
	between /= k - 1
	within /= n - k
	if between+within == 0 {
		return 0, errors.New("sibling correlation: every reward is the same, so none can be told: give groups that differ")
	}
	size := (n - sizes/n) / (k - 1)
	return (between - within) / (between + (size-1)*within), nil
}

// EffectiveRollouts is what [EffectiveBatchOf] expects of a batch that is not
// there yet: B rollouts in groups of S with sibling correlation r, of which the
// share counted is not masked (1 for all), with an effective
// sample size per rollout of ess (1 on policy) from weights that do not depend
// on the group:
//
//	counted·B / (1/ess + counted·(S−1)·r)
//
// with masks that take out single rollouts, each by itself. Filters take out
// whole groups: leave theirs out of B instead.
func EffectiveRollouts(batch, size, correlation, counted, ess float64) (float64, error) {
	switch {
	case !(batch > 0) || math.IsInf(batch, 0) || !(size >= 1) || size > batch:
		return 0, fmt.Errorf("effective batch: %g rollouts in groups of %g: expected positive numbers, and a group within the batch", batch, size)
	case !(correlation >= 0 && correlation <= 1):
		return 0, fmt.Errorf("effective batch: a sibling correlation of %g: expected 0 to 1", correlation)
	case !(counted > 0 && counted <= 1) || !(ess > 0 && ess <= 1):
		return 0, fmt.Errorf("effective batch: a share of %g counted, %g effective by weight: expected above 0, at most 1", counted, ess)
	}
	return counted * batch / (1/ess + counted*(size-1)*correlation), nil
}
