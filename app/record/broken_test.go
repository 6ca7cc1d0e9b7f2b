package record

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A bundle that cannot be written is said, or the reader would look for a file that is not there.
func TestWriteBroken(t *testing.T) {
	dir := t.TempDir()
	said := writeBroken(dir, []byte("{}"))
	if text, err := os.ReadFile(filepath.Join(dir, BrokenFile)); string(text) != "{}" || !strings.Contains(said, filepath.Join(dir, BrokenFile)) {
		t.Errorf("said %q, wrote %q, %v", said, text, err)
	}
	gone := filepath.Join(dir, "gone")
	if said := writeBroken(gone, []byte("{}")); !strings.Contains(said, "cannot be written") || !strings.Contains(said, "no such file") || !strings.Contains(said, gone) {
		t.Errorf("said %q of a directory that is gone", said)
	}
}
