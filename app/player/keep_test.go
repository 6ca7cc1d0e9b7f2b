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
