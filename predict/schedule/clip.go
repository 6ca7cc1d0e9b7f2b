package schedule

import "math"

// ClipFraction returns the share of tokens whose importance ratio leaves the band
// 1−low to 1+high. The log-ratio is normal with variance 2·kl around −kl, and kl
// is the mean divergence in nats a token. The share is Φ((ln(1−low)+kl)/√(2kl)) +
// 1 − Φ((ln(1+high)+kl)/√(2kl)). For a small kl and band it is the two-sided
// 2(1−Φ(ln(1+ε)/√(2kl))). 0 for kl of 0. It holds as far as log-ratios are normal:
// real ones have heavier tails, so that small fractions are underestimated.
func ClipFraction(kl, low, high float64) float64 {
	if !(kl > 0) {
		return 0
	}
	sd := math.Sqrt(2 * kl)
	return normal((math.Log(1-low)+kl)/sd) + normal(-(math.Log(1+high)+kl)/sd)
}

func normal(z float64) float64 { return math.Erfc(-z/math.Sqrt2) / 2 }

// ClipFraction is the mean over the trained groups of a simulation, NaN where the
// input does not know how fast the policy moves. A lag of s versions is s/Pieces
// batches.
func (in Input) ClipFraction(o Outcome) float64 {
	if in.KLPerBatch == 0 {
		return math.NaN()
	}
	sum, n := 0.0, int64(0)
	for versions, groups := range o.Summary.Staleness.Histogram {
		kl := in.KLPerBatch * math.Pow(float64(versions)/float64(o.Arm.Pieces), in.KLExponent)
		sum += float64(groups) * ClipFraction(kl, in.ClipLow, in.ClipHigh)
		n += groups
	}
	if n == 0 {
		return math.NaN()
	}
	return sum / float64(n)
}
