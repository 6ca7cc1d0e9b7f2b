package main

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/headway-rl/headway/app/record"
	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/observe/steps"
	"github.com/headway-rl/headway/predict/experiment"
)

// queue-max discards what took long: the report says so, in figures and in words.
func TestSimulateBias(t *testing.T) {
	file := document(t, simulated)
	set := []string{"--set", "queue={policy: max, max_staleness: 1}", "--set", "modelled.train.utilization=1.1", "--set", "steps.measured=400"}
	code, stdout, stderr := headway(t, append([]string{"simulate", file, "--bias", "--json"}, set...)...)
	var doc experiment.Simulation
	if err := json.Unmarshal([]byte(stdout), &doc); code != failure.ExitDone || err != nil {
		t.Fatalf("code %d, %v\n%s", code, err, stderr)
	}
	if doc.Bias == nil || doc.Bias.Length == nil || !doc.Bias.Length.Found || doc.Bias.Length.Ratio95[1] >= 1 {
		t.Errorf("no length bias of a budget of 1: %+v", doc.Bias)
	}
	code, stdout, _ = headway(t, append([]string{"simulate", file, "--bias"}, set...)...)
	if code != failure.ExitDone || !strings.Contains(stdout, "trained responses are") || !strings.Contains(stdout, "tokens wasted") {
		t.Errorf("code %d\n%s", code, stdout)
	}
	// It is the same simulation, looked at.
	_, plain, _ := headway(t, append([]string{"simulate", file, "--json"}, set...)...)
	var other experiment.Simulation
	if err := json.Unmarshal([]byte(plain), &other); err != nil || other.Bias != nil || other.Ledger != doc.Ledger || other.Staleness.Mean != doc.Staleness.Mean {
		t.Errorf("without --bias: %v\n%+v", err, other.Ledger)
	}
	if other.Verl["fully_async/count/current_param_version"] == 0 || other.Verl["timing_s/step"] != other.PeriodS.Mean {
		t.Errorf("verl's names say %v", other.Verl)
	}
}

// Figures by staleness are means over the tokens of all steps past the warm-up.
func TestOffPolicyIsWeighedByTokens(t *testing.T) {
	step := func(at loop.Version, tokens int, clip, ratio float64) steps.Line {
		var ranges [port.LagRanges]port.LagReport
		ranges[2] = port.LagReport{Tokens: tokens, ClipFraction: clip, MeanLogRatio: ratio, EffectiveSampleSize: 1}
		line := record.StepLine(live.StepDone{Report: port.StepReport{GroupLag: ranges}})
		line.Step = at
		return line
	}
	lines := offPolicy([]steps.Line{step(1, 1000, 1, 1), step(2, 100, 0.1, 0), step(3, 300, 0.3, 0.08)}, 1, clipLimits{0.2, 0.2, "ppo-clip"})
	if len(lines) != 1 || lines[0].Staleness != "2" || lines[0].Tokens != 400 {
		t.Fatalf("got %+v", lines)
	}
	if l := lines[0]; math.Abs(l.ClipFraction-0.25) > 1e-12 || math.Abs(l.MeanLogRatio-0.06) > 1e-12 || l.EffectiveSampleSize != 1 || l.Health != "broken" {
		t.Errorf("got %+v", l)
	}
	if rows := offPolicyRows(lines); !math.IsNaN(rows[0].Predicted) {
		t.Error("a prediction of nothing is shown as a figure")
	}
}
