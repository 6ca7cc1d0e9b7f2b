package parts

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/headway-rl/headway/config"
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
		document := filepath.Join(t.TempDir(), "run.yaml")
		text := fmt.Sprintf("environment:\n  kind: tasks\n  tasks: {file: %q}\n  tools: [shell]\n  verifier: %s\n", harbor, verifier)
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
		if got := LongestTest(set, cfg); got != want {
			t.Errorf("%s: %v, want %v", verifier, got, want)
		}
	}
}
