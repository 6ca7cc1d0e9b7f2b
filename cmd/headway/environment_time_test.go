package main

import (
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/loop/workload"
	"github.com/headway-rl/headway/predict/theory"
)

// environmentTimeDocument is a run whose rollouts spend twice as long in their environment as on
// their engine. Without one its trainer would be the slower side; with it the engines are.
const environmentTimeDocument = `
model: {width: 16, layers: 1}
environment: {task: reverse, letters_min: 4, letters_max: 4, held_out: 100, service_time: {kind: exponential, mean_s: 0.4}}
engines: [{kind: embedded, slots: 64, decode_step_s: 0.04}]
rollout: {concurrency: 64, group_size: 4}
train: {batch: 32}
queue: {policy: drop}
evaluate: {every: 0, prompts: 20}
trainer: {steps: 170, step_s: 0.12}
`

// Environment time divides ρ by 1+e, and the tail is that of the sums (docs/theory.md). Decode rate,
// lengths and train step are what the run itself measured, so that a busy machine changes what is
// expected as well; the environment's time is what the document says.
func TestEnvironmentTimeIsAsTheFormulaSays(t *testing.T) {
	if os.Getenv("HEADWAY_LONG") == "" {
		t.Skip("it takes a minute: make test-long has it, and whoever sets HEADWAY_LONG")
	}
	const within = 0.05
	dir := t.TempDir()
	code, stdout, stderr := headway(t, "run", document(t, environmentTimeDocument), "--dir", dir, "--name", "r", "--json")
	if code != failure.ExitDone {
		t.Fatalf("code %d\n%s", code, stderr)
	}
	var report runReport
	if err := json.Unmarshal([]byte(stdout), &report); err != nil {
		t.Fatal(err)
	}
	rate, groups := generated(t, filepath.Join(dir, "r"))
	want := environmentTimeTheory(t, rate, groups, report)
	if report.Staleness.ClosedFormMeasuredInputs == nil {
		t.Fatalf("the report compares with nothing: %v", report.Warnings)
	}
	staleness, ok := want.Corrected.Mean.Value()
	if !ok {
		t.Fatalf("no staleness is expected: %v", want.Warnings)
	}
	for _, figure := range []struct {
		name           string
		measured, want float64
	}{
		{"utilization ρ/(1+e)", report.Utilization, want.Utilization},
		{"idle trainer", report.TrainerIdleRatio, 1 - want.Utilization},
		{"tail multiplier M'", report.TailMultiplier, want.TailMultiplier},
		{"mean staleness", report.Staleness.MeasuredMean, staleness},
		{"mean staleness, closed form at measured inputs", report.Staleness.MeasuredMean, *report.Staleness.ClosedFormMeasuredInputs},
	} {
		off := figure.measured/figure.want - 1
		t.Logf("%s: measured %.4f, expected %.4f, %+.1f %%", figure.name, figure.measured, figure.want, 100*off)
		if !(math.Abs(off) <= within) {
			t.Errorf("%s is %.4f, the formula says %.4f: %+.1f %%", figure.name, figure.measured, figure.want, 100*off)
		}
	}
}

// environmentTimeTheory is the closed form of that run at the decode rate of a slot, tokens a second,
// and the lengths of its groups.
func environmentTimeTheory(t *testing.T, rate float64, groups [][]int, report runReport) theory.Prediction {
	t.Helper()
	const concurrency, batch, size, meanS = 64, 32, 4, 0.4
	lengths, err := workload.LengthSpec{Kind: "empirical", Groups: groups}.Build()
	if err != nil {
		t.Fatal(err)
	}
	service, err := workload.TimesSpec{Kind: "exponential", MeanS: meanS}.Build()
	if err != nil {
		t.Fatal(err)
	}
	stepS := report.PeriodS.Mean * (1 - report.TrainerIdleRatio)
	decodeS := lengths.Mean() / rate
	in := theory.Input{
		ConcurrencyRollouts: concurrency, BatchRollouts: batch, GroupSize: size, Lengths: lengths, Environment: service,
		DecodeTokensPerS: rate, StepS: stepS, Utilization: stepS * concurrency / (batch * decodeS),
	}
	t.Logf("decode rate %.1f tokens/s, E[L] %.2f tokens, e %.2f, ρ without an environment %.3f, train step %.3f s", rate, lengths.Mean(), meanS/decodeS, in.Utilization, stepS)
	want, err := theory.Predict(in.WithDefaults())
	if err != nil {
		t.Fatal(err)
	}
	return want
}

// generated is the decode rate of a run's slots in tokens a second, and the lengths of its groups, as
// its trace has them.
func generated(t *testing.T, dir string) (rate float64, groups [][]int) {
	t.Helper()
	reader := logOf(t, dir)
	tokens, ns := 0, int64(0)
	place := map[loop.GroupID]int{}
	for {
		record, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return float64(tokens) / (float64(ns) / 1e9), groups
		}
		if err != nil {
			t.Fatal(err)
		}
		e := record.Event
		if e == nil || e.Kind != loop.RolloutScored {
			continue
		}
		tokens, ns = tokens+int(e.Tokens), ns+e.GenerateNS
		at, known := place[e.Group]
		if !known {
			at, groups = len(groups), append(groups, nil)
			place[e.Group] = at
		}
		groups[at] = append(groups[at], int(e.Tokens))
	}
}

// logOf reads the log of a run, until the test has ended.
func logOf(t *testing.T, dir string) *trace.Reader {
	t.Helper()
	file, err := trace.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	reader, err := trace.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	return reader
}
