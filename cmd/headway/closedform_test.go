package main

import (
	"encoding/json"
	"github.com/headway-rl/headway/internal/failure"
	"math"
	"strings"
	"testing"
)

// besideClosedForm is a simulation with its closed form, null where none covers the rules.
type besideClosedForm struct {
	PeriodS   struct{ Mean float64 } `json:"period_s"`
	Predicted struct {
		PeriodS  *float64 `json:"corrected_period_s"`
		Warnings []string `json:"warnings"`
	} `json:"predicted"`
}

func simulateBeside(t *testing.T, file string, sets ...string) (doc besideClosedForm) {
	t.Helper()
	arguments := []string{"simulate", file, "--json", "--accept-unsettled"}
	for _, set := range sets {
		arguments = append(arguments, "--set", set)
	}
	code, out, stderr := headway(t, arguments...)
	if code != failure.ExitDone {
		t.Fatalf("%v: code %d: %s", sets, code, stderr)
	}
	if err := json.Unmarshal([]byte(out), &doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

// Either the closed form's period is that of the simulation, or the closed form says
// why it has none: never a period that is not there.
func TestClosedFormsAgreeOrSaySo(t *testing.T) {
	skipShort(t)
	const base = `
rollout: {concurrency: 64, group_size: 4}
train: {batch: 32}
modelled: {%s, length: {kind: lognormal, mean_tokens: %s, tailness: 50}, train: {step_s: %s}}
steps: {warmup: 60, measured: 300}
`
	fill := func(values ...string) string {
		text := base
		for _, v := range values {
			text = strings.Replace(text, "%s", v, 1)
		}
		return document(t, text)
	}
	curve := fill("decode_curve: [{active: 1, tokens_per_s: 200}, {active: 64, tokens_per_s: 20}]", "1000", "5")
	restart := fill("decode_tokens_per_s: 50, prefill: {tokens_per_s: 2000}", "1000", "10")
	pause := fill("decode_tokens_per_s: 50", "100", "1")
	for _, test := range []struct {
		file string
		sets []string
		why  string // the closed form's reason, "" where it holds
	}{
		{curve, nil, ""},
		{curve, []string{"sync={mode: pause}", "modelled.sync={time_s: 5}"}, ""},
		{curve, []string{"modelled.environment={kind: fixed, mean_s: 50}"}, "slots in tools, environment"},
		{curve, []string{"modelled.tools={calls: 4, time: {kind: fixed, mean_s: 10}}"}, "slots in tools, environment"},
		{curve, []string{"modelled.verifier={time: {kind: fixed, mean_s: 40}}"}, "slots in tools, environment"},
		{curve, []string{"modelled.sandbox={start: {kind: fixed, mean_s: 40}}", "modelled.tools.calls=1"}, "slots in tools, environment"},
		{curve, []string{"schedule=synchronous"}, "schedule synchronous empties"},
		{curve, []string{"rollout.start=gang"}, "start gang"},
		{curve, []string{"queue.policy=block"}, "policy block"},
		{curve, []string{"queue={policy: threshold, staleness_threshold: 0.5}"}, "policy threshold"},
		{curve, []string{"engines=[{slots: 16}, {slots: 48}]"}, "engines of different speed"},
		{curve, []string{"engines=[{slots: 32}, {slots: 32, modelled_speed: 1}]"}, ""},

		{restart, nil, ""},
		{restart, []string{"sync.mode=restart"}, "read all they have again"},
		{restart, []string{"sync.mode=restart", "modelled.prefill.mode=engine"}, "read all they have again"},
		{restart, []string{"sync.mode=restart", "modelled.prefill={mode: pool, workers: 4, tokens_per_s: 2000}"}, "read all they have again"},
		{restart, []string{"sync={mode: restart}", "modelled.sync={prefill_tokens_per_s: 500}", "modelled.prefill=null"}, "read all they have again"},
		{restart, []string{"sync.mode=restart", "modelled.prefill=null"}, ""},

		{pause, []string{"sync={mode: pause}", "modelled.sync={time_s: 20}", "modelled.train.step_s=0.2"}, ""},
		{pause, []string{"sync={mode: pause}", "modelled.sync={time_s: 20}", "modelled.environment={kind: fixed, mean_s: 40}"}, "while engines pause"},
		{pause, []string{"sync={mode: pause}", "modelled.sync={time_s: 20}", "modelled.tools={calls: 4, time: {kind: fixed, mean_s: 10}}"}, "while engines pause"},
		{pause, []string{"sync={mode: pause}", "modelled.sync={time_s: 0.3}", "modelled.environment={kind: fixed, mean_s: 40}"}, ""},
		{pause, []string{"sync={mode: pause}", "modelled.sync={time_s: 20}", "modelled.environment={kind: fixed, mean_s: 40}", "schedule=synchronous"}, ""},
	} {
		doc := simulateBeside(t, test.file, test.sets...)
		why := strings.Join(doc.Predicted.Warnings, "; ")
		switch {
		case test.why != "" && (doc.Predicted.PeriodS != nil || !strings.Contains(why, test.why)):
			t.Errorf("%v: a period of %v, the closed form says %v (%s), want none because of %q", test.sets, doc.PeriodS.Mean, doc.Predicted.PeriodS, why, test.why)
		case test.why == "" && doc.Predicted.PeriodS == nil:
			t.Errorf("%v: no period: %s", test.sets, why)
		case test.why == "" && math.Abs(doc.PeriodS.Mean / *doc.Predicted.PeriodS - 1) > 0.03:
			t.Errorf("%v: a period of %v, the closed form says %v", test.sets, doc.PeriodS.Mean, *doc.Predicted.PeriodS)
		}
	}
}

// A stall that simulated failures may have caused is not said to be a live run's.
func TestStallsNameSimulatedFailures(t *testing.T) {
	const small = `
rollout: {concurrency: 16, group_size: 4}
train: {batch: 16}
modelled:
  decode_tokens_per_s: 50
  length: {kind: fixed, mean_tokens: 100}
  tools: {calls: 4, failure_rate: 0.999}
  train: {step_s: 1}
steps: {warmup: 5, measured: 20}
`
	code, _, stderr := headway(t, "simulate", document(t, small))
	if code == failure.ExitDone || !strings.Contains(stderr, "modelled.tools.failure_rate") || strings.Contains(stderr, "for ever, too") {
		t.Errorf("code %d: %s", code, stderr)
	}
}

// A run has no more prompts to evaluate than it holds out; a simulation's are rollouts.
func TestEvaluatedPromptsAreARunsOwn(t *testing.T) {
	const text = `
rollout: {concurrency: 16, group_size: 4}
train: {batch: 16}
modelled:
  decode_tokens_per_s: 50
  length: {kind: fixed, mean_tokens: 100}
  train: {step_s: 1}
  evaluate: {occupies: trainer}
evaluate: {every: 5, prompts: 2000}
environment: {held_out: 1000}
steps: {warmup: 5, measured: 20}
`
	file := document(t, text)
	if code, _, stderr := headway(t, "simulate", file, "--accept-unsettled"); code != failure.ExitDone {
		t.Errorf("simulate: code %d: %s", code, stderr)
	}
	code, _, stderr := headway(t, "run", file, "--set", "store.dir="+t.TempDir())
	if code == failure.ExitDone || !strings.Contains(stderr, "evaluate.prompts") || !strings.Contains(stderr, "held_out (1000)") {
		t.Errorf("run: code %d: %s", code, stderr)
	}
}
