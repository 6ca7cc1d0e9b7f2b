package remote_test

import (
	"context"
	"net/http/httptest"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/headway-rl/headway/api"
	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/env/remote"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// instant is a sampler that takes no time.
type instant struct{}

func (instant) Sample(context.Context, port.SampleRequest) (port.Generation, error) {
	return port.Generation{Tokens: make([]int32, 256), Logprobs: make([]float32, 256), Versions: make([]loop.Version, 256)}, nil
}

// played plays b.N rollouts at the environment, logging each as it ends.
func played(b *testing.B, e *remote.Dispatcher) *sync.WaitGroup {
	var wg sync.WaitGroup
	slots := make(chan struct{}, 256)
	wg.Go(func() {
		for g := range b.N {
			slots <- struct{}{}
			wg.Go(func() {
				id := port.RolloutID{Group: loop.GroupID(g + 1), Attempt: 1}
				if _, err := e.Play(b.Context(), port.RolloutRequest{ID: id}, instant{}); err != nil {
					b.Error(err)
				}
				e.Logged(id, true)
				<-slots
			})
		}
	})
	return &wg
}

// nowhere keeps turns in no time.
type nowhere struct{}

func (nowhere) KeepTurn(port.RolloutID, int32, []byte) error { return nil }
func (nowhere) KeptTurns(port.RolloutID) int                 { return 0 }
func (nowhere) ReadTurns(port.RolloutID) ([][]byte, error)   { return nil, nil }
func (nowhere) KeptBlobs(port.RolloutID) []int32             { return nil }
func (nowhere) UnkeepTurns(port.RolloutID) error             { return nil }
func (nowhere) DropTurns(port.RolloutID)                     {}
func (nowhere) RetainTurns(stands func(port.RolloutID) bool) {}

func benchmarked(b *testing.B, turns port.Turns) *remote.Dispatcher {
	e, err := remote.New(remote.Options{Name: "reverse", ClaimTTL: time.Minute, Vocabulary: 1000, Turns: turns})
	if err != nil {
		b.Fatal(err)
	}
	return e
}

// BenchmarkRollout is a rollout of 256 tokens from offer to acknowledgement, called
// directly, with its claim and turn made ready to be kept or not. heap_kB is what is left in use at the end.
func BenchmarkRollout(b *testing.B) {
	b.Run("unkept", func(b *testing.B) { benchmarkRollout(b, nil) })
	b.Run("kept", func(b *testing.B) { benchmarkRollout(b, nowhere{}) })
}

func benchmarkRollout(b *testing.B, turns port.Turns) {
	e := benchmarked(b, turns)
	wg := played(b, e)
	var workers sync.WaitGroup
	for range 16 {
		workers.Go(func() {
			for {
				got, err := e.Claim(b.Context(), protocol.ClaimRequest{Worker: "w", Max: 8, WaitS: 60})
				if err != nil {
					return
				}
				for _, c := range got.Rollouts {
					e.Sample(b.Context(), c.ID, protocol.SampleRequest{Worker: "w", Prompt: []int32{1, 2, 3}, MaxTokens: 256})
					if reply, err := e.Finish(b.Context(), c.ID, protocol.FinishRequest{Worker: "w", Reward: new(float32(1))}); err != nil || !reply.Counted {
						b.Error(reply, err)
					}
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	e.EndRun()
	workers.Wait()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	b.ReportMetric(float64(m.HeapInuse)/1e3, "heap_kB")
}

// BenchmarkHTTP is the same over loopback HTTP: three requests a rollout.
func BenchmarkHTTP(b *testing.B) {
	e := benchmarked(b, nil)
	server, err := api.New(api.Options{}, api.Ports{Plane: readyPlane{}, Rollouts: e})
	if err != nil {
		b.Fatal(err)
	}
	listener := httptest.NewServer(server.Handler())
	defer listener.Close()
	r := &run{url: listener.URL + "/api/v1/rollouts/"}
	wg := played(b, e)
	var workers sync.WaitGroup
	for range 16 {
		w := &worker{run: r, name: "w"}
		workers.Go(func() {
			for {
				var got protocol.Claims
				if status, _ := w.post(b.Context(), "claim", protocol.ClaimRequest{Worker: "w", Max: 8, WaitS: 60}, &got); status == 205 {
					return
				}
				for _, c := range got.Rollouts {
					var reply protocol.SampleReply
					w.post(b.Context(), c.ID+"/sample", protocol.SampleRequest{Worker: "w", Secret: c.Secret, Prompt: []int32{1, 2, 3}, MaxTokens: 256}, &reply)
					var done protocol.FinishReply
					if _, err := w.post(b.Context(), c.ID+"/finish", protocol.FinishRequest{Worker: "w", Secret: c.Secret, Reward: new(float32(1))}, &done); err != nil || !done.Counted {
						b.Error(done, err)
					}
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	e.EndRun()
	workers.Wait()
}

// talkative is a sampler that says every token of 4096 as it comes.
type talkative struct{}

func (talkative) Sample(_ context.Context, req port.SampleRequest) (port.Generation, error) {
	const n = 4096
	g := port.Generation{Tokens: make([]int32, n), Logprobs: make([]float32, n), Versions: make([]loop.Version, n)}
	for i := range n {
		req.OnTokens(port.Delta{Tokens: g.Tokens[i : i+1], Logprobs: g.Logprobs[i : i+1], Text: "word"})
		req.Check(g.Tokens[:i+1])
	}
	return g, nil
}

// BenchmarkTurnEvent is an event of a token stream on its way through the environment.
func BenchmarkTurnEvent(b *testing.B) {
	e := benchmarked(b, nil)
	ctx, cancel := context.WithCancel(b.Context())
	var wg sync.WaitGroup
	wg.Go(func() { e.Play(ctx, port.RolloutRequest{ID: port.RolloutID{Group: 1, Attempt: 1}}, talkative{}) })
	claims, err := e.Claim(ctx, protocol.ClaimRequest{Worker: "w", WaitS: 60})
	if err != nil {
		b.Fatal(err)
	}
	events := 0
	b.ReportAllocs()
	for events < b.N {
		_, err := e.Turn(ctx, claims.Rollouts[0].ID, protocol.TurnRequest{Prompt: []int32{1}, MaxTokens: 4096}, func(d protocol.TurnDelta) { events += len(d.Tokens) })
		if err != nil {
			b.Fatal(err)
		}
	}
	cancel()
	wg.Wait()
}
