package replace

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := File(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func want(t *testing.T, path, text string) {
	t.Helper()
	if got, err := os.ReadFile(path); err != nil || string(got) != text {
		t.Errorf("%s has %q, %v; want %q", path, got, err, text)
	}
}

// alone checks that a directory has these names and no others.
func alone(t *testing.T, dir string, names ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != len(names) {
		t.Fatalf("%s has %v, want %v", dir, entries, names)
	}
	for i, entry := range entries {
		if entry.Name() != names[i] {
			t.Errorf("%s has %v, want %v", dir, entries, names)
		}
	}
}

// A reader that has opened the file before keeps what it opened.
func TestReadersKeepTheWholeOldFile(t *testing.T) {
	dir := t.TempDir()
	path, opened := filepath.Join(dir, "a"), filepath.Join(t.TempDir(), "opened")
	write(t, path, "the old content")
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(path, opened); err != nil {
		t.Skip("no links here: ", err)
	}
	write(t, path, "new")
	want(t, path, "new")
	want(t, opened, "the old content")
	alone(t, dir, "a")
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("mode %v, %v; want that of the old file", info.Mode(), err)
	}
}

// A file that cannot be replaced leaves nothing aside.
func TestAFailureLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "a", "inside"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := File(filepath.Join(dir, "a"), []byte("text"), 0o600); err == nil {
		t.Error("a directory was replaced by a file")
	}
	alone(t, dir, "a")
	if err := File(filepath.Join(dir, "gone", "b"), nil, 0o600); !os.IsNotExist(err) {
		t.Errorf("%v for a directory that is not there, want %v", err, fs.ErrNotExist)
	}
}

// A file of an earlier version is found under its new name, and none is lost where both are there.
func TestRenamed(t *testing.T) {
	dir := t.TempDir()
	renamed := func() {
		t.Helper()
		if path, err := Renamed(dir, "old", "new"); err != nil || path != filepath.Join(dir, "new") {
			t.Errorf("%s, %v", path, err)
		}
	}
	renamed()
	alone(t, dir)
	write(t, filepath.Join(dir, "old"), "kept")
	renamed()
	alone(t, dir, "new")
	want(t, filepath.Join(dir, "new"), "kept")
	write(t, filepath.Join(dir, "old"), "another")
	renamed()
	want(t, filepath.Join(dir, "new"), "kept")
	want(t, filepath.Join(dir, "old"), "another")
}
