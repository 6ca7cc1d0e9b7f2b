package grpo

import (
	"math"
	"math/rand/v2"
	"testing"
)

func close64(a, b, tolerance float64) bool { return math.Abs(a-b) <= tolerance*(1+math.Abs(b)) }

func TestAdvantages(t *testing.T) {
	for _, c := range []struct {
		rewards   []float32
		normalize bool
		want      []float32
	}{
		{[]float32{1, 0, 0, 1}, false, []float32{0.5, -0.5, -0.5, 0.5}},
		{[]float32{1, 0, 0, 1}, true, []float32{1, -1, -1, 1}},
		{[]float32{0.25, 0.75}, true, []float32{-1, 1}},
		{[]float32{0.4, 0.4, 0.4}, true, []float32{0, 0, 0}}, // no signal, no division by zero
		{[]float32{3}, true, []float32{0}},
		{nil, true, nil},
	} {
		got := make([]float32, len(c.rewards))
		Advantages(got, c.rewards, c.normalize)
		for i := range got {
			if !close64(float64(got[i]), float64(c.want[i]), 1e-6) {
				t.Errorf("rewards %v normalize %v: %v, want %v", c.rewards, c.normalize, got, c.want)
			}
		}
	}
}

// TestAdvantagesProperties: they sum to zero, and shifting or, normalized,
// scaling all rewards changes nothing.
func TestAdvantagesProperties(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		n := 2 + rng.IntN(10)
		rewards, moved := make([]float32, n), make([]float32, n)
		for i := range rewards {
			rewards[i] = rng.Float32()
			moved[i] = 3*rewards[i] - 2
		}
		a, b := make([]float32, n), make([]float32, n)
		Advantages(a, rewards, true)
		Advantages(b, moved, true)
		var sum, square float64
		for i := range a {
			sum += float64(a[i])
			square += float64(a[i]) * float64(a[i])
			if !close64(float64(a[i]), float64(b[i]), 1e-4) {
				t.Fatalf("rewards %v: advantages %v, moved %v", rewards, a, b)
			}
		}
		if math.Abs(sum) > 1e-4 || !close64(square/float64(n), 1, 1e-4) {
			t.Fatalf("rewards %v: advantages %v have sum %g and mean square %g", rewards, a, sum, square/float64(n))
		}
	}
}

// TestTokenLoss tables both sides of the band for both signs of the advantage.
func TestTokenLoss(t *testing.T) {
	const epsilon = 0.2
	for _, c := range []struct {
		ratio, advantage, loss, derivative float64
	}{
		{1, 2, -2, -2},
		{1.1, 2, -2.2, -2.2},
		{1.5, 2, -2.4, 0},          // already likelier than the band allows: no gradient
		{0.5, 2, -1, -1},           // below the band but good: still pulled up
		{1.5, -2, 3, 3},            // above the band and bad: still pushed down
		{0.5, -2, 1.6, 0},          // already pushed below the band
		{0.5, 0, 0, 0},             // no signal
		{math.Exp(50), 1, -1.2, 0}, // absurd ratios stay finite
	} {
		loss, derivative := TokenLoss(float32(math.Log(c.ratio)), 0, float32(c.advantage), epsilon)
		if !close64(loss, c.loss, 1e-6) || !close64(derivative, c.derivative, 1e-6) {
			t.Errorf("ratio %g advantage %g: loss %g derivative %g, want %g and %g", c.ratio, c.advantage, loss, derivative, c.loss, c.derivative)
		}
	}
}

// TestTokenLossAgainstFiniteDifferences leaves out the kinks at the band's
// edges, where there is no derivative.
func TestTokenLossAgainstFiniteDifferences(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	const epsilon, step = 0.2, 1.0 / 4096
	checked := 0
	for range 5000 {
		logp, old := -3*rng.Float32(), -3*rng.Float32()
		advantage := float32(rng.NormFloat64())
		r := Ratio(logp, old)
		if math.Abs(r-1+epsilon) < 0.01 || math.Abs(r-1-epsilon) < 0.01 {
			continue
		}
		checked++
		above, _ := TokenLoss(logp+step, old, advantage, epsilon)
		below, _ := TokenLoss(logp-step, old, advantage, epsilon)
		_, derivative := TokenLoss(logp, old, advantage, epsilon)
		if difference := (above - below) / (2 * step); !close64(difference, derivative, 2e-3) {
			t.Fatalf("log-probs %g and %g, advantage %g: finite difference %g, derivative %g", logp, old, advantage, difference, derivative)
		}
	}
	if checked < 4000 {
		t.Errorf("only %d points checked", checked)
	}
}

func TestStatistics(t *testing.T) {
	var whole, left, right Statistics
	tokens := []struct{ ratio, advantage float32 }{{1, 1}, {1.5, 1}, {1.5, -1}, {0.5, 1}, {0.5, -1}, {2, 0}}
	for i, c := range tokens {
		logp := float32(math.Log(float64(c.ratio)))
		d := whole.Add(logp, 0, c.advantage, 0.2)
		if _, want := TokenLoss(logp, 0, c.advantage, 0.2); d != want {
			t.Errorf("token %d: derivative %g, want %g", i, d, want)
		}
		part := &left
		if i >= 3 {
			part = &right
		}
		part.Add(logp, 0, c.advantage, 0.2)
	}
	left.Merge(right)
	if left.Tokens != whole.Tokens || left.Outside != whole.Outside || left.Clipped != whole.Clipped ||
		!close64(left.Loss, whole.Loss, 1e-12) || !close64(left.LogRatio, whole.LogRatio, 1e-12) ||
		!close64(left.Weight, whole.Weight, 1e-12) || !close64(left.WeightSquare, whole.WeightSquare, 1e-12) {
		t.Errorf("parts merge to %+v, the whole is %+v", left, whole)
	}
	for name, c := range map[string][2]float64{
		"clip fraction":         {whole.ClipFraction(), 5.0 / 6},
		"active clip fraction":  {whole.ActiveClipFraction(), 2.0 / 6},
		"mean log-ratio":        {whole.MeanLogRatio(), (2*math.Log(1.5) + 2*math.Log(0.5) + math.Log(2)) / 6},
		"effective sample size": {whole.EffectiveSampleSize(), 7.0 * 7 / (6 * (1 + 2*2.25 + 2*0.25 + 4))},
		"mean loss":             {whole.MeanLoss(), (-1 - 1.2 + 1.5 - 0.5 + 0.8) / 6},
	} {
		if !close64(c[0], c[1], 1e-6) {
			t.Errorf("%s is %g, want %g", name, c[0], c[1])
		}
	}
	if zero := (Statistics{}); zero.ClipFraction() != 0 || zero.MeanLogRatio() != 0 || zero.EffectiveSampleSize() != 1 {
		t.Error("statistics without tokens are not neutral")
	}
}

// TestOnPolicyIsNeutral: where both log-probs agree nothing is clipped and the
// gradient is plain policy gradient.
func TestOnPolicyIsNeutral(t *testing.T) {
	var s Statistics
	for i := range 100 {
		logp := -float32(i) / 10
		if d := s.Add(logp, logp, 0.7, 0.2); !close64(d, -0.7, 1e-6) {
			t.Fatalf("derivative %g on policy, want minus the advantage", d)
		}
	}
	if s.Outside != 0 || s.LogRatio != 0 || s.EffectiveSampleSize() != 1 {
		t.Errorf("on-policy statistics %+v", s)
	}
}
