package compare

import (
	"slices"
	"testing"

	"github.com/headway-rl/headway/explain/foreign"
)

// A comparison says the faults of another framework's files as a diagnosis does.
func TestTheFaultsOfALogAreSaid(t *testing.T) {
	run := ofForeign("a.jsonl", &foreign.Log{Warnings: []foreign.Warning{{File: "a.jsonl", Text: "the last line is cut off", Count: 2}, {File: "b.jsonl", Text: "torn", Count: 1}}})
	if want := []string{"the last line is cut off (2 times)", "b.jsonl: torn"}; !slices.Equal(run.Warnings[:2], want) {
		t.Errorf("%q, want %q", run.Warnings, want)
	}
}
