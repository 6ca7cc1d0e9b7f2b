package grpo

import "math"

// Buckets is the number of ranges of staleness that statistics tell apart.
const Buckets = 6

// bucketStarts are the lowest lags of the buckets. Ranges double, since the
// spread of log-ratios grows with a power of the lag and most tokens are fresh.
var bucketStarts = [Buckets]int32{0, 1, 2, 3, 5, 9}

// Bucket is the range of staleness that a lag in versions falls into: 0, 1, 2,
// 3 to 4, 5 to 8, 9 and more. A negative lag counts as 0.
func Bucket(lag int32) int {
	b := 0
	for b+1 < Buckets && lag >= bucketStarts[b+1] {
		b++
	}
	return b
}

// Statistics sums up how far off-policy tokens are, all by r = π_θ/π_b, the
// policy being trained over the one that sampled. Tokens that a mask leaves out
// count too. The zero value has seen no token; join parts with Merge.
type Statistics struct {
	// Tokens seen; the sums below are over them.
	Tokens int
	// Outside counts tokens whose ratio is outside the band. Clipped counts those that lost their
	// gradient to clipping (the other side of the band still has it). Masked counts those that a mask
	// left out, Truncated those whose weight was cut to a bound.
	Outside, Clipped, Masked, Truncated int
	// Loss sums the tokens' losses, LogRatio their log r and LogRatioSquare its squares.
	Loss, LogRatio, LogRatioSquare float64
	// Weight and WeightSquare sum the ratios and their squares; WeightMax is the largest.
	Weight, WeightSquare, WeightMax float64
	// Expected sums what [Report.Prediction] said of the tokens' chance to be outside.
	Expected float64
}

func (s *Statistics) add(t *token) {
	s.Tokens++
	s.Outside += count(t.outside)
	s.Clipped += count(t.clipped)
	s.Masked += count(t.masked)
	s.Truncated += count(t.truncated)
	s.Loss += t.loss
	s.LogRatio += t.logRatio
	s.LogRatioSquare += t.logRatio * t.logRatio
	s.Weight += t.ratio
	s.WeightSquare += t.ratio * t.ratio
	s.WeightMax = max(s.WeightMax, t.ratio)
	s.Expected += t.expected
}

func count(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// Merge takes in the tokens another part of the same step has seen.
func (s *Statistics) Merge(o Statistics) {
	s.Tokens += o.Tokens
	s.Outside += o.Outside
	s.Clipped += o.Clipped
	s.Masked += o.Masked
	s.Truncated += o.Truncated
	s.Loss += o.Loss
	s.LogRatio += o.LogRatio
	s.LogRatioSquare += o.LogRatioSquare
	s.Weight += o.Weight
	s.WeightSquare += o.WeightSquare
	s.WeightMax = max(s.WeightMax, o.WeightMax)
	s.Expected += o.Expected
}

// MeanLoss is the mean token loss; 0 without tokens.
func (s *Statistics) MeanLoss() float64 { return s.perToken(s.Loss) }

// ClipFraction is the share of tokens with a ratio outside the band, see [ClipHealth].
func (s *Statistics) ClipFraction() float64 { return s.perToken(float64(s.Outside)) }

// ActiveClipFraction is the share of tokens that lost their gradient to clipping.
func (s *Statistics) ActiveClipFraction() float64 { return s.perToken(float64(s.Clipped)) }

// MaskedFraction is the share of tokens that a mask left out.
func (s *Statistics) MaskedFraction() float64 { return s.perToken(float64(s.Masked)) }

// TruncatedFraction is the share of tokens whose weight was cut to a bound.
func (s *Statistics) TruncatedFraction() float64 { return s.perToken(float64(s.Truncated)) }

// ExpectedClipFraction is what the prediction said of ClipFraction; 0 without one.
func (s *Statistics) ExpectedClipFraction() float64 { return s.perToken(s.Expected) }

// MeanLogRatio is the mean of log π_θ − log π_b, in nats, see [LogRatioHealth].
func (s *Statistics) MeanLogRatio() float64 { return s.perToken(s.LogRatio) }

// MeanWeight is the mean ratio: 1 in expectation, for any two policies.
func (s *Statistics) MeanWeight() float64 { return s.perToken(s.Weight) }

// EffectiveSampleSize is ESS/N = (Σw)²/(N·Σw²) of the importance ratios, from
// above 0 to 1 (Kong 1992); 1 without tokens.
func (s *Statistics) EffectiveSampleSize() float64 {
	if s.Tokens == 0 {
		return 1
	}
	return s.Weight * s.Weight / (float64(s.Tokens) * s.WeightSquare)
}

// Health is the worse of [ClipHealth] and [LogRatioHealth].
func (s *Statistics) Health() Health {
	return max(ClipHealth(s.ClipFraction()), LogRatioHealth(s.MeanLogRatio()))
}

func (s *Statistics) perToken(sum float64) float64 {
	if s.Tokens == 0 {
		return 0
	}
	return sum / float64(s.Tokens)
}

// Health names how well the estimator of the gradient stands; larger is worse.
type Health uint8

const (
	// Healthy: nothing to do.
	Healthy Health = iota
	// Workable: learning goes on, at a price.
	Workable
	// Strained: beyond what is known to work; lower the staleness or the learning rate.
	Strained
	// Broken: the gradient is mostly clipping.
	Broken
)

// String implements fmt.Stringer.
func (h Health) String() string {
	return [...]string{"healthy", "workable", "strained", "broken"}[min(h, Broken)]
}

// ClipHealth judges a clip fraction: healthy below 0.05, workable below 0.15,
// strained below 0.25, broken from there. A number that is none is broken.
func ClipHealth(fraction float64) Health {
	switch {
	case fraction < 0.05:
		return Healthy
	case fraction < 0.15:
		return Workable
	case fraction < 0.25:
		return Strained
	}
	return Broken
}

// LogRatioHealth judges a mean log-ratio: healthy within ±0.05, else strained;
// one that persists means stale weights or a mismatch in numerics. A number that
// is none is broken.
func LogRatioHealth(mean float64) Health {
	switch {
	case math.IsNaN(mean):
		return Broken
	case math.Abs(mean) < 0.05:
		return Healthy
	}
	return Strained
}

// Report is what a train step saw, as a whole and by staleness. The zero value
// has seen nothing.
type Report struct {
	// All tokens.
	All Statistics
	// ByToken splits them by their own lag, ByGroup by the staleness of their group. The first shows
	// the effect of a version of lag on a token, the second that of the staleness that the loop
	// bounds. They differ where weights change in flight.
	ByToken, ByGroup [Buckets]Statistics
	// Moments are of the log-ratio between the step's start and the behaviour policy.
	Moments Moments
	// Prediction, if not nil, is the expected clip fraction by lag, the last element
	// for all lags beyond; it feeds the Expected of the statistics.
	Prediction []float64
}

func (r *Report) expected(lag int32) float64 {
	if len(r.Prediction) == 0 {
		return 0
	}
	return r.Prediction[min(max(int(lag), 0), len(r.Prediction)-1)]
}

// Merge takes in what another part of the same step saw.
func (r *Report) Merge(o *Report) {
	r.All.Merge(o.All)
	for b := range r.ByToken {
		r.ByToken[b].Merge(o.ByToken[b])
		r.ByGroup[b].Merge(o.ByGroup[b])
	}
	r.Moments.Merge(&o.Moments)
}
