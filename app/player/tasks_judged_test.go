package player

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/env/verifier"
)

// Tasks with tests and no answers are judged by their tests, and tasks that nobody could judge are refused
// before anything has begun.
func TestTasksAreJudged(t *testing.T) {
	const tested, answered, bare = `{"id": "a", "prompt": "p", "test": "true"}`, `{"id": "b", "prompt": "q", "answer": "1"}`, `{"id": "c", "prompt": "r"}`
	for _, c := range []struct{ name, verifier, rows, kind, refused string }{
		{"tests alone", "", tested, "tests", ""},
		{"tests alone, and a range", "verifier: {range: [-1, 1]}", tested, "tests", ""},
		{"answers alone", "", answered, "exact", ""},
		{"answers that are compared", "verifier: {ignore_case: true}", tested, "", "task a has no answer to compare with"},
		{"kind exact over tests", "verifier: {kind: exact}", tested, "", "kind exact: task a has no answer to compare with"},
		{"kind tests over answers", "verifier: {kind: tests}", answered, "", "kind tests: task b has no test"},
		{"one test for all", "verifier: {kind: tests, test: ./judge}", answered, "tests", ""},
		{"a task without a test", "", tested + "\n" + bare, "", "task c has no test"},
		{"some of each", "", tested + "\n" + answered + "\n" + bare, "", "task a has no answer to compare with; 2 tasks lack one"},
		{"an answer that is null", "", `{"id": "n", "prompt": "p", "answer": null}`, "", "task n has no answer"},
		{"who needs neither", `verifier: {expression: "0.5"}`, bare, "starlark", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			rows, document := filepath.Join(dir, "tasks.jsonl"), filepath.Join(dir, "run.yaml")
			for path, text := range map[string]string{rows: c.rows + "\n", document: fmt.Sprintf("environment:\n  kind: tasks\n  tasks: {file: %q}\n  tools: [shell]\n  %s\n", rows, c.verifier)} {
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
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
					t.Fatalf("%v, want %q", err, c.refused)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if kind := cfg.Environment.Verifier.Kind; kind != c.kind || s.cfg.Environment.Verifier.Kind != kind || !cfg.UsesSandbox() || cfg.Prompts.Count != s.tasks.Len() {
				t.Errorf("judged by %s, want %s, in a document of %d prompts", kind, c.kind, cfg.Prompts.Count)
			}
		})
	}
}

// Tasks of a run with a teacher need neither answers nor a verifier; without one they are refused.
func TestATeacherNeedsNoVerifier(t *testing.T) {
	dir := t.TempDir()
	rows, document := filepath.Join(dir, "tasks.jsonl"), filepath.Join(dir, "run.yaml")
	played := fmt.Sprintf("environment: {kind: tasks, tasks: {file: %q}, verifier: {kind: none}}\n", rows)
	server := "scoring: {servers: [{kind: vllm, url: 'http://127.0.0.1:1', channel: %s}]}\ntrainer: {kind: remote}\n"
	load := func(text string) (config.Config, error) {
		for path, text := range map[string]string{rows: `{"prompt": "p"}` + "\n", document: text} {
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		return config.Load(document)
	}
	for _, text := range []string{played, played + fmt.Sprintf(server, "reference")} {
		if _, err := load(text); err == nil || !strings.Contains(err.Error(), "without a reward, and there is no teacher") {
			t.Errorf("%v, want a refusal of\n%s", err, text)
		}
	}
	cfg, err := load(played + fmt.Sprintf(server, "teacher"))
	if err != nil {
		t.Fatal(err)
	}
	s, _, err := New(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	verdict, err := s.verifierPort().Verify(t.Context(), verifier.Case{})
	if err != nil || verdict.Reward != 0 || verdict.Exact {
		t.Errorf("%+v, %v: want a reward of 0", verdict, err)
	}
}
