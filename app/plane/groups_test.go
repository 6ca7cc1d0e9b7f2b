package plane

import (
	"context"
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
	b := openRegistry(dir, nil, logf)
	b.Joining("e0", "a")
	b.Joining("e1", "b")
	b.Joining("e0", "c")
	b = openRegistry(dir, nil, logf)
	knows(b, "e0", "a", "c")
	knows(b, "e1", "b")
	b.Left("e0", "a")
	b.Left("e0", "unknown")
	b = openRegistry(dir, nil, logf)
	knows(b, "e0", "c")
	b.Left("e0", "c")
	b.Left("e1", "b")
	if files, err := os.ReadDir(dir); err != nil || len(files) != 0 || len(said) != 0 {
		t.Errorf("every group was left, and there are %v, %v; said %q", files, err, said)
	}
	if err := os.WriteFile(filepath.Join(dir, earlierGroupsFile), []byte(`{"e1":["of an earlier version"]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	b = openRegistry(dir, nil, logf)
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
	knows(openRegistry(dir, nil, logf), "e0")
	b = openRegistry(filepath.Join(dir, "none"), nil, logf)
	b.Joining("e0", "a")
	b.Joining("e0", "b")
	knows(b, "e0", "a", "b")
	if len(said) != 2 || !strings.Contains(said[0], "is not known") || !strings.Contains(said[1], "cannot be noted") {
		t.Errorf("said %q", said)
	}
}

// heldNotes has notes in memory, as writers in common have them in a cluster.
type heldNotes map[string][]byte

func (h heldNotes) Note(_ context.Context, name string, text []byte) error {
	h[name] = slices.Clone(text)
	return nil
}

func (h heldNotes) NoteFirst(_ context.Context, name string, text []byte) ([]byte, error) {
	if h[name] == nil {
		h[name] = slices.Clone(text)
	}
	return h[name], nil
}

func (h heldNotes) Noted(_ context.Context, name string) ([]byte, error) { return h[name], nil }

// TestRegistryOfAStandby: a control plane with another directory knows the groups of the one before.
func TestRegistryOfAStandby(t *testing.T) {
	shared := heldNotes{}
	logf := func(format string, args ...any) { t.Errorf(format, args...) }
	first := openRegistry(t.TempDir(), shared, logf)
	first.Joining("e0", "a")
	first.Joining("e1", "b")
	first.Left("e1", "b")
	dir := t.TempDir()
	standby := openRegistry(dir, nil, logf)
	standby.Joining("e0", "its own, of long ago")
	standby = openRegistry(dir, shared, logf)
	if got := standby.Remembered("e0"); !slices.Equal(got, []string{"a", "its own, of long ago"}) || standby.Remembered("e1") != nil {
		t.Errorf("it has %q and %q", got, standby.Remembered("e1"))
	}
	for _, name := range []string{"a", "its own, of long ago"} {
		standby.Left("e0", name)
	}
	if got := openRegistry(t.TempDir(), shared, logf).Remembered("e0"); got != nil {
		t.Errorf("every group was left, and the next one has %q", got)
	}
}
