package live_test

import (
	"testing"

	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/looptest"
)

// BenchmarkRecover measures what a recovery takes for every event after the snapshot,
// and what a snapshot of a run with 512 slots takes that it saves.
func BenchmarkRecover(b *testing.B) {
	plan := looptest.Plan{Seed: 1, RolloutTicks: 300, TrainTicks: 30, SyncTicks: 5, Solves: 0.7,
		Config: loop.Config{GroupSize: 8, BatchGroups: 32, EngineSlots: []int{256, 256}, QueueGroups: 64, Policy: loop.PolicyDrop}}
	w, err := looptest.NewWorld(plan)
	if err != nil {
		b.Fatal(err)
	}
	w.Keep = true
	if err := w.Run(60_000); err != nil {
		b.Fatal(err)
	}
	r := newRecording(b, plan.Config, 1)
	for _, rec := range w.Log {
		r.observe(rec.Event)
	}
	b.Run("replay", func(b *testing.B) {
		for b.Loop() {
			got, err := live.Recover(r.store, nil)
			if err != nil || got.Events != int64(len(w.Log)) {
				b.Fatal(got, err)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(w.Log)), "ns/event")
	})
	b.Run("snapshot", func(b *testing.B) {
		for b.Loop() {
			r.snapshot()
		}
		b.ReportMetric(float64(len(r.state())), "bytes")
	})
	b.Run("from-snapshot", func(b *testing.B) {
		for b.Loop() {
			if got, err := live.Recover(r.store, nil); err != nil || got.Events != 0 {
				b.Fatal(got, err)
			}
		}
	})
}
