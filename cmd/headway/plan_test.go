package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/loop/workload"
	"github.com/headway-rl/headway/predict/plan"
)

// planDocument is a plan of a moment.
const planDocument = `
rollout:
  group_size: 8
modelled:
  length: {kind: lognormal, mean_tokens: 1000, tailness: 50, cap_tokens: 4000}
hardware: {model: qwen3-4b, gpu: h100-sxm, gpus: 4}
prices: {gpu_hour: 2, hosted_per_million_tokens: 1}
budget: {staleness_mean: 2}
search: {batch: [128, 256], queue_factor: [1], slots_per_gpu: [16, 32], policies: [drop, bounded], finalists: 3}
`

// planned runs headway plan --json and reads what it prints.
func planned(t *testing.T, arguments ...string) map[string]any {
	t.Helper()
	code, stdout, stderr := headway(t, append([]string{"plan", "--json"}, arguments...)...)
	var made map[string]any
	if err := json.Unmarshal([]byte(stdout), &made); err != nil || code != failure.ExitDone {
		t.Fatalf("%q: code %d, %v: %s\n%s", arguments, code, err, stderr, stdout)
	}
	return made
}

// walk walks a decoded document.
func walk(t *testing.T, tree any, path ...string) any {
	t.Helper()
	for _, key := range path {
		section, ok := tree.(map[string]any)
		if !ok || section[key] == nil {
			t.Fatalf("no %s in %v", strings.Join(path, "."), tree)
		}
		tree = section[key]
	}
	return tree
}

// The document that --write writes simulates to the figures that the plan printed.
func TestPlanWritesWhatItRecommends(t *testing.T) {
	folder := t.TempDir()
	written, page := filepath.Join(folder, "best.yaml"), filepath.Join(folder, "plan.html")
	made := planned(t, document(t, planDocument), "--write", written, "--html", page)
	simulated := walk(t, made, "recommended", "simulated")
	code, stdout, stderr := headway(t, "simulate", written, "--json", "--set", "steps={warmup: 100, measured: 600}")
	var again map[string]any
	if err := json.Unmarshal([]byte(stdout), &again); err != nil || code != failure.ExitDone {
		t.Fatalf("code %d, %v: %s", code, err, stderr)
	}
	for _, pair := range [][2]any{
		{walk(t, simulated, "staleness_mean"), walk(t, again, "staleness", "mean")},
		{walk(t, simulated, "period_s"), walk(t, again, "period_s", "mean")},
	} {
		if have, want := pair[1].(float64), pair[0].(float64); math.Abs(have/want-1) > 0.02 {
			t.Errorf("simulate says %g, the plan %g", have, want)
		}
	}
	text, err := os.ReadFile(page)
	if err != nil || !strings.Contains(string(text), "explorer-data") || !strings.Contains(string(text), "script-src 'sha256-") {
		t.Errorf("page: %v, %d bytes", err, len(text))
	}
	for _, outside := range []string{"src=\"http", "href=\"http", "@import", "url("} {
		if strings.Contains(string(text), outside) {
			t.Errorf("the page reaches outside itself: %s", outside)
		}
	}
	if binding := walk(t, made, "binding").([]any); len(binding) < 4 {
		t.Errorf("binding %v", binding)
	}
	for _, section := range []string{"levers", "findings", "mode", "async", "hosted", "accuracy", "frontier", "finalists", "searched"} {
		walk(t, made, section)
	}
}

// A rule without a closed form has its levers simulated, those of its own bound, of
// syncs and of the tail among them, and is not told what binds others.
func TestPlanPullsLeversOfSimulatedRules(t *testing.T) {
	skipShort(t)
	made := planned(t, document(t, planDocument), "--set", "search.policies=[bounded]", "--set", "search.hold=[0.3]", "--budget", "0.5")
	if policy := walk(t, made, "recommended", "policy"); policy != "bounded" {
		t.Fatalf("policy %v is recommended", policy)
	}
	at := walk(t, made, "recommended", "simulated", "staleness_mean").(float64)
	seen := map[string]bool{}
	for _, each := range walk(t, made, "levers").([]any) {
		l := each.(map[string]any)
		seen[l["name"].(string)] = true
		if l["basis"] != "simulated" {
			t.Errorf("%v", l)
		}
		if change := l["change"].(string); strings.HasPrefix(change, "η 0.5 → 1") && l["staleness_mean"].(float64) < 1.3*at {
			t.Errorf("twice the bound: staleness %v after %g", l["staleness_mean"], at)
		}
		if l["name"] == "tail" && !(l["period_ratio"].(float64) < 0.99) {
			t.Errorf("a lower cap does not shorten the period: %v", l)
		}
	}
	for _, name := range []string{"split", "batch", "rule", "sync_time", "tail"} {
		if !seen[name] {
			t.Errorf("no lever %s in %v", name, seen)
		}
	}
	why := fmt.Sprint(walk(t, made, "why"))
	if strings.Contains(why, "What binds:") || strings.Contains(why, "No constraint binds") {
		t.Errorf("why: %s", why)
	}
	// What each side waited for adds up to its idle share; a rule that pauses engines is said to bind.
	simulated := walk(t, made, "recommended", "simulated")
	engines, trainer := walk(t, simulated, "engines_idle"), walk(t, simulated, "trainer_idle")
	for _, pair := range [][2]any{{walk(t, engines, "total"), walk(t, simulated, "rollout_idle_ratio")}, {walk(t, trainer, "total"), walk(t, simulated, "trainer_idle_ratio")}} {
		if math.Abs(pair[0].(float64)-pair[1].(float64)) > 1e-9 {
			t.Errorf("waits of %v, idle %v", pair[0], pair[1])
		}
	}
	words := fmt.Sprintf("The rule and generation bind: engines paused %.0f %%, trainer starved %.0f %%.", 100*walk(t, engines, "paused").(float64), 100*walk(t, trainer, "starved").(float64))
	if !strings.Contains(why, words) {
		t.Errorf("why: %s\nwithout %q", why, words)
	}
}

// Means of what still drifts are marked, and said to be doubtful.
func TestPlanMarksWhatHasNotSettled(t *testing.T) {
	made := planned(t, document(t, planDocument), "--set", "rollout.drift={steps: 4000, length_factor: 6}", "--set", "search.policies=[drop]",
		"--set", "search.batch=[128]", "--set", "search.slots_per_gpu=[16]", "--budget", "40")
	if settled := walk(t, made, "recommended", "simulated").(map[string]any)["settled"]; settled != false {
		t.Errorf("settled %v while lengths grow sixfold", settled)
	}
	if warnings := fmt.Sprint(walk(t, made, "warnings")); !strings.Contains(warnings, "had not settled") {
		t.Errorf("warnings: %s", warnings)
	}
}

// Closed forms get the spread of the time in tools, not only its mean; where siblings'
// times are measured together they do not apply.
func TestPlanKnowsTheSpreadOfTools(t *testing.T) {
	application := &app.Process{Stdout: io.Discard, Stderr: io.Discard, IsTerminal: func(any) bool { return false }, Now: time.Now}
	for _, test := range []struct {
		set           string
		meanS         float64
		covered, long bool
	}{
		{"modelled.tools={calls: 4, time: {kind: exponential, mean_s: 5}}", 20, true, true},
		{"modelled.tools={calls: 4, time: {kind: fixed, mean_s: 5}}", 20, true, false},
		{"modelled.tools={calls: 1, time: {kind: empirical, groups: [[1, 3], [2, 6], [1, 5]]}}", 3, false, false},
		{"modelled.tools=null", 0, true, false},
	} {
		problem, err := (&planCmd{File: document(t, planDocument), Set: []string{test.set}}).problem(application)
		if err != nil {
			t.Errorf("%s: %v", test.set, err)
			continue
		}
		if covered := problem.Uncovered == ""; covered != test.covered {
			t.Errorf("%s: uncovered %q", test.set, problem.Uncovered)
		}
		if test.meanS == 0 {
			if !problem.Environment.Zero() {
				t.Errorf("%s takes time", test.set)
			}
			continue
		}
		e := problem.Environment
		if mean := e.Mean() / 1e9; test.covered && math.Abs(mean/test.meanS-1) > 0.05 {
			t.Errorf("%s: %g s outside, want %g", test.set, mean, test.meanS)
		}
		seen := map[int64]bool{}
		for group := range uint64(20) {
			seen[e.Draw(workload.NewSource(1, workload.StreamEnvironment), group, 0, 1)/1e6] = true
		}
		if test.covered && (len(seen) > 10) != test.long {
			t.Errorf("%s: %d different times of 20", test.set, len(seen))
		}
	}
}

// The same plan twice prints the same bytes, tables within a terminal's columns.
func TestPlanIsTheSameTwice(t *testing.T) {
	skipShort(t)
	file := document(t, planDocument)
	_, first, _ := headway(t, "plan", "--full", file)
	_, second, _ := headway(t, "plan", "--full", file)
	if first != second {
		t.Error("two prints differ")
	}
	for _, line := range strings.Split(first, "\n") {
		if len([]rune(line)) > 100 {
			t.Errorf("%d columns: %s", len([]rune(line)), line)
		}
	}
	for _, part := range []string{"Recommended: ", "What binds", "Single changes of the recommended", "Frontier", "Rules of thumb", "verl's modes"} {
		if !strings.Contains(first, part) {
			t.Errorf("no %q in\n%s", part, first)
		}
	}
}

// What cannot be planned is refused by its key, with what is allowed.
func TestPlanRefuses(t *testing.T) {
	file := document(t, planDocument)
	for _, test := range []struct {
		arguments []string
		said      []string
	}{
		{[]string{"--model", "qwen3-5b"}, []string{"hardware.model", `"qwen3-5b" is not known`, "qwen3-4b"}},
		{[]string{"--gpu", "h1000"}, []string{"hardware.gpu", "h100-sxm"}},
		{[]string{"--gpus", "8", "--model", "qwen3-32b"}, []string{"hardware.gpus: 8", "too few", "at least 11"}},
		{[]string{"--set", "hardware.train_tokens_per_s_per_gpu=0"}, []string{"above 0"}},
		{[]string{"--set", "hardware.train_tokens_per_s_per_gpu=.nan"}, []string{".nan"}},
		{[]string{"--set", "hardware.train_tokens_per_s_per_gpu=-5"}, []string{"-5"}},
		{[]string{"--set", "hardware.train_tokens_per_s_per_gpu=1e7"}, []string{"MFU"}},
		{[]string{"--set", "hardware.rollout_tokens_per_s_per_gpu=1e7", "--set", "hardware.slots_per_gpu=16"}, []string{"is more than"}},
		{[]string{"--set", "hardware.rollout_tokens_per_s_per_gpu=1000"}, []string{"slots_per_gpu"}},
		{[]string{"--set", "modelled.decode_curve=[{active: 1, tokens_per_s: 50}, {active: 2, tokens_per_s: 80}]"}, []string{"modelled.decode_curve.1", "contradicts 50"}},
		{[]string{"--set", "modelled.decode_curve=[{active: 8, tokens_per_s: 100000}]"}, []string{"modelled.decode_curve.0.tokens_per_s", "is more than"}},
		{[]string{"--measured", document(t, "modelled: {train: {step_s: 3}}\nsteps: {measured: 10}\n")}, []string{"nothing in it is of use"}},
		{[]string{"--set", "search.batch=[100]"}, []string{"search.batch.0", "multiple"}},
		{[]string{"--set", "hardware.train_gpus=9"}, []string{"hardware.train_gpus"}},
		{[]string{"--measured", "none"}, []string{"none"}},
		{[]string{"--prefer", "cost", "--set", "prices.gpu_hour=0"}, []string{"prices.gpu_hour", "search.prefer cost"}},
		{[]string{"--prefer", "cost", "--set", "prices=null"}, []string{"prices.gpu_hour", "search.prefer cost"}},
		{[]string{"--set", "search.sync_every=[0]"}, []string{"search.sync_every.0", "0 is not allowed"}},
		{[]string{"--set", "search.slots_per_gpu=[0]"}, []string{"search.slots_per_gpu.0"}},
		{[]string{"--schedules", "--write", filepath.Join(t.TempDir(), "w.yaml")}, []string{"--write writes the plan's setting"}},
		{[]string{"--set", "search.batch_min=200"}, []string{"search.batch.0: 128", "search.batch_min (200)"}},
		{[]string{"--prefer", "fame"}, []string{"search.prefer", "speed, cost"}},
	} {
		code, stdout, stderr := headway(t, append([]string{"plan", file}, test.arguments...)...)
		if code != failure.ExitUsage || stdout != "" {
			t.Errorf("%q: code %d, stdout %q", test.arguments, code, stdout)
		}
		for _, part := range test.said {
			if !strings.Contains(stderr, part) {
				t.Errorf("%q does not say %q: %s", test.arguments, part, stderr)
			}
		}
	}
}

// A budget that nothing keeps fails, with the bound to relax and by how much.
func TestPlanWithoutASetting(t *testing.T) {
	code, stdout, stderr := headway(t, "plan", document(t, planDocument), "--set", "search.policies=[drop]", "--set", "search.hold=[0]", "--set", "search.select=[oldest]", "--budget", "0.01")
	if code != failure.ExitFailure || !strings.Contains(stdout, "NO SETTING KEEPS THE BUDGET") || !strings.Contains(stdout, "budget.staleness_mean 0.01: the least possible") {
		t.Errorf("code %d: %s\n%s", code, stderr, stdout)
	}
}

// A plan without a document says that its price is assumed, until one is given.
func TestPlanSaysThatItsPriceIsAssumed(t *testing.T) {
	flags := []string{"plan", "--gpus=4", "--model=qwen3-4b", "--mean-tokens=1000", "--cap-tokens=4000",
		"--set=search={batch: [128], queue_factor: [1], slots_per_gpu: [16], policies: [drop], finalists: 1}"}
	const assumed = "USD a step at an assumed 2.5 a GPU hour (prices.gpu_hour)"
	oneLine := func(arguments []string) string {
		_, stdout, _ := headway(t, arguments...)
		fitsAnswer(t, stdout)
		return strings.Join(strings.Fields(stdout), " ")
	}
	const budget = "budget: mean staleness ≤ 2 (assumed)."
	if text := oneLine(flags); !strings.Contains(text, assumed) || !strings.Contains(text, budget) {
		t.Errorf("no word of %q and %q: %s", assumed, budget, text)
	}
	if text := oneLine(append(flags, "--budget=2")); strings.Contains(text, budget) {
		t.Errorf("a budget was given: %s", text)
	}
	for _, arguments := range [][]string{append(flags, "--set=prices.gpu_hour=2"), append(flags, "--set=prices={gpu_hour: 2}"), {"plan", document(t, planDocument)}} {
		if text := oneLine(arguments); !strings.Contains(text, "a step") || strings.Contains(text, "assumed 2") {
			t.Errorf("%q: %s", arguments, text)
		}
	}
}

// A plan takes what a run's trace measured.
func TestPlanFromARun(t *testing.T) {
	skipShort(t)
	trace := filepath.Join(t.TempDir(), "trace")
	code, _, stderr := headway(t, "simulate", "--set", "steps={warmup: 0, measured: 60}", "--set", "modelled.decode_tokens_per_s=40", "--set", "modelled.train.step_s=30",
		"--set", "modelled.sync.time_s=1.5", "--set", "sync.every=3", "--accept-unsettled", "--trace", trace)
	if code != failure.ExitDone {
		t.Fatal(stderr)
	}
	made := planned(t, document(t, planDocument), "--measured", trace, "--set", "hardware.model=null", "--set", "hardware.gpu=null")
	speed, step := walk(t, made, "machine", "train_tokens_per_s_per_gpu").(float64), 128*1374.0/30
	if math.Abs(speed/step-1) > 0.05 {
		t.Errorf("train speed %g, want about %g", speed, step)
	}
	if mean := walk(t, made, "workload", "mean_tokens").(float64); math.Abs(mean/1374-1) > 0.05 {
		t.Errorf("mean length %g", mean)
	}
	if walk(t, made, "recommended", "sync_s").(float64) != 1.5 {
		t.Errorf("sync %v", walk(t, made, "recommended", "sync_s"))
	}
	measured := filepath.Join(t.TempDir(), "measured.yaml")
	if err := os.WriteFile(measured, []byte("modelled: {sync: {time_s: 2}}\nhardware: {train_tokens_per_s_per_gpu: 4000}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	made = planned(t, document(t, planDocument), "--measured", measured, "--set", "search.finalists=1", "--set", "search.policies=[drop]")
	if got := fmt.Sprint(walk(t, made, "machine", "train_tokens_per_s_per_gpu"), walk(t, made, "recommended", "sync_s")); got != "4000 2" {
		t.Errorf("planned with %s", got)
	}
}

func TestPlanPresets(t *testing.T) {
	code, stdout, _ := headway(t, "plan", "--presets")
	if code != failure.ExitDone || !strings.Contains(stdout, "qwen3-8b") || !strings.Contains(stdout, "h100-sxm") {
		t.Errorf("code %d: %s", code, stdout)
	}
}

// Schedules are compared at the plan's setting.
func TestPlanSchedules(t *testing.T) {
	made := planned(t, document(t, planDocument), "--schedules", "--set", "search.policies=[drop]")
	if rows := walk(t, made, "schedules").([]any); len(rows) < 5 {
		t.Errorf("%d schedules", len(rows))
	}
}

// BenchmarkPlanFinalists makes a plan with 100 finalists, all of it: ranking,
// screening of rules, simulations, levers and the comparison of schedules.
func BenchmarkPlanFinalists(b *testing.B) {
	application := &app.Process{Stdout: io.Discard, Stderr: io.Discard, IsTerminal: func(any) bool { return false }, Now: time.Now}
	problem, err := (&planCmd{Finalists: "100"}).problem(application)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		whole := problem // a plan leaves the size of a replica that it chose
		made, err := plan.Make(&whole)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(len(made.Finalists)), "finalists")
		b.ReportMetric(float64(made.Searched.Simulated), "simulated")
	}
}

// decoded reads what --json printed.
func decoded(t *testing.T, text string) map[string]any {
	t.Helper()
	var made map[string]any
	if err := json.Unmarshal([]byte(text), &made); err != nil {
		t.Fatalf("%v: %.500s", err, text)
	}
	return made
}
