package metrics_test

import (
	"testing"

	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/workload"
	"github.com/headway-rl/headway/observe/metrics"
)

// BenchmarkObserve replays a plain simulation's stream: what recording costs
// beside simulating, which takes about seven times as long.
func BenchmarkObserve(b *testing.B) {
	lengths, err := workload.LengthSpec{Kind: workload.KindLognormal, MeanTokens: 1400, Tailness: 50, CapTokens: 8080}.Build()
	if err != nil {
		b.Fatal(err)
	}
	accept, err := workload.NewAcceptance(1)
	if err != nil {
		b.Fatal(err)
	}
	type observed struct {
		ev      loop.Event
		actions []loop.Action
	}
	var log []observed
	cfg := sim.Config{Loop: loop.Config{GroupSize: 8, BatchGroups: 15, EngineSlots: []int{120}, QueueGroups: 15},
		Work: sim.NewModelled(1, lengths, nil, accept, 28e9), NSPerToken: 20e6, Measured: 200,
		Observe: func(ev loop.Event, _, _ int64, actions []loop.Action) {
			log = append(log, observed{ev, append([]loop.Action(nil), actions...)})
		}}
	if _, err := sim.Run(cfg); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		r := metrics.NewRecorder(cfg.Loop)
		r.Grow(cfg.Measured)
		for i := range log {
			r.Observe(log[i].ev, metrics.Measured{}, log[i].actions)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(log)), "ns/event")
}
