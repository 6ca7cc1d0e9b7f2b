package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/observe/steps"
)

// withoutEnd trains a run of six steps, and cuts its log before the end of a step. It has no snapshot then.
func withoutEnd(t *testing.T, step int) (run string) {
	t.Helper()
	dir := t.TempDir()
	run = filepath.Join(dir, "r")
	if code, _, stderr := headway(t, append([]string{"run", "--no-dashboard", "--steps", "6", "--dir", dir, "--name", "r"}, small...)...); code != 0 {
		t.Fatal(code, stderr)
	}
	path := trace.Path(run)
	packed, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(trace.NewText(packed))
	packed.Close()
	if err != nil {
		t.Fatal(err)
	}
	var kept []byte
	for line := range bytes.Lines(text) {
		if bytes.Contains(line, []byte(`"e":"train-step-ended"`)) {
			if step--; step == 0 {
				break
			}
		}
		kept = append(kept, line...)
	}
	if step != 0 {
		t.Fatalf("the log has %d ends of steps too few", step)
	}
	if err := os.WriteFile(path, kept, 0o600); err != nil {
		t.Fatal(err)
	}
	snapshots, _ := filepath.Glob(filepath.Join(run, "state", "snapshot-*"))
	for _, s := range snapshots {
		if err := os.Remove(s); err != nil {
			t.Fatal(err)
		}
	}
	return run
}

// TestAStepFoundPublishedKeepsItsFigures: a process that dies between a step's line and its event leaves the version and the
// line. The next one finds the version published, and keeps the figures that the trainer gave.
func TestAStepFoundPublishedKeepsItsFigures(t *testing.T) {
	run := withoutEnd(t, 6)
	before := steps.Newest(run)
	if code, _, stderr := headway(t, "run", "--no-dashboard", "--resume", run); code != 0 {
		t.Fatal(code, stderr)
	}
	after := steps.Newest(run)
	if before.Step != 6 || after.Step != 6 || before.EffectiveSampleSize == 0 {
		t.Fatalf("steps %d and %d", before.Step, after.Step)
	}
	if before.Loss != after.Loss || before.GradNorm != after.GradNorm || before.EffectiveSampleSize != after.EffectiveSampleSize || after.Health != before.Health {
		t.Errorf("loss %g, grad norm %g, effective sample %g, health %q; then %g, %g, %g, %q", before.Loss, before.GradNorm, before.EffectiveSampleSize, before.Health,
			after.Loss, after.GradNorm, after.EffectiveSampleSize, after.Health)
	}
}

// TestRefusedResumeKeepsItsLines: a resume that is refused since the log has lost its end changes no line of metrics.jsonl.
func TestRefusedResumeKeepsItsLines(t *testing.T) {
	run := withoutEnd(t, 5)
	before, err := os.ReadFile(filepath.Join(run, steps.File))
	if err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := headway(t, "run", "--no-dashboard", "--resume", run); code == 0 || !strings.Contains(stderr, "lost") {
		t.Fatalf("code %d: %s", code, stderr)
	}
	after, err := os.ReadFile(filepath.Join(run, steps.File))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(before, after) {
		t.Errorf("%d lines before, %d after a start that is refused", bytes.Count(before, []byte("\n")), bytes.Count(after, []byte("\n")))
	}
}
