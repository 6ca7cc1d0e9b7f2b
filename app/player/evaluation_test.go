package player

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/config"
)

// An evaluation plays the held-out tasks, once each at most, and none of those to train on.
func TestHeldOutTasksAreEvaluated(t *testing.T) {
	for _, c := range []struct {
		evaluate, held string
		prompts        int
		refused        string
	}{
		{"{slots: 4}", "held_out_file", 2, ""},
		{"{slots: 4, prompts: 1}", "held_out_file", 1, ""},
		{"{slots: 4, prompts: 3}", "held_out_file", 0, "evaluate.prompts: 3 is more than the 2 tasks that are held out"},
		{"{slots: 4}", "", 0, "evaluate.slots: 4 has nothing to play"},
	} {
		dir := t.TempDir()
		rows, held, document := filepath.Join(dir, "tasks.jsonl"), filepath.Join(dir, "held.jsonl"), filepath.Join(dir, "run.yaml")
		files := fmt.Sprintf("file: %q", rows)
		if c.held != "" {
			files += fmt.Sprintf(", %s: %q", c.held, held)
		}
		for path, text := range map[string]string{
			rows:     `{"id": "a", "prompt": "p", "answer": "1"}`,
			held:     `{"id": "x", "prompt": "q", "answer": "1"}` + "\n" + `{"id": "y", "prompt": "r", "answer": "1"}`,
			document: fmt.Sprintf("evaluate: %s\nenvironment:\n  kind: tasks\n  tasks: {%s}\n", c.evaluate, files),
		} {
			if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		cfg, err := config.Load(document)
		if err != nil {
			t.Fatal(err)
		}
		s, cfg, err := New(cfg, nil)
		if c.refused != "" {
			if err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%v, want %q", err, c.refused)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if cfg.Evaluate.Prompts != c.prompts {
			t.Errorf("%s: %d prompts", c.evaluate, cfg.Evaluate.Prompts)
		}
		task, err := s.task(protocol.Claim{Evaluation: true, Prompt: 2})
		if err != nil || task.ID != "y" {
			t.Errorf("%+v, %v", task, err)
		}
		if task, err := s.task(protocol.Claim{Evaluation: true, Prompt: 3}); err == nil {
			t.Errorf("a third held-out task: %+v", task)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
