package grpo

import "math"

// In the functions below sampled marks with 1 the tokens that the policy sampled
// (the loss mask); nil marks all.

// isSampled reports whether token k counts.
func isSampled(sampled []uint8, k int) bool { return sampled == nil || sampled[k] != 0 }

// SequenceLogRatio is the sum of log π_new − log π_old over a sequence's sampled tokens, and their
// number. The ratio of the whole sequence is exp(sum), the geometric mean of the tokens' ratios
// exp(sum/tokens).
func SequenceLogRatio(logpNew, logpOld []float32, sampled []uint8) (sum float64, tokens int) {
	for k := range logpNew {
		if isSampled(sampled, k) {
			sum += float64(logpNew[k]) - float64(logpOld[k])
			tokens++
		}
	}
	return sum, tokens
}

// SequenceKL is the mean of r − 1 − log r over a sequence's sampled tokens; 0 without tokens. It is
// an estimate of KL(old, new) in nats a token that is never negative (the k3 of Schulman 2020).
func SequenceKL(logpNew, logpOld []float32, sampled []uint8) float64 {
	sum, tokens := 0.0, 0
	for k := range logpNew {
		if isSampled(sampled, k) {
			x := float64(logpNew[k]) - float64(logpOld[k])
			sum += ratioOf(x) - 1 - x
			tokens++
		}
	}
	return sum / float64(max(tokens, 1))
}

// AbsoluteLogRatio is the drift of a sequence: the sum of |log π_new − log π_old| over its sampled
// tokens, and their number. So sequences of a group add up.
func AbsoluteLogRatio(logpNew, logpOld []float32, sampled []uint8) (sum float64, tokens int) {
	for k := range logpNew {
		if isSampled(sampled, k) {
			sum += math.Abs(float64(logpNew[k]) - float64(logpOld[k]))
			tokens++
		}
	}
	return sum, tokens
}

// newestLag is the smallest lag of the sampled tokens; 0 without any.
func newestLag(lags []int32, sampled []uint8) int32 {
	newest, found := int32(0), false
	for k, lag := range lags {
		if isSampled(sampled, k) && (!found || lag < newest) {
			newest, found = lag, true
		}
	}
	return newest
}

// Spans counts the runs of sampled tokens with the same lag, in order. It is 1 for a sequence made by
// one version, 0 for one without sampled tokens.
func Spans(lags []int32, sampled []uint8) int {
	spans, last := 0, int32(0)
	for k, lag := range lags {
		if !isSampled(sampled, k) {
			continue
		}
		if spans == 0 || lag != last {
			spans++
		}
		last = lag
	}
	return spans
}

// Lags writes into dst how many versions before training each token was sampled: training minus its
// version. The slices dst and versions must have the same length; the values at tokens that were not
// sampled have no meaning.
func Lags[V ~int32 | ~int64](dst []int32, versions []V, training V) {
	for k, v := range versions {
		dst[k] = int32(min(int64(training)-int64(v), math.MaxInt32))
	}
}
