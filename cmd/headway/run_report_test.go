package main

import (
	"encoding/json"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headway-rl/headway/app/parts"
	"github.com/headway-rl/headway/app/record"
	"github.com/headway-rl/headway/app/run"
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/explain/compare"
	"github.com/headway-rl/headway/explain/diagnosis"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/observe/attribution"
	"github.com/headway-rl/headway/observe/metrics"
	"github.com/headway-rl/headway/observe/report"
	"github.com/headway-rl/headway/observe/steps"
	"github.com/headway-rl/headway/predict/forecast"
)

// small is a run that takes a second.
var small = []string{"--set", "train.batch=8", "--set", "rollout.group_size=4", "--set", "environment={letters_max: 3, held_out: 100}",
	"--set", "evaluate={every: 0, prompts: 20}", "--set", "model={width: 16, layers: 1}"}

// A run that stalls says why first, then what there is to say of it, and no way
// to go on that would end here again.
func TestStalledRun(t *testing.T) {
	arguments := append([]string{"run", "--steps", "3", "--dir", t.TempDir(), "--name", "stalled", "--set", "filter.solve_rate={drop: true, low: 1, high: 1}"}, small...)
	code, stdout, stderr := headway(t, arguments...)
	if code != failure.ExitFailure || strings.Count(stderr, "the run has stalled") != 1 || strings.Contains(stderr, "--resume") {
		t.Errorf("code %d\n%s", code, stderr)
	}
	for _, lacks := range []string{"staleness", "learned", "closed form", "Throughput", "utilization", "accuracy"} {
		if strings.Contains(stdout, lacks) {
			t.Errorf("a report of no step says something of %s:\n%s", lacks, stdout)
		}
	}
	for _, want := range []string{"no train step was made", "their group teaches nothing", "trace.ndjson"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("lacks %q:\n%s", want, stdout)
		}
	}
}

// A run's report, the dashboard and whoever reads the trace name one closed form at measured inputs.
func TestOneClosedFormOfARun(t *testing.T) {
	dir := t.TempDir()
	code, stdout, stderr := headway(t, append(append([]string{"run", "--no-dashboard", "--steps", "80", "--dir", dir, "--name", "r", "--json"}, small...), "--set", "queue={policy: drop, factor: 1}", "--set", "train.batch=32", "--set", "rollout.concurrency=64", "--set", "trainer.step_s=0.03", "--set", "engines.0.decode_step_s=0.002")...)
	var r runReport
	if err := json.Unmarshal([]byte(stdout), &r); code != failure.ExitDone || err != nil {
		t.Fatalf("code %d, %v, %+v, %q\n%s", code, err, r.Staleness, r.Warnings, stderr)
	}
	recording, _, err := compare.Measure(t.Context(), filepath.Join(dir, "r"), nil)
	if err != nil {
		t.Fatal(err)
	}
	in, _ := diagnosis.MeasuredInput(recording.Header.Loop, recording.Measured)
	mean, ok := diagnosis.ClosedMean(in)
	// On a machine that is busy a sync may take longer than a period: then neither has one.
	if got := orUnknown(r.Staleness.ClosedFormMeasuredInputs); ok && !(math.Abs(got-mean) <= 1e-9) || !ok && !math.IsNaN(got) || in.SyncTimeS <= 0 {
		t.Errorf("the run says %v, its trace %v (%v) with syncs of %v s", got, mean, ok, in.SyncTimeS)
	}
	if setting, known := compare.ViewOptions("r", recording.Header).Setting(recording.Measured); !known || setting.Uncovered != "" || setting.Input.SyncTimeS != in.SyncTimeS || setting.Input.Utilization != in.Utilization {
		t.Errorf("the dashboard asks %+v, others %+v", setting, in)
	}
}

// A run is probed before its first step. The prediction stands in the trace under its digest, and nothing else is left.
func TestRunIsProbed(t *testing.T) {
	dir := t.TempDir()
	code, stdout, stderr := headway(t, append([]string{"run", "--no-dashboard", "--steps", "40", "--dir", dir, "--name", "r", "--json"}, small...)...)
	var r runReport
	if err := json.Unmarshal([]byte(stdout), &r); code != failure.ExitDone || err != nil {
		t.Fatalf("code %d, %v\n%s", code, err, stderr)
	}
	p, err := forecast.Read(filepath.Join(dir, "r"))
	if err != nil || p.SHA256 == "" || p.SHA256 != r.Predicted.SHA256 || p.StalenessMean == nil || p.StalenessP95 == nil || !(*p.PeriodS > 0) {
		t.Errorf("the trace predicts %+v, the report %+v: %v", p, r.Predicted, err)
	}
	if r.Waste.WastedShare != 0 {
		t.Errorf("%g of the tokens are wasted by default", r.Waste.WastedShare)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "r", "probe-*")); len(left) > 0 || !strings.Contains(stderr, "predicted: staleness ") {
		t.Errorf("left are %q; it says\n%s", left, stderr)
	}
}

// Every source of staleness has what moves it; the queue's capacity moves the queue alone.
func TestSourceLevers(t *testing.T) {
	c, err := config.Load("", "queue.policy=drop")
	if err != nil {
		t.Fatal(err)
	}
	for source := attribution.Sync; source < attribution.Sources; source++ {
		a := attribution.Summary{Dominant: source.String(), Share: 0.6, Parts: make([]attribution.Part, attribution.Sources)}
		for i := range a.Parts {
			a.Parts[i].Source = attribution.Source(i).String()
		}
		got := largestSource(c, a)
		if got.Words != source.Label() || got.Share != 0.6 || got.Lever == "" || strings.Contains(got.Lever, "queue.factor") != (source == attribution.Queue) {
			t.Errorf("%s: %+v", source, got)
		}
	}
	if got := largestSource(c, attribution.Summary{}); got != (report.Source{}) {
		t.Errorf("of no staleness: %+v", got)
	}
}

// A program is told the same.
func TestStalledRunJSON(t *testing.T) {
	arguments := append([]string{"run", "--steps", "3", "--dir", t.TempDir(), "--name", "stalled", "--json", "--set", "filter.solve_rate={drop: true, low: 1, high: 1}"}, small...)
	code, stdout, stderr := headway(t, arguments...)
	var r runReport
	if err := json.Unmarshal([]byte(stdout), &r); code != failure.ExitFailure || err != nil || r.Finished != "stalled" || r.Steps != 0 || !r.Ledger.Balanced || len(r.Warnings) > 0 {
		t.Errorf("code %d, %v, %+v\n%s", code, err, r, stderr)
	}
}

// Where no step waits for another, neither part of the staleness is the larger;
// where no environment takes time, nothing is said of one.
func TestReportOfNoStaleness(t *testing.T) {
	code, stdout, stderr := headway(t, append([]string{"run", "--full", "--steps", "3", "--dir", t.TempDir(), "--name", "x", "--set", "schedule=synchronous"}, small...)...)
	if code != failure.ExitDone {
		t.Fatalf("code %d\n%s", code, stderr)
	}
	for _, lacks := range []string{"Most staleness", "mostly", "environment time"} {
		if strings.Contains(stdout, lacks) {
			t.Errorf("says %q:\n%s", lacks, stdout)
		}
	}
	if !strings.Contains(stdout, "the band is 0.8 to 1.2") {
		t.Errorf("names no band:\n%s", stdout)
	}
}

// A run spells its letters out where they stand first, claims no more than that it trained, and warns of nothing
// about which nobody can do anything.
func TestRunSaysItsWords(t *testing.T) {
	code, stdout, stderr := headway(t, append([]string{"run", "--full", "--no-dashboard", "--steps", "30", "--dir", t.TempDir(), "--name", "x", "--set", "queue={policy: drop, factor: 1}", "--set", "trainer.step_s=0.03", "--set", "engines.0.decode_step_s=0.002"}, small...)...)
	if code != failure.ExitDone {
		t.Fatalf("code %d\n%s", code, stderr)
	}
	for _, want := range []string{"concurrency C ", ", batch B ", " and group S ", record.SplitWords + "\n"} {
		if strings.Count(stderr, want) != 1 {
			t.Errorf("not once %q in\n%s", want, stderr)
		}
	}
	if !strings.Contains(stdout, " trained by GRPO, ") || !strings.Contains(stdout, "closed form, measured inputs") || strings.Contains(stdout, "bare multiplier") {
		t.Errorf("the report says\n%s", stdout)
	}
}

// A correction that leaves nearly everything out shows in the summary.
func TestMaskedShareIsShown(t *testing.T) {
	names := func(r runReport) (names []string) {
		for _, row := range headline(r, metrics.Summary{}, clipLimits{0.2, 0.2, "token-mask"}) {
			names = append(names, row.Name)
		}
		return names
	}
	if got := strings.Join(names(runReport{MaskedFraction: 0.4, TruncatedFraction: 0.02}), ", "); !strings.Contains(got, "tokens masked, tokens truncated") {
		t.Errorf("says only %s", got)
	}
	if got := strings.Join(names(runReport{MaskedFraction: 0.009}), ", "); strings.Contains(got, "masked") {
		t.Errorf("says %s of a hundredth", got)
	}
	e := &ending{Run: &run.Run{Record: &record.Record{Parts: &parts.Parts{}, Steps: &record.StepLog{Lines: []steps.Line{{Step: 1, EffectiveSampleSize: 1, MaskedFraction: 0.2, ActiveClipFraction: 0.1}, {Step: 2, EffectiveSampleSize: 1, MaskedFraction: 0.4, TruncatedFraction: 0.5}}}}}}
	var r runReport
	if e.learning(&r); math.Abs(r.MaskedFraction-0.3) > 1e-12 || math.Abs(r.TruncatedFraction-0.25) > 1e-12 || math.Abs(r.ActiveClipFraction-0.05) > 1e-12 {
		t.Errorf("means of the steps are %+v", r)
	}
}

// The share of tokens outside the band says how a run is only where the objective
// clips by a usual band.
func TestHealthByTheBand(t *testing.T) {
	for _, test := range []struct {
		correction, want, note string
	}{
		{"kind: ppo-clip", "broken", "the band is 0.8 to 1.2"},
		{"kind: ppo-clip, epsilon_low: 0.02, epsilon_high: 0.02", "healthy", "the band is 0.98 to 1.02; health is of the log-ratio"},
		{"kind: decoupled-ppo", "healthy", "decoupled-ppo does not clip by it"},
	} {
		c, err := config.Load("", "trainer.correction={"+test.correction+"}")
		if err != nil {
			t.Fatal(err)
		}
		limits := newClipLimits(c.Trainer)
		if got := limits.health(0.34, -0.0002); got != test.want || !strings.Contains(limits.note(), test.note) {
			t.Errorf("%s: %s, %q", test.correction, got, limits.note())
		}
		if got := limits.health(0.34, 0.2); got == "healthy" {
			t.Errorf("%s: healthy with a mean log-ratio of 0.2", test.correction)
		}
	}
}

// The advice on the wait in the queue names a key that the policy has.
func TestQueueLever(t *testing.T) {
	for preset, want := range map[string]string{"areal": "queue.eta", "skyrl": "queue.eta", "verl-fully-async": "queue.staleness_threshold",
		"one-step-off": "queue.staleness_threshold", "prime-rl": "queue.pause_at", "nemo-windowed": "", "synchronous": ""} {
		c, err := config.Load("", "preset="+preset)
		if err != nil {
			t.Fatal(err)
		}
		if got := queueLever(c); want == "" && got != "" || !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q", preset, got, want)
		}
	}
}

// The lag of an environment's state is not one of an environment that is none.
func TestStateLagNeedsAnEnvironment(t *testing.T) {
	s := metrics.Summary{Partial: metrics.Partial{Interruptions: 3, StateLagMean: 4, StateLagMax: 5}}
	has := func(environment bool) bool {
		return strings.Contains(report.Table{Rows: rowNames(report.InterruptionRows(s, environment))}.String(), "environment state's lag")
	}
	if has(false) || !has(true) {
		t.Error("the lag is shown without an environment, or not with one")
	}
}

func rowNames(rows []report.Row) (names [][]string) {
	for _, row := range rows {
		names = append(names, []string{row.Name})
	}
	return names
}

// Time that an environment of no kind takes is noise, and not compared.
func TestBiasOfNoEnvironment(t *testing.T) {
	path := t.TempDir() + "/trace.ndjson"
	file := document(t, simulated)
	if code, _, stderr := headway(t, "simulate", file, "--trace", path, "--set", "modelled.environment={kind: exponential, mean_s: 3}"); code != failure.ExitDone {
		t.Fatal(stderr)
	}
	for _, environment := range []bool{false, true} {
		compared, err := biasOfRun(path, environment)
		if err != nil {
			t.Fatal(err)
		}
		if (compared.Environment != nil) != environment || strings.Contains(strings.Join(compared.Conclusions, "\n"), "environment time") != environment {
			t.Errorf("environment %t: %+v", environment, compared.Conclusions)
		}
		if compared.Length == nil {
			t.Error("lengths are not compared")
		}
	}
}

// What stands in a ledger and what in a table of the window is said.
func TestLedgerSaysItsWindow(t *testing.T) {
	_, stdout, _ := headway(t, "simulate", document(t, simulated))
	if !strings.Contains(stdout, "; warm-up included") || !strings.Contains(stdout, "mean tokens of finished rollouts · of trained") {
		t.Errorf("printed\n%s", stdout)
	}
}
