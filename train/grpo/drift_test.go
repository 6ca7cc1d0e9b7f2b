package grpo

import (
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/stat/distuv"
)

// TestPredictClipFraction: the formula, and what it predicts of normal log-ratios.
func TestPredictClipFraction(t *testing.T) {
	for _, kl := range []float64{0.001, 0.005, 0.02, 0.1, 1} {
		want := 2 * (1 - distuv.UnitNormal.CDF(math.Log(1.2)/math.Sqrt(2*kl)))
		if got := PredictClipFraction(0.2, 0.2, kl); !close64(got, want, 1e-9) {
			t.Errorf("KL %g: %g, the formula gives %g", kl, got, want)
		}
	}
	if PredictClipFraction(0.2, 0.2, 0) != 0 || PredictClipFraction(0.2, 0.2, math.NaN()) != 0 {
		t.Error("policies no KL apart have a clip fraction")
	}
	if a, b := PredictClipFraction(0.2, 0.4, 0.02), PredictClipFraction(0.2, 0.2, 0.02); !(a < b) {
		t.Errorf("a wider band has clip fraction %g, a narrower %g", a, b)
	}
}

// TestPredictionOfNormalLogRatios: tokens at lags 0 to 8 with normal log-ratios,
// of mean −KL and variance 2·KL, so that ratios have mean 1, whose KL grows as a known
// power of the lag. The fit finds the power within 0.1 and the KL within 10 %.
// What Predict says is within 0.01 of what is measured. The formula of
// PredictClipFraction, whose band is symmetric where the true one is not, is never
// lower than the measured by more than 0.002, nor higher by more than 0.06.
func TestPredictionOfNormalLogRatios(t *testing.T) {
	for _, exponent := range []float64{1, 1.5, 2} {
		rng := rand.New(rand.NewPCG(11, uint64(10*exponent)))
		c := Correction{}.WithDefaults()
		truth := Drift{Floor: 1e-4, Rate: 5e-4, Exponent: exponent}
		draw := func(r *Report, n int) {
			for range n {
				lag := int32(rng.IntN(9))
				kl := truth.KL(int(lag))
				s := Sequence{Current: []float32{float32(-kl + math.Sqrt(2*kl)*rng.NormFloat64())}, Behaviour: []float32{0}, Lags: []int32{lag}, Advantage: 1}
				c.Gradient(make([]float32, 1), &s, r)
			}
		}
		var earlier Report
		draw(&earlier, 60000)
		fit := FitDrift(&earlier.Moments)
		if fit.Lags != 8 || fit.Live < 0.97 || math.Abs(fit.Exponent-exponent) > 0.1 || !close64(fit.Rate, truth.Rate, 0.15) {
			t.Errorf("exponent %g: fitted %+v to %+v", exponent, fit, truth)
		}
		for lag := 1; lag <= 8; lag++ {
			if got, want := fit.KL(lag), truth.KL(lag); math.Abs(got/want-1) > 0.1 {
				t.Errorf("exponent %g: KL(%d) is %g, want %g", exponent, lag, got, want)
			}
		}
		later := Report{Prediction: make([]float64, LagMax+1)}
		fit.Predict(later.Prediction, c.EpsilonLow, c.EpsilonHigh)
		draw(&later, 60000)
		for b := range later.ByToken {
			s := &later.ByToken[b]
			measured, predicted := s.ClipFraction(), s.ExpectedClipFraction()
			formula, tokens := 0.0, 0.0
			for lag, n := range later.Moments.Tokens {
				if Bucket(int32(lag)) == b {
					formula, tokens = formula+n*PredictClipFraction(c.EpsilonLow, c.EpsilonHigh, fit.KL(lag)), tokens+n
				}
			}
			formula /= max(tokens, 1)
			t.Logf("exponent %g, bucket %d: clip fraction %.4f, predicted %.4f, by the formula %.4f", exponent, b, measured, predicted, formula)
			if math.Abs(measured-predicted) > 0.01 || formula < measured-0.002 || formula > measured+0.06 {
				t.Errorf("exponent %g, bucket %d: clip fraction %.4f, predicted %.4f, by the formula %.4f", exponent, b, measured, predicted, formula)
			}
		}
		// docs/theory-rules.md: ESS/N ≈ exp(−Var log w) for normal log-weights.
		if s := &later.ByToken[2]; !close64(s.EffectiveSampleSize(), math.Exp(-2*truth.KL(2)), 0.01) {
			t.Errorf("exponent %g: ESS/N %g at lag 2, exp(-Var) is %g", exponent, s.EffectiveSampleSize(), math.Exp(-2*truth.KL(2)))
		}
	}
}

// TestPredictionWhereFewTokensMove: 3 of 10 tokens carry all of the KL. Live finds
// their share, and with it the clip fraction; the formula is off by half of it and more.
func TestPredictionWhereFewTokensMove(t *testing.T) {
	rng := rand.New(rand.NewPCG(12, 12))
	c := Correction{}.WithDefaults()
	truth := Drift{Rate: 0.005, Exponent: 1.5}
	var r Report
	for range 60000 {
		lag, x := int32(1+rng.IntN(4)), 0.0
		if kl := truth.KL(int(lag)) / 0.3; rng.Float64() < 0.3 {
			x = -kl + math.Sqrt(2*kl)*rng.NormFloat64()
		}
		c.Gradient(make([]float32, 1), &Sequence{Current: []float32{float32(x)}, Behaviour: []float32{0}, Lags: []int32{lag}}, &r)
	}
	fit := FitDrift(&r.Moments)
	if math.Abs(fit.Live-0.3) > 0.02 {
		t.Errorf("a share of %.3f moves, want 0.3", fit.Live)
	}
	fractions := make([]float64, 5)
	fit.Predict(fractions, c.EpsilonLow, c.EpsilonHigh)
	for lag := 1; lag <= 2; lag++ { // buckets of one lag each
		measured := r.ByToken[lag].ClipFraction()
		if math.Abs(measured-fractions[lag]) > 0.01 {
			t.Errorf("lag %d: clip fraction %.4f, predicted %.4f", lag, measured, fractions[lag])
		}
	}
	if measured, formula := r.ByToken[2].ClipFraction(), PredictClipFraction(0.2, 0.2, fit.KL(2)); formula < 1.5*measured {
		t.Errorf("lag 2: clip fraction %.4f, by the formula %.4f: want a test in which the formula is far off", measured, formula)
	}
}

// TestFitDriftOfLittle: no fit from nothing, exponent 1 from one lag, and slopes kept within 1 and 2.
func TestFitDriftOfLittle(t *testing.T) {
	var m Moments
	if d := FitDrift(&m); d.Lags != 0 || d.KL(3) != 0 {
		t.Errorf("from nothing: %+v", d)
	}
	set := func(lag int, kl float64) { m.Tokens[lag], m.Square[lag] = 1000, 2000*kl }
	set(2, 0.04)
	if d := FitDrift(&m); d.Lags != 1 || d.Exponent != 1 || !close64(d.KL(2), 0.04, 1e-9) || !close64(d.KL(4), 0.08, 1e-9) {
		t.Errorf("from one lag: %+v", d)
	}
	set(4, 0.4)
	if d := FitDrift(&m); d.Exponent != 2 {
		t.Errorf("a KL ten times as large at twice the lag has exponent %g, want 2 at most", d.Exponent)
	}
	set(4, 0.03)
	if d := FitDrift(&m); d.Exponent != 1 {
		t.Errorf("a KL that falls has exponent %g, want 1 at least", d.Exponent)
	}
	set(0, 0.05)
	if d := FitDrift(&m); d.Lags != 0 || d.Floor != 0.05 || d.KL(9) != 0.05 {
		t.Errorf("lags that are no further than lag 0 were fitted: %+v", d)
	}
	m.Tokens[0] = 10
	if d := FitDrift(&m); d.Floor != 0 {
		t.Errorf("ten tokens made a floor of %g", d.Floor)
	}
}

func TestMoments(t *testing.T) {
	var a, b Moments
	a.Add([]float32{1, 2, 9}, []float32{0, 0, 0}, []uint8{1, 1, 0}, []int32{1, 1, 1})
	b.Add([]float32{-3}, []float32{0}, nil, []int32{99})
	a.Merge(&b)
	if a.KL(1) != 1.25 || a.KL(LagMax) != 4.5 || a.KL(2) != 0 || a.MeanLogRatio() != 0 {
		t.Errorf("moments %+v", a)
	}
	a.Fade(0.5)
	if a.Tokens[1] != 1 || a.KL(1) != 1.25 {
		t.Errorf("faded moments %+v", a)
	}
	if (&Moments{}).MeanLogRatio() != 0 {
		t.Error("no tokens have a mean")
	}
}

// Add takes in a sequence's sampled tokens; the arguments are those of [Sequence].
func (m *Moments) Add(proximal, behaviour []float32, sampled []uint8, lags []int32) {
	for k := range proximal {
		if isSampled(sampled, k) {
			m.add(lags[k], float64(proximal[k])-float64(behaviour[k]))
		}
	}
}
