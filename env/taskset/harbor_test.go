package taskset

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestHarbor(t *testing.T) {
	set := loaded(t, Options{Paths: []string{"testdata/harbor"}})
	if set.Len() != 3 {
		t.Fatal(set.Len())
	}
	tasks, warnings := []*Task{set.At(1, 0), set.At(2, 0), set.At(3, 0)}, set.Warnings()
	ledger, longest, mend := tasks[0], tasks[1], tasks[2]
	if ledger.ID != "headway/ledger-totals" || longest.ID != "longest-word" || ledger.Level != 2 || mend.Level != 3 {
		t.Error(ledger.ID, longest.ID, ledger.Level, mend.Level)
	}
	for _, task := range tasks {
		if task.Test != "bash /tests/test.sh" || task.Hidden["/tests/test.sh"] == nil || len(task.Messages) != 1 {
			t.Errorf("%+v", task)
		}
		for name := range task.Files {
			if strings.Contains(name, "solve") || strings.Contains(name, "Docker") {
				t.Errorf("%s has %s", task.ID, name)
			}
		}
	}
	if got := slices.Sorted(maps.Keys(ledger.Files)); !slices.Equal(got, []string{"/work/ledger/july.csv", "/work/ledger/june.csv"}) {
		t.Error(got)
	}
	if w := ledger.Wants; w.Image != "python:3.12-slim" || w.CPUs != 2 || w.MemoryMB != 1024 || w.Network || w.VerifierTimeoutS != 60 || w.Env["LANG"] != "C.UTF-8" || ledger.TimeoutS != 360 {
		t.Errorf("%+v", w)
	}
	if w := mend.Wants; w.MemoryMB != 1024 || w.DiskMB != 2048 || w.VerifierEnv["ROUNDS"] != "200" {
		t.Errorf("%+v", w)
	}
	if len(warnings) != 2 || !strings.HasPrefix(warnings[0], "headway/ledger-totals: it names the image python:3.12-slim") || !strings.HasPrefix(warnings[1], "longest-word: its environment/Dockerfile is not built and nothing of it is honoured") {
		t.Errorf("%q", warnings)
	}
	if string(longest.Fields["metadata"]) != `{"author_name":"Headway","category":"text","difficulty":"easy","tags":["shell","files"]}` {
		t.Errorf("%s", longest.Fields["metadata"])
	}
	one := loaded(t, Options{Paths: []string{"testdata/harbor/longest-word"}, System: "Be brief."})
	if task := one.At(1, 0); len(task.Messages) != 2 || !strings.Contains(string(task.Messages[0]), "Be brief.") {
		t.Errorf("%s", task.Messages)
	}
	one.At(1, 0).Files["/work/words.txt"] = nil
	if one.At(1, 0).Files["/work/words.txt"] == nil {
		t.Error("a task is its caller's own")
	}
}

// TestHarborWithMapping: names of fields are of files, and keep nobody from playing folders.
func TestHarborWithMapping(t *testing.T) {
	if s := loaded(t, Options{Paths: []string{"testdata/harbor"}, Levels: 3, Map: Mapping{Answer: "answer", Level: "level"}}); s.Len() != 3 || s.LevelLen(3) != 1 {
		t.Error(s.Len(), s.LevelLen(3))
	}
}

func TestBrokenHarbor(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a/task.toml": "[agent\n", "a/instruction.md": "x", "a/tests/test.sh": "",
		"b/task.toml": "[agent]\ntimeout_sec = -1\n[environment]\nmemory = \"much\"\n[[steps]]\nname = \"x\"", "b/instruction.md": " ", "b/environment/docker-compose.yaml": "",
		"c/task.toml": "[agent]\ntimeout_sec = \"soon\"", "d/instruction.md": "no task.toml",
		"e/task.toml": "surprise = 1\n[task]\nname = \"same\"\n[verifier]\nenv = { KEY = \"${KEY}\" }\nenvironment_mode = \"separate\"", "e/instruction.md": "x", "e/tests/test.sh": "exit",
		"f/task.toml": "[task]\nname = \"same\"", "f/instruction.md": "x", "f/tests/test.sh": "exit",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "f/tests/link")); err != nil {
		t.Fatal(err)
	}
	_, err := Load(Options{Paths: []string{dir}})
	if err == nil {
		t.Fatal("no mistake")
	}
	got := strings.ReplaceAll(err.Error(), filepath.ToSlash(dir)+"/", "")
	for _, want := range []string{
		"10 mistakes",
		"a/task.toml:2: expected '.' or ']'",
		"b/task.toml: instruction.md is empty", "b/task.toml: there is no tests/test.sh", "b/task.toml: environment/docker-compose.yaml asks for several containers",
		"b/task.toml: agent.timeout_sec is -1", `b/task.toml: environment.memory is "much"`, "b/task.toml: the task has 1 steps",
		`c/task.toml: line 2 (last key "agent.timeout_sec")`, "d/task.toml: task.toml: no such file", "f/task.toml: tests/link is no plain file",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("there is no %q in\n%s", want, got)
		}
	}
	os.Remove(filepath.Join(dir, "f/tests/link"))
	for _, folder := range []string{"a", "b", "c", "d"} {
		os.RemoveAll(filepath.Join(dir, folder))
	}
	if got := mistakes(t, Options{Paths: []string{dir}}); len(got) != 1 || !strings.HasPrefix(got[0], `task.toml: the id "same" is also that of `) {
		t.Errorf("%q", got)
	}
	os.RemoveAll(filepath.Join(dir, "f"))
	want := []string{
		"same: it wants to be judged in a sandbox of its own: the tests run in the policy's",
		"same: surprise of task.toml is not honoured",
		"same: verifier.env.KEY takes a variable of the host: it is handed on as it stands",
	}
	if got := loaded(t, Options{Paths: []string{dir}}).Warnings(); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// Files of tasks beside Harbor's folders are not read, and that is said.
func TestFilesBesideHarbor(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.CopyFS(filepath.Join(dir, "one"), os.DirFS("testdata/harbor/longest-word")),
		os.WriteFile(filepath.Join(dir, "Train.jsonl"), []byte(`{"prompt": "x"}`), 0o600), os.WriteFile(filepath.Join(dir, "README.md"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	set := loaded(t, Options{Paths: []string{dir}})
	if w := strings.Join(set.Warnings(), "\n"); set.Len() != 1 || !strings.Contains(w, "Train.jsonl is not read") || strings.Contains(w, "README") {
		t.Errorf("%d tasks: %s", set.Len(), w)
	}
}
