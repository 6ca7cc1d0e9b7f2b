package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/env"
	"github.com/headway-rl/headway/internal/failure"
)

// The schema names the tasks there are, so that a mistyped one is refused with
// its line before anything runs: a task that is added is added to it.
func TestSchemaNamesTheTasks(t *testing.T) {
	for _, name := range env.Names() {
		if _, err := config.Load("", "environment.task="+name); err != nil {
			t.Errorf("add %s to the words of Environment.Task in config/config.go: %v", name, err)
		}
	}
	_, err := config.Load("", "environment.task=none-such")
	if err == nil {
		t.Fatal("a task that does not exist is accepted")
	}
	_, listed, _ := strings.Cut(err.Error(), "(allowed: ")
	for _, name := range strings.Split(strings.TrimSuffix(listed, ")"), ", ") {
		if !slices.Contains(append(env.Names(), "code"), name) { // code needs sandboxes, and is no task of the registry
			t.Errorf("the schema allows the task %q, which package env does not have", name)
		}
	}
}

func TestConfigPrintsTheResolvedDocument(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run.yaml")
	if err := os.WriteFile(path, []byte("train: {batch: 24}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := headway(t, "config", path, "--set", "rollout.group_size=4", "--set", "queue={factor: 2, select: newest}")
	if code != failure.ExitDone || stderr != "" {
		t.Fatalf("code %d, stderr %q", code, stderr)
	}
	for _, want := range []string{"  batch: 24\n", "  group_size: 4\n", "  factor: 2\n", "  select: newest\n", "seed: 1\n"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("lacks %q:\n%s", want, stdout)
		}
	}
	code, stdout, _ = headway(t, "config", path, "--json")
	var document struct {
		Train struct{ Batch int }
	}
	if err := json.Unmarshal([]byte(stdout), &document); code != failure.ExitDone || err != nil || document.Train.Batch != 24 {
		t.Errorf("code %d, %v, batch %d", code, err, document.Train.Batch)
	}
}

func TestConfigRefusesWhatItCannotUse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run.yaml")
	if err := os.WriteFile(path, []byte("train:\n  bach: 24\nrollout: {group_size: 0}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		arguments []string
		want      []string
	}{
		{[]string{path}, []string{path + ":2:3: train.bach: unknown key, did you mean batch?", path + ":3:23: rollout.group_size: 0"}},
		{[]string{"--set", "train.batch=0"}, []string{"--set: train.batch: 0 is not allowed (allowed: a whole number at least 1"}},
		{[]string{path + ".none"}, []string{path + ".none: cannot be read: no such file or directory"}},
		{[]string{"--migrate", path + ".none"}, []string{path + ".none: cannot be read: no such file or directory", "headway config --migrate FILE"}},
		{[]string{"--migrate"}, []string{"headway config --migrate FILE"}},
	}
	for _, test := range tests {
		code, stdout, stderr := headway(t, append([]string{"config"}, test.arguments...)...)
		if code != failure.ExitUsage || stdout != "" {
			t.Errorf("headway config %q: code %d, stdout %q; want 2 and nothing", test.arguments, code, stdout)
		}
		for _, want := range test.want {
			if !strings.Contains(stderr, want) {
				t.Errorf("headway config %q: message lacks %q:\n%s", test.arguments, want, stderr)
			}
		}
	}
}

// A document of verl's is translated into one that config and simulate take.
func TestConfigFromVerl(t *testing.T) {
	verl := document(t, "async_training: {staleness_threshold: 0.5, trigger_parameter_sync_step: 2}\nrollout: {nnodes: 1, n_gpus_per_node: 8, total_rollout_steps: 640}\n"+
		"data: {max_response_length: 2048}\nactor_rollout_ref: {model: {path: m}, rollout: {n: 4, name: vllm}, actor: {ppo_mini_batch_size: 8, entropy_coeff: 0}}\n")
	code, written, stderr := headway(t, "config", "--from", "verl", verl)
	if code != failure.ExitDone || !strings.Contains(stderr, "10 keys of ") || !strings.Contains(stderr, " 1 are not: ") || !strings.Contains(written, "actor_rollout_ref.actor.entropy_coeff") {
		t.Fatalf("code %d: %s\n%s", code, stderr, written)
	}
	own := document(t, written)
	first(t, "config", own)
	var s struct{ Trained int }
	headwayJSON(t, &s, "simulate", own, "--accept-unsettled", "--set", "modelled.train.utilization=1", "--set", "steps={warmup: 2, measured: 10}")
	for _, c := range []struct {
		arguments []string
		want      string
	}{
		{[]string{"config", "--from", "verl"}, "--from translates one document"},
		{[]string{"config", "--from", "verl", verl, "--json"}, "--from translates one document"},
		{[]string{"config", "--from", "areal", verl}, "--from areal: documents of verl are known"},
		{[]string{"config", "--from", "verl", own}, "is no document of verl's"},
		{[]string{"config", "--from", "verl", verl + ".none"}, "cannot be read"},
		{[]string{"simulate", verl}, "headway config --from verl FILE"},
	} {
		if code, stdout, stderr := headway(t, c.arguments...); code != failure.ExitUsage || !strings.Contains(stderr, c.want) {
			t.Errorf("%q: code %d: %s%s, want %q", c.arguments, code, stdout, stderr, c.want)
		}
	}
}
