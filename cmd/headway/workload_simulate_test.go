package main

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A document's rollouts have the tokens, the calls, the gaps and the reading of its sessions, and closed forms are
// given their means.
func TestSimulatePlaysSessions(t *testing.T) {
	dir := t.TempDir()
	record, document := filepath.Join(dir, "s.jsonl"), filepath.Join(dir, "d.yaml")
	const session = `{"conv_id": "a", "turns": [{"input_tokens": 1000, "output_tokens": 40}, {"input_tokens": 1540, "output_tokens": 60, "pre_gap_s": 2}, {"input_tokens": 1700, "output_tokens": 100, "pre_gap_s": 5}]}`
	text := `
rollout: {group_size: 2, concurrency: 8}
train: {batch: 8}
modelled: {sessions: '` + record + `', decode_tokens_per_s: 100, prefill: {tokens_per_s: 1000}, train: {step_s: 5}}
steps: {warmup: 5, measured: 40}
`
	if err := os.WriteFile(record, []byte(session+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(document, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var s struct {
		Length struct {
			Tokens float64 `json:"sampled_mean_tokens"`
		} `json:"length"`
		Latency struct {
			Prefill float64 `json:"prefill_s"`
			Decode  float64 `json:"decode_s"`
			Tool    float64 `json:"tool_s"`
		} `json:"latency"`
		Services struct {
			Calls float64 `json:"tool_calls_per_rollout"`
		} `json:"services"`
	}
	headwayJSON(t, &s, "simulate", document, "--json")
	l := s.Latency
	for _, f := range []struct {
		name       string
		have, want float64
	}{{"tokens", s.Length.Tokens, 200}, {"calls", s.Services.Calls, 2}, {"tools", l.Tool, 7}, {"reading", l.Prefill, 1.0 + 0.5 + 0.1}, {"generation", l.Decode, 2}} {
		if math.Abs(f.have-f.want) > 1e-6 {
			t.Errorf("%s: %g, want %g", f.name, f.have, f.want)
		}
	}
}

// The trace of a simulation is written as sessions for others, a rollout a line, once its prompts' length is known.
func TestWorkloadOfATrace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.trace")
	code, _, stderr := headway(t, "simulate", "--set", "modelled.train.step_s=20", "--set", "steps.measured=5", "--set", "steps.warmup=1", "--accept-unsettled", "--trace", path)
	if code != 0 {
		t.Fatal(stderr)
	}
	if code, _, stderr := headway(t, "workload", path); code != 2 || !strings.Contains(stderr, "the trace has no lengths of prompts") || !strings.Contains(stderr, "--prompt-tokens N") {
		t.Errorf("exit %d: %s", code, stderr)
	}
	var own, others struct {
		Sessions int
		Groups   int
		Output   struct{ Mean float64 } `json:"output_tokens"`
		Reused   float64                `json:"reused_share"`
	}
	out := filepath.Join(t.TempDir(), "requests.jsonl")
	headwayJSON(t, &own, "workload", path, "--prompt-tokens", "1024", "--to", "mooncake", "--out", out, "--json")
	headwayJSON(t, &others, "workload", out, "--json")
	if own.Sessions < 100 || own.Groups < own.Sessions/8 || others.Sessions != own.Sessions || math.Abs(others.Output.Mean-own.Output.Mean) > 1e-6 {
		t.Errorf("own %+v, as others read it %+v", own, others)
	}
	if want := 1 - float64(own.Groups)/float64(own.Sessions); math.Abs(own.Reused-want) > 1e-9 || math.Abs(others.Reused-want) > 1e-9 {
		t.Errorf("a cache has %g and %g of the input, want all but every group's first prompt, %g", own.Reused, others.Reused, want)
	}
}
