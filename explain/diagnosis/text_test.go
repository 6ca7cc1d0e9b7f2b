package diagnosis

import (
	"strings"
	"testing"
)

// What is noted of a whole diagnosis stands apart from its last finding.
func TestNotesStandApart(t *testing.T) {
	var out strings.Builder
	r := Report{Run: "r", Findings: []Finding{{Code: "tail", Title: "T.", Fails: "never"}}, Warnings: []string{"no closed form holds here: why", "torn"}}
	if err := Text(&out, r); err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(out.String(), "never\n\nnotes\n  - no closed form holds here: why\n  - torn\n") {
		t.Errorf("%s", out.String())
	}
	out.Reset()
	if r.Warnings = nil; Text(&out, r) != nil || strings.Contains(out.String(), "notes") {
		t.Errorf("%s", out.String())
	}
}
