package lint

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// quotedTests are the tests that a sentence of the page names, with the folders that it names after them.
var (
	quotedTest   = regexp.MustCompile("`(Test[A-Za-z0-9]+)`")
	quotedFolder = regexp.MustCompile("`([a-z]+(?:/[a-z]+)*)`")
)

// TestThreatsNameTheirTests: every test that the page of threats names is there, in a folder that the same paragraph names.
func TestThreatsNameTheirTests(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs", "threats.md"))
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for paragraph := range strings.SplitSeq(string(page), "\n\n") {
		var code strings.Builder
		for _, folder := range quotedFolder.FindAllStringSubmatch(paragraph, -1) {
			files, _ := filepath.Glob(filepath.Join(root, folder[1], "*.go"))
			for _, file := range files {
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				code.Write(text)
			}
		}
		for _, test := range quotedTest.FindAllStringSubmatch(paragraph, -1) {
			named++
			if !strings.Contains(code.String(), "func "+test[1]+"(") {
				t.Errorf("docs/threats.md names %s, which is in none of the folders that its paragraph names", test[1])
			}
		}
	}
	if named < 10 {
		t.Errorf("docs/threats.md names %d tests: want one for everything that it claims", named)
	}
}
