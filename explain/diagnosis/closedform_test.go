package diagnosis_test

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/headway-rl/headway/drive/replay"
	"github.com/headway-rl/headway/explain/diagnosis"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/metrics"
)

// The closed form at measured inputs is one figure, whether a diagnosis or anybody else with the run's summary
// asks for it.
func TestOneClosedForm(t *testing.T) {
	text := simulated(t, 300, 12, true)
	r, err := judged(t, text, diagnosis.Options{ClosedForms: true})
	if err != nil {
		t.Fatal(err)
	}
	recording, err := replay.Measure(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if r.Settled.FromStep != int64(recording.Header.Warmup) {
		t.Fatalf("judged from %d on, measured from %d on", r.Settled.FromStep, recording.Header.Warmup)
	}
	in, unfit := diagnosis.MeasuredInput(recording.Header.Loop, recording.Measured)
	mean, ok := diagnosis.ClosedMean(in)
	if unfit != "" || !ok {
		t.Fatalf("%q, %v", unfit, ok)
	}
	found := false
	for _, c := range r.Compared {
		if c.What == "staleness_mean" && c.Method == "closed_form" {
			if found = true; math.Abs(c.Predicted-mean) > 1e-12 {
				t.Errorf("diagnosed %v, asked %v", c.Predicted, mean)
			}
		}
	}
	if !found {
		t.Errorf("not compared: %+v", r.Compared)
	}
}

// A rule of the queue, an order or a sync mode that closed forms do not know gets none, not that of another.
func TestAnUnknownRuleHasNoClosedForm(t *testing.T) {
	rules := loop.Config{GroupSize: 4, BatchGroups: 4, QueueGroups: 4, EngineSlots: []int{16}}
	summary := metrics.Summary{Utilization: 0.9, TailMultiplier: 1.2, Acceptance: 1}
	summary.StepS.Mean, summary.PeriodS.Mean = 1, 1.2
	if _, unfit := diagnosis.MeasuredInput(rules, summary); unfit != "" {
		t.Fatalf("the rules known have none: %s", unfit)
	}
	for name, change := range map[string]func(*loop.Config){
		"policy": func(c *loop.Config) { c.Policy = math.MaxUint8 }, "selection": func(c *loop.Config) { c.Select = math.MaxUint8 },
		"start": func(c *loop.Config) { c.Start = math.MaxUint8 }, "sync": func(c *loop.Config) { c.Sync = math.MaxUint8 },
	} {
		changed := rules
		change(&changed)
		if _, unfit := diagnosis.MeasuredInput(changed, summary); !strings.Contains(unfit, "255") || !strings.Contains(unfit, "no closed form") {
			t.Errorf("%s: unfit is %q", name, unfit)
		}
	}
}
