package main

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headway-rl/headway/internal/failure"
	measure "github.com/headway-rl/headway/predict/calibrate"
)

// A server that runs is read for a time. The pages that were kept give the same constants again, and what is written
// of them is simulated.
func TestCalibrateFromPages(t *testing.T) {
	const active, speed, length = 8.0, 1000.0, 50.0
	began := time.Now()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics" || r.Header.Get("Authorization") != "Bearer k3y" {
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		s := 10 + time.Since(began).Seconds()
		tokens := active * speed * s
		fmt.Fprintf(w, "vllm:num_requests_running{engine=\"0\"} %v\n", active)
		fmt.Fprintf(w, "# TYPE vllm:generation_tokens counter\nvllm:generation_tokens_total{engine=\"0\"} %v\n", tokens)
		fmt.Fprintf(w, "# TYPE vllm:request_success counter\nvllm:request_success_total{engine=\"0\",finished_reason=\"stop\"} %v\n", tokens/length)
		fmt.Fprintf(w, "# TYPE vllm:inter_token_latency_seconds histogram\nvllm:inter_token_latency_seconds_bucket{engine=\"0\",le=\"+Inf\"} %.0f\nvllm:inter_token_latency_seconds_sum{engine=\"0\"} %v\nvllm:inter_token_latency_seconds_count{engine=\"0\"} %.0f\n", tokens, active*s, tokens)
	}))
	defer server.Close()
	dir := t.TempDir()
	kept, key, out := filepath.Join(dir, "pages.txt"), filepath.Join(dir, "key"), filepath.Join(dir, "w.yaml")
	if err := os.WriteFile(key, []byte("k3y\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var found [2]measure.Findings
	for i, arguments := range [][]string{
		{"--metrics", server.URL + "/metrics", "--key-file", key, "--for", "300ms", "--every", "20ms", "--keep", kept, "--out", out},
		{"--metrics", kept},
	} {
		code, stdout, stderr := headway(t, append([]string{"calibrate", "--json"}, arguments...)...)
		if code != failure.ExitDone {
			t.Fatalf("code %d: %s", code, stderr)
		}
		if err := json.Unmarshal([]byte(stdout), &found[i]); err != nil {
			t.Fatalf("%v in %s", err, stdout)
		}
	}
	for i, f := range found {
		curve, _ := f.Find("modelled.decode_curve")
		mean, _ := f.Find("modelled.length.mean_tokens")
		if len(curve.Curve) == 0 {
			t.Fatalf("%d: no curve: %+v", i, f)
		}
		// A page that came late makes its interval look like another load: it has a point of its own, and few intervals.
		busiest := slices.MaxFunc(curve.Curve, func(a, b measure.Point) int { return a.SlotTokensPerS.Values - b.SlotTokensPerS.Values })
		if !(math.Abs(curve.Value/speed-1) < 0.02) || busiest.Slots != active || !(math.Abs(mean.Value/length-1) < 0.02) || f.PeriodS <= 0 {
			t.Errorf("%d: %+v", i, f)
		}
		if step, ok := f.Find("modelled.train.utilization"); !ok || step.Determined || step.Moves == nil || step.Moves.Share <= 0 {
			t.Errorf("the trainer's speed is not among what was not determined: %+v", step)
		}
	}
	if code, _, stderr := headway(t, "simulate", out); code != failure.ExitDone {
		t.Errorf("simulate: code %d: %s", code, stderr)
	}
	code, stdout, stderr := headway(t, "calibrate", "--metrics", kept)
	if code != failure.ExitDone || !strings.Contains(stdout, "Determined") || !strings.Contains(stdout, "Not determined") || !strings.Contains(stdout, "The most is gained by") {
		t.Errorf("code %d: %s%s", code, stdout, stderr)
	}
}

// A run of ours gives its constants, and the document of them predicts its period.
func TestCalibrateFromRun(t *testing.T) {
	run := filepath.Join(t.TempDir(), "run")
	workload := document(t, "rollout: {concurrency: 32, group_size: 4}\ntrain: {batch: 32}\nmodelled: {length: {kind: lognormal, mean_tokens: 400, tailness: 40}, decode_tokens_per_s: 40, train: {step_s: 6}, sync: {time_s: 0.5}}\nsteps: {warmup: 10, measured: 200}\n")
	if code, _, stderr := headway(t, "simulate", workload, "--trace", run); code != failure.ExitDone {
		t.Fatalf("code %d: %s", code, stderr)
	}
	out := filepath.Join(t.TempDir(), "w.yaml")
	code, stdout, stderr := headway(t, "calibrate", "--run", run, "--out", out, "--json")
	if code != failure.ExitDone {
		t.Fatalf("code %d: %s", code, stderr)
	}
	var f measure.Findings
	if err := json.Unmarshal([]byte(stdout), &f); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]float64{"modelled.train.step_s": 6, "modelled.sync.time_s": 0.5, "modelled.length": 400, "rollout.concurrency": 32, "train.batch": 32} {
		if c, ok := f.Find(key); !ok || !c.Determined || !(math.Abs(c.Value/want-1) < 0.05) {
			t.Errorf("%s: %+v, want %v", key, c, want)
		}
	}
	if !(math.Abs(f.PeriodS/f.RunPeriodS-1) < 0.05) {
		t.Errorf("predicted %v s, the run took %v", f.PeriodS, f.RunPeriodS)
	}
	if code, _, stderr := headway(t, "simulate", out); code != failure.ExitDone {
		t.Errorf("simulate: code %d: %s", code, stderr)
	}
}

// What cannot be read is said with what to do.
func TestCalibrateFromRefuses(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "go_goroutines 4") }))
	defer other.Close()
	page := document(t, "nothing that is a page\n")
	for _, c := range []struct {
		arguments []string
		code      int
		want      string
	}{
		{nil, failure.ExitUsage, "nothing to calibrate from"},
		{[]string{"http://127.0.0.1:1", "--run", page}, failure.ExitUsage, "leave one of them out"},
		{[]string{"--metrics", page, "--plot", "x.svg"}, failure.ExitUsage, "--plot draws a measurement"},
		{[]string{"--metrics", page, "--keep", page}, failure.ExitUsage, "nothing is overwritten"},
		{[]string{"--metrics", page, "--out", page}, failure.ExitUsage, "nothing is overwritten"},
		{[]string{"--metrics", page, "--keep", filepath.Join(filepath.Dir(page), "kept.txt")}, failure.ExitUsage, "no --metrics is a URL"},
		{[]string{"--metrics", "http://127.0.0.1:1", "--keep", filepath.Join(filepath.Dir(page), "kept.txt")}, failure.ExitFailure, "refused"},
		{[]string{"--metrics", page, "--every", "0s"}, failure.ExitUsage, "--for, --every"},
		{[]string{"--metrics", page}, failure.ExitFailure, ":1)"},
		{[]string{"--metrics", filepath.Join(t.TempDir(), "none")}, failure.ExitUsage, "no such file"},
		{[]string{"--metrics", "http://127.0.0.1:1"}, failure.ExitFailure, "refused"},
		{[]string{"--metrics", other.URL}, failure.ExitFailure, "SGLang needs --enable-metrics"},
		{[]string{"--run", page}, failure.ExitUsage, "--from names the framework"},
	} {
		code, _, stderr := headway(t, append([]string{"calibrate"}, c.arguments...)...)
		if code != c.code || !strings.Contains(stderr, c.want) {
			t.Errorf("%q: code %d: %s, want %d with %q", c.arguments, code, stderr, c.code, c.want)
		}
	}
	if have := entries(t, filepath.Dir(page)); len(have) != 1 {
		t.Errorf("pages that did not come were kept: %v", have)
	}
	if text, err := os.ReadFile(page); err != nil || len(text) == 0 {
		t.Errorf("the file to be read is empty: %v", err)
	}
}
