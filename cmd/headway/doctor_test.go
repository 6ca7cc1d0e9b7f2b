package main

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/predict/doctor"
	"github.com/headway-rl/headway/predict/experiment"
)

// diagnosed runs headway doctor --json and reads what it prints.
func diagnosed(t *testing.T, arguments ...string) (code int, d examination, keys []string) {
	t.Helper()
	code, stdout, stderr := headway(t, append([]string{"doctor", "--json"}, arguments...)...)
	var raw struct {
		Findings []struct {
			Severity, Code, Key, File, What, Why, Do, Basis string
			Line                                            int
			Scenarios                                       []string
			Figures                                         map[string]float64
		}
		Errors, Warnings int
	}
	if err := json.Unmarshal([]byte(stdout), &raw); err != nil {
		t.Fatalf("%q: code %d, %v: %s\n%s", arguments, code, err, stderr, stdout)
	}
	d.Errors, d.Warnings = raw.Errors, raw.Warnings
	for _, f := range raw.Findings {
		keys = append(keys, f.Severity+" "+f.Code+" "+f.Key)
		d.Findings = append(d.Findings, doctor.Finding{Severity: doctor.Severity(f.Severity), Code: f.Code, Key: f.Key, File: f.File, Line: f.Line, What: f.What, Why: f.Why, Do: f.Do, Scenarios: f.Scenarios})
	}
	return code, d, keys
}

func TestDoctorJSON(t *testing.T) {
	file := document(t, "rollout:\n  concurrency: 1536\n  group_size: 8\ntrain: {batch: 8}\nqueue: {policy: drop}\nmodelled: {train: {step_s: 28}}\n")
	code, d, keys := diagnosed(t, file)
	if code != failure.ExitFailure || d.Errors != 1 || len(keys) == 0 || keys[0] != "error waste rollout.concurrency" || d.Findings[0].Line != 2 || d.Findings[0].File != file {
		t.Errorf("code %d, %d errors, found %q, the first at %s:%d", code, d.Errors, keys, d.Findings[0].File, d.Findings[0].Line)
	}
	if len(d.Findings) == 0 || !slices.Contains(d.Findings[0].Scenarios, "slime 2238") {
		t.Errorf("the first finding is not known as slime 2238: %+v", d.Findings)
	}
	if code, d, keys := diagnosed(t, file, "--set", "queue={policy: bounded, eta: 1}"); code != failure.ExitDone || d.Errors != 0 {
		t.Errorf("bounded: code %d, found %q", code, keys)
	}
}

// What config refuses and doctor explains is exit 1 with the finding; any other
// mistake is exit 2 and config's message alone.
func TestDoctorRefuses(t *testing.T) {
	file := document(t, "train: {batch: 64}\nqueue: {policy: max, max_staleness: 0}\nmodelled: {train: {utilization: 0.9}, sync: {time_s: 20}}\n")
	code, d, keys := diagnosed(t, file)
	if code != failure.ExitFailure || len(keys) != 1 || keys[0] != "error budget-starves queue.max_staleness" || d.Findings[0].Line != 2 {
		t.Errorf("code %d, found %q", code, keys)
	}
	for _, arguments := range [][]string{{file, "--set", "queue.max_stalenes=1"}, {file, "--set", "train.batch=0"}, {file, "--set", "evaluate.prompts=5000"}, {file + ".none"}} {
		code, stdout, stderr := headway(t, append([]string{"doctor"}, arguments...)...)
		if code != failure.ExitUsage || stdout != "" || stderr == "" {
			t.Errorf("%q: code %d, stdout %q, stderr %q", arguments, code, stdout, stderr)
		}
	}
}

func TestDoctorTable(t *testing.T) {
	code, stdout, stderr := headway(t, "doctor", "--full")
	if code != failure.ExitDone || stderr != "" || !strings.Contains(stdout, "not-simulated") || !strings.Contains(stdout, "0 errors, 0 warnings") {
		t.Errorf("defaults: code %d, stderr %q:\n%s", code, stderr, stdout)
	}
	t.Chdir(filepath.Dir(document(t, "rollout: {concurrency: 3, start: gang}\n"))) // a longer path would change the layout
	code, stdout, stderr = headway(t, "doctor", "--full", "sim.yaml")
	for _, want := range []string{"error  no-slots  rollout.concurrency (sim.yaml:1)", "no group will ever start", "  why  ", "  do   rollout.concurrency of at least 8"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("lacks %q:\n%s", want, stdout)
		}
	}
	if code != failure.ExitFailure || !strings.Contains(stderr, "1 error") {
		t.Errorf("code %d, stderr %q", code, stderr)
	}
}

// Every preset and every example is examined without a failure, and none stands still. The example of a plan has no engines.
func TestDoctorOnPresetsAndExamples(t *testing.T) {
	skipShort(t)
	for _, p := range config.Presets() {
		code, _, keys := diagnosed(t, "--set", "preset="+p.Name, "--set", "modelled.train.utilization=0.9")
		if code == failure.ExitUsage || strings.Contains(strings.Join(keys, " "), "stalls") {
			t.Errorf("%s: code %d, found %q", p.Name, code, keys)
		}
	}
	examples, err := filepath.Glob("../../examples/*.yaml")
	if err != nil || len(examples) == 0 {
		t.Fatalf("%v, %d examples", err, len(examples))
	}
	for _, path := range examples {
		code, _, keys := diagnosed(t, path)
		keys = slices.DeleteFunc(keys, func(key string) bool { return key == "error plan-without-engines hardware.model" })
		if code != failure.ExitDone && (filepath.Base(path) != "plan.yaml" || strings.Contains(strings.Join(keys, " "), "error")) {
			t.Errorf("%s: code %d, found %q", path, code, keys)
		} else if strings.HasSuffix(path, "agents.yaml") && strings.Contains(strings.Join(keys, " "), "service-saturated") {
			t.Errorf("%s: %q, where 14 of 24 sandbox starts are under way", path, keys)
		}
	}
}

// With time outside the engine, doctor's load and staleness are predict's.
func TestDoctorSaysWhatPredictSays(t *testing.T) {
	file := document(t, `
rollout:
  concurrency: 224
  group_size: 8
train: {batch: 192}
queue: {policy: drop, factor: 1}
modelled:
  decode_tokens_per_s: 108.857
  length: {kind: lognormal, mean_tokens: 8000, tailness: 60, cap_tokens: 32768}
  tools: {calls: 10, time: {kind: lognormal, mean_s: 3, tailness: 70, cap_s: 120}}
  train: {step_s: 27.1354}
`)
	d, err := config.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	in, err := experiment.Input(d)
	if err != nil {
		t.Fatal(err)
	}
	p, err := experiment.Expect(d, in)
	if err != nil {
		t.Fatal(err)
	}
	mean, known := p.Corrected.Mean.Value()
	c, err := experiment.DoctorCase(d)
	if err != nil {
		t.Fatal(err)
	}
	findings, err := doctor.Check(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct {
		code, figure string
		value        float64
	}{{"batch-staleness", "staleness_mean_versions", mean}, {"trainer-idle", "effective_utilization", p.Utilization}} {
		i := slices.IndexFunc(findings, func(f doctor.Finding) bool { return f.Code == want.code })
		if i < 0 || !known {
			t.Fatalf("no %s in %+v", want.code, findings)
		}
		if got, ok := findings[i].Figures.Value(want.figure); !ok || got != want.value {
			t.Errorf("%s: %s is %v, predict says %v", want.code, want.figure, got, want.value)
		}
	}
}

// What no closed form covers is one list: predict refuses and doctor asks none.
func TestDoctorAsksNoClosedFormThatPredictLacks(t *testing.T) {
	const curve = "modelled.decode_curve=[{active: 1, tokens_per_s: 90}, {active: 64, tokens_per_s: 40}]"
	const tools = "modelled.tools={calls: 4, time: {kind: fixed, mean_s: 20}}"
	for _, test := range []struct {
		reason string
		set    []string
	}{
		{"", []string{tools}},
		{"", []string{tools, "queue={policy: bounded, eta: 1}"}}, // rates are queue-drop's
		{"", []string{"rollout.prune.tokens=2000"}},              // doctor's own arithmetic
		{"slots in tools", []string{tools, curve, "modelled.decode_tokens_per_s=null"}},
		{"policy bounded", []string{curve, "modelled.decode_tokens_per_s=null", "queue={policy: bounded, eta: 1}"}},
		{"restarted rollouts", []string{"sync={mode: restart}", "modelled.sync={time_s: 5, prefill_tokens_per_s: 1000}"}},
		{"tools and environments go on", []string{tools, "sync={mode: pause}", "modelled.sync={time_s: 30}"}},
		{"siblings' times", []string{"modelled.environment={kind: fixed, mean_s: 1}", "modelled.verifier.time={kind: empirical, groups: [[1, 2, 3, 4], [2, 3, 4, 5]]}"}},
	} {
		raw, err := config.Parse("case.yaml", []byte("rollout: {concurrency: 64, group_size: 4}\ntrain: {batch: 64}\nmodelled: {decode_tokens_per_s: 50, train: {utilization: 0.9}}\n"))
		if err == nil {
			raw, err = raw.Set(test.set...)
		}
		if err != nil {
			t.Fatal(err)
		}
		d, err := raw.Resolve()
		if err != nil {
			t.Fatalf("%q: %v", test.set, err)
		}
		c, err := experiment.DoctorCase(d)
		if err != nil || (test.reason == "") != (c.Beside == "") || !strings.HasPrefix(c.Beside, test.reason) {
			t.Errorf("%q: %q, %v, want %q", test.set, c.Beside, err, test.reason)
		}
	}
}

// A filter that looks at rewards which nothing models leaves the closed forms.
func TestDoctorWithoutRewards(t *testing.T) {
	_, _, keys := diagnosed(t, "--set", "modelled.train.utilization=0.9", "--set", "queue.hold=0.2", "--set", "filter.solve_rate.drop=true")
	if found := strings.Join(keys, ", "); !strings.Contains(found, "info hold-price") || !strings.Contains(found, "info not-simulated modelled.solve") {
		t.Errorf("found %s", found)
	}
}
