package main

import (
	"strings"
	"testing"

	"github.com/headway-rl/headway/api"
	"github.com/headway-rl/headway/api/protocol"
)

// Cells are listed with what each has taken most of, and the bound that binds first is named. Advice comes where it is near.
func TestStatusOfCells(t *testing.T) {
	status := busyStatus()
	bounds := []protocol.Bound{{Name: "connections", Held: 3, Max: 100}, {Name: protocol.BoundProcessor, Held: 6800, Max: 8000}}
	status.Bounds = []protocol.Bound{{Name: protocol.BoundProcessor, Held: 1200, Max: 4000}}
	status.Cells = []protocol.Cell{{Name: "b", Build: "headway 1.2", Incarnation: 4, SilentS: 2, Engines: 1, Slots: 64, Bounds: bounds}, {Name: "c", SilentS: -1, Engines: 2, Slots: 8}}
	server := serveStatus(t, status, api.Options{})
	out, stderr, code := askStatus(t, server)
	for _, want := range []string{
		"cells      b · 1 engine, 64 slots · heard 2.0 s ago · takes 85.0 % of processors · headway 1.2\n           c · 2 engines, 8 slots · not heard of yet\n",
		"limits     processors bind first: cell b has taken 85.0 %. All 2 processes have taken 8.0 of 12.0,",
		"and one more cell adds 8.0",
	} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("%d %s: no %q in\n%s", code, stderr, want, out)
		}
	}
	status.Limits = []protocol.Limit{{Name: "connections", Fullest: "", Share: 0.81, Held: 90, Max: 120, Processes: 2, OneMore: 60}}
	if text := firstOfStatus(status).Text(0); !strings.Contains(text, "connections bind first: the control plane has taken 81.0 %") {
		t.Errorf("it advises nothing:\n%s", text)
	}
}
