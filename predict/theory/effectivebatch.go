package theory

import (
	"fmt"
	"math"
)

// EffectiveRollouts is how many independent rollouts a batch is worth that is not there yet. The batch has B rollouts
// in groups of S with sibling correlation r. The share counted is not masked (1 for all). The effective sample size per
// rollout is ess (1 on policy), from weights that do not depend on the group:
//
//	counted·B / (1/ess + counted·(S−1)·r)
//
// with masks that take out single rollouts, each by itself. Filters take out
// whole groups: leave theirs out of B instead.
//
// Definition. A batch's gradient is a mean of contributions x of its rollouts,
// weighted by w = importance ratio · share trained. With Var x = σ², the same for
// all, and correlation r between siblings (0 between groups), its variance is
//
//	σ²·Σ_groups[(1−r)·Σw² + r·(Σw)²] / (Σ_batch w)²
//
// and the result is the number n of independent, unmasked, on-policy rollouts
// whose plain mean has that variance, σ²/n. Two known cases: equal weights give
// B/(1+(S−1)r) (Kish's design effect), r = 0 gives (Σw)²/Σw² (Kish's effective
// sample size).
//
// The definition leaves out that contributions differ in variance (long rollouts, rare
// rewards). The r of rewards stands in for the r of gradients where rewards are
// given: rewards of one prompt correlate because prompts differ in difficulty.
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
