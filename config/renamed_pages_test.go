package config

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// fence is a block of YAML in a page.
var fence = regexp.MustCompile("(?ms)^ *```ya?ml\n(.*?)^ *```")

// TestDocumentsOfTheTreeHavePresentKeys: no YAML file of the tree and no block of YAML in a page has a
// key of an earlier version. Files that are other documents have no such keys either.
func TestDocumentsOfTheTreeHavePresentKeys(t *testing.T) {
	read := 0
	check := func(name, text string) {
		read++
		if _, moved, err := Migrate(name, []byte(text)); err == nil && len(moved) > 0 {
			t.Errorf("%s: %s is now %s", name, moved[0].Old, moved[0].New)
		}
	}
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name := entry.Name(); path != ".." && (strings.HasPrefix(name, ".") || name == "node_modules" || name == "runs" || name == "decisions") {
				return filepath.SkipDir
			}
			return nil
		}
		extension := filepath.Ext(path)
		if extension != ".yaml" && extension != ".yml" && extension != ".md" {
			return nil
		}
		text, err := os.ReadFile(path)
		switch {
		case err != nil:
			return err
		case extension != ".md":
			check(path, string(text))
		default:
			for _, block := range fence.FindAllStringSubmatch(string(text), -1) {
				check(path, block[1])
			}
		}
		return nil
	})
	if err != nil || read < 40 {
		t.Fatalf("%d documents were read, %v", read, err)
	}
}
