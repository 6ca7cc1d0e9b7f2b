package plane

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/parts"
	"github.com/headway-rl/headway/app/record"
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/drive/cell"
	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/engine/upstream"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/loop/trace"
)

// TestAsksNothingOfOtherCells: the control plane looks for its own servers alone, and an engine of another cell has none here.
func TestAsksNothingOfOtherCells(t *testing.T) {
	rules := loop.Config{GroupSize: 1, BatchGroups: 1, QueueGroups: 1, EngineSlots: []int{1}, EngineCells: []int{1}}
	run, err := live.New(live.Options{Header: trace.Header{Loop: rules}, Engines: []port.Engine{live.Elsewhere("one", 1)}, Cells: []string{"b"},
		Environment: struct{ port.Environment }{}, Trainer: struct{ port.Trainer }{}, Weights: struct{ port.Weights }{}, Store: struct{ port.Store }{}, Clock: func() int64 { return 0 }})
	if err != nil {
		t.Fatal(err)
	}
	p := &Plane{Record: &record.Record{App: &app.Process{Now: time.Now}, Parts: &parts.Parts{Cfg: config.Config{Engines: []config.Engine{{Name: "one", Cell: "b"}}},
		Upstreams: []*upstream.Engine{nil}, Servers: []*upstream.Server{nil}}}}
	p.runtime.Store(run)
	p.loseUnreachable(t.Context())
	if err := p.awaitServers(t.Context(), false); err != nil || p.OwnsAny() || p.serverStatus(0) != nil {
		t.Errorf("%v; it owns an engine: %t; it has a server %+v", err, p.OwnsAny(), p.serverStatus(0))
	}
}

// What the status says of a cell is of its newest process, and goes with its lease.
func TestCellsOfTheStatus(t *testing.T) {
	var known cells
	known.add(protocol.Cell{Name: "b", Engines: 2, Slots: 8})
	began := time.Unix(1e9, 0)
	says := func(incarnation int64, build, load string, seconds int) {
		ev := &cell.Event{Origin: trace.Origin{Cell: "b", Incarnation: incarnation, Sequence: 1}, Load: json.RawMessage(load)}
		if build != "" {
			ev.Hello = &cell.Hello{Build: build}
		}
		known.heard(ev, began.Add(time.Duration(seconds)*time.Second))
	}
	check := func(seconds int, want protocol.Cell) {
		t.Helper()
		want.Name, want.Engines, want.Slots = "b", 2, 8
		if got := known.status(began.Add(time.Duration(seconds) * time.Second)); len(got) != 1 || !reflect.DeepEqual(got[0], want) {
			t.Errorf("after %d s it is %+v, want %+v", seconds, got, want)
		}
	}
	held := func(n int64) []protocol.Bound { return []protocol.Bound{{Name: "connections", Held: n, Max: 9}} }
	check(0, protocol.Cell{SilentS: -1})
	says(3, "old", `[{"name":"connections","held":1,"max":9}]`, 0)
	check(2, protocol.Cell{Build: "old", Incarnation: 3, SilentS: 2, Bounds: held(1)})
	says(3, "", "", 5) // another word
	check(5, protocol.Cell{Build: "old", Incarnation: 3, Bounds: held(1)})
	says(4, "new", `{"of":"a later build"}`, 6)
	check(6, protocol.Cell{Build: "new", Incarnation: 4})
	says(3, "old", `[{"name":"connections","held":1,"max":9}]`, 7) // it is replaced
	check(7, protocol.Cell{Build: "new", Incarnation: 4, SilentS: 1})
	says(4, "new", `[{"name":"connections","held":2,"max":9}]`, 8)
	check(23, protocol.Cell{Build: "new", Incarnation: 4, SilentS: 15, Bounds: held(2)})
	check(24, protocol.Cell{Build: "new", Incarnation: 4, SilentS: 16})
	known.heard(&cell.Event{Origin: trace.Origin{Cell: "z", Incarnation: 1}}, began)
	check(24, protocol.Cell{Build: "new", Incarnation: 4, SilentS: 16})
}
