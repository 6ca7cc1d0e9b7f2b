package player

import (
	"os"
	"path/filepath"
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
