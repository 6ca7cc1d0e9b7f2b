package main

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/observe/metrics"
)

// serviced is a document with every section about what rollouts do beside decoding.
const serviced = `
seed: 3
rollout:
  concurrency: 32
  group_size: 4
  drift: {steps: 40, length_factor: 1.5, tool_calls_factor: 0.8}
train: {batch: 32}
queue: {policy: drop, factor: 2}
sync: {mode: restart}
modelled:
  length: {kind: lognormal, mean_tokens: 400, tailness: 50, cap_tokens: 1500}
  decode_curve: [{active: 1, tokens_per_s: 90}, {active: 16, tokens_per_s: 50}]
  prompt_tokens: 300
  prefill: {tokens_per_s: 20000, mode: pool, workers: 1}
  tools: {calls: 3, calls_kind: poisson, calls_max: 8, split: random, time: {kind: exponential, mean_s: 2}, concurrency: 9, output_tokens: 100, failure_rate: 0.05, retries: 1}
  sandbox: {start: {kind: exponential, mean_s: 4}, limit: 30, start_concurrency: 5, start_timeout_s: 20, failure_rate: 0.03, mtbf_s: 2000, retries: 1}
  verifier: {time: {kind: exponential, mean_s: 1}, concurrency: 3}
  scorer: {time: {kind: exponential, mean_s: 0.5}, tokens_per_s: 2000, concurrency: 3}
  environment: {kind: fixed, mean_s: 1}
  train: {step_s: 12, step_by: tokens, step_cv: 0.1, failure_rate: 0.02}
  sync: {time_s: 1, load_s: 1}
  failures: {engine_mtbf_s: 900, engine_down_s: 60}
  evaluate: {occupies: engines}
engines: [{name: a, slots: 16}, {name: b, slots: 16, modelled_speed: 0.7}]
failures: {engine_plan: [{engine: a, at_s: 300, down_s: 50}], train_attempts: 9}
evaluate: {every: 7, prompts: 40}
steps: {warmup: 10, measured: 40}
`

// Every key of the services, engines, steps and faults reaches the simulation.
func TestEveryServiceKeyChangesTheSimulation(t *testing.T) {
	skipShort(t)
	file := document(t, serviced)
	simulated := func(set string) string {
		t.Helper()
		code, out, stderr := headway(t, "simulate", file, "--json", "--accept-unsettled", "--set", set)
		if code != failure.ExitDone {
			t.Fatalf("--set %s: code %d: %s", set, code, stderr)
		}
		return clockless(out)
	}
	base := simulated("seed=3")
	if base != simulated("rollout.group_size=4") {
		t.Fatal("the same document gave other bytes")
	}
	for _, set := range []string{
		"modelled.decode_curve.1.tokens_per_s=60", "modelled.decode_curve.1.active=12", "modelled.prompt_tokens=2000",
		"modelled.prefill.tokens_per_s=9000", "modelled.prefill={tokens_per_s: 20000, mode: slot}", "modelled.prefill={tokens_per_s: 20000, mode: engine}", "modelled.prefill.workers=2",
		"modelled.tools.calls=4", "modelled.tools.calls_kind=geometric", "modelled.tools.calls_max=3", "modelled.tools.split=even",
		"modelled.tools.time.mean_s=3", "modelled.tools.concurrency=5", "modelled.tools.output_tokens=900", "modelled.tools.failure_rate=0.2", "modelled.tools.retries=0",
		"modelled.sandbox.when=rollout", "modelled.sandbox.start.mean_s=6", "modelled.sandbox.limit=12", "modelled.sandbox.start_concurrency=1",
		"modelled.sandbox.start_timeout_s=6", "modelled.sandbox.failure_rate=0.2", "modelled.sandbox.mtbf_s=200", "modelled.sandbox.retries=0",
		"modelled.verifier.time.mean_s=2", "modelled.verifier.concurrency=1", "modelled.scorer.time.mean_s=1", "modelled.scorer.tokens_per_s=900", "modelled.scorer.concurrency=2", "rollout.drift.steps=20", "rollout.drift.length_factor=2", "rollout.drift.tool_calls_factor=2",
		"rollout.drift.begin=10", "rollout.drift.environment_factor=3", "rollout.drift.step_factor=2",
		"modelled.train.step_by=rollouts", "modelled.train.step_by=constant", "modelled.train.step_cv=0.3", "modelled.train.failure_rate=0.1", "modelled.sync.load_s=3",
		"engines.1.modelled_speed=1.5", "modelled.failures.engine_mtbf_s=400", "modelled.failures.engine_down_s=100", "failures.engine_plan.0.at_s=350",
		"failures.engine_plan.0.down_s=90", "failures.engine_plan.0.engine=b", "modelled.evaluate.occupies=trainer", "modelled.evaluate.occupies=none", "evaluate.every=3", "evaluate.prompts=90", "modelled.evaluate.time_s=3",
	} {
		if simulated(set) == base {
			t.Errorf("--set %s changes nothing", set)
		}
	}
}

// The closed form takes the speed curve at every engine's slots, and the simulation
// agrees with it.
func TestDecodeCurveAgreesWithTheClosedForm(t *testing.T) {
	file := document(t, `
rollout: {concurrency: 256, group_size: 8}
modelled:
  decode_curve: [{active: 1, tokens_per_s: 90}, {active: 64, tokens_per_s: 50}, {active: 128, tokens_per_s: 30}]
  train: {utilization: 0.6}
engines: [{slots: 128}, {slots: 128}]
train: {batch: 128}
steps: {warmup: 100, measured: 700}
`)
	code, out, stderr := headway(t, "simulate", file, "--json")
	if code != failure.ExitDone {
		t.Fatalf("code %d: %s", code, stderr)
	}
	var doc struct {
		PeriodS   struct{ Mean float64 } `json:"period_s"`
		PQS       struct{ Mean float64 } `json:"pqs"`
		Predicted struct {
			PeriodS float64 `json:"period_s"`
			PQS     float64 `json:"pqs"`
		} `json:"predicted"`
	}
	if err := json.Unmarshal([]byte(out), &doc); err != nil {
		t.Fatal(err)
	}
	if math.Abs(doc.PeriodS.Mean/doc.Predicted.PeriodS-1) > 0.015 || math.Abs(doc.PQS.Mean/doc.Predicted.PQS-1) > 0.03 {
		t.Errorf("period %v s and PQS %v, the closed form says %v and %v", doc.PeriodS.Mean, doc.PQS.Mean, doc.Predicted.PeriodS, doc.Predicted.PQS)
	}
}

// Tools, a sandbox's start, a verifier and scorers for which nobody waits are time in the
// environment to the closed form, which the simulation of their turns agrees with.
func TestServicesWithoutLimitsHaveAClosedForm(t *testing.T) {
	skipShort(t)
	for _, set := range []string{"modelled.train.utilization=0.8", "modelled.train.utilization=2.5"} {
		file := document(t, `
rollout:
  concurrency: 256
  group_size: 8
train: {batch: 128}
queue: {policy: drop, factor: 2}
modelled:
  length: {kind: lognormal, mean_tokens: 2000, tailness: 50}
  environment: {kind: exponential, mean_s: 3}
  tools: {calls: 6, calls_kind: poisson, split: random, time: {kind: lognormal, mean_s: 3, tailness: 70}, output_tokens: 500}
  prefill: {tokens_per_s: 2000}
  sandbox: {start: {kind: exponential, mean_s: 10}}
  verifier: {time: {kind: exponential, mean_s: 4}}
  scorer: {time: {kind: exponential, mean_s: 1}, tokens_per_s: 2000}
steps: {warmup: 200, measured: 700}
`)
		code, out, stderr := headway(t, "simulate", file, "--json", "--set", set)
		if code != failure.ExitDone {
			t.Fatalf("%s: code %d: %s", set, code, stderr)
		}
		var doc struct {
			PeriodS   struct{ Mean float64 } `json:"period_s"`
			Staleness struct{ Mean float64 } `json:"staleness"`
			Predicted struct {
				PeriodS float64 `json:"corrected_period_s"`
				Mean    float64 `json:"corrected_staleness_mean"`
			} `json:"predicted"`
		}
		if err := json.Unmarshal([]byte(out), &doc); err != nil {
			t.Fatal(err)
		}
		if math.Abs(doc.PeriodS.Mean/doc.Predicted.PeriodS-1) > 0.02 || math.Abs(doc.Staleness.Mean/doc.Predicted.Mean-1) > 0.03 {
			t.Errorf("%s: period %v s and staleness %v, the closed form says %v and %v", set, doc.PeriodS.Mean, doc.Staleness.Mean, doc.Predicted.PeriodS, doc.Predicted.Mean)
		}
	}
}

// latencyOf simulates a document with overrides and returns its latency.
func latencyOf(t *testing.T, file string, set ...string) (latency metrics.Latency) {
	t.Helper()
	args := []string{"simulate", file, "--json", "--accept-unsettled"}
	for _, s := range set {
		args = append(args, "--set", s)
	}
	code, out, stderr := headway(t, args...)
	if code != failure.ExitDone {
		t.Fatalf("%q: code %d: %s", set, code, stderr)
	}
	var doc struct {
		Latency metrics.Latency `json:"latency"`
	}
	if err := json.Unmarshal([]byte(out), &doc); err != nil {
		t.Fatal(err)
	}
	return doc.Latency
}

// An engine of twice the speed reads and generates in half the time, whether its
// speed follows a curve or not.
func TestEnginesReadAtTheirSpeed(t *testing.T) {
	file := document(t, `
rollout: {concurrency: 64, group_size: 4}
train: {batch: 32}
modelled:
  length: {kind: fixed, mean_tokens: 1000}
  prompt_tokens: 1000
  prefill: {tokens_per_s: 10, mode: slot}
  train: {step_s: 10}
engines: [{slots: 64, modelled_speed: 2}]
steps: {warmup: 5, measured: 40}
`)
	for _, speed := range []string{"modelled.decode_tokens_per_s=50", "modelled.decode_curve=[{active: 1, tokens_per_s: 50}]"} {
		l := latencyOf(t, file, speed)
		if math.Abs(l.PrefillS-50) > 1e-6 || math.Abs(l.DecodeS-10) > 1e-6 {
			t.Errorf("%s at speed 2: %v s of prefill and %v s of decoding, want 50 and 10", speed, l.PrefillS, l.DecodeS)
		}
	}
}

// The two keys of prefill say the same of what is read again, a validation included.
func TestBothPrefillKeysAreOne(t *testing.T) {
	file := document(t, `
rollout: {concurrency: 96, group_size: 4}
train: {batch: 64}
sync: {mode: restart}
modelled:
  decode_tokens_per_s: 40
  length: {mean_tokens: 900, tailness: 60}
  train: {step_s: 13}
  sync: {time_s: 3}
steps: {warmup: 20, measured: 60}
`)
	for _, more := range []string{"seed=1", "evaluate={every: 3}", "modelled.evaluate={time_s: 20, occupies: engines}"} {
		one, other := latencyOf(t, file, more, "modelled.sync.prefill_tokens_per_s=500"), latencyOf(t, file, more, "modelled.prefill.tokens_per_s=500")
		if one != other || one.PrefillS == 0 || one.InterruptedS == 0 {
			t.Errorf("%s: latency %+v by the one, %+v by the other", more, one, other)
		}
	}
}

// An entry of engines with a count is simulated as so many entries, to the byte.
func TestACountOfEnginesIsSimulatedAsEntries(t *testing.T) {
	traced := func(engines string) []byte {
		path := filepath.Join(t.TempDir(), "trace.ndjson")
		first(t, "simulate", document(t, "engines: "+engines+"\nrollout: {group_size: 4}\ntrain: {batch: 32}\nmodelled: {train: {step_s: 20}}\nsteps: {warmup: 5, measured: 20}\n"), "--json", "--accept-unsettled", "--trace", path)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	entries := traced("[{slots: 8}, {slots: 8}, {slots: 8}, {slots: 8}]")
	if count := traced("[{slots: 8, count: 4}]"); !bytes.Equal(count, entries) {
		t.Error(firstDifference(string(entries), string(count)))
	}
	if bytes.Equal(entries, traced("[{slots: 16, count: 2}]")) {
		t.Error("two engines of as many slots gave the same trace")
	}
}
