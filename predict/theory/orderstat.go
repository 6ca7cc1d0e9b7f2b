package theory

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/mathext"

	"github.com/headway-rl/headway/loop/workload"
)

// Kept is what keeping the first to finish does: oversampling starts more than
// it trains and keeps the short ones.
type Kept struct {
	// Mean is the mean of what is kept, Sampled that of what is started, both in the
	// unit of the given values; their ratio is the bias.
	Mean, Sampled float64
	// Last is the mean of the last one kept: how long the batch, or the group, takes.
	Last float64
}

// Bias is Mean/Sampled, 1 where nothing is discarded.
func (k Kept) Bias() float64 { return k.Mean / k.Sampled }

// KeepFirst returns what is kept of n values drawn independently, started
// together, of which the first keep to finish are trained: the mean of their
// order statistics,
//
//	(1/k)·Σ_{i≤k} E[X_(i:n)],  Σ_{i≤k} P(X_(i:n) ≤ x) = E[min(N, k)], N binomial (n, F(x))
//
// by summation over the distribution, exact up to rounding. It is for the first S
// of S+R rollouts of a group (redundancy), and with S = 1 for the first G of kG
// groups (oversampling; else [KeepFirstGroups]). Valid where all start together,
// as under the synchronous schedule with slots for all: with a queue those that
// are not first finish later and are trained too, or dropped by their age. The
// error is of keep and n that make no sense.
//
// A reference, of docs/theory.md: commands simulate oversampling.
func KeepFirst(values workload.Distribution, keep, n int) (Kept, error) {
	if keep < 1 || n < keep {
		return Kept{}, fmt.Errorf("keep first: %d of %d: want at least one, of at least as many", keep, n)
	}
	out := Kept{Sampled: values.Mean()}
	kept, done := 0.0, 0.0
	below := 0.0
	for i := range values.Len() {
		v, p := values.At(i)
		below = min(below+p, 1)
		nextKept, nextDone := firstOf(below, keep, n)
		out.Mean += v * (nextKept - kept) / float64(keep)
		out.Last += v * (nextDone - done)
		kept, done = nextKept, nextDone
	}
	return out, nil
}

// firstOf returns E[min(N, k)] and P(N ≥ k) for N binomial (n, f).
func firstOf(f float64, k, n int) (expected, all float64) {
	if f >= 1 {
		return float64(k), 1
	}
	if f <= 0 {
		return 0, 0
	}
	all = mathext.RegIncBeta(float64(k), float64(n-k+1), f)
	expected = float64(k) * all
	if k > 1 {
		expected += float64(n) * f * (1 - mathext.RegIncBeta(float64(k-1), float64(n-k+1), f))
	}
	return expected, all
}

// KeepFirstGroups is [KeepFirst] for groups of independent siblings: of n groups
// that start together the first keep to have their last rollout are trained.
// Mean and Sampled are of rollout lengths, Last of the group that completes the
// batch, all in the unit of the lengths. A group whose longest is m has the mean
// length (E[L; M ≤ m] summed by parts over its siblings), so that groups are
// selected by their longest and counted by their mean. A reference as well.
func KeepFirstGroups(lengths workload.Distribution, size, keep, n int) (Kept, error) {
	if size < 1 {
		return Kept{}, fmt.Errorf("keep first: groups of %d: want at least one rollout", size)
	}
	if keep < 1 || n < keep {
		return Kept{}, fmt.Errorf("keep first: %d of %d: want at least one, of at least as many", keep, n)
	}
	out := Kept{Sampled: lengths.Mean()}
	kept, done, whole := 0.0, 0.0, 0.0
	below, moment, product := 0.0, 0.0, 0.0
	for i := range lengths.Len() {
		v, p := lengths.At(i)
		below, moment = min(below+p, 1), moment+v*p
		// E[L; M ≤ v] = E[L; L ≤ v]·F^{S−1}: its step over that of F^S is E[L | M = v].
		others := math.Pow(below, float64(size-1))
		mass, part := below*others-whole, moment*others-product
		whole, product = below*others, moment*others
		nextKept, nextDone := firstOf(whole, keep, n)
		if mass > 0 {
			out.Mean += part / mass * (nextKept - kept) / float64(keep)
		}
		out.Last += v * (nextDone - done)
		kept, done = nextKept, nextDone
	}
	return out, nil
}
