package foreign

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headway-rl/headway/internal/tfevents"
)

func TestCSV(t *testing.T) {
	log, err := Read(context.Background(), []string{written(t, "history.csv",
		"\ufeff_step,_timestamp,_runtime,async/staleness_mean,timing/step,note\n1,1000,0,1,10,\"a, b\"\n2,1012,12,3,,\n3,1020,20,\n")}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	mean, n := log.Mean(Staleness)
	if n != 2 || mean.Value != 2 || log.Series[1].TimeS.Value != 12 {
		t.Errorf("mean %+v over %d, series %+v", mean, n, log.Series)
	}
	if period := log.Series[1].PeriodS; period.Value != 12 || period.Origin != Inferred {
		t.Errorf("the period without timing/step is %+v", period)
	}
	if warned(log, "number of fields") == nil {
		t.Errorf("warnings %+v", log.Warnings)
	}
}

// A quoted field may hold line ends; a quote that nobody closes costs its line, and no more memory than is said.
func TestQuotesInCSV(t *testing.T) {
	var b strings.Builder
	b.WriteString("_step,async/staleness_mean,note\n1,1,\"two\nlines, \"\"quoted\"\"\"\n2,9,\"open\n")
	const steps = 60_000
	for i := 3; i <= steps; i++ {
		fmt.Fprintf(&b, "%d,1,a note that is not short at all\n", i)
	}
	log, err := Read(context.Background(), []string{written(t, "history.csv", b.String())}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	mean, n := log.Mean(Staleness)
	if n != steps-1 || mean.Value != 1 {
		t.Errorf("mean %+v over %d, want 1 over %d", mean, n, steps-1)
	}
	if w := warned(log, "quote is not closed"); w == nil || w.Line != 4 || w.Count != 1 {
		t.Errorf("warnings %+v", log.Warnings)
	}
}

// A chart's export has a column a run and metric, with its range beside it.
func TestChartExport(t *testing.T) {
	text := `"Step","first - async/staleness_mean","first - async/staleness_mean__MIN","first - async/staleness_mean__MAX","second - async/staleness_mean"` +
		"\n1,2,1,3,7\n2,4,1,9,7\n"
	file := written(t, "wandb_export.csv", text)
	_, err := Read(context.Background(), []string{file}, Options{})
	if err == nil || !strings.Contains(err.Error(), "2 runs (first, second)") {
		t.Errorf("two runs: %v", err)
	}
	if _, err = Read(context.Background(), []string{file}, Options{Run: "third"}); err == nil {
		t.Error("a run that is not there was read")
	}
	log, err := Read(context.Background(), []string{file}, Options{Run: "first"})
	if err != nil {
		t.Fatal(err)
	}
	if mean, n := log.Mean(Staleness); n != 2 || mean.Value != 3 {
		t.Errorf("mean %+v over %d", mean, n)
	}
}

// board writes an event file of one metric.
func board(t *testing.T, directory, suffix string, at int64, values map[int64]float64) {
	t.Helper()
	w, err := tfevents.Create(directory, suffix, time.Unix(at, 0))
	if err != nil {
		t.Fatal(err)
	}
	for step := range int64(10) {
		if value, there := values[step]; there {
			if err := w.Write(time.Unix(at+step, 0), step, []tfevents.Scalar{{Tag: "async/staleness_mean", Value: value}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// A run that was resumed leaves a second event file, which repeats the steps after the checkpoint.
func TestResumedEventFiles(t *testing.T) {
	directory := t.TempDir()
	board(t, directory, ".0", 1000, map[int64]float64{1: 1, 2: 1, 3: 9})
	board(t, directory, ".0", 2000, map[int64]float64{3: 1, 4: 1})
	log, err := Read(context.Background(), []string{directory}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if mean, n := log.Mean(Staleness); n != 4 || mean.Value != 1 {
		t.Errorf("mean %+v over %d", mean, n)
	}
	if w := warned(log, "as after a resume"); w == nil || w.Count != 1 {
		t.Errorf("warnings %+v", log.Warnings)
	}
}

// W&B's run directory: the run file, what its library writes beside it, and a link to it.
func TestRunDirectory(t *testing.T) {
	data, err := os.ReadFile("wandb/testdata/run-0.22.3.wandb")
	if err != nil {
		t.Fatal(err)
	}
	file := written(t, "wandb/offline-run-20260101_000000-run1/run-run1.wandb", string(data))
	run := filepath.Dir(file)
	for name, text := range map[string]string{
		"files/wandb-summary.json":  `{"timing_s/step": 99, "_step": 5}`,
		"files/wandb-metadata.json": `{"host": "x"}`,
		"files/config.yaml": "wandb_version: 1\n_wandb:\n  value: {}\nactor_rollout_ref:\n  desc: null\n  value:\n    rollout:\n      n: 8\n" +
			"async_training:\n  value:\n    trigger_parameter_sync_step: 4\n",
	} {
		path := filepath.Join(run, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Base(run), filepath.Join(filepath.Dir(run), "latest-run")); err != nil {
		t.Fatal(err)
	}
	log, err := Read(context.Background(), []string{filepath.Dir(run)}, Options{From: "verl-fa"})
	if err != nil {
		t.Fatal(err)
	}
	if log.Settings.GroupSize.Value != 8 || log.Settings.SyncEvery.Value != 4 {
		t.Errorf("settings %+v", log.Settings)
	}
	period := log.Series[1].PeriodS // step 2: (22.5 + 0.5) / 4
	if len(log.Files) != 2 || period.Value != 5.75 {
		t.Errorf("files %q, period %+v", log.Files, period)
	}
}

// The name of a run may hold what stands between it and a metric.
func TestChartOfARunWithADash(t *testing.T) {
	file := written(t, "chart.csv", `"Step","qwen - 7b - async/staleness_mean","qwen - 7b - async/staleness_mean__MIN"`+"\n1,2,1\n2,4,1\n")
	for _, run := range []string{"", "qwen - 7b"} {
		log, err := Read(context.Background(), []string{file}, Options{Run: run})
		if err != nil {
			t.Fatal(err)
		}
		if mean, n := log.Mean(Staleness); n != 2 || mean.Value != 3 {
			t.Errorf("mean %+v over %d", mean, n)
		}
	}
}

// prime-rl's processes append to one file, under keys that they share.
func TestPrimeDirectory(t *testing.T) {
	directory := t.TempDir()
	files := map[string]string{
		"configs/rl.toml": "max_steps = 10 # all\n[orchestrator]\nbatch_size = 16\ngroup_size = 2\n[orchestrator.concurrency]\nmax_inflight = 32\n[[orchestrator.env]]\ngroup_size = 99\n",
		"metrics.jsonl": `{"step":2,"time":1000.5,"time/step":7,"time/wait_for_policy":0.5,"off_policy/mean":1.5,"off_policy/in_flight/mean":1}` + "\n" +
			`{"step":2,"time":1001,"perf/throughput":5,"time/x":1}` + "\n" +
			`{"step":2,"time":1002,"time/step":9,"time/wait_for_batch":3,"time/forward_backward":6}` + "\n",
		"rollouts/step_2/train/all/traces.jsonl": "{\"group\":{\"id\":\"other\"}}\n",
	}
	for i, at := range []struct{ group, start, end, took int }{{1, 0, 0, 4}, {1, 0, 1, 8}, {2, 1, 1, 4}, {2, 1, 1, 8}} {
		files["rollouts/step_2/train/effective/traces.jsonl"] += fmt.Sprintf(
			`{"id":"e%d","group":{"id":"g%d"},"run":{"work":{"policy":{"start":%d,"end":%d}}},"timing":{"start":100,"end":%d,"scoring":{"start":1,"end":2}},"traces":[{"rewards":{"a":1,"b":0.5},"num_output_tokens":7,"nodes":[1,2]}]}`+"\n",
			i, at.group, at.start, at.end, 100+at.took)
	}
	for name, text := range files {
		path := filepath.Join(directory, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	log, err := Read(context.Background(), []string{directory}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if log.Framework != "prime-rl" || len(log.Series) != 1 || len(log.Rollouts) != 4 {
		t.Fatalf("%s, %d steps, %d rollouts, %+v", log.Framework, len(log.Series), len(log.Rollouts), log.Warnings)
	}
	step := log.Series[0]
	for _, c := range []struct {
		n    Notion
		want float64
	}{{Period, 9}, {Wait, 3}, {Staleness, 0.5}, {PreQueue, 0.5}, {InQueue, 0}, {Tail, 8.0 / 6}, {GroupMean, 8}} {
		if got := *c.n.At(&step); !got.Known() || !near(got.Value, c.want) {
			t.Errorf("%s = %+v, want %g", c.n.Name, got, c.want)
		}
	}
	if s := log.Settings; s.BatchRollouts.Value != 16 || s.GroupSize.Value != 2 || s.ConcurrencyRollouts.Value != 32 {
		t.Errorf("settings %+v", s)
	}
	if r := log.Rollouts[1]; r.Trained.Value != 1 || r.Reward.Value != 1.5 || r.Tokens.Value != 7 || r.EnvironmentS.Value != 1 {
		t.Errorf("a rollout is %+v", r)
	}
}

func TestTrainerState(t *testing.T) {
	text := "{\n  \"global_step\": 2,\n  \"log_history\": [\n    {\"step\": 1, \"sample/rollout_queue_size\": 4, \"weight_sync_time_s\": NaN},\n" +
		"    {\"step\": 2, \"sample/rollout_queue_size\": 6, \"reward\": 0.5}\n  ],\n  \"max_steps\": 2\n}\n"
	log, err := Read(context.Background(), []string{written(t, "checkpoint-2/trainer_state.json", text)}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if mean, n := log.Mean(Queued); log.Framework != "trl" || n != 2 || mean.Value != 5 {
		t.Errorf("%s: %+v over %d", log.Framework, mean, n)
	}
	lacks := func(m Missing) bool { return strings.Contains(m.Get, "--set group_size") }
	if len(log.Series) != 2 || !slices.ContainsFunc(log.Missing, lacks) {
		t.Errorf("%d steps, missing %+v", len(log.Series), log.Missing)
	}
}

func FuzzColumns(f *testing.F) {
	f.Add("_step,async/staleness_mean\n1,\"a\n\"\n2,3\n")
	f.Add("\"Step\",\"a - x\",\"b - x\"\n1,2\n")
	f.Add("_step\n\"\"\"\n\"")
	file := filepath.Join(f.TempDir(), "fuzz.csv")
	f.Fuzz(func(t *testing.T, text string) {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		_ = columns{file, ""}.Read(context.Background(), &scout{evidence: newEvidence()}) // it ends, and panics at nothing
	})
}
