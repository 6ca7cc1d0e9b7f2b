package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headway-rl/headway/internal/failure"
)

// TestRefusedWithoutABoundary begins, on a machine that has neither bubblewrap nor gVisor, every run that would execute
// code of its policy. Each is refused before it has made anything.
func TestRefusedWithoutABoundary(t *testing.T) {
	t.Chdir("../..") // where the documents have their files
	nothing := t.TempDir()
	t.Setenv("PATH", nothing)
	t.Setenv("HOME", nothing)
	for name, line := range map[string]string{
		"examples/coding":        "run --no-dashboard --dir DIR examples/coding/coding.yaml",
		"task code":              "run --no-dashboard --dir DIR --set environment.task=code",
		"task code, served":      "serve --listen 127.0.0.1:0 --dir DIR --set environment.task=code --set trainer.kind=embedded",
		"plain processes":        "run --no-dashboard --dir DIR --set environment.task=code --set sandbox.driver=process",
		"examples/tasks":         "serve --listen 127.0.0.1:0 --dir DIR examples/tasks/tools.yaml",
		"Harbor's tasks":         "serve --listen 127.0.0.1:0 --dir DIR examples/tasks/tools.yaml --set environment.tasks.file=env/taskset/testdata/harbor",
		"Harbor's without tools": "serve --listen 127.0.0.1:0 --dir DIR examples/tasks/tasks.yaml --set environment.tasks.file=env/taskset/testdata/harbor --set environment.verifier={kind:tests}",
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "runs")
			code, _, stderr := headway(t, strings.Fields(strings.ReplaceAll(line, "DIR", dir))...)
			if code != failure.ExitUsage {
				t.Errorf("exit code %d, want %d", code, failure.ExitUsage)
			}
			for _, want := range []string{"sandbox.driver: ", "makes no boundary here for the code of the policy, which environment.", "bubblewrap", "write sandbox: {driver: process, boundary: none}"} {
				if !strings.Contains(stderr, want) {
					t.Errorf("it does not say %q:\n%s", want, stderr)
				}
			}
			if _, err := os.Stat(dir); err == nil {
				t.Errorf("it made %s", dir)
			}
		})
	}
}
