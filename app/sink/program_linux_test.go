package sink

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A program goes on though there is no room for what it says, and gets every step.
func TestAProgramOutlivesAFullDisk(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip(err)
	}
	out := filepath.Join(t.TempDir(), "out")
	s, err := Program([]string{"/bin/sh", "-c", "echo begun; read first; echo $first; echo $first >" + out + "; cat >>" + out + "; echo over"}, "/dev/full")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Write(t.Context(), twoSteps); err != nil {
		t.Error(err)
	}
	if err := s.Close(t.Context(), true); err != nil {
		t.Errorf("it ended with: %v", err)
	}
	if text, err := os.ReadFile(out); err != nil || strings.Count(string(text), "\n") != 2 {
		t.Errorf("it got %q, %v", text, err)
	}
}
