package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/internal/failure"
)

// Every preset trains, live, with the model, engine and trainer there are.
func TestEveryPresetTrains(t *testing.T) {
	presets := config.Presets()
	if testing.Short() {
		presets = presets[:3]
	}
	dir := t.TempDir()
	for _, p := range presets {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr := headway(t, "run", "--steps", "6", "--dir", dir, "--name", p.Name, "--json",
				"--set", "preset="+p.Name, "--set", "train.batch=32", "--set", "rollout.group_size=4",
				"--set", "environment={letters_max: 3, held_out: 100}", "--set", "evaluate={every: 0, prompts: 20}", "--set", "model={width: 16, layers: 1}")
			if code != failure.ExitDone {
				t.Fatalf("code %d\n%s", code, stderr)
			}
			var report runReport
			if err := json.Unmarshal([]byte(stdout), &report); err != nil {
				t.Fatal(err)
			}
			if report.Steps != 6 || !report.Ledger.Balanced || report.Ledger.Trained != 6*32 || report.EffectiveSample <= 0 {
				t.Errorf("reported %+v", report)
			}
			if code, _, stderr := headway(t, "replay", filepath.Join(dir, p.Name)); code != failure.ExitDone {
				t.Errorf("replay: code %d\n%s", code, stderr)
			}
		})
	}
}

// A band that excludes everything is a stall with its reason, in a simulation and live.
func TestBandThatExcludesEverything(t *testing.T) {
	band := "filter.solve_rate={low: 0.95, high: 0.99, drop: true}"
	code, _, stderr := headway(t, "simulate", document(t, simulated), "--set", band, "--set", "modelled.solve.rate=0.5")
	if code != failure.ExitFailure || !strings.Contains(stderr, "stalled") || !strings.Contains(stderr, "all filtered (solve-rate)") {
		t.Errorf("simulate: code %d\n%s", code, stderr)
	}
	if !strings.Contains(stderr, "warning: --set: filter.solve_rate: no whole number of 4 rollouts") {
		t.Errorf("simulate does not warn:\n%s", stderr)
	}
	code, _, stderr = headway(t, "simulate", document(t, simulated), "--set", "modelled.solve={from: -20, levels: [0, 1]}",
		"--set", "filter={solve_rate: {low: 0.2, high: 0.8, drop: true}, curriculum: {levels: 2}}")
	if code != failure.ExitFailure || !strings.Contains(stderr, "stalled") || !strings.Contains(stderr, "outside [0.2, 0.8]") {
		t.Errorf("a curriculum of nothing but hard prompts: code %d\n%s", code, stderr)
	}
	code, _, stderr = headway(t, "simulate", document(t, simulated), "--set", band)
	if code != failure.ExitUsage || !strings.Contains(stderr, "filter.solve_rate.drop: true looks at rewards") {
		t.Errorf("simulate without rewards: code %d\n%s", code, stderr)
	}
}

func TestConfigListsPresets(t *testing.T) {
	code, stdout, stderr := headway(t, "config", "--presets")
	if code != failure.ExitDone || stderr != "" || strings.Count(stdout, "\n") != len(config.Presets())+1 {
		t.Errorf("code %d, stderr %q\n%s", code, stderr, stdout)
	}
	code, stdout, _ = headway(t, "config", "--presets", "--json")
	var listed []config.Preset
	if err := json.Unmarshal([]byte(stdout), &listed); code != failure.ExitDone || err != nil || len(listed) != len(config.Presets()) {
		t.Errorf("code %d, %v, %d presets", code, err, len(listed))
	}
	for _, p := range listed {
		if !strings.HasPrefix(p.Name, "synchronous") && len(p.Settings) < 5 {
			t.Errorf("%s says only %d settings", p.Name, len(p.Settings))
		}
	}
	if code, _, stderr := headway(t, "config", "--presets", "--set", "seed=1"); code != failure.ExitUsage || !strings.Contains(stderr, "--presets lists") {
		t.Errorf("code %d, %q", code, stderr)
	}
}

// An error is blamed on the flag that was typed.
func TestFlagsAreNamedInErrors(t *testing.T) {
	for _, test := range []struct{ arguments, want string }{
		{"--steps 0", "--steps: trainer.steps: 0 is not allowed"},
		{"--task juggle", "--task: environment.task: \"juggle\" is not allowed"},
		{"--set train.batch=0", "--set: train.batch: 0 is not allowed"},
	} {
		code, _, stderr := headway(t, append([]string{"run"}, strings.Fields(test.arguments)...)...)
		if code != failure.ExitUsage || !strings.Contains(stderr, test.want) {
			t.Errorf("headway run %s: code %d, want %q in:\n%s", test.arguments, code, test.want, stderr)
		}
	}
}

func TestConfigWarns(t *testing.T) {
	file := document(t, "rollout: {concurrency: 64}\nqueue: {hold: 0.4, factor: 2}\n")
	code, stdout, stderr := headway(t, "config", file)
	if code != failure.ExitDone || !strings.Contains(stdout, "hold: 0.4") || strings.Count(stderr, "warning: "+file+":2: queue.hold: 0.4") != 2 {
		t.Errorf("code %d\n%s\n%s", code, stdout, stderr)
	}
}
