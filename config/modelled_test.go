package config

import (
	"math"
	"testing"

	"github.com/headway-rl/headway/loop/workload"
)

// The curve is read in straight lines and level outside them; all slots together
// have the speed of each engine's own slots, by its relative speed.
func TestDecodeSpeeds(t *testing.T) {
	c := mustLoad(t, `
rollout: {concurrency: 48}
train: {batch: 48}
modelled:
  decode_curve: [{active: 8, tokens_per_s: 90}, {active: 16, tokens_per_s: 60}, {active: 32, tokens_per_s: 20}]
engines: [{slots: 32}, {slots: 12, modelled_speed: 2}, {slots: 4, modelled_speed: 0.5}]
`)
	for active, want := range map[int]float64{1: 90, 8: 90, 12: 75, 16: 60, 20: 50, 32: 20, 99: 20} {
		if got := c.SlotTokensPerS(active); math.Abs(got-want) > 1e-12 {
			t.Errorf("%d active: %v tokens/s, want %v", active, got, want)
		}
	}
	if got, want := c.DecodeThroughputTokensPerS(), 32*20+12*2*75+4*0.5*90.0; got != want {
		t.Errorf("%v tokens/s in all, want %v", got, want)
	}
	plain := mustLoad(t, "rollout: {concurrency: 8}\nmodelled: {decode_tokens_per_s: 50}\nengines: [{slots: 6}, {slots: 2, modelled_speed: 3}]")
	if got := plain.DecodeThroughputTokensPerS(); got != 6*50+2*150 {
		t.Errorf("%v tokens/s in all, want 600", got)
	}
	if got := mustLoad(t, "modelled: {throughput_tokens_per_s: 700}").DecodeThroughputTokensPerS(); got != 700 {
		t.Errorf("%v tokens/s in all, want the 700 given", got)
	}
	if got := plain.SlotTokensPerS(5); got != 0 {
		t.Errorf("without a curve %v tokens/s, want 0", got)
	}
}

// The models of a rollout's services are those the document describes.
func TestServiceModels(t *testing.T) {
	c := mustLoad(t, `
rollout:
  drift: {steps: 10, length_factor: 2, tool_calls_factor: 0.5}
modelled:
  tools: {calls: 4, time: {mean_s: 3}, failure_rate: 0.5, retries: 1}
  sandbox: {start: {mean_s: 20}}
  verifier: {time: {kind: exponential, mean_s: 2}}
  scorer: {time: {kind: exponential, mean_s: 1}, tokens_per_s: 1000, concurrency: 2}
  length: {kind: fixed, mean_tokens: 100, cap_tokens: 150}
`)
	tools, err := c.ToolsModel()
	if err != nil || tools.MeanCalls() != 4 || tools.MeanNS() != 4*1.5*3e9 {
		t.Errorf("%v calls of %v ns in all (%v), want 4 and 18e9", tools.MeanCalls(), tools.MeanNS(), err)
	}
	start, err := c.SandboxStartModel()
	if err != nil || start.Mean() != 20e9 {
		t.Errorf("starts take %v ns (%v), want 20e9", start.Mean(), err)
	}
	verifier, err := c.VerifierModel()
	if err != nil || math.Abs(verifier.Mean()-2e9) > 1 {
		t.Errorf("verdicts take %v ns (%v), want 2e9", verifier.Mean(), err)
	}
	scorer, err := c.ScorerModel()
	if err != nil || math.Abs(scorer.Mean()-1e9) > 1 || c.Modelled.Scorer.None() {
		t.Errorf("scores take %v ns beside reading (%v), want 1e9", scorer.Mean(), err)
	}
	if got := c.ScoreMeanS(500); math.Abs(got-1.5) > 1e-9 {
		t.Errorf("a rollout of 500 tokens is scored in %v s, want 1 and half a second to read it", got)
	}
	change, err := c.ChangeModel()
	if err != nil || change.Length(100, 5) != 150 || change.Length(100, 4) != 140 || change.Length(100, 99) != 150 || change.CallsFactor(10) != 0.5 {
		t.Errorf("lengths of %d, %d and %d tokens, %v calls (%v)", change.Length(100, 4), change.Length(100, 5), change.Length(100, 99), change.CallsFactor(10), err)
	}
	none := mustLoad(t, "")
	if got := none.ScoreMeanS(500); got != 0 || !none.Modelled.Scorer.None() {
		t.Errorf("a document without scorers scores in %v s", got)
	}
	if tools, err := none.ToolsModel(); err != nil || !tools.None() {
		t.Errorf("a document without tools calls some (%v)", err)
	}
}

// All the time outside the engine adds up: that of the environment alone where that is
// all, else the means of its parts.
func TestOutsideModel(t *testing.T) {
	alone, err := mustLoad(t, "modelled: {environment: {mean_s: 3, tailness: 50}}").OutsideModel()
	if err != nil || math.Abs(alone.Mean()/1e9-3) > 1e-9 {
		t.Errorf("an environment of 3 s is outside for %v (%v)", alone.Mean()/1e9, err)
	}
	all, err := mustLoad(t, `
modelled:
  environment: {kind: exponential, mean_s: 3}
  tools: {calls: 4, calls_kind: poisson, time: {mean_s: 2}, output_tokens: 100}
  prefill: {tokens_per_s: 200}
  sandbox: {start: {mean_s: 10}}
  verifier: {time: {kind: exponential, mean_s: 5}}
  prompt_tokens: 300
  length: {kind: exponential, mean_tokens: 800}
  scorer: {time: {kind: exponential, mean_s: 1}, tokens_per_s: 500}
`).OutsideModel()
	if want := 3 + 4*(2+0.5) + 10 + 5 + 1 + (300+4*100+800)/500.0; err != nil || math.Abs(all.Mean()/1e9-want) > 0.01*want {
		t.Errorf("outside for %v s (%v), want %v", all.Mean()/1e9, err, want)
	}
	joint, err := mustLoad(t, "modelled: {verifier: {time: {groups: [[1, 2], [3, 4]]}}, environment: {mean_s: 1}}").OutsideModel()
	if err != nil || joint != nil {
		t.Errorf("a sum of times that siblings have together: %v (%v)", joint, err)
	}
}

// Of very many calls a few stand for all, with their mean and spread, and quickly.
func TestOutsideModelOfManyCalls(t *testing.T) {
	const calls, mean = 4000, 2.0
	times, err := mustLoad(t, "modelled: {tools: {calls: 4000, time: {kind: exponential, mean_s: 2}}}").OutsideModel()
	if err != nil {
		t.Fatal(err)
	}
	source := workload.NewSource(0, workload.StreamEnvironment)
	sum, squares := 0.0, 0.0
	const n = 20_000
	for g := range uint64(n) {
		s := float64(times.Draw(source, g, 0, 1)) / 1e9
		sum, squares = sum+s, squares+s*s
	}
	got, deviation := sum/n, math.Sqrt(squares/n-sum/n*sum/n)
	if want := calls * mean; math.Abs(got/want-1) > 0.002 {
		t.Errorf("outside for %v s, want %v", got, want)
	}
	if want := mean * math.Sqrt(calls); math.Abs(deviation/want-1) > 0.05 {
		t.Errorf("a deviation of %v s, want %v", deviation, want)
	}
	tools, err := mustLoad(t, "modelled: {tools: {calls: 4000, time: {kind: exponential, mean_s: 2}}}").ToolsModel()
	if err != nil {
		t.Fatal(err)
	}
	for _, few := range []int{1, outsideCalls} { // so many are drawn, one by one
		src, want := workload.NewSource(0, workload.StreamTool), int64(0)
		for turn := range uint32(few) {
			want += tools.CallNS(src, workload.Turn{Group: 7, Attempt: 1, Turn: turn})
		}
		if got := callsNS(tools, mean*1e9, src, 7, few); got != want {
			t.Errorf("%d calls take %d ns, want their sum, %d", few, got, want)
		}
		if few < outsideCalls {
			continue
		}
		if got := callsNS(tools, 0, src, 7, 4*few); got != 2*want { // about a mean of 0, twice the deviation
			t.Errorf("%d calls take %d ns, want %d from the first %d alone", 4*few, got, 2*want, few)
		}
	}
}

// TestRunWaitsByItsOwnServiceTime holds that a simulation reckons with a run's service time unless it has a model of
// its own, that a run never waits by that model, and that it says so where the document has nothing else.
func TestRunWaitsByItsOwnServiceTime(t *testing.T) {
	for _, c := range []struct {
		document          string
		modelled, waiting float64
		warns             bool
	}{
		{"environment: {service_time: {mean_s: 2}}", 2, 2, false},
		{"modelled: {environment: {mean_s: 1}}", 1, 0, true},
		{"modelled: {environment: {kind: none}}", 0, 0, false},
		{"modelled: {environment: {mean_s: 1}}\nenvironment: {service_time: {mean_s: 2}}", 1, 2, false},
		{"modelled: {environment: {kind: none}}\nenvironment: {service_time: {mean_s: 2}}", 0, 2, false},
	} {
		d := mustLoad(t, c.document)
		modelled, err := d.EnvironmentTimes()
		waiting, other := d.RunEnvironmentTimes()
		if err != nil || other != nil || modelled.Mean() != 1e9*c.modelled || waiting.Mean() != 1e9*c.waiting {
			t.Errorf("%s: modelled %v s, waited %v s (%v, %v)", c.document, modelled.Mean()/1e9, waiting.Mean()/1e9, err, other)
		}
		beside := len(d.RunWarnings()) - len(d.Warnings())
		if c.warns != (beside == 1) || beside > 1 || c.warns && d.RunWarnings()[len(d.Warnings())].Key != "modelled.environment" {
			t.Errorf("%s: a run warns of %v", c.document, d.RunWarnings())
		}
	}
}
