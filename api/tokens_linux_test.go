package api

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A pipe is refused, not waited for.
func TestTokenFileIsNoPipe(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadTokens(pipe); err == nil || !strings.Contains(err.Error(), "no regular file") {
		t.Errorf("a pipe: %v", err)
	}
}
