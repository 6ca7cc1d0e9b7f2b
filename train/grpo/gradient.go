package grpo

import (
	"fmt"
	"math"
)

// Sequence is one sample as the gradient needs it. The slices have one element
// a token, prompt and response alike.
type Sequence struct {
	// Sampled is the loss mask: 1 where the policy sampled the token; nil for all.
	Sampled []uint8
	// Current, Proximal and Behaviour are log-probs under the policy being trained,
	// the one that the train step began with, and the one that sampled. Proximal nil
	// means Current: the first, or only, gradient step of a train step.
	Current, Proximal, Behaviour []float32
	// Lags is how many versions before the train step's each token was sampled; nil for 0.
	Lags []int32
	// Advantage of the sample.
	Advantage float32
	// Staleness of the sample's group, in versions.
	Staleness int32
}

// Gradient writes into derivative, for each token, the derivative of the sequence's summed loss by
// the token's current log-prob. It is 0 for tokens that the policy did not sample and for those that
// a mask leaves out, but for a Penalty. The statistics of the tokens go into r. The correction c must
// be complete (WithDefaults) and valid; slices of different lengths are a programming error and
// panic.
func (c *Correction) Gradient(derivative []float32, s *Sequence, r *Report) {
	s.check(len(derivative))
	proximal := s.Proximal
	if proximal == nil {
		proximal = s.Current
	}
	p := c.plan(s)
	a := float64(s.Advantage)
	var whole, run Statistics // run: tokens of one range of lags
	at := 0
	for k := range derivative {
		if !isSampled(s.Sampled, k) {
			derivative[k] = 0
			continue
		}
		lag := int32(0)
		if s.Lags != nil {
			lag = s.Lags[k]
		}
		x := float64(s.Current[k]) - float64(s.Behaviour[k])
		ratio := ratioOf(x)
		t := token{logRatio: x, ratio: ratio, outside: ratio < 1-c.EpsilonLow || ratio > 1+c.EpsilonHigh, masked: p.masked || lag > p.lagMax}
		if !t.masked {
			c.token(&t, p.weight, a, s.Current[k], proximal[k], s.Behaviour[k])
		}
		derivative[k] = float32(t.derivative)
		t.expected = r.expected(lag)
		r.Moments.add(lag, float64(proximal[k])-float64(s.Behaviour[k]))
		if bucket := Bucket(lag); bucket != at {
			r.ByToken[at].Merge(run)
			whole.Merge(run)
			run, at = Statistics{}, bucket
		}
		run.add(&t)
	}
	r.ByToken[at].Merge(run)
	whole.Merge(run)
	r.ByGroup[Bucket(s.Staleness)].Merge(whole)
	r.All.Merge(whole)
}

// check panics where slices do not belong together.
func (s *Sequence) check(n int) {
	if len(s.Current) != n || len(s.Behaviour) != n || s.Proximal != nil && len(s.Proximal) != n ||
		s.Sampled != nil && len(s.Sampled) != n || s.Lags != nil && len(s.Lags) != n {
		panic(fmt.Sprintf("grpo: a sequence of %d tokens has %d current, %d proximal and %d behaviour log-probs, %d marks and %d lags",
			n, len(s.Current), len(s.Proximal), len(s.Behaviour), len(s.Sampled), len(s.Lags)))
	}
}

// plan is what is decided for a sequence as a whole.
type plan struct {
	masked bool    // the whole sequence is left out
	lagMax int32   // tokens with a larger lag are left out
	weight float64 // ratio that weighs every token of TIS; NaN for each its own
}

func (c *Correction) plan(s *Sequence) plan {
	p := plan{lagMax: math.MaxInt32, weight: math.NaN()}
	if s.Lags != nil {
		switch c.VersionMask {
		case VersionsNewest:
			p.lagMax = int32(min(int(newestLag(s.Lags, s.Sampled))+c.VersionLag, math.MaxInt32))
		case VersionsTraining:
			p.lagMax = int32(min(c.VersionLag, math.MaxInt32))
		}
		p.masked = c.MaxSpans > 0 && Spans(s.Lags, s.Sampled) > c.MaxSpans
	}
	switch {
	case c.Kind == SequenceMask:
		p.masked = p.masked || c.dropsSequence(s)
	case c.Kind == TIS && c.Level != LevelToken:
		sum, tokens := SequenceLogRatio(s.Current, s.Behaviour, s.Sampled)
		if c.Level == LevelGeometric {
			sum /= float64(max(tokens, 1))
		}
		p.weight = ratioOf(sum)
	}
	return p
}

// dropsSequence decides for SequenceMask. A metric that is no number keeps the
// sequence, so that the optimizer refuses the step.
func (c *Correction) dropsSequence(s *Sequence) bool {
	if c.NegativeOnly && s.Advantage >= 0 {
		return false
	}
	if c.Metric == MetricKL {
		return SequenceKL(s.Current, s.Behaviour, s.Sampled) > c.MaxKL
	}
	sum, tokens := SequenceLogRatio(s.Current, s.Behaviour, s.Sampled)
	mean := ratioOf(sum / float64(max(tokens, 1)))
	return mean < c.Low || mean > c.High
}

// token is what becomes of one token.
type token struct {
	logRatio, ratio, loss, derivative, expected float64
	outside, clipped, truncated, masked         bool
}

// token computes loss and derivative of one token that is not masked yet.
func (c *Correction) token(t *token, weight, a float64, current, proximal, behaviour float32) {
	switch c.Kind {
	case None:
		t.derivative = -a
		t.loss = -a * float64(current)
	case TIS:
		if math.IsNaN(weight) {
			weight = t.ratio
		}
		c.bound(t, weight, c.Floor, c.Cap)
		if !t.masked {
			t.loss, t.derivative = weighted(TruncatedWeight(weight, c.Floor, c.Cap), a, current)
		}
	case DPPO:
		if difference := math.Exp(float64(current)) - math.Exp(float64(behaviour)); a > 0 {
			t.masked = difference > c.DifferenceHigh
		} else {
			t.masked = difference < -c.DifferenceLow
		}
		if !t.masked {
			t.loss, t.derivative = -t.ratio*a, -t.ratio*a
		}
		t.loss += c.Penalty * t.logRatio * t.logRatio
		t.derivative += 2 * c.Penalty * t.logRatio
	case CISPO:
		w := ClippedWeight(t.ratio, c.EpsilonLow, c.EpsilonHigh)
		t.truncated = w != t.ratio && a != 0
		t.loss, t.derivative = weighted(w, a, current)
	case DecoupledPPO:
		ceiling := c.Cap
		if ceiling == 0 {
			ceiling = math.Inf(1)
		}
		w := Ratio(proximal, behaviour)
		if c.bound(t, w, c.Floor, ceiling); t.masked {
			return
		}
		w = TruncatedWeight(w, c.Floor, ceiling)
		loss, derivative := clipLoss(Ratio(current, proximal), a, c.EpsilonLow, c.EpsilonHigh)
		t.loss, t.derivative = w*loss, w*derivative
		t.clipped = derivative == 0 && a != 0
	case TokenMask:
		if t.ratio < c.Low || t.ratio > c.High {
			t.masked = true
			return
		}
		fallthrough
	default: // PPOClip, and what SequenceMask keeps
		t.loss, t.derivative = clipLoss(t.ratio, a, c.EpsilonLow, c.EpsilonHigh)
		t.clipped = t.derivative == 0 && a != 0
	}
}

// bound notes whether a weight is cut, or its token left out.
func (c *Correction) bound(t *token, weight, floor, ceiling float64) {
	t.masked = c.DropOverCap && weight > ceiling || c.DropUnderFloor && weight < floor
	t.truncated = !t.masked && (weight < floor || weight > ceiling)
}
