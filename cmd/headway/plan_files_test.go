package main

import (
	"github.com/headway-rl/headway/internal/failure"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Files that exist or cannot be made are refused before anything is searched.
func TestPlanRefusesPathsFirst(t *testing.T) {
	folder := t.TempDir()
	taken := filepath.Join(folder, "taken")
	if err := os.WriteFile(taken, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, flag := range []string{"--write", "--html"} {
		for path, said := range map[string]string{taken: "nothing is overwritten", folder: "is a folder, and a file to write is expected", filepath.Join(folder, "none", "x"): "existing directory"} {
			code, stdout, stderr := headway(t, "plan", document(t, planDocument), flag, path)
			if code != failure.ExitUsage || stdout != "" || !strings.Contains(stderr, said) || !strings.Contains(stderr, flag) || strings.Contains(stderr, "ranking") {
				t.Errorf("%s %s: code %d: %s", flag, path, code, stderr)
			}
		}
	}
	if text, err := os.ReadFile(taken); err != nil || string(text) != "mine" {
		t.Errorf("%q, %v", text, err)
	}
	same := filepath.Join(folder, "same")
	if code, _, _ := headway(t, "plan", document(t, planDocument), "--write", same, "--html", same); code != failure.ExitUsage {
		t.Errorf("one file for both: code %d", code)
	}
}

// The closest to a budget that nothing keeps is the closest, and the verdict is the
// same, with one finalist as with several; the document written says that it misses.
func TestPlanVerdictDoesNotHangOnFinalists(t *testing.T) {
	skipShort(t)
	periods := map[string]float64{}
	for _, finalists := range []string{"1", "4"} {
		written := filepath.Join(t.TempDir(), "best.yaml")
		code, stdout, stderr := headway(t, "plan", "--json", document(t, planDocument), "--set", "budget={step_s: 1}", "--finalists", finalists, "--write", written)
		made := decoded(t, stdout)
		if code != failure.ExitFailure || walk(t, made, "met") != false {
			t.Fatalf("code %d: %s", code, stderr)
		}
		periods[finalists] = walk(t, made, "recommended", "simulated", "period_s").(float64)
		if text, err := os.ReadFile(written); err != nil || !strings.Contains(string(text), "misses budget.step_s") {
			t.Errorf("%v: %.300s", err, text)
		}
	}
	if periods["1"] > 1.05*periods["4"] {
		t.Errorf("the closest by finalists: %v", periods)
	}
	for _, finalists := range []string{"1", "6"} {
		code, stdout, stderr := headway(t, "plan", "--json", document(t, planDocument), "--set", "budget={staleness_mean: 0.05}", "--set", "search.policies=null", "--finalists", finalists)
		if made := decoded(t, stdout); code != failure.ExitDone || walk(t, made, "met") != true {
			t.Errorf("%s finalists: code %d: %s", finalists, code, stderr)
		}
	}
}

// A written plan trains nothing by itself: run and serve refuse it with what is missing, doctor says so first, and run trains the toy when asked.
func TestWrittenPlansTrainNoToy(t *testing.T) {
	plan := document(t, "hardware: {model: qwen3-8b, gpu: h100-sxm, gpus: 16}\nrollout: {concurrency: 8, group_size: 4}\ntrain: {batch: 8}\n")
	for _, command := range []string{"run", "serve"} {
		code, _, stderr := headway(t, command, plan, "--set", "store.dir="+t.TempDir())
		if code != failure.ExitUsage || !strings.Contains(stderr, "hardware.model") || !strings.Contains(stderr, "engines of your own") || !strings.Contains(stderr, "headway init") || !strings.Contains(stderr, "--set hardware=null") {
			t.Errorf("%s: exit code %d: %s", command, code, stderr)
		}
	}
	code, d, keys := diagnosed(t, plan)
	if code != failure.ExitFailure || len(keys) == 0 || keys[0] != "error plan-without-engines hardware.model" || !strings.Contains(d.Findings[0].Do, "engines, model.path") || !strings.Contains(d.Findings[0].Do, "headway init") {
		t.Errorf("doctor: exit code %d, found %q", code, keys)
	}
	example := filepath.Join(t.TempDir(), "example")
	headway(t, "init", example, "--trainer=hf", "--engine=vllm", "--environment=python")
	if written, err := os.ReadFile(filepath.Join(example, "run.yaml")); err != nil || !strings.Contains(string(written), "\nengines:") || !strings.Contains(string(written), "\nmodel: {path") || !strings.Contains(string(written), "\nenvironment:") {
		t.Errorf("the example of init lacks a key that the refusal names: %v\n%s", err, written)
	}
	if code, d, keys = diagnosed(t, plan, "--set", "hardware=null"); code != failure.ExitDone || d.Errors != 0 {
		t.Errorf("doctor of the toy: exit code %d, found %q", code, keys)
	}
	if code, _, stderr := headway(t, "run", plan, "--set", "hardware=null", "--set", "trainer.steps=2", "--set", "store.dir="+t.TempDir()); code != failure.ExitDone {
		t.Errorf("without the plan's part: %s", stderr)
	}
}
