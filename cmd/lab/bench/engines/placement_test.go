package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/engine/upstream"
	"github.com/headway-rl/headway/engine/vllm"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/observe/metrics"
	"github.com/headway-rl/headway/store/file"
	"github.com/headway-rl/headway/store/weights"
)

const (
	placementPrompt   = 208 // tokens, of which six blocks of 32 can be found
	placementResponse = 40
	placementSlots    = 8
)

// TestPlacement lets the live runtime place rollouts on real servers, and reads from their metrics which share of the
// prompts' tokens their caches had. Siblings share a prompt. Single rollouts are interrupted and go on with what they have,
// under the same weights: what others computed must not be found.
func TestPlacement(t *testing.T) {
	all := os.Getenv("HEADWAY_TEST_VLLM_PLACEMENT_ALL")
	if all == "" {
		t.Skip("HEADWAY_TEST_VLLM_PLACEMENT_ALL names no servers: make test-engines")
	}
	urls := strings.Split(all, ",")
	siblings := loop.Config{GroupSize: 8, BatchGroups: 40, QueueGroups: 40, TrainSteps: 1}
	interrupted := loop.Config{GroupSize: 1, BatchGroups: 32, QueueGroups: 64, TrainSteps: 6, SyncEvery: 8, InterruptAtBatch: true}
	for _, c := range []struct {
		name               string
		cfg                loop.Config
		least, most, gains float64
	}{
		{"siblings", siblings, 0.3, 0.6, 0.2},
		{"interrupted", interrupted, 0, 0.2, 0.1},
	} {
		t.Run(c.name, func(t *testing.T) {
			without := placedShare(t, urls, c.cfg)
			c.cfg.Placement = loop.PlaceCacheAware
			with := placedShare(t, urls, c.cfg)
			t.Logf("progress: %s: caches had %.1f %% of the prompts' tokens least loaded, %.1f %% cache aware", c.name, 100*without, 100*with)
			if without < c.least || without > c.most || with < without+c.gains {
				t.Errorf("caches had a share of %.3f least loaded and %.3f cache aware: want %g to %g, and %g more", without, with, c.least, c.most, c.gains)
			}
		})
	}
}

// placedShare is the share of prompts' tokens that the caches of servers have in a run.
func placedShare(t *testing.T, urls []string, cfg loop.Config) float64 {
	t.Helper()
	dir := t.TempDir()
	kept, err := weights.Open(filepath.Join(dir, "weights"), weights.Options{})
	if err != nil {
		t.Fatal(err)
	}
	model := directories(t)[0] // every version has the same weights
	var engines []port.Engine
	for i, url := range urls {
		server, err := upstream.NewServer(upstream.ServerOptions{URL: url})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(server.Close)
		e, err := upstream.New(upstream.Options{Name: fmt.Sprintf("engine-%d", i), Slots: placementSlots, Server: server, Dialect: vllm.New(),
			Delivery: upstream.DeliveryDisk, Views: func(context.Context, loop.Version) (string, error) { return model, nil }, Vocabulary: 64, Logf: t.Logf})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = e.Close() })
		engines = append(engines, e)
		cfg.EngineSlots = append(slices.Clone(cfg.EngineSlots), placementSlots)
	}
	store, err := file.Create(filepath.Join(dir, "run"), file.Options{})
	if err != nil {
		t.Fatal(err)
	}
	trainer := &pausingTrainer{checkingTrainer: checkingTrainer{t: t, weights: kept}, pauses: cfg.InterruptAtBatch, stopping: map[int32]bool{}}
	trainer.changed.L = &trainer.mu
	began := time.Now()
	runtime, err := live.New(live.Options{
		Header: trace.Header{Loop: cfg, Program: "placement"}, Engines: engines, Environment: repeated{uint64(began.UnixNano())}, Trainer: trainer, Weights: kept,
		Store: store, Clock: func() int64 { return int64(time.Since(began)) }, Observe: trainer.observe, Logf: t.Logf,
	})
	if err != nil {
		t.Fatal(err)
	}
	queries, hits := cacheCounters(t, urls)
	result, err := runtime.Run(t.Context())
	if err != nil || result.Reason != loop.ReasonSteps {
		t.Fatalf("the run ended by %s: %v", result.Reason, err)
	}
	asked, found := cacheCounters(t, urls)
	if err := store.Close(); err != nil {
		t.Error(err)
	}
	l := result.Status.Ledger
	t.Logf("placement %d: %.0f of %.0f tokens found, %d rollouts trained, %d resumed, %v", cfg.Placement, found-hits, asked-queries, l.Trained, trainer.resumed, time.Since(began).Round(time.Second))
	if asked-queries < float64(l.Trained*placementPrompt) || cfg.InterruptAtBatch && trainer.resumed < 50 {
		t.Errorf("%.0f tokens were looked up for %d rollouts, %d of which were resumed: the run is too tame", asked-queries, l.Trained, trainer.resumed)
	}
	return (found - hits) / (asked - queries)
}

// cacheCounters are the tokens that were looked up in the servers' prefix caches so far, and those that were there.
func cacheCounters(t *testing.T, urls []string) (queries, hits float64) {
	t.Helper()
	for _, url := range urls {
		res, err := http.Get(url + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(text) {
			for name, sum := range map[string]*float64{"vllm:prefix_cache_queries_total{": &queries, "vllm:prefix_cache_hits_total{": &hits} {
				if fields := strings.Fields(string(line)); strings.HasPrefix(string(line), name) {
					n, err := strconv.ParseFloat(fields[len(fields)-1], 64)
					if err != nil {
						t.Fatal(err)
					}
					*sum += n
				}
			}
		}
	}
	return queries, hits
}

// repeated gives all rollouts of a group one random prompt, which no other group has.
type repeated struct{ seed uint64 }

// Play implements port.Environment.
func (e repeated) Play(ctx context.Context, task port.RolloutRequest, s port.Sampler) (port.Sample, error) {
	draw := rand.New(rand.NewPCG(e.seed, task.PromptNumber()))
	prompt := make([]int32, placementPrompt)
	for i := range prompt {
		prompt[i] = int32(6 + draw.IntN(50)) // no special token
	}
	g, err := s.Sample(ctx, port.SampleRequest{Prompt: prompt, MaxTokens: placementResponse, Final: true})
	if err != nil {
		return port.Sample{}, err
	}
	n := len(g.Tokens)
	return port.Sample{ID: task.ID, Tokens: append(prompt, g.Tokens...), Reward: 1,
		LossMask: append(make([]uint8, placementPrompt), bytes.Repeat([]byte{1}, n)...),
		Logprobs: append(make([]float32, placementPrompt), g.Logprobs...),
		Versions: append(slices.Repeat([]loop.Version{loop.NoVersion}, placementPrompt), g.Versions...)}, nil
}

// pausingTrainer trains on nothing. Where it pauses, a step lasts until the next batch has interrupted all that runs.
type pausingTrainer struct {
	checkingTrainer
	pauses bool

	mu      sync.Mutex
	changed sync.Cond
	// Rollouts that were asked to stop, those of them that have by the end of a step, and those that went on.
	asked, stopped, resumed int
	stopping                map[int32]bool // by slot
}

// observe counts interruptions.
func (p *pausingTrainer) observe(ev *loop.Event, _ *metrics.Measured, actions []loop.Action) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ev.Kind >= loop.RolloutScored && ev.Kind <= loop.RolloutInterrupted {
		delete(p.stopping, ev.Slot)
	}
	for _, a := range actions {
		switch a.Kind {
		case loop.InterruptRollout:
			p.asked++
			p.stopping[a.Slot] = true
		case loop.ResumeRollout:
			p.resumed++
		}
	}
	p.changed.Broadcast()
}

// Train implements port.Trainer.
func (p *pausingTrainer) Train(ctx context.Context, b port.Batch) (port.StepReport, error) {
	p.mu.Lock()
	for p.pauses && (p.asked == p.stopped || len(p.stopping) > 0) {
		p.changed.Wait()
	}
	p.stopped = p.asked
	p.mu.Unlock()
	return port.StepReport{Minibatches: 1, EffectiveSampleSize: 1}, p.publish(ctx, b.Version+1, b.Lease)
}
