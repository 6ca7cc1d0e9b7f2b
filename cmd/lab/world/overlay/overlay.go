// Package overlay makes the world's edits of Go's library, for go build -overlay.
package overlay

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Write puts the edited files of the Go library at goroot into dir and returns the path of the overlay's JSON.
// Files that more replaces, original to copy, are in it too.
func Write(dir, goroot string, more map[string]string) (string, error) {
	texts := map[string]string{}
	for _, e := range edits {
		text, ok := texts[e.file]
		if !ok {
			raw, err := os.ReadFile(filepath.Join(goroot, "src", e.file))
			if err != nil {
				return "", err
			}
			text = string(raw)
		}
		if n := strings.Count(text, e.old); n != 1 {
			return "", fmt.Errorf("%s of %s has the text %q %d times, want once: this release of Go is another one than the world's edits are for", e.file, goroot, e.old, n)
		}
		texts[e.file] = strings.Replace(text, e.old, e.new, 1)
	}
	for file, text := range added {
		texts[file] = text
	}
	replace := map[string]string{}
	for file, text := range texts {
		at := filepath.Join(dir, "go", strings.ReplaceAll(file, "/", "_"))
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return "", err
		}
		if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
			return "", err
		}
		replace[filepath.Join(goroot, "src", file)] = at
	}
	for file, at := range more {
		replace[file] = at
	}
	raw, err := json.MarshalIndent(map[string]any{"Replace": replace}, "", "\t")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, raw, 0o644)
}
