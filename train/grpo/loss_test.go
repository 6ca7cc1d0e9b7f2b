package grpo

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestClipLoss tables both sides of a lopsided band for both signs of the advantage.
func TestClipLoss(t *testing.T) {
	const low, high = 0.2, 0.4
	for _, c := range []struct {
		ratio, advantage, loss, derivative float64
	}{
		{1, 2, -2, -2},
		{1.3, 2, -2.6, -2.6},
		{1.5, 2, -2.8, 0},          // already likelier than the band allows: no gradient
		{0.5, 2, -1, -1},           // below the band but good: still pulled up
		{1.5, -2, 3, 3},            // above the band and bad: still pushed down
		{0.5, -2, 1.6, 0},          // already pushed below the band
		{0.5, 0, 0, 0},             // no signal
		{math.Exp(50), 1, -1.4, 0}, // absurd ratios stay finite
	} {
		loss, derivative := clipLoss(Ratio(float32(math.Log(c.ratio)), 0), c.advantage, low, high)
		if !close64(loss, c.loss, 1e-6) || !close64(derivative, c.derivative, 1e-6) {
			t.Errorf("ratio %g advantage %g: loss %g derivative %g, want %g and %g", c.ratio, c.advantage, loss, derivative, c.loss, c.derivative)
		}
	}
}

// TestClipLossAgainstFiniteDifferences leaves out the kinks at the band's edges, where there is no
// derivative.
func TestClipLossAgainstFiniteDifferences(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	const low, high, step = 0.2, 0.3, 1.0 / 4096
	checked := 0
	for range 5000 {
		logp, old := -3*rng.Float32(), -3*rng.Float32()
		advantage := rng.NormFloat64()
		r := Ratio(logp, old)
		if math.Abs(r-1+low) < 0.01 || math.Abs(r-1-high) < 0.01 {
			continue
		}
		checked++
		above, _ := clipLoss(Ratio(logp+step, old), advantage, low, high)
		below, _ := clipLoss(Ratio(logp-step, old), advantage, low, high)
		_, derivative := clipLoss(Ratio(logp, old), advantage, low, high)
		if difference := (above - below) / (2 * step); !close64(difference, derivative, 2e-3) {
			t.Fatalf("log-probs %g and %g, advantage %g: finite difference %g, derivative %g", logp, old, advantage, difference, derivative)
		}
	}
	if checked < 4000 {
		t.Errorf("only %d points checked", checked)
	}
}

// TestWeights: truncation bounds one side or both, CISPO's clip both.
func TestWeights(t *testing.T) {
	for _, c := range []struct{ got, want float64 }{
		{TruncatedWeight(3, 0, 2), 2}, {TruncatedWeight(0.1, 0, 2), 0.1}, {TruncatedWeight(0.1, 0.5, 2), 0.5},
		{ClippedWeight(3, 0.2, 0.28), 1.28}, {ClippedWeight(0.1, 0.2, 0.28), 0.8}, {ClippedWeight(0.1, 1, 0.28), 0.1},
	} {
		if c.got != c.want {
			t.Errorf("weight %g, want %g", c.got, c.want)
		}
	}
	if loss, derivative := weighted(1.5, 2, -0.5); loss != 1.5 || derivative != -3 {
		t.Errorf("weighted loss %g and derivative %g, want 1.5 and -3", loss, derivative)
	}
}
