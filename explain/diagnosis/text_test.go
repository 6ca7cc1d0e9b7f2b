package diagnosis

import (
	"strings"
	"testing"
)

// What is noted of a whole diagnosis stands apart from its last finding.
func TestNotesStandApart(t *testing.T) {
	r := Report{Run: "r", Findings: []Finding{{Code: "tail", Title: "T.", Fails: "never"}}, Warnings: []string{"no closed form holds here: why", "torn"}}
	if text := Text(r, 100); !strings.HasSuffix(text, "never\n\nnotes\n  - no closed form holds here: why\n  - torn\n") {
		t.Error(text)
	}
	r.Warnings = nil
	if text := Text(r, 100); strings.Contains(text, "notes") {
		t.Error(text)
	}
}
