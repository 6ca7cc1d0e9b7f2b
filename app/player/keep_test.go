package player

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headway-rl/headway/env/taskset"
)

// The note of the tasks comes under its name by renaming: a file that is written in place would go through the link.
func TestTheNoteOfTasksIsReplaced(t *testing.T) {
	dir, behind := t.TempDir(), filepath.Join(t.TempDir(), tasksFile)
	if err := os.Symlink(behind, filepath.Join(dir, tasksFile)); err != nil {
		t.Fatal(err)
	}
	if err := (&Player{tasks: &taskset.Set{}}).keepTasks(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(behind); err == nil {
		t.Error("the note is written in place")
	}
}

// A run does not go on with an instruction that has changed. The note of an earlier release says nothing of them.
func TestAChangedInstructionIsOtherTasks(t *testing.T) {
	run, folder := t.TempDir(), filepath.Join(t.TempDir(), "task")
	write := func(name, text string) {
		t.Helper()
		name = filepath.Join(folder, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	keep := func() error {
		t.Helper()
		set, err := taskset.Load(taskset.Options{Paths: []string{folder}})
		if err != nil {
			t.Fatal(err)
		}
		return (&Player{tasks: set}).keepTasks(run)
	}
	write("task.toml", "version = \"1.0\"\n")
	write("tests/test.sh", "exit 0\n")
	write("instruction.md", "Count the words.\n")
	if err := errors.Join(keep(), keep()); err != nil {
		t.Fatal(err)
	}
	write("instruction.md", "Count the lines.\n")
	if err := keep(); err == nil || !strings.Contains(err.Error(), "has changed since") {
		t.Errorf("another instruction: %v", err)
	}
	path := filepath.Join(run, tasksFile)
	text, err := os.ReadFile(path)
	before, _, _ := strings.Cut(string(text), `,"instructions"`)
	if err := errors.Join(err, os.WriteFile(path, []byte(before+"}"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := keep(); err != nil {
		t.Errorf("the note of an earlier release: %v", err)
	}
}

// The counts of tasks of an earlier version go on under the present name.
func TestCountsOfAnEarlierVersion(t *testing.T) {
	dir := t.TempDir()
	before, err := taskset.OpenCounts(filepath.Join(dir, "tasks.book"))
	if err != nil {
		t.Fatal(err)
	}
	if err := before.Record(taskset.Result{Task: "t", Reward: 1, Solved: true}); err != nil {
		t.Fatal(err)
	}
	if err := before.Close(); err != nil {
		t.Fatal(err)
	}
	p := &Player{tasks: &taskset.Set{}}
	if err := p.openCounts(dir); err != nil {
		t.Fatal(err)
	}
	defer p.counts.Close()
	files, err := os.ReadDir(dir)
	if p.counts.Len() != 1 || err != nil || len(files) != 1 || files[0].Name() != "task_counts.log" {
		t.Errorf("%d tasks are counted, in %v, %v", p.counts.Len(), files, err)
	}
}
