package forecast

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"github.com/headway-rl/headway/observe/metrics"
)

// A forecast says what the probe measured, under a digest of itself.
func TestForecastOfAProbe(t *testing.T) {
	s := metrics.Summary{Staleness: metrics.Staleness{Mean: 1.25, P95: 2}, PQS: metrics.Mean{Mean: 0.25}, IQS: metrics.Mean{Mean: 1}, PeriodS: metrics.Mean{Mean: 0.02},
		StepS: metrics.Mean{Mean: 0.015}, Steps: 40, WindowS: 0.8, Waste: metrics.Waste{WastedShare: 0.1}, Throughput: metrics.Throughput{Binding: "train", ProductionRolloutsPerS: 100}}
	f, err := New(s, slices.Repeat([]float64{0.02}, 40))
	if err != nil {
		t.Fatal(err)
	}
	if *f.StalenessMean != 1.25 || *f.StalenessP95 != 2 || *f.PeriodS != 0.02 || f.WastedShare != 0.1 || f.Probe.Rollouts != 80 || f.Regime != "train-bound" || f.PeriodSpread != spreadMin {
		t.Errorf("%+v", f)
	}
	digest := f.SHA256
	f.SHA256 = ""
	text, _ := json.Marshal(f)
	if sum := sha256.Sum256(text); hex.EncodeToString(sum[:]) != digest {
		t.Errorf("the digest %s is not that of %s", digest, text)
	}
	s.Steps = forecastSteps - 1
	if _, err := New(s, []float64{1, 1, 1, 1}); !errors.Is(err, ErrTooShort) {
		t.Errorf("four steps: %v", err)
	}
}

// The spread follows how much blocks of steps differ, and not how much single steps do.
func TestSpreadOfThePeriod(t *testing.T) {
	restless, bursts := make([]float64, 80), make([]float64, 80)
	for i := range restless {
		restless[i] = 1 + 0.5*float64(i%2)
		bursts[i] = 1 + 0.35*float64(i/10%2)
	}
	if got := periodSpread(restless); got != spreadMin {
		t.Errorf("steps that alternate: %g, want %g", got, spreadMin)
	}
	if got := periodSpread(bursts); got <= 0.14 || got >= 0.17 {
		t.Errorf("blocks that differ by a third: %g", got)
	}
	if got := periodSpread(bursts[:7]); got != spreadMax {
		t.Errorf("fewer steps than blocks: %g, want %g", got, spreadMax)
	}
}

// A forecast in the trace of an earlier version has its probe under another name.
func TestForecastOfAnEarlierVersion(t *testing.T) {
	for name, text := range map[string]string{
		"now":     `{"staleness_mean":1.5,"regime":"rollout","probe":{"utilization":0.5},"sha256":"f00"}`,
		"earlier": `{"staleness_mean":1.5,"regime":"rollout","calibration":{"utilization":0.5},"sha256":"f00"}`,
	} {
		var p Forecast
		if err := json.Unmarshal([]byte(text), &p); err != nil || p.Probe.Utilization != 0.5 || *p.StalenessMean != 1.5 || p.SHA256 != "f00" {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
	}
}
