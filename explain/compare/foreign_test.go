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

// A figure that is worse is no gain.
func TestALossIsNoGain(t *testing.T) {
	of := func(differences map[string]float64) string {
		run := &Run{Figures: map[string]Figure{}}
		for key, d := range differences {
			run.Figures[key] = Figure{Value: 10 + d, Difference: &d}
		}
		return buys(run)
	}
	for want, differences := range map[string]map[string]float64{
		"":                                      {periodKey: 0},
		"period 8 instead of 10":                {periodKey: -2},
		"nothing, with period 30 instead of 10": {periodKey: 20},
		"reward 11.000 instead of 10.000, with staleness 12.00 instead of 10.00, rollouts/s trained 9 instead of 10": {stalenessKey: 2, throughputKey: -1, "reward": 1},
	} {
		if got := of(differences); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
