package grpo

import "math"

// LagMax is the largest lag whose moments are kept apart; all beyond share its place.
const LagMax = 32

// Moments are the second moments of log π_p − log π_b by lag. The zero value has
// seen nothing. Counts are fractional so that older steps can fade.
type Moments struct {
	// Tokens counts the tokens of each lag; Sum, Absolute and Square add up their
	// log-ratios, their absolute values and their squares.
	Tokens, Sum, Absolute, Square [LagMax + 1]float64
}

func (m *Moments) add(lag int32, logRatio float64) {
	at := min(max(lag, 0), LagMax)
	m.Tokens[at]++
	m.Sum[at] += logRatio
	m.Absolute[at] += math.Abs(logRatio)
	m.Square[at] += logRatio * logRatio
}

// Merge takes in what another part has seen.
func (m *Moments) Merge(o *Moments) {
	for lag := range m.Tokens {
		m.Tokens[lag] += o.Tokens[lag]
		m.Sum[lag] += o.Sum[lag]
		m.Absolute[lag] += o.Absolute[lag]
		m.Square[lag] += o.Square[lag]
	}
}

// Fade multiplies all that was seen by a factor from 0 to 1. So it notices a policy that learns
// slower, or faster, than it did.
func (m *Moments) Fade(factor float64) {
	for lag := range m.Tokens {
		m.Tokens[lag] *= factor
		m.Sum[lag] *= factor
		m.Absolute[lag] *= factor
		m.Square[lag] *= factor
	}
}

// KL is half the mean square log-ratio at a lag; 0 where nothing was seen. That is the KL per token
// between two policies that are close, in nats.
func (m *Moments) KL(lag int) float64 {
	if m.Tokens[lag] == 0 {
		return 0
	}
	return m.Square[lag] / (2 * m.Tokens[lag])
}

// MeanLogRatio is the mean log-ratio over all lags, in nats; 0 where nothing was seen.
func (m *Moments) MeanLogRatio() float64 {
	sum, tokens := 0.0, 0.0
	for lag := range m.Tokens {
		sum += m.Sum[lag]
		tokens += m.Tokens[lag]
	}
	if tokens == 0 {
		return 0
	}
	return sum / tokens
}

// Drift is how the KL between the policy that trains and the one that sampled grows with the lag s
// between them. It is KL(s) = Floor + Rate·s^Exponent, in nats a token. Steps in one direction give
// an exponent of 2, independent ones of 1.
type Drift struct {
	// Floor is the KL at lag 0: differences in numerics, and everything else that is not staleness.
	Floor float64
	// Rate is what the first version of lag adds.
	Rate float64
	// Exponent is from 1 to 2.
	Exponent float64
	// Live is the share of tokens that drift at all, above 0 to 1. Where the policy is sure of a
	// token its log-prob hardly moves, and the others carry all of the KL.
	Live float64
	// Lags is how many lags above 0 the fit rests on: 0 is no fit, and with 1 the
	// exponent is assumed to be 1.
	Lags int
}

// lagTokensMin is how many tokens a lag needs to take part in a fit: a second
// moment of fewer says little where the log-ratio has heavy tails.
const lagTokensMin = 50

// FitDrift fits a Drift to measured moments by a least-squares line through log (KL(s) − KL(0)) over
// log s, weighted by tokens. Its slope is kept between 1 and 2 (theory: variance grows between s and
// s²). Lags with few tokens, and those that share the last place, stay out.
//
// Live follows from the mean absolute log-ratio: if a share p of the tokens has
// normal log-ratios and the rest none, (E|x|)²/E[x²] = p·2/π.
func FitDrift(m *Moments) Drift {
	d := Drift{Exponent: 1, Live: 1}
	if m.Tokens[0] >= lagTokensMin {
		d.Floor = m.KL(0)
	}
	var w, x, y, xx, xy, live float64
	for lag := 1; lag < LagMax; lag++ {
		rise := m.KL(lag) - d.Floor
		if m.Tokens[lag] < lagTokensMin || !(rise > 0) {
			continue
		}
		n, s, k := m.Tokens[lag], math.Log(float64(lag)), math.Log(rise)
		w, x, y, xx, xy = w+n, x+n*s, y+n*k, xx+n*s*s, xy+n*s*k
		live += n * math.Pi / 2 * m.Absolute[lag] * m.Absolute[lag] / (n * m.Square[lag])
		d.Lags++
	}
	if d.Lags == 0 {
		return d
	}
	if spread := w*xx - x*x; d.Lags > 1 && spread > 0 {
		d.Exponent = min(max((w*xy-x*y)/spread, 1), 2)
	}
	d.Rate = math.Exp((y - d.Exponent*x) / w)
	d.Live = min(live/w, 1)
	return d
}

// KL is the expected KL per token at a lag in versions, in nats.
func (d Drift) KL(lag int) float64 {
	if lag <= 0 {
		return d.Floor
	}
	return d.Floor + d.Rate*math.Pow(float64(lag), d.Exponent)
}

// Predict writes into fractions the clip fraction expected at each lag from 0,
// for [Report.Prediction]: Live · PredictOutside(KL(lag)/Live).
//
// On runs of the embedded trainer this is 1.2 to 1.5 times the fraction that is then measured. Those
// runs are of reverse, two seeds, lags 2 to 8, each step predicted from those before. The formula of
// PredictClipFraction, even from the measured moment itself, is 1.5 to 2.5 times that. This holds in
// the half of a run in which the policy moves. It is far below it at the end, where few tokens move
// at all.
func (d Drift) Predict(fractions []float64, low, high float64) {
	for lag := range fractions {
		fractions[lag] = d.Live * PredictOutside(low, high, d.KL(lag)/d.Live)
	}
}

// PredictClipFraction is the share of tokens expected outside the band of ratios where the policies
// are a KL of kl nats a token apart. With low = high = ε it is 2·(1−Φ(ln(1+ε)/√(2·KL))), Φ the
// standard normal distribution. That takes log-ratios as normal with mean 0 and variance 2·KL, alike
// for all tokens, and the band as symmetric in them. See [Drift.Predict] for the cost of that.
func PredictClipFraction(low, high, kl float64) float64 {
	if !(kl > 0) {
		return 0
	}
	// 1−Φ(x) = erfc(x/√2)/2, so the √2 of √(2·KL) and this one make 2·√KL.
	scale := 2 * math.Sqrt(kl)
	return (math.Erfc(math.Log1p(low)/scale) + math.Erfc(math.Log1p(high)/scale)) / 2
}

// PredictOutside is like PredictClipFraction with the band's true edges, log(1−low) and log(1+high).
// Its log-ratios are normal with mean −KL and variance 2·KL, the mean that makes ratios average 1.
// For ε = 0.2 it is lower by a sixth at a KL of 0.02 and by a half at 0.002.
func PredictOutside(low, high, kl float64) float64 {
	if !(kl > 0) {
		return 0
	}
	scale := 2 * math.Sqrt(kl)
	below := math.Erfc(-(math.Log1p(-low) + kl) / scale)
	return (below + math.Erfc((math.Log1p(high)+kl)/scale)) / 2
}
