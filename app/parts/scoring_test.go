package parts

import (
	"testing"

	"github.com/headway-rl/headway/config"
)

// TestShareOfScorers: processes share the slots of a server that scores by the slots of their engines. Each has one.
func TestShareOfScorers(t *testing.T) {
	p := &Parts{}
	p.Cfg.Engines = []config.Engine{{Slots: 16}, {Slots: 32, Cell: "b"}, {Slots: 15, Cell: "b"}, {Slots: 1, Cell: "c"}}
	p.Cfg.Scoring.Servers = []config.ScoringServer{{Slots: 16}, {Slots: 1}}
	for cell, want := range map[string][2]int{"": {4, 1}, "b": {11, 1}, "c": {1, 1}} {
		p.host.Cell = cell
		if s := p.shareOfScorers(); s[0].Slots != want[0] || s[1].Slots != want[1] {
			t.Errorf("cell %q has %d and %d slots, want %v", cell, s[0].Slots, s[1].Slots, want)
		}
	}
	if p.Cfg.Scoring.Servers[0].Slots != 16 {
		t.Error("the document has changed")
	}
}
