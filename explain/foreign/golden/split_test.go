package golden_test

import (
	"bytes"
	"context"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/headway-rl/headway/explain/foreign"
)

// withSplit are the frameworks whose files hold single rollouts with versions and times.
var withSplit = []string{"prime-rl", "areal"}

// The parts of staleness add up to the staleness that is shown, in every step and so in the mean of any window.
func TestSplitAddsUp(t *testing.T) {
	for _, framework := range withSplit {
		dir, _ := unpack(t, framework)
		log, err := foreign.Read(context.Background(), []string{dir}, foreign.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range log.Series {
			if !step.PQS.Known() || !step.IQS.Known() {
				t.Fatalf("%s: the parts of step %d are not known", framework, step.Step)
			}
			if off := math.Abs(step.PQS.Value + step.IQS.Value - step.StalenessMean.Value); off > 1e-9 {
				t.Errorf("%s: step %d: %g + %g is not %g", framework, step.Step, step.PQS.Value, step.IQS.Value, step.StalenessMean.Value)
			}
		}
	}
}

// A step whose traces are there is known as it was; only the others are estimates.
func TestSplitOfTracedSteps(t *testing.T) {
	dir, of := unpack(t, "prime-rl")
	log, err := foreign.Read(context.Background(), []string{dir}, foreign.Options{})
	if err != nil {
		t.Fatal(err)
	}
	traced := 0
	for _, step := range log.Series {
		if _, err := os.Stat(filepath.Join(dir, "rollouts", "step_"+strconv.FormatInt(step.Step, 10))); err != nil {
			continue
		}
		traced++
		want := of.Steps[step.Step-1]
		if !near(step.PQS.Value, want.PQS, 1e-9) || !near(step.IQS.Value, want.IQS, 1e-9) || !near(step.StalenessMean.Value, want.Staleness, 1e-9) {
			t.Errorf("step %d: %+v and %+v, in truth %g and %g", step.Step, step.PQS, step.IQS, want.PQS, want.IQS)
		}
	}
	if traced != 5 {
		t.Errorf("%d steps with traces", traced)
	}
	if warnedOf(log, "5 of 40 steps have traces") == "" {
		t.Errorf("nothing says how well the split is known: %+v", log.Warnings)
	}
}

// Where rollouts and steps are timed by clocks that differ, the split is not known, and why is said.
func TestSplitNeedsOneClock(t *testing.T) {
	dir, _ := unpack(t, "areal")
	file := filepath.Join(dir, "session_tracer", "sessions-r0.jsonl")
	sessions, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	// The run began at 1.7e9: its sessions are put a thousand seconds later.
	if err := os.WriteFile(file, bytes.ReplaceAll(sessions, []byte(": 170000"), []byte(": 170010")), 0o644); err != nil {
		t.Fatal(err)
	}
	log, err := foreign.Read(context.Background(), []string{dir}, foreign.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range log.Series {
		if step.PQS.Known() || step.IQS.Known() {
			t.Fatalf("step %d has %+v", step.Step, step)
		}
	}
	if warnedOf(log, "timed by different clocks") == "" {
		t.Errorf("nothing says why: %+v", log.Warnings)
	}
}

func warnedOf(log *foreign.Log, part string) string {
	for _, w := range log.Warnings {
		if strings.Contains(w.Text, part) {
			return w.Text
		}
	}
	return ""
}

// verl's two trainers and W&B's files are known by their keys under the names that people use.
func TestFamilies(t *testing.T) {
	for _, c := range []struct{ framework, files, from string }{
		{"verl-v1", "", "verl"}, {"verl-fa", "", "verl"}, {"verl-fa", "wandb", "VERL"},
		{"verl-v1", "wandb", "wandb"}, {"slime", "wandb", "wandb"}, {"prime-rl", "", "wandb"},
	} {
		dir, _ := unpack(t, c.framework)
		log, err := foreign.Read(context.Background(), []string{filepath.Join(dir, c.files)}, foreign.Options{From: c.from})
		if err != nil {
			t.Errorf("%s from %s: %v", c.framework, c.from, err)
			continue
		}
		if log.Framework != c.framework {
			t.Errorf("%s from %s is read as %s", c.framework, c.from, log.Framework)
		}
	}
	slime, _ := unpack(t, "slime")
	if _, err := foreign.Read(context.Background(), []string{filepath.Join(slime, "tensorboard")}, foreign.Options{From: "wandb"}); err == nil || !strings.Contains(err.Error(), "run-ID.wandb") {
		t.Errorf("TensorBoard's files as W&B's: %v", err)
	}
	fa, _ := unpack(t, "verl-fa")
	v1, _ := unpack(t, "verl-v1")
	if _, err := foreign.Read(context.Background(), []string{fa, v1}, foreign.Options{From: "verl"}); err == nil || !strings.Contains(err.Error(), "verl-fa (") {
		t.Errorf("two trainers' logs as one: %v", err)
	}
}
