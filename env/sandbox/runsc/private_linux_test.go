package runsc_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headway-rl/headway/env/sandbox"
)

// TestPrivateFiles: what lies in a mounted directory and only its owner may read is not read in a
// box that root has made.
func TestPrivateFiles(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("a box of an ordinary user reads what that user can")
	}
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"private": 0o600, "public": 0o644} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), mode); err != nil {
			t.Fatal(err)
		}
	}
	driver := subject().New(t, t.TempDir())
	if _, err := driver.Check(t.Context()); err != nil {
		t.Skip(err)
	}
	box, err := driver.Create(t.Context(), "t.private", sandbox.Spec{Mounts: []sandbox.Mount{{Host: dir, Box: "/mnt/data"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer box.Close(t.Context())
	r, err := box.Run(t.Context(), sandbox.Command{Argv: []string{"sh", "-c", "cat /mnt/data/*; id -un"}})
	if err != nil || string(r.Stdout) != "publicbox\n" || !strings.Contains(string(r.Stderr), "denied") {
		t.Errorf("got %q, %q, %v", r.Stdout, r.Stderr, err)
	}
	if got, err := box.Read(t.Context(), "/mnt/data/private", 100); err == nil {
		t.Errorf("read %q", got)
	}
}
