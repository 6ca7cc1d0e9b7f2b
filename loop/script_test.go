package loop_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/headway-rl/headway/loop/looptest"
)

// TestScripts runs testdata/*.txt, one behaviour a file; looptest.Script documents
// the commands. After a change of behaviour run it with -rewrite and commit the
// difference only if you understand every line of it.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		if strings.Contains(filepath.ToSlash(path), "/fuzz/") {
			return // inputs of a fuzz target
		}
		var script looptest.Script
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			return script.Run(t, d)
		})
	})
}
