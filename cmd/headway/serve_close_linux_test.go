package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/observe/steps"
)

// A control plane whose closing fails says so and does not exit 0: the lines of metrics.jsonl that the disk
// refused are written again at the end, and are lost if that fails too.
func TestServeTellsThatClosingFailed(t *testing.T) {
	folder := t.TempDir()
	run := filepath.Join(folder, "r")
	if err := os.MkdirAll(run, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(folder, "away", steps.File), filepath.Join(run, steps.File)); err != nil { // it cannot be made
		t.Fatal(err)
	}
	code, _, stderr := headway(t, "serve", "--dir", folder, "--name", "r", "--listen", "127.0.0.1:0", "--steps", "2", "--set", "trainer.kind=embedded")
	if code != failure.ExitFailure || !strings.Contains(stderr, "no such file or directory") {
		t.Errorf("code %d, want %d and the error of closing:\n%s", code, failure.ExitFailure, stderr)
	}
}
