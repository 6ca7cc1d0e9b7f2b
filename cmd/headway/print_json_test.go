package main

import (
	"strings"
	"testing"

	"github.com/headway-rl/headway/internal/failure"
)

// Every command prints the characters of HTML as they are: --json is for terminals and programs, not for pages.
func TestJSONIsNotEscapedForPages(t *testing.T) {
	folder := t.TempDir()
	const name = "a<b>&c"
	for _, arguments := range [][]string{
		{"serve", "--dir", folder, "--name", name, "--listen", "127.0.0.1:0", "--steps", "1", "--set", "trainer.kind=embedded", "--json"},
		{"weights", folder + "/" + name, "--json"},
		{"run", "--dir", folder + "/" + name + "/run", "--steps", "1", "--json"},
	} {
		code, stdout, stderr := headway(t, arguments...)
		if code != failure.ExitDone || !strings.Contains(stdout, name) || strings.Contains(stdout, `\u00`) {
			t.Errorf("headway %q: code %d, want 0 and %q in its %d bytes, and nothing escaped\n%s", arguments, code, name, len(stdout), stderr)
		}
	}
}
