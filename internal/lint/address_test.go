package lint

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Pages, examples and the client name the control plane by the address that it listens on. A client that asks for
// localhost goes to ::1 first, where any user of the machine may listen and take its token.
func TestTheServerIsNamedByItsAddress(t *testing.T) {
	files := 0
	for _, folder := range []string{"README.md", "docs", "examples", "deploy", "clients/python/README.md", "clients/python/src"} {
		err := filepath.WalkDir(filepath.Join("..", "..", folder), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !entry.Type().IsRegular() {
				return err
			}
			text, err := os.ReadFile(path)
			if strings.Contains(string(text), "localhost:7070") {
				t.Errorf("%s says localhost:7070: say 127.0.0.1:7070", path)
			}
			files++
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if files < 50 {
		t.Errorf("looked at %d files", files)
	}
}
