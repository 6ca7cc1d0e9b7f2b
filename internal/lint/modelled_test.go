package lint

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// running are the folders of a run's parts. What they do may not depend on what a simulation assumes.
var running = []string{"app/", "drive/cell", "drive/live", "engine/", "train/", "env/", "store/"}

// TestRunsDoNotReadTheModelledWorld holds the rule that the section `modelled` promises: no run reads it.
func TestRunsDoNotReadTheModelledWorld(t *testing.T) {
	looked := 0
	for _, f := range sources(t) {
		in := func(folder string) bool { return strings.HasPrefix(f.path, folder) }
		if f.test || !slices.ContainsFunc(running, in) {
			continue
		}
		looked++
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if inner, ok := n.(*ast.SelectorExpr); ok {
				if section, ok := inner.X.(*ast.SelectorExpr); ok && section.Sel.Name == "Modelled" {
					t.Errorf("%s reads Modelled.%s: it is what simulations assume, and a run measures its own", f.path, inner.Sel.Name)
				}
			}
			return true
		})
	}
	if looked < 100 {
		t.Errorf("looked at %d files: is this test looking at all of them?", looked)
	}
}
