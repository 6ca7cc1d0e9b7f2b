package grpo

import (
	"math"
	"testing"
)

func TestBucket(t *testing.T) {
	for lag, want := range []int{0, 1, 2, 3, 3, 4, 4, 4, 4, 5, 5} {
		if got := Bucket(int32(lag)); got != want {
			t.Errorf("lag %d is in bucket %d, want %d", lag, got, want)
		}
	}
	if Bucket(-3) != 0 || Bucket(math.MaxInt32) != Buckets-1 {
		t.Error("lags beyond the ends have no bucket")
	}
}

// TestStatistics: figures of a step made by hand, in one piece and in two.
func TestStatistics(t *testing.T) {
	c := Correction{}.WithDefaults()
	tokens := []struct{ ratio, advantage float32 }{{1, 1}, {1.5, 1}, {1.5, -1}, {0.5, 1}, {0.5, -1}, {2, 0}}
	var whole, left, right Report
	for i, tok := range tokens {
		part := &left
		if i >= 3 {
			part = &right
		}
		s := Sequence{Current: []float32{float32(math.Log(float64(tok.ratio)))}, Behaviour: []float32{0}, Advantage: tok.advantage, Lags: []int32{int32(i)}, Staleness: int32(i)}
		for _, r := range []*Report{&whole, part} {
			r.Prediction = []float64{0, 0.5}
			c.Gradient(make([]float32, 1), &s, r)
		}
	}
	left.Merge(&right)
	if left.All.Tokens != 6 || left.All.Outside != whole.All.Outside || left.All.Clipped != whole.All.Clipped ||
		!close64(left.All.WeightSquare, whole.All.WeightSquare, 1e-12) || left.All.WeightMax != whole.All.WeightMax ||
		left.ByToken[3].Tokens != 2 || left.ByGroup != left.ByToken || left.Moments != whole.Moments {
		t.Errorf("parts merge to %+v, the whole is %+v", left, whole)
	}
	a := &whole.All
	for name, c := range map[string][2]float64{
		"clip fraction":          {a.ClipFraction(), 5.0 / 6},
		"active clip fraction":   {a.ActiveClipFraction(), 2.0 / 6},
		"expected clip fraction": {a.ExpectedClipFraction(), 2.5 / 6},
		"mean log-ratio":         {a.MeanLogRatio(), (2*math.Log(1.5) + 2*math.Log(0.5) + math.Log(2)) / 6},
		"effective sample size":  {a.EffectiveSampleSize(), 7.0 * 7 / (6 * (1 + 2*2.25 + 2*0.25 + 4))},
		"mean weight":            {a.MeanWeight(), 7.0 / 6},
		"largest weight":         {a.WeightMax, 2},
		"mean loss":              {a.MeanLoss(), (-1 - 1.2 + 1.5 - 0.5 + 0.8) / 6},
	} {
		if !close64(c[0], c[1], 1e-6) {
			t.Errorf("%s is %g, want %g", name, c[0], c[1])
		}
	}
	if a.Health() != Broken {
		t.Errorf("five of six tokens outside the band are %v", a.Health())
	}
	zero := &Statistics{}
	if zero.ClipFraction() != 0 || zero.MeanLogRatio() != 0 || zero.EffectiveSampleSize() != 1 || zero.Health() != Healthy {
		t.Error("statistics without tokens are not neutral")
	}
}

func TestHealth(t *testing.T) {
	for fraction, want := range map[float64]string{0: "healthy", 0.0499: "healthy", 0.05: "workable", 0.1499: "workable", 0.15: "strained", 0.2499: "strained", 0.25: "broken", 1: "broken"} {
		if got := ClipHealth(fraction).String(); got != want {
			t.Errorf("clip fraction %g is %s, want %s", fraction, got, want)
		}
	}
	for mean, want := range map[float64]Health{0: Healthy, -0.049: Healthy, 0.05: Strained, -3: Strained} {
		if got := LogRatioHealth(mean); got != want {
			t.Errorf("mean log-ratio %g is %v, want %v", mean, got, want)
		}
	}
	if ClipHealth(math.NaN()) != Broken || LogRatioHealth(math.NaN()) != Broken {
		t.Error("no number is not broken")
	}
}
