package remote_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headway-rl/headway/api"
	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/drive/live"
	engine "github.com/headway-rl/headway/engine/embedded"
	"github.com/headway-rl/headway/env"
	"github.com/headway-rl/headway/env/remote"
	"github.com/headway-rl/headway/internal/transformer"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/store/file"
	"github.com/headway-rl/headway/store/weights"
	trainer "github.com/headway-rl/headway/train/embedded"
)

// readyPlane is a control plane of which nothing is asked but whether it is ready.
type readyPlane struct{ api.Plane }

func (readyPlane) Ready() error { return nil }

// run is a real run: a transformer that samples and learns, rollouts played over HTTP.
type run struct {
	t       *testing.T
	task    env.ScoredTask
	env     *remote.Dispatcher
	runtime *live.Runtime
	url     string
	// check looks at every batch; wrap, if not nil, stands before the engine.
	check func(port.Batch)
	wrap  func(port.Engine) port.Engine
	// mortals is how many workers are to die before the run ends, died how many have.
	mortals int64
	died    atomic.Int64

	mu sync.Mutex
	// expired counts claims that ran out, resumed samples that were interrupted on the way,
	// finished what workers were told of theirs.
	expired  int
	resumed  int
	finished map[string]bool
}

const (
	runSeed = 5
	// mortals is how many workers die in the middle of a rollout.
	mortals = 4
)

// newRun wires the real parts as the control plane does.
func newRun(t *testing.T, cfg loop.Config, change ...func(*run)) *run {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	r := &run{t: t, finished: make(map[string]bool)}
	r.mortals = mortals
	r.check, r.wrap = r.checkBatch, func(e port.Engine) port.Engine { return e }
	for _, c := range change {
		c(r)
	}
	var err error
	r.task, err = env.New("reverse", env.Options{})
	must(err)
	limits := r.task.Limits()
	model := transformer.Config{Vocabulary: r.task.Vocabulary().Size(), Context: 16, Width: 16, Layers: 1, Heads: 2}.WithDefaults()
	published, err := weights.Open(t.TempDir(), weights.Options{})
	must(err)
	store, err := file.Create(t.TempDir(), file.Options{})
	must(err)
	made, err := engine.New(engine.Options{Name: "e", Slots: cfg.EngineSlots[0], Model: model, PromptTokens: limits.PromptTokens, End: env.End, Seed: runSeed, DecodeStepS: 0.002, Weights: published})
	must(err)
	learner, err := trainer.New(trainer.Options{Model: model, PromptTokens: limits.PromptTokens, Seed: runSeed, LearningRate: 0.003, ClipEpsilon: 0.2, Weights: published})
	must(err)
	began := time.Now()
	clock := func() int64 { return int64(time.Since(began)) }
	r.env, err = remote.New(remote.Options{
		Name: "reverse", Seed: runSeed, ClaimTTL: time.Hour, Vocabulary: model.Vocabulary, Clock: clock,
		Limits: remote.Limits{PromptTokens: limits.PromptTokens, ResponseTokens: limits.ResponseTokens},
	})
	must(err)
	r.runtime, err = live.New(live.Options{
		Header: trace.Header{Format: trace.Format, Program: "test", Source: "live", Seed: runSeed, Loop: cfg}, Patient: true,
		Engines: []port.Engine{r.wrap(made)}, Environment: r.env, Trainer: learner, Weights: published, Store: store, Clock: clock, OnBatch: r.check,
		OnStep: func(d live.StepDone) {
			if d.Status.Version >= 12 && r.died.Load() >= r.mortals {
				r.runtime.Stop()
			}
		},
	})
	must(err)
	server, err := api.New(api.Options{}, api.Ports{Plane: readyPlane{}, Rollouts: r.env})
	must(err)
	listener := httptest.NewServer(server.Handler())
	r.url = listener.URL + "/api/v1/rollouts/"
	t.Cleanup(func() {
		listener.Close()
		made.Close()
		learner.Close()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func (r *run) noteExpiry(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expired += n
}

// checkBatch scores what is trained on anew: tokens and reward must be those that the worker saw.
func (r *run) checkBatch(b port.Batch) {
	for _, g := range b.Groups {
		problem := env.TrainingProblem(r.task, runSeed, uint64(g.ID), 0)
		for i := range g.Samples {
			s := &g.Samples[i]
			if s.Resumed() {
				r.mu.Lock()
				r.resumed++
				r.mu.Unlock()
			}
			n := len(problem.Prompt)
			if score := r.task.Score(problem, s.Tokens[n:]); s.Reward != float32(score.Reward) || s.Exact != score.Exact || s.ResponseTokens() != len(s.Tokens)-n {
				r.t.Errorf("%v: reward %g, the response earns %+v: %v", s.ID, s.Reward, score, s.Tokens)
			}
		}
	}
}

// worker is a process that plays rollouts over HTTP.
type worker struct {
	run  *run
	name string
	rng  *rand.Rand
}

// post sends a message and decodes the reply of a 200; status is 0 where the connection broke.
func (w *worker) post(ctx context.Context, path string, message, reply any) (status int, err error) {
	body, err := json.Marshal(message)
	if err != nil {
		return 0, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.run.url+path, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	got, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	if err != nil {
		return 0, err
	}
	if got.StatusCode == http.StatusOK {
		return got.StatusCode, json.Unmarshal(text, reply)
	}
	return got.StatusCode, fmt.Errorf("%s: %d %s", path, got.StatusCode, text)
}

// live plays until the run has ended. A mortal worker dies on the way, its claims run out, and its
// process is started again. Nobody else's claims run out, however busy the machine is.
func (w *worker) live(mortal bool) {
	for mortal {
		if over := w.work(true); over {
			return
		}
		if n := w.run.env.Expire(w.name); n > 0 { // else the loop had given up what it played
			w.run.noteExpiry(n)
			w.run.died.Add(1)
			mortal = false
		}
	}
	w.work(false)
}

// work plays until the run has ended, or until a mortal worker dies in the middle of a rollout.
func (w *worker) work(mortal bool) (over bool) {
	for {
		var claims protocol.Claims
		status, err := w.post(w.run.t.Context(), "claim", protocol.ClaimRequest{Worker: w.name, Max: 2, WaitS: 30}, &claims)
		switch {
		case status == http.StatusResetContent:
			return true
		case status != http.StatusOK && status != http.StatusNoContent:
			w.run.t.Errorf("worker %s: %v", w.name, err)
			return true
		}
		for _, c := range claims.Rollouts {
			if !w.play(c, mortal) {
				return false
			}
		}
	}
}

// play plays one rollout and reports whether the worker lives on. Connections drop now and then.
func (w *worker) play(c protocol.Claim, mortal bool) bool {
	death := w.rng.IntN(3)
	if mortal && death == 0 {
		return false
	}
	problem := env.TrainingProblem(w.run.task, c.Seed, c.Prompt, int(c.Level))
	var reply protocol.SampleReply
	ask := protocol.SampleRequest{Worker: w.name, Secret: c.Secret, Prompt: problem.Prompt}
	if mortal && death == 1 || w.rng.IntN(5) == 0 {
		dropped, cancel := context.WithTimeout(w.run.t.Context(), 3*time.Millisecond)
		w.post(dropped, c.ID+"/sample", ask, &reply)
		cancel()
		if mortal {
			return false
		}
	}
	if status, err := w.post(w.run.t.Context(), c.ID+"/sample", ask, &reply); status != http.StatusOK {
		return w.survives(status, err)
	}
	if mortal {
		return false
	}
	score := w.run.task.Score(problem, reply.Tokens)
	finish := protocol.FinishRequest{Worker: w.name, Secret: c.Secret, Reward: new(float32(score.Reward)), Exact: score.Exact}
	var done protocol.FinishReply
	if w.rng.IntN(5) == 0 {
		dropped, cancel := context.WithTimeout(w.run.t.Context(), time.Millisecond)
		w.post(dropped, c.ID+"/finish", finish, &done)
		cancel()
	}
	status, err := w.post(w.run.t.Context(), c.ID+"/finish", finish, &done)
	if status != http.StatusOK {
		return w.survives(status, err)
	}
	w.run.mu.Lock()
	defer w.run.mu.Unlock()
	if _, twice := w.run.finished[c.ID]; twice {
		w.run.t.Errorf("%s was played twice", c.ID)
	}
	w.run.finished[c.ID] = done.Counted
	return true
}

// survives reports whether a worker goes on after a refusal: the loop gives rollouts up, and the run ends.
func (w *worker) survives(status int, err error) bool {
	if status != http.StatusGone && status != http.StatusServiceUnavailable {
		w.run.t.Errorf("worker %s: %v", w.name, err)
		return false
	}
	return true
}

// TestRun: a run whose rollouts are played over HTTP, interrupted by every switch of
// weights, by workers of which some die in the middle of a rollout. Every attempt ends
// once, what died is tried again, and what a worker was told counts does count.
func TestRun(t *testing.T) {
	cfg := loop.Config{GroupSize: 4, BatchGroups: 2, EngineSlots: []int{12}, QueueGroups: 4, Sync: loop.SyncRestart, MaxAttempts: 8}
	r := newRun(t, cfg)
	var workers sync.WaitGroup
	for i := range 8 {
		w := &worker{run: r, name: fmt.Sprintf("w%d", i), rng: rand.New(rand.NewPCG(runSeed, uint64(i)))}
		workers.Go(func() {
			w.live(i < mortals)
		})
	}
	res, err := r.runtime.Run(t.Context())
	r.env.EndRun()
	workers.Wait()
	if err != nil || res.Reason != loop.ReasonStopped {
		t.Fatalf("ended by %v at version %d: %v", res.Reason, res.Status.Version, err)
	}
	l := res.Status.Ledger
	if !l.Balanced() || l.Failed == 0 || l.Failed > int64(r.expired) {
		t.Errorf("ledger %+v; %d claims expired", l, r.expired)
	}
	counted := int64(0)
	for _, counts := range r.finished {
		if counts {
			counted++
		}
	}
	if want := l.Trained + l.Evicted + l.Discarded + l.Filtered + l.Queued + l.Leased + l.Waiting; counted != want {
		t.Errorf("workers were told that %d rollouts count, the ledger has %d: %+v", counted, want, l)
	}
	if r.resumed == 0 {
		t.Error("no rollout was interrupted and resumed: the test needs some")
	}
	if st := r.env.Status(); st.Claimed != 0 || st.Offered != 0 {
		t.Errorf("left %+v", st)
	}
	t.Logf("%d rollouts counted, %d claims expired, %d attempts failed, %d cancelled, %d resumed", counted, r.expired, l.Failed, l.Cancelled, r.resumed)
}
