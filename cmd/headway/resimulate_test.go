package main

import (
	"encoding/json"
	"github.com/headway-rl/headway/internal/failure"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// traceOfSimulation writes the trace of a small simulation.
func traceOfSimulation(t *testing.T, sets ...string) string {
	t.Helper()
	path := t.TempDir() + "/trace.ndjson"
	first(t, append([]string{"simulate", document(t, simulated), "--json", "--trace", path}, sets...)...)
	return path
}

// Several settings are compared with the run's own in one call, pair by pair.
func TestResimulateArms(t *testing.T) {
	path := traceOfSimulation(t)
	text := first(t, "resimulate", path, "--json", "--set", "trainer.steps=150", "--arm", "queue.factor=1", "--arm", "queue.policy=max queue.max_staleness=1", "--arm", "times.train_step=2")
	var doc struct {
		Own  struct{ Set []string }
		Arms []struct {
			Set       []string
			Estimates map[string]struct {
				Mean         float64
				Interval     *[2]float64 `json:"interval_95"`
				Difference   *float64
				Difference95 *[2]float64 `json:"difference_95"`
			}
			Attribution struct {
				StalenessMean float64 `json:"staleness_mean"`
			}
			Summary struct{ Staleness struct{ Mean float64 } }
		}
	}
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
	if len(doc.Own.Set) != 0 || len(doc.Arms) != 3 || !reflect.DeepEqual(doc.Arms[1].Set, []string{"trainer.steps=150", "queue.policy=max", "queue.max_staleness=1"}) {
		t.Fatalf("arms %+v beside %+v", doc.Arms, doc.Own)
	}
	for _, arm := range doc.Arms {
		e := arm.Estimates["staleness_mean"]
		if math.Abs(e.Mean-arm.Summary.Staleness.Mean) > 1e-9 || math.Abs(arm.Attribution.StalenessMean-e.Mean) > 1e-9 || e.Interval == nil || e.Difference == nil || e.Difference95 == nil {
			t.Errorf("%v: %+v beside %+v", arm.Set, e, arm)
		}
	}
	if q1 := doc.Arms[0].Estimates["staleness_mean"]; *q1.Difference == 0 {
		t.Errorf("a queue of half the size changes staleness by %v", *q1.Difference)
	}
	if slow := doc.Arms[2].Estimates["period_s"]; slow.Difference95[0] <= 0 {
		t.Errorf("a trainer of half the speed changes the period by %v", slow.Difference95)
	}
	table := first(t, "resimulate", path, "--grid", "queue.factor=1,2", "--grid", "queue.select=oldest,newest")
	if strings.Count(table, "queue.factor=2 queue.select=newest") != 1 || !strings.Contains(table, "the run itself") {
		t.Errorf("a grid prints\n%s", table)
	}
}

// What cannot be asked is refused with what can.
func TestResimulateRefuses(t *testing.T) {
	path := traceOfSimulation(t)
	for _, c := range []struct{ arguments, says string }{
		{"--set=modelled.length.tailness=3", "times.train_step"},
		{"--arm=", "expected KEY=VALUE"},
		{"--arm=queue.factor", "expected KEY=VALUE"},
		{"--set=times.decode=0", "above 0"},
		{"--set=times.train_step=-1", "factor on the measured times"},
		{"--set=times.train_step=1e12", "from 1e-06 to 1e+06"},
		{"--set=times.decode=1e-300", "from 1e-06 to 1e+06"},
		{"--set=modelled.length.cap_tokens=0", "length in tokens"},
		{"--grid=queue.factor=1..900/0.5", "more than 1000"},
		{"--set=queue.factr=2", "queue.factor"},
	} {
		code, _, stderr := headway(t, "resimulate", path, c.arguments)
		if code != failure.ExitUsage || !strings.Contains(stderr, c.says) {
			t.Errorf("%s: code %d, %q", c.arguments, code, stderr)
		}
	}
	if code, _, stderr := headway(t, "resimulate", path, "--set=train.batch=1024000"); code == failure.ExitDone || !strings.Contains(stderr, "make no batch of") {
		t.Errorf("a batch that the run has no rollouts for: code %d, %s", code, stderr)
	}
	// One arm that cannot be made leaves the others.
	code, stdout, stderr := headway(t, "resimulate", path, "--arm", "queue.factor=2", "--arm", "rollout.group_size=16 rollout.concurrency=64 train.batch=64")
	if code != failure.ExitFailure || !strings.Contains(stdout, "refused") || !strings.Contains(stdout, "queue.factor=2") || !strings.Contains(stderr, "1 of 2 settings") {
		t.Errorf("code %d\n%s\n%s", code, stdout, stderr)
	}
}

// A trace whose last line is half written counts up to there, whoever reads it; a run that has
// only begun is resimulated with the words that it cannot be judged, or refused.
func TestTracesOfRunsThatGoOn(t *testing.T) {
	path := traceOfSimulation(t)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	part := func(name string, share float64) string {
		cut := filepath.Join(t.TempDir(), name)
		at := int(share * float64(len(whole)))
		if whole[at-1] == '\n' {
			at--
		}
		if err := os.WriteFile(cut, whole[:at], 0o644); err != nil {
			t.Fatal(err)
		}
		return cut
	}
	type doc struct {
		Settled   bool
		Unsettled []struct{ Cause, Why string }
		Own       struct{ Unsettled []struct{ Cause string } }
		Warnings  []string
		Measured  struct{ Steps int }
	}
	read := func(arguments ...string) (d doc) {
		if err := json.Unmarshal([]byte(first(t, append([]string{"resimulate", "--json"}, arguments...)...)), &d); err != nil {
			t.Fatal(err)
		}
		return d
	}
	if d := read(path); !d.Settled || len(d.Unsettled)+len(d.Own.Unsettled) > 0 || len(d.Warnings) > 0 {
		t.Errorf("the whole trace: %+v", d)
	}
	torn := part("torn", 0.95)
	for _, d := range []doc{read(torn), read(torn, "--set", "queue.factor=1"), read(torn, "--grid", "queue.factor=1,2")} {
		if !slices.ContainsFunc(d.Warnings, func(w string) bool { return strings.Contains(w, "in the middle of line") }) {
			t.Errorf("torn: %+v", d)
		}
	}
	for _, text := range []string{first(t, "resimulate", torn, "--grid", "queue.factor=1,2"), first(t, "resimulate", torn), first(t, "compare", path, torn)} {
		if strings.Count(text, "in the middle of line") != 1 || strings.Contains(text, "NOT SETTLED") {
			t.Errorf("torn:\n%s", text)
		}
	}
	short := part("short", 0.25)
	d := read(short, "--set", "queue.factor=1")
	if d.Settled || len(d.Unsettled) == 0 || d.Unsettled[0].Cause != "short" || d.Unsettled[0].Why == "" || len(d.Own.Unsettled) == 0 {
		t.Errorf("a run that has begun: %+v", d)
	}
	if text := first(t, "resimulate", short, "--set", "queue.factor=1"); !strings.HasPrefix(text, "NOT SETTLED") || !strings.Contains(text, "more should do") {
		t.Errorf("a run that has begun:\n%s", text)
	}
	for _, name := range []string{"none", "header"} {
		share := map[string]float64{"none": 0.004, "header": (float64(strings.IndexByte(string(whole), '\n')) + 5) / float64(len(whole))}[name]
		if code, _, stderr := headway(t, "resimulate", part(name, share)); code != failure.ExitFailure || !strings.Contains(stderr, "no train step has ended") {
			t.Errorf("%s: code %d, %q", name, code, stderr)
		}
	}
}

func TestSplitArm(t *testing.T) {
	for text, want := range map[string][]string{
		"":                       nil,
		" a=1  b=2 ":             {"a=1", "b=2"},
		"engines=[{slots: 3}] c": {"engines=[{slots: 3}]", "c"},
		`a="x y" b='z w'`:        {`a="x y"`, `b='z w'`},
	} {
		if got := splitArm(text); !reflect.DeepEqual(got, want) {
			t.Errorf("%q is split into %q", text, got)
		}
	}
}

// agentsDocument has rollouts that read prompts, call tools between turns and decode.
const agentsDocument = `
seed: 3
rollout:
  concurrency: 128
  group_size: 8
train: {batch: 64}
queue: {policy: drop, factor: 2}
modelled:
  prompt_tokens: 500
  prefill: {mode: slot, tokens_per_s: 20000}
  length: {kind: lognormal, mean_tokens: 800, tailness: 60, cap_tokens: 6000}
  decode_tokens_per_s: 40
  tools: {calls: 4, time: {kind: lognormal, mean_s: 3, tailness: 70}}
  train: {step_s: 11}
steps: {warmup: 50, measured: 200}
`

// What agents wait for is in their rollouts' own times, so that it is there under other
// settings, too.
func TestResimulateAgents(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace.ndjson")
	file := document(t, agentsDocument)
	first(t, "simulate", file, "--json", "--accept-unsettled", "--trace", path)
	for _, set := range []string{"seed=3", "queue.factor=1", "rollout.concurrency=64", "sync.mode=restart"} {
		var again, really struct{ Staleness struct{ Mean float64 } }
		arguments := []string{"resimulate", path, "--json"}
		if !strings.HasPrefix(set, "seed") {
			arguments = append(arguments, "--set", set)
		}
		if err := json.Unmarshal([]byte(first(t, arguments...)), &again); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(first(t, "simulate", file, "--json", "--accept-unsettled", "--set", set)), &really); err != nil {
			t.Fatal(err)
		}
		if a, b := again.Staleness.Mean, really.Staleness.Mean; math.Abs(a-b) > 0.02*b {
			t.Errorf("%s: staleness %.3f resimulated, %.3f simulated", set, a, b)
		}
	}
}
