package live_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/loop/trace"
)

// instant is an engine, an environment and a trainer that take no time.
type instant struct {
	port.Engine
	port.Trainer
	weights fakeWeights
}

func (e *instant) Name() string                                     { return "instant" }
func (e *instant) Slots() int                                       { return 64 }
func (e *instant) Close() error                                     { return nil }
func (e *instant) Load(context.Context, loop.Version) error         { return nil }
func (e *instant) Switch(context.Context, loop.Version, bool) error { return nil }
func (e *instant) Generate(_ context.Context, req port.GenerateRequest) (port.Generation, error) {
	req.FirstToken(0)
	return port.Generation{Tokens: []int32{1}, Logprobs: []float32{-1}, Versions: []loop.Version{0}}, nil
}

func (e *instant) Initialize(ctx context.Context) error {
	return e.weights.Publish(ctx, port.Publication{})
}

func (e *instant) Train(ctx context.Context, b port.Batch) (port.StepReport, error) {
	return port.StepReport{Tokens: 1}, e.weights.Publish(ctx, port.Publication{Version: b.Version + 1, Lease: b.Lease})
}

// BenchmarkRun measures the driver's cost of a rollout: nothing else takes time.
func BenchmarkRun(b *testing.B) {
	rollouts := int64(0)
	for b.Loop() {
		e := &instant{}
		var now atomic.Int64
		r, err := live.New(live.Options{
			Header:  trace.Header{Loop: loop.Config{GroupSize: 8, BatchGroups: 8, EngineSlots: []int{64}, QueueGroups: 16, TrainSteps: 50}},
			Engines: []port.Engine{e}, Environment: fakeEnvironment{}, Trainer: e, Weights: &e.weights, Store: &longStore{memoryStore: &memoryStore{}},
			Clock: func() int64 { return now.Add(1000) }, // on a busy machine no more of it passes
		})
		if err != nil {
			b.Fatal(err)
		}
		res, err := r.Run(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		rollouts += res.Status.Ledger.Trained
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(rollouts), "ns/rollout")
}
