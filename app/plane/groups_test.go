package plane

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestFileRegistry: what a process has noted is there for the next one, within bounds, and a file that cannot be read or
// written is said once and stops nothing.
func TestFileRegistry(t *testing.T) {
	dir := t.TempDir()
	var said []string
	logf := func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }
	knows := func(b *fileRegistry, engine string, want ...string) {
		t.Helper()
		if got := b.Remembered(engine); !slices.Equal(got, want) {
			t.Errorf("of %s it has %q, want %q", engine, got, want)
		}
	}
	b := openRegistry(dir, logf)
	b.Joining("e0", "a")
	b.Joining("e1", "b")
	b.Joining("e0", "c")
	b = openRegistry(dir, logf)
	knows(b, "e0", "a", "c")
	knows(b, "e1", "b")
	b.Left("e0", "a")
	b.Left("e0", "unknown")
	b = openRegistry(dir, logf)
	knows(b, "e0", "c")
	b.Left("e0", "c")
	b.Left("e1", "b")
	if files, err := os.ReadDir(dir); err != nil || len(files) != 0 || len(said) != 0 {
		t.Errorf("every group was left, and there are %v, %v; said %q", files, err, said)
	}
	if err := os.WriteFile(filepath.Join(dir, earlierGroupsFile), []byte(`{"e1":["of an earlier version"]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	b = openRegistry(dir, logf)
	knows(b, "e1", "of an earlier version")
	b.Left("e1", "of an earlier version")
	if files, err := os.ReadDir(dir); err != nil || len(files) != 0 {
		t.Errorf("the groups of an earlier version were left, and there are %v, %v", files, err)
	}
	for i := range groupsMax + 1 {
		b.Joining("e0", fmt.Sprint(i))
	}
	if got := b.Remembered("e0"); len(got) != groupsMax || got[0] != "1" {
		t.Errorf("it has %q, want the last %d", got, groupsMax)
	}

	if err := os.WriteFile(b.path, []byte("no JSON"), 0o644); err != nil {
		t.Fatal(err)
	}
	knows(openRegistry(dir, logf), "e0")
	b = openRegistry(filepath.Join(dir, "none"), logf)
	b.Joining("e0", "a")
	b.Joining("e0", "b")
	knows(b, "e0", "a", "b")
	if len(said) != 2 || !strings.Contains(said[0], "is not known") || !strings.Contains(said[1], "cannot be noted") {
		t.Errorf("said %q", said)
	}
}
