package experiment

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/headway-rl/headway/config"
)

// TestPredictsTheCorrectedForm expects of a run near ρ = 1 what the corrections say, where the trainer waits for a
// batch although both sides are as fast, and whose parts add up.
func TestPredictsTheCorrectedForm(t *testing.T) {
	cfg, err := config.LoadWith("", config.Override{Text: "rollout.concurrency=64"}, config.Override{Text: "train.batch=64"}, config.Override{Text: "queue.factor=1"})
	if err != nil {
		t.Fatal(err)
	}
	c := Probe{Rollouts: 100, WindowS: 1, RolloutsPerS: 64, StepS: 1, Utilization: 1, TailMultiplier: 2}
	p, err := ForecastRun(cfg, c)
	if err != nil {
		t.Fatal(err)
	}
	if *p.PeriodS < 1.05 || *p.PeriodS > 1.3 {
		t.Errorf("a period of %g steps at ρ = 1 and q = 1, want one in which the trainer starves", *p.PeriodS)
	}
	if math.Abs(*p.PQS+*p.IQS-*p.StalenessMean) > 1e-9 || *p.PQS >= 2 {
		t.Errorf("PQS %g, IQS %g, mean %g: want the parts to add up, and a PQS below the ideal 2 of C·M/B", *p.PQS, *p.IQS, *p.StalenessMean)
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
