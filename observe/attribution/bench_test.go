package attribution_test

import (
	"testing"

	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/workload"
	"github.com/headway-rl/headway/observe/attribution"
	"github.com/headway-rl/headway/observe/metrics"
)

// observed is an event with what followed from it.
type observed struct {
	ev      loop.Event
	m       metrics.Measured
	actions []loop.Action
}

// stream records a plain simulation.
func stream(tb testing.TB, steps int) (loop.Config, []observed) {
	tb.Helper()
	lengths, err := workload.LengthSpec{Kind: workload.KindLognormal, MeanTokens: 1400, Tailness: 50, CapTokens: 8080}.Build()
	if err != nil {
		tb.Fatal(err)
	}
	accept, err := workload.NewAcceptance(1)
	if err != nil {
		tb.Fatal(err)
	}
	var log []observed
	cfg := sim.Config{Loop: loop.Config{GroupSize: 8, BatchGroups: 15, EngineSlots: []int{120}, QueueGroups: 15},
		Work: sim.NewModelled(1, lengths, nil, accept, 28e9), NSPerToken: 20e6, Measured: steps,
		Observe: func(ev loop.Event, _, environmentNS int64, actions []loop.Action) {
			log = append(log, observed{ev, metrics.Measured{EnvironmentNS: environmentNS}, append([]loop.Action(nil), actions...)})
		}}
	if _, err := sim.Run(cfg); err != nil {
		tb.Fatal(err)
	}
	return cfg.Loop, log
}

// BenchmarkObserve replays a plain simulation's stream: what attributing costs beside recording,
// which package metrics' benchmark of the same name measures.
func BenchmarkObserve(b *testing.B) {
	cfg, log := stream(b, 200)
	o := attribution.New(cfg)
	b.ReportAllocs()
	for b.Loop() {
		o = attribution.New(cfg)
		for i := range log {
			o.Observe(&log[i].ev, &log[i].m, log[i].actions)
		}
	}
	if o.Summary().Groups == 0 {
		b.Fatal("nothing was attributed")
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(log)), "ns/event")
}

// Observing does not allocate in the steady state.
func TestObserveDoesNotAllocate(t *testing.T) {
	cfg, log := stream(t, 300)
	o := attribution.New(cfg)
	half := len(log) / 2
	for i := range log[:half] {
		o.Observe(&log[i].ev, &log[i].m, log[i].actions)
	}
	rest := log[half:]
	i := 0
	if n := testing.AllocsPerRun(len(rest)-1, func() {
		o.Observe(&rest[i].ev, &rest[i].m, rest[i].actions)
		i++
	}); n != 0 {
		t.Errorf("%g allocations an event, want none", n)
	}
}
