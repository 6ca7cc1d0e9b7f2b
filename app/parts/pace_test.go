package parts

import (
	"github.com/headway-rl/headway/loop/port"
	"strings"
	"testing"
)

// TestPaceWarnings says which side was not kept at its pace, and nothing of one that was.
func TestPaceWarnings(t *testing.T) {
	calm := port.Pace{Steps: 1000, Late: 20, PacedNS: 1e12, LostNS: 1e9}
	for _, c := range []struct {
		name string
		kept Paces
		want []string
	}{
		{"no pace", Paces{}, nil},
		{"kept", Paces{Decode: calm, Train: calm}, nil},
		{"late decode steps", Paces{Decode: port.Pace{Steps: 100, Late: 11, PacedNS: 1e9}, Train: calm}, []string{"11.0 % of the decode steps"}},
		{"slow train steps", Paces{Decode: calm, Train: port.Pace{Steps: 100, Late: 1, PacedNS: 1e9, LostNS: 2e8}}, []string{"1.0 % of the train steps"}},
	} {
		got := c.kept.Warnings()
		if len(got) != len(c.want) {
			t.Errorf("%s: %q, want %d warnings", c.name, got, len(c.want))
			continue
		}
		for i, part := range c.want {
			if !strings.HasPrefix(got[i], part) || !strings.Contains(got[i], "_s, and all together") {
				t.Errorf("%s: %q, want it to begin with %q", c.name, got[i], part)
			}
		}
	}
}
