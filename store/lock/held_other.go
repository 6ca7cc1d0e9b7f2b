//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package lock

import (
	"os"
	"strings"
)

// Held reports whether a process holds a lock, and which one ("" where it has not said).
// A file that does not exist is not held.
func Held(path string) (pid string, held bool) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", false
	}
	return strings.TrimSpace(string(text)), true
}
