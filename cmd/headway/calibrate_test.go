package main

import (
	"context"
	"encoding/json"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/engine/enginetest"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	measure "github.com/headway-rl/headway/predict/calibrate"
)

// knownEngine decodes at a known speed in a bubble's clock: a slot's by how many decode.
type knownEngine struct {
	slots   int
	active  atomic.Int64
	sampled atomic.Int64
}

func (e *knownEngine) Name() string                                     { return "known" }
func (e *knownEngine) Slots() int                                       { return e.slots }
func (e *knownEngine) Close() error                                     { return nil }
func (e *knownEngine) Load(context.Context, loop.Version) error         { return nil }
func (e *knownEngine) Switch(context.Context, loop.Version, bool) error { return nil }

// speed is that of a slot in tokens per second.
func (e *knownEngine) speed() float64 { return 80 / (1 + float64(e.active.Load())/10) }

// Generate implements port.Engine: it reads 20 000 tokens of a prompt in a second.
func (e *knownEngine) Generate(ctx context.Context, r port.GenerateRequest) (g port.Generation, err error) {
	pass := func(d time.Duration) bool {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return true
		case <-r.Interrupt:
			g.Interrupted = true
		case <-ctx.Done():
			err = ctx.Err()
		}
		return false
	}
	if !pass(time.Duration(len(r.Prompt)) * time.Second / 20000) {
		return g, err
	}
	e.active.Add(1)
	defer e.active.Add(-1)
	for len(g.Tokens) < r.MaxTokens && pass(time.Duration(float64(time.Second)/e.speed())) {
		g.Tokens = append(g.Tokens, 1)
		e.sampled.Add(1)
		if len(g.Tokens) == 1 && r.FirstToken != nil {
			r.FirstToken(0)
		}
		if r.OnTokens != nil {
			r.OnTokens(port.Delta{Tokens: g.Tokens[len(g.Tokens)-1:]})
		}
	}
	return g, err
}

// throughput is what the engine really does with all slots busy, in tokens per second.
func (e *knownEngine) throughput(prompt, response int) float64 {
	const forS = 300
	ctx, cancel := context.WithTimeout(context.Background(), forS*time.Second)
	defer cancel()
	before := e.sampled.Load()
	for i := range e.slots {
		go func() {
			for ctx.Err() == nil {
				// Slots out of step, as they are in a run.
				_, _ = e.Generate(ctx, port.GenerateRequest{Prompt: make([]int32, prompt+i), MaxTokens: response})
			}
		}()
	}
	<-ctx.Done()
	synctest.Wait()
	return float64(e.sampled.Load()-before) / forS
}

// What is measured of an engine is a document that headway simulate takes as it is, and the
// simulation produces what the engine does, within 3 %.
func TestCalibrationIsSimulated(t *testing.T) {
	path := filepath.Join(t.TempDir(), "workload.yaml")
	real := 0.0
	synctest.Test(t, func(t *testing.T) {
		e := &knownEngine{slots: 12}
		r, err := measure.Measure(t.Context(), measure.Options{Engine: e, Slots: 12, PromptTokens: 50, ResponseTokens: 100, Vocabulary: 100,
			Point: 30 * time.Second, Repeats: 6, PrefillTokens: []int{32, 512, 4096}})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, r.Document("an engine\nwhose speed is known"), 0o600); err != nil {
			t.Fatal(err)
		}
		real = e.throughput(50, 100)
	})
	var simulated struct {
		Throughput struct {
			RolloutsPerS float64 `json:"production_rollouts_per_s"`
		} `json:"throughput"`
		Length struct {
			Tokens float64 `json:"sampled_mean_tokens"`
		} `json:"length"`
	}
	code, stdout, stderr := headway(t, "simulate", path, "--json")
	if code != failure.ExitDone {
		t.Fatalf("code %d: %s", code, stderr)
	}
	if err := json.Unmarshal([]byte(stdout), &simulated); err != nil {
		t.Fatal(err)
	}
	if got := simulated.Throughput.RolloutsPerS * simulated.Length.Tokens; math.Abs(got/real-1) > 0.03 || !(real > 100) {
		t.Errorf("simulated %.1f tokens/s, the engine does %.1f", got, real)
	}
	if code, _, stderr := headway(t, "predict", path); code != failure.ExitDone {
		t.Errorf("predict: code %d: %s", code, stderr)
	}
}

// A server of which only the address is known is recognised, measured and written down; prompts of
// a file have their responses' lengths in it.
func TestCalibrateServer(t *testing.T) {
	server := enginetest.NewPolicyServer(enginetest.PolicyOptions{Policy: enginetest.Policy{Vocabulary: 64, EOS: 4, Length: 40}, Context: 256, Weights: "m0", Step: time.Millisecond})
	defer server.Close()
	dir := t.TempDir()
	prompts, out, plot := filepath.Join(dir, "p.jsonl"), filepath.Join(dir, "w.yaml"), filepath.Join(dir, "p.svg")
	if err := os.WriteFile(prompts, []byte("{\"prompt\": [7, 8, 9]}\n\n{\"prompt\": [10, 11]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := headway(t, "calibrate", server.URL(), "--slots", "2", "--prompt-tokens", "20", "--response-tokens", "100", "--seconds", "2", "--repeats", "2",
		"--prompts", prompts, "--samples", "3", "--max-tokens", "100", "--out", out, "--plot", plot, "--json")
	if code != failure.ExitDone {
		t.Fatalf("code %d: %s", code, stderr)
	}
	var report calibrationReport
	if err := json.Unmarshal([]byte(stdout), &report); err != nil || report.Kind != "vllm" || len(report.Lengths) != 2 || len(report.Lengths[1]) != 3 || len(report.Decode) == 0 {
		t.Errorf("%s, %v", stdout, err)
	}
	if !strings.Contains(stderr, "warming up") {
		t.Errorf("no progress: %s", stderr)
	}
	if code, _, stderr := headway(t, "simulate", out); code != failure.ExitDone {
		t.Errorf("simulate: code %d: %s", code, stderr)
	}
	if picture, err := os.ReadFile(plot); err != nil || !strings.Contains(string(picture), "<svg") {
		t.Errorf("the picture: %.80s, %v", picture, err)
	}
}

// An embedded engine of a document is measured as any other.
func TestCalibrateEmbedded(t *testing.T) {
	path := document(t, "engines: [{kind: embedded, name: here, slots: 2}]\nmodel: {width: 16, layers: 1, heads: 1}\n")
	code, stdout, stderr := headway(t, "calibrate", path+"#here", "--response-tokens", "8", "--prompt-tokens", "8", "--seconds", "2", "--repeats", "1")
	if code != failure.ExitDone || !strings.Contains(stdout, "Decoding") || !strings.Contains(stdout, "embedded") {
		t.Errorf("code %d: %s%s", code, stdout, stderr)
	}
}

// What was measured before a server fails is written and printed, with what is missing, and the command fails.
func TestCalibrationOfAFailingServer(t *testing.T) {
	policy := enginetest.NewPolicyServer(enginetest.PolicyOptions{Policy: enginetest.Policy{Vocabulary: 64, EOS: 4, Length: 40}, Context: 256, Weights: "m0", Step: time.Millisecond})
	defer policy.Close()
	behind, err := url.Parse(policy.URL())
	if err != nil {
		t.Fatal(err)
	}
	forward := httputil.NewSingleHostReverseProxy(behind)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength > 600 { // a long prompt
			http.Error(w, `{"error":{"message":"no room","type":"BadRequestError","code":400}}`, http.StatusBadRequest)
			return
		}
		forward.ServeHTTP(w, r)
	}))
	defer server.Close()
	out := filepath.Join(t.TempDir(), "w.yaml")
	code, stdout, stderr := headway(t, "calibrate", server.URL, "--slots", "1", "--prompt-tokens", "8", "--response-tokens", "100", "--seconds", "2", "--repeats", "1", "--out", out)
	if code != failure.ExitFailure || !strings.Contains(stdout, "Decoding") || !strings.Contains(stdout, "! not measured: ") || !strings.Contains(stderr, "no room") {
		t.Errorf("code %d: %s%s", code, stdout, stderr)
	}
	if code, _, stderr := headway(t, "simulate", out); code != failure.ExitDone {
		t.Errorf("simulate: code %d: %s", code, stderr)
	}
}

// Everything that can be wrong before a measurement is said with what to do.
func TestCalibrateRefuses(t *testing.T) {
	dir := t.TempDir()
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "<!DOCTYPE HTML>\n<html>\n<p>nothing here\n</html>", http.StatusNotFound)
	}))
	defer page.Close()
	two := document(t, "engines: [{kind: embedded, name: a, slots: 1}, {kind: embedded, name: b, slots: 1}]\n")
	for _, c := range []struct {
		arguments []string
		code      int
		want      string
	}{
		{[]string{"http://127.0.0.1:1"}, failure.ExitFailure, "nothing answers at http://127.0.0.1:1"},
		{[]string{"127.0.0.1:1"}, failure.ExitFailure, "nothing answers at http://127.0.0.1:1"},
		{[]string{"http://u:s3cr3t@127.0.0.1:1"}, failure.ExitUsage, "the address holds a password"},
		{[]string{"ftp://x"}, failure.ExitUsage, "ftp://x is not the address of a server"},
		{[]string{"http://127.0.0.1:1/v1"}, failure.ExitUsage, "has a path"},
		{[]string{"http://127.0.0.1:1/?a=b"}, failure.ExitUsage, "has a query"},
		{[]string{page.URL}, failure.ExitFailure, "answers, and is no engine that can be measured"},
		{[]string{two + "#c"}, failure.ExitUsage, "has no engine c: it has a, b"},
		{[]string{two, "--slots=-1"}, failure.ExitUsage, "--slots: want at least 1"},
		{[]string{two, "--repeats", "0"}, failure.ExitUsage, "--repeats: want 1 to 1000"},
		{[]string{two, "--out", filepath.Join(dir, "none", "w.yaml")}, failure.ExitUsage, "there is no directory"},
		{[]string{two, "--update", dir}, failure.ExitUsage, "takes no weights from a directory"},
		{[]string{two, "--prompts", filepath.Join(dir, "none.jsonl")}, failure.ExitUsage, "--prompts:"},
		{[]string{filepath.Join(dir, "none.yaml")}, failure.ExitUsage, "cannot be read"},
	} {
		code, _, stderr := headway(t, append([]string{"calibrate"}, c.arguments...)...)
		if code != c.code || !strings.Contains(stderr, c.want) {
			t.Errorf("%q: code %d: %s, want %d with %q", c.arguments, code, stderr, c.code, c.want)
		}
		if strings.Contains(stderr, "<p>") || strings.Contains(stderr, "s3cr3t") {
			t.Errorf("%q: says a page or a password: %s", c.arguments, stderr)
		}
	}
}

// However noisy a measurement was, simulate takes what is written of it.
func TestNoisyCalibrationIsTaken(t *testing.T) {
	draw := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		r := measure.Result{PromptTokens: 20, ResponseTokens: 30, PrefillTokensPerS: 1000}
		for slots := 1; slots <= 16; slots *= 2 {
			speed := math.Exp(5 + draw.NormFloat64())
			r.Decode = append(r.Decode, measure.Point{Slots: slots, SlotTokensPerS: measure.Median{Value: speed, Low: speed / 2, High: 2 * speed, Values: 1 + draw.IntN(6)}, TokensPerS: float64(slots) * speed})
		}
		written, err := config.Parse("written", r.Document("an engine"))
		if err == nil {
			err = written.WithDefaults().Validate()
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, r.Document("an engine"))
		}
	}
}
