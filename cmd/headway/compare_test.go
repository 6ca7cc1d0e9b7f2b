package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headway-rl/headway/internal/failure"
)

// Runs stand side by side with what differs, and what keeps them from being comparable.
func TestCompare(t *testing.T) {
	a := traceOfSimulation(t)
	b := traceOfSimulation(t, "--set=queue.factor=1", "--set=seed=4", "--set=modelled.train.utilization=1.4")
	page := filepath.Join(t.TempDir(), "page.html")
	text := first(t, "compare", "--full", a, b, "--html", page)
	for _, want := range []string{"the seeds are not the same", "queue.factor", "modelled.train.utilization", "Where staleness comes from", "Trainer idle, by what it waited for", "evicted", "Difference from"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "rollout.group_size") {
		t.Errorf("a setting that does not differ is listed:\n%s", text)
	}
	html, err := os.ReadFile(page)
	if err != nil || !strings.Contains(string(html), "Staleness by source") || strings.Count(string(html), "<svg") < 6 || strings.Contains(string(html), "<script src") {
		t.Errorf("the page: %v, %d bytes", err, len(html))
	}
	var doc struct {
		Runs []struct {
			Name    string
			Source  string
			Figures map[string]struct {
				Value        float64
				Interval     *[2]float64 `json:"interval_95"`
				Difference   *float64
				Difference95 *[2]float64 `json:"difference_95"`
			}
			Attribution struct {
				StalenessMean float64 `json:"staleness_mean"`
			}
		}
		Settings []struct {
			Key    string
			Values []string
		}
	}
	if err := json.Unmarshal([]byte(first(t, "compare", a, b, "--json")), &doc); err != nil {
		t.Fatal(err)
	}
	for _, run := range doc.Runs {
		mean := run.Figures["staleness_mean"]
		if run.Source != "simulation" || mean.Interval == nil || math.Abs(mean.Value-run.Attribution.StalenessMean) > 1e-9 || mean.Value != run.Figures["pqs"].Value+run.Figures["iqs"].Value && math.Abs(mean.Value-run.Figures["pqs"].Value-run.Figures["iqs"].Value) > 1e-9 {
			t.Errorf("%+v", run)
		}
	}
	one, two := doc.Runs[0].Figures["staleness_mean"], doc.Runs[1].Figures["staleness_mean"]
	if one.Difference != nil || two.Difference == nil || *two.Difference != two.Value-one.Value || two.Difference95 == nil {
		t.Errorf("differences %+v and %+v", one, two)
	}
	if doc.Runs[0].Name == doc.Runs[1].Name {
		t.Errorf("both runs are called %s", doc.Runs[0].Name)
	}
}

// One run has its figures, and how long it was is no setting of it. Of a trace with a name of its own nobody knows that
// the metrics beside it are of that run.
func TestCompareOne(t *testing.T) {
	path := traceOfSimulation(t)
	if text := first(t, "compare", path); !strings.Contains(text, "staleness") || !strings.Contains(text, "rollouts/s trained") || !strings.Contains(text, "an update every") {
		t.Errorf("one run:\n%s", text)
	}
	said := ""
	for step, clip := range []float64{0.9, 0.9, 0.125, 0.125} {
		said += fmt.Sprintf(`{"step":%d,"clip_fraction":%v,"effective_sample_size":1}`+"\n", []int{1, 2, 1000, 1001}[step], clip)
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(path), "metrics.jsonl"), []byte(said), 0o644); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	loose := filepath.Join(filepath.Dir(path), "other.ndjson")
	if err := errors.Join(err, os.WriteFile(loose, text, 0o644)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path string
		want any
	}{{filepath.Dir(path), 0.125}, {path, 0.125}, {loose, nil}} {
		var doc struct {
			Runs []struct {
				Figures map[string]struct{ Value any }
			}
		}
		if err := json.Unmarshal([]byte(first(t, "compare", c.path, "--json")), &doc); err != nil {
			t.Fatal(err)
		}
		if got := doc.Runs[0].Figures["clip_fraction"].Value; got != c.want {
			t.Errorf("%s: clip fraction %v, want %v of the steps after the warm-up", c.path, got, c.want)
		}
	}
}

// The same run twice differs in nothing.
func TestCompareWithItself(t *testing.T) {
	path := traceOfSimulation(t)
	text := first(t, "compare", "--full", path, path)
	if strings.Contains(text, "Settings that differ") || strings.Contains(text, "not the same") || !strings.Contains(text, "(2)") {
		t.Errorf("a run beside itself:\n%s", text)
	}
}

func TestCompareRefuses(t *testing.T) {
	path := traceOfSimulation(t)
	none := filepath.Join(t.TempDir(), "none")
	bad := filepath.Join(t.TempDir(), "bad.jsonl")
	if err := os.WriteFile(bad, []byte("{\"a\": 1}\n<b>\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		arguments []string
		says      string
	}{
		{[]string{path, none}, none},
		{[]string{path, bad}, bad},
		{[]string{path, ""}, "an empty path"},
		{[]string{filepath.Dir(filepath.Dir(path))}, filepath.Dir(path)},
		{[]string{path, path, "--html", path}, "--html"},
	} {
		code, _, stderr := headway(t, append([]string{"compare"}, c.arguments...)...)
		if code != failure.ExitUsage || !strings.Contains(stderr, c.says) {
			t.Errorf("%q: code %d, %q", c.arguments, code, stderr)
		}
	}
}

// A trace of ours that cannot be read is no log of another framework, and no part of one.
func TestOursIsNoForeignLog(t *testing.T) {
	path := traceOfSimulation(t)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	bad := filepath.Join(t.TempDir(), "bad.ndjson")
	if err := os.WriteFile(bad, []byte(strings.Replace(string(text), "simulation", "simulatiom", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(t.TempDir(), "verl.jsonl")
	line := `{"_step": 1, "_timestamp": 1000, "training/global_step": 1, "timing_s/step": 10, "fully_async/count/current_param_version": 1, "fully_async/count/total_generated_samples": 64}` + "\n"
	if err := os.WriteFile(log, []byte(line), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		arguments []string
		says      string
	}{
		{[]string{"compare", path, bad}, "checksum"},
		{[]string{"diagnose", path, log}, "headway compare " + path + " " + log},
		{[]string{"diagnose", log, path}, path + " is a run of Headway"},
		{[]string{"diagnose", path, path}, "headway diagnose " + path + " alone"},
		{[]string{"diagnose", path, "--from", "verl-fa"}, "a run of Headway says everything itself"},
	} {
		code, _, stderr := headway(t, c.arguments...)
		if code != failure.ExitUsage || !strings.Contains(stderr, c.says) || strings.Contains(stderr, "known framework") {
			t.Errorf("%q: code %d, %q", c.arguments, code, stderr)
		}
	}
}

// Another framework's log stands beside ours with what it has; what it does not say is no difference.
func TestCompareWithForeign(t *testing.T) {
	path := traceOfSimulation(t)
	log := filepath.Join(t.TempDir(), "verl.jsonl")
	lines := ""
	for step := range 20 {
		lines += fmt.Sprintf(`{"_step": %d, "_timestamp": %d, "training/global_step": %d, "timing_s/step": 10, "timing_s/gen": 4, "fully_async/count/current_param_version": %d, "fully_async/count/total_generated_samples": %d, "critic/rewards/mean": 0.5}`+"\n", step, 1000+10*step, step, step, 64*step)
	}
	if err := os.WriteFile(log, []byte(lines), 0o644); err != nil {
		t.Fatal(err)
	}
	text := first(t, "compare", "--full", path, log, "--from", "verl-fa")
	for _, want := range []string{"the runs are not of one kind", "verl-fa", "0.500"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	for _, none := range []string{"the seeds are not the same", "engines.0.kind"} {
		if strings.Contains(text, none) {
			t.Errorf("%q of what a log does not say, in\n%s", none, text)
		}
	}
}
