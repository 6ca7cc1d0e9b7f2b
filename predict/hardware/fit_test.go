package hardware

import (
	"math"
	"strings"
	"testing"
)

// A replica with known efficiencies is found again from its own speeds.
func TestFitFindsWhatMadeThePoints(t *testing.T) {
	truth := replica(t)
	truth.PromptTokens, truth.MeanTokens, truth.MeanSquareTokens = 50, 100, 15000
	truth.BandwidthUse, truth.ComputeUse, truth.StepOverheadS = 0.55, 0.42, 0.0045
	var points []DecodePoint
	for _, active := range []float64{1, 8, 32, 64, 400, 1500, 3000} {
		points = append(points, DecodePoint{active, truth.Decode(active).TokensPerS})
	}
	start := truth
	start.BandwidthUse, start.ComputeUse, start.StepOverheadS = 0, 0, 0
	c, err := FitDecode(start, points)
	if err != nil {
		t.Fatal(err)
	}
	r := c.Replica
	if math.Abs(r.BandwidthUse-0.55) > 1e-6 || math.Abs(r.ComputeUse-0.42) > 1e-6 || math.Abs(r.StepOverheadS-0.0045) > 1e-8 || c.Worst > 1e-6 {
		t.Errorf("found %g, %g, %g s (worst error %g), made with 0.55, 0.42, 0.0045", r.BandwidthUse, r.ComputeUse, r.StepOverheadS, c.Worst)
	}
	if len(c.Fitted) != 3 {
		t.Errorf("fitted %v, want all three", c.Fitted)
	}
}

func TestOneSpeedFitsBandwidthAlone(t *testing.T) {
	truth := replica(t)
	truth.BandwidthUse = 0.5
	c, err := FitDecode(replica(t), []DecodePoint{{64, truth.Decode(64).TokensPerS}})
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Fitted) != 1 || c.Fitted[0] != "bandwidth_use" || math.Abs(c.Replica.BandwidthUse-0.5) > 1e-9 {
		t.Errorf("fitted %v, bandwidth use %g, want it alone at 0.5", c.Fitted, c.Replica.BandwidthUse)
	}
}

// With noise of ±5 % the fit is no further from the truth than the noise.
func TestFitAveragesNoise(t *testing.T) {
	truth := replica(t)
	truth.BandwidthUse, truth.StepOverheadS = 0.6, 0.004
	var points []DecodePoint
	for i, active := range []float64{1, 4, 16, 32, 64, 128, 160, 170} {
		noise := 1.05
		if i%2 == 0 {
			noise = 0.95
		}
		points = append(points, DecodePoint{active, truth.Decode(active).TokensPerS * noise})
	}
	c, err := FitDecode(replica(t), points)
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(c.Replica.BandwidthUse/0.6-1) > 0.06 || c.Worst > 0.09 || c.RMS > 0.06 {
		t.Errorf("bandwidth use %g from 0.6, rms %g, worst %g", c.Replica.BandwidthUse, c.RMS, c.Worst)
	}
}

func TestAbsurdFitsAreRefused(t *testing.T) {
	for _, c := range []struct {
		points []DecodePoint
		want   string
	}{
		{nil, "no points"},
		{[]DecodePoint{{64, 0}}, "tokens/s is 0"},
		{[]DecodePoint{{64, math.NaN()}}, "not a number"},
		{[]DecodePoint{{-1, 100}}, "rollouts at once is -1"},
		{[]DecodePoint{{64, 3000}, {128, 1e7}}, "point 2: measured decoding"},
		{[]DecodePoint{{1, 100}, {64, 100}, {128, 100}, {160, 20000}}, "point 4: measured decoding"},
		{[]DecodePoint{{1, 100}, {64, 60}, {128, 3000}, {160, 500}}, "no roofline comes closer"},
	} {
		if _, err := FitDecode(replica(t), c.points); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.points, err, c.want)
		}
	}
}
