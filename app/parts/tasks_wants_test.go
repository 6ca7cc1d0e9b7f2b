package parts

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/env/taskset"
)

// Tests may take as long as their tasks say, and no longer than the verifier waits; what the policy runs
// is bounded by the sandbox's own limit.
func TestLongestTest(t *testing.T) {
	harbor, err := filepath.Abs("../../env/taskset/testdata/harbor")
	if err != nil {
		t.Fatal(err)
	}
	for verifier, want := range map[string]time.Duration{
		"{kind: tests}":                time.Minute, // the longest of the three
		"{kind: tests, timeout_s: 45}": 45 * time.Second,
		`{expression: "1.0"}`:          0,
	} {
		text := fmt.Sprintf("environment:\n  kind: tasks\n  tasks: {file: %q}\n  tools: [shell]\n  verifier: %s\n", harbor, verifier)
		set, cfg := tasksOf(t, text)
		if got := LongestTest(set, cfg); got != want {
			t.Errorf("%s: %v, want %v", verifier, got, want)
		}
	}
}

// A test whose task names no time has the verifier's, and tasks that are held out count as others do.
func TestLongestTestOfOthers(t *testing.T) {
	dir := t.TempDir()
	harbor := filepath.Join(dir, "held-out", "long")
	if err := errors.Join(os.MkdirAll(filepath.Join(harbor, "tests"), 0o755), os.WriteFile(filepath.Join(harbor, "task.toml"), []byte("[verifier]\ntimeout_sec = 1500\n"), 0o600),
		os.WriteFile(filepath.Join(harbor, "instruction.md"), []byte("do it"), 0o600), os.WriteFile(filepath.Join(harbor, "tests/test.sh"), []byte("exit 0"), 0o600),
		os.WriteFile(filepath.Join(dir, "tasks.jsonl"), []byte(`{"prompt":"a","test":"true"}`+"\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		heldOut, verifier string
		want              time.Duration
		unmet             string
	}{
		{"", "{kind: tests, timeout_s: 300}", 300 * time.Second, ""},
		{"", "{kind: tests}", 600 * time.Second, ""},
		{filepath.Join(dir, "held-out"), "{kind: tests, timeout_s: 2000}", 2000 * time.Second, ""},
		{filepath.Join(dir, "held-out"), "{kind: tests, timeout_s: 700}", 700 * time.Second, "may test for 1500 s"},
	} {
		heldOut := ""
		if c.heldOut != "" {
			heldOut = fmt.Sprintf(", held_out_file: %q", c.heldOut)
		}
		text := fmt.Sprintf("environment:\n  kind: tasks\n  tasks: {file: %q%s}\n  tools: [shell]\n  verifier: %s\n", filepath.Join(dir, "tasks.jsonl"), heldOut, c.verifier)
		set, cfg := tasksOf(t, text)
		if got := LongestTest(set, cfg); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
		if unmet := strings.Join(UnmetWants(set, cfg), "\n"); !strings.Contains(unmet, c.unmet) || c.unmet == "" && unmet != "" {
			t.Errorf("%+v: %s", c, unmet)
		}
	}
}

// tasksOf loads the tasks of a document.
func tasksOf(t *testing.T, text string) (*taskset.Set, config.Config) {
	t.Helper()
	document := filepath.Join(t.TempDir(), "run.yaml")
	if err := os.WriteFile(document, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(document)
	if err != nil {
		t.Fatal(err)
	}
	set, err := LoadTasks(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	return set, cfg
}
