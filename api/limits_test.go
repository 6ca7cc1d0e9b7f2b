package api

import (
	"reflect"
	"testing"

	"github.com/headway-rl/headway/api/protocol"
)

// Bounds of processes add up, and the one that some process has taken most of comes first. A cell that says nothing counts for
// nothing, and without cells there is nothing to add.
func TestLimits(t *testing.T) {
	bound := func(name string, held, most int64) protocol.Bound {
		return protocol.Bound{Name: name, Held: held, Max: most}
	}
	own := []protocol.Bound{bound(protocol.BoundProcessor, 500, 4000), bound("connections", 90, 100), bound("rollout_bytes", 9, 10), bound("requests", 0, 0)}
	cells := []protocol.Cell{
		{Name: "b", Bounds: []protocol.Bound{bound(protocol.BoundProcessor, 7600, 8000), bound("connections", 1, 100), bound("requests", 1, 50)}},
		{Name: "c", Bounds: []protocol.Bound{bound(protocol.BoundProcessor, 400, 4000), bound("connections", 99, 300), bound("rollout_bytes", 9, 10)}},
		{Name: "d"},
	}
	want := []protocol.Limit{
		{Name: protocol.BoundProcessor, Held: 8500, Max: 16000, Processes: 3, Fullest: "b", Share: 0.95, OneMore: 6000},
		{Name: "connections", Held: 190, Max: 500, Processes: 3, Fullest: "", Share: 0.9, OneMore: 200},
		{Name: "requests", Held: 1, Max: 50, Processes: 1, Fullest: "b", Share: 0.02, OneMore: 50},
	}
	if got := limits(own, cells); !reflect.DeepEqual(got, want) {
		t.Errorf("the limits are\n%+v, want\n%+v", got, want)
	}
	if got := limits(own, nil); got != nil {
		t.Errorf("one process alone has the limits %+v", got)
	}
	if got := limits(own, cells[2:]); got != nil {
		t.Errorf("beside a cell that says nothing the limits are %+v", got)
	}
}
