package main

import (
	"strings"
	"testing"

	"github.com/headway-rl/headway/explain/diagnosis"
)

// What is noted of a whole diagnosis stands apart from its last finding.
func TestNotesStandApart(t *testing.T) {
	var out strings.Builder
	r := diagnosis.Report{Run: "r", Findings: []diagnosis.Finding{{Code: "tail", Title: "T.", Fails: "never"}}, Warnings: []string{"no closed form holds here: why", "torn"}}
	if err := printDiagnosis(&out, r); err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(out.String(), "never\n\nnotes\n  - no closed form holds here: why\n  - torn\n") {
		t.Errorf("%s", out.String())
	}
	out.Reset()
	if r.Warnings = nil; printDiagnosis(&out, r) != nil || strings.Contains(out.String(), "notes") {
		t.Errorf("%s", out.String())
	}
}
