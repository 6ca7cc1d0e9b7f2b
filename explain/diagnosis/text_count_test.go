package diagnosis

import (
	"testing"
)

// One finding is said as one.
func TestFindingsAreCountedInWords(t *testing.T) {
	for n, want := range map[int]string{1: "1 finding that needs no steady state:", 2: "2 findings that need no steady state:"} {
		if got := findingsTitle(Report{Findings: make([]Finding, n)}); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
