package plane

import (
	"testing"
	"time"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/parts"
	"github.com/headway-rl/headway/app/record"
	"github.com/headway-rl/headway/config"
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
