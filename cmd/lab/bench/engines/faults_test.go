package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/engine/enginetest"
	"github.com/headway-rl/headway/engine/upstream"
	"github.com/headway-rl/headway/engine/vllm"
	"github.com/headway-rl/headway/env/remote"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/store/file"
	"github.com/headway-rl/headway/store/weights"
)

const (
	faultEngines = 3
	faultSlots   = 8
	faultContext = 256
	// turnMax is how long a client waits for one answer before it counts as hanging; a run takes a
	// fraction of it.
	turnMax = 5 * time.Minute
)

// faultForm is how much a run goes through. It has no end of its own: it is over when all of this
// has happened, however long the machine takes for it.
type faultForm struct {
	// times is how often every engine fails in every way.
	times int
	// kills are after how many finished rollouts the server of an engine is killed and, away rollouts
	// later, another started in its place: engine by engine.
	kills []int
	away  int
	// steps and updates of all servers together are the least.
	steps   loop.Version
	updates int
}

// theFaultForm is the whole with HEADWAY_LONG, and every way to fail once an engine without.
func theFaultForm() faultForm {
	if os.Getenv("HEADWAY_LONG") != "" {
		return faultForm{times: 4, kills: []int{60, 200}, away: 40, steps: 40, updates: 4 * faultEngines}
	}
	return faultForm{times: 1, kills: []int{30}, away: 20, steps: 10, updates: faultEngines + 1}
}

// faultPolicy is what every server serves: whoever knows the weights can compute every token.
var faultPolicy = enginetest.Policy{Vocabulary: 64, EOS: 4, Length: 40}

// weightsName is the name of a version's weights, as a server sees it in their path.
func weightsName(v loop.Version) string {
	name, _, _ := strings.Cut(weights.ViewPath(v), "/")
	return name
}

// faultRun is a run of the real pieces between clients and servers that fail: the live runtime, the
// store and the weights on disk, the environment of other processes, and engines over fault proxies.
type faultRun struct {
	form    faultForm
	dir     string
	weights *weights.Store
	environ *remote.Dispatcher
	servers []*enginetest.PolicyServer
	proxies []*enginetest.FaultProxy
	engines []port.Engine
	// spares are the servers that were started in the place of killed ones; under the lock of clients.
	spares  []*enginetest.PolicyServer
	trainer *checkingTrainer
	clients *clients
	// fail lets the faults begin: the first versions are served without.
	fail sync.Once
	seed uint64
	logf func(string, ...any)
}

// TestRandomFaults: whatever random faults do to three engines in one run, the ledger balances,
// every client that stays gets a complete answer or a clear error, no token comes twice or under
// another version than made it, and nothing hangs.
func TestRandomFaults(t *testing.T) {
	r := newFaultRun(t, 20261121)
	result := r.run(t)
	if lacks := r.lacks(); result.Reason != loop.ReasonStopped || len(lacks) != 0 {
		t.Errorf("ended by %s at version %d without %s", result.Reason, result.Status.Version, strings.Join(lacks, ", "))
	}
	if l := result.Status.Ledger; !l.Balanced() || l.Trained != int64(r.trainer.rollouts) {
		t.Errorf("ledger %+v, %d rollouts trained on: want it balanced", l, r.trainer.rollouts)
	}
	kinds := map[enginetest.FaultKind]int{}
	for _, p := range r.proxies {
		for _, f := range p.Done() {
			kinds[f.Kind]++
		}
	}
	t.Logf("faults %v; clients: %d answers, %d errors, %d left, %d rollouts finished; trained on %d rollouts and %d tokens; ledger %+v",
		kinds, r.clients.answered, r.clients.refused, r.clients.left, r.clients.finished, r.trainer.rollouts, r.trainer.tokens, result.Status.Ledger)
}

// lacks is what has not happened yet of what the run is to go through.
func (r *faultRun) lacks() []string {
	var all []string
	want := func(what string, n, least int) {
		if n < least {
			all = append(all, fmt.Sprintf("%s: %d of %d", what, n, least))
		}
	}
	c := r.clients
	c.mu.Lock()
	defer c.mu.Unlock()
	want("train steps", r.trainer.steps, int(r.form.steps))
	want("answers", c.answered, 1)
	want("errors to clients", c.refused, 1)
	want("turns that were left", c.left, 1)
	want("servers started again", len(r.spares), len(r.form.kills))
	for i, p := range r.proxies {
		want(fmt.Sprintf("faults of engine %d", i), len(p.Done()), r.form.times*len(enginetest.FaultKinds))
	}
	updates := 0
	for i, s := range slices.Concat(r.servers, r.spares) {
		n := len(s.Updates())
		updates += n
		want(fmt.Sprintf("updates of server %d", i), n, 1)
	}
	want("updates", updates, r.form.updates)
	return all
}

// newFaultRun makes the pieces.
func newFaultRun(t *testing.T, seed uint64) *faultRun {
	t.Helper()
	r := &faultRun{form: theFaultForm(), dir: t.TempDir(), seed: seed, logf: func(string, ...any) {}}
	if testing.Verbose() {
		r.logf = t.Logf
	}
	beside := filepath.Join(r.dir, "weights", weights.BesideName)
	if err := errors.Join(os.MkdirAll(beside, 0o755), os.WriteFile(filepath.Join(beside, "config.json"), []byte("{}"), 0o644)); err != nil {
		t.Fatal(err)
	}
	var err error
	if r.weights, err = weights.Open(filepath.Join(r.dir, "weights"), weights.Options{}); err != nil {
		t.Fatal(err)
	}
	r.environ, err = remote.New(remote.Options{Name: "faults", Seed: seed, ClaimTTL: turnMax, Vocabulary: faultPolicy.Vocabulary,
		Limits: remote.Limits{PromptTokens: faultContext / 2, ResponseTokens: 40}})
	if err != nil {
		t.Fatal(err)
	}
	r.trainer = &checkingTrainer{t: t, weights: r.weights, seen: map[port.RolloutID]bool{}}
	r.clients = &clients{t: t, run: r}
	for i := range faultEngines {
		r.addEngine(t, i)
	}
	return r
}

// addEngine makes a server, a proxy that fails in front of it, and an engine over that.
func (r *faultRun) addEngine(t *testing.T, i int) {
	t.Helper()
	s := newFaultServer(i)
	t.Cleanup(s.Close)
	p := enginetest.NewFaultProxy(s.URL(), nil)
	t.Cleanup(p.Close)
	server, err := upstream.NewServer(upstream.ServerOptions{URL: p.URL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	e, err := upstream.New(upstream.Options{
		Name: fmt.Sprintf("engine-%d", i), Slots: faultSlots, Server: server, Dialect: vllm.New(), Delivery: upstream.DeliveryDisk,
		Views: r.weights.View, ServerPath: filepath.Dir, Vocabulary: faultPolicy.Vocabulary,
		// On a busy machine a token may lie unread for long: a shorter quiet would take it for one of the new weights.
		Silent: 3 * time.Second, Quiet: 2 * time.Second, Logf: r.logf,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	r.servers, r.proxies, r.engines = append(r.servers, s), append(r.proxies, p), append(r.engines, e)
}

// begin lets the servers fail.
func (r *faultRun) begin() {
	for i, p := range r.proxies {
		p.SetPlan(dealt(r.seed+uint64(i), r.form.times))
	}
}

// dealt is the plan by which requests that sample fail in every way so many times, in random order
// and after random numbers of events, with two that pass among three that fail.
func dealt(seed uint64, times int) enginetest.Plan {
	draw := rand.New(rand.NewPCG(seed, 0x6661756c74))
	var faults []enginetest.Fault
	for _, kind := range slices.Repeat(enginetest.FaultKinds, times) {
		faults = append(faults, enginetest.Fault{Kind: kind, After: draw.IntN(12), Wait: 20 * time.Millisecond})
	}
	faults = append(faults, slices.Repeat([]enginetest.Fault{{Kind: enginetest.Pass}}, 2*len(faults)/3)...)
	draw.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
	return enginetest.Script(faults...)
}

// kill takes down the server of an engine with all that it has under way, or starts another in its
// place, which serves neither the weights nor the label of the old one.
func (r *faultRun) kill(engine int, down bool) {
	r.proxies[engine].SetDown(down)
	r.servers[engine].Close()
	if down {
		return
	}
	s := newFaultServer(engine)
	r.spares = append(r.spares, s)
	r.proxies[engine].SetServer(s.URL())
}

// newFaultServer starts a server. Every other one says itself which weights made which tokens.
func newFaultServer(i int) *enginetest.PolicyServer {
	return enginetest.NewPolicyServer(enginetest.PolicyOptions{Policy: faultPolicy, Context: faultContext, Weights: "initial", Spans: i%2 == 1, Step: time.Millisecond})
}

// run plays the run with its clients to its end.
func (r *faultRun) run(t *testing.T) live.Result {
	t.Helper()
	store, err := file.Create(filepath.Join(r.dir, "run"), file.Options{})
	if err != nil {
		t.Fatal(err)
	}
	cfg := loop.Config{GroupSize: 2, BatchGroups: 8, QueueGroups: 16, SyncEvery: 5, MaxAttempts: 5, ResumeLost: true}
	for range r.engines {
		cfg.EngineSlots = append(cfg.EngineSlots, faultSlots)
	}
	began := time.Now()
	runtime, err := live.New(live.Options{
		Header: trace.Header{Loop: cfg, Program: "faults"}, Engines: r.engines, Environment: r.environ, Trainer: r.trainer, Weights: r.weights,
		Store: store, Clock: func() int64 { return int64(time.Since(began)) }, RejoinAfter: 100 * time.Millisecond, Patient: true, Logf: r.logf,
		KeepVersions: 40,
	})
	if err != nil {
		t.Fatal(err)
	}
	r.trainer.stepped = func() {
		if len(r.lacks()) == 0 {
			runtime.Stop()
		}
	}
	ctx := t.Context()
	if limit, ok := t.Deadline(); ok { // so that a run that hangs says what it lacks
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, limit.Add(-time.Minute), errors.New("the run hangs"))
		defer cancel()
	}
	played := r.clients.play(ctx)
	result, err := runtime.Run(ctx)
	r.environ.Close()
	<-played
	for _, s := range r.spares {
		t.Cleanup(s.Close)
	}
	if err != nil {
		t.Errorf("the run ended with %v (%v)", err, context.Cause(ctx))
	}
	if err := store.Close(); err != nil {
		t.Error(err)
	}
	return result
}

// checkingTrainer trains on nothing, but holds every token that was recorded against the policy.
type checkingTrainer struct {
	t       *testing.T
	weights *weights.Store
	seen    map[port.RolloutID]bool

	steps, rollouts, tokens int
	// stepped is called after a step.
	stepped func()
}

// Train implements port.Trainer.
func (c *checkingTrainer) Train(ctx context.Context, b port.Batch) (port.StepReport, error) {
	report := port.StepReport{Minibatches: 1, EffectiveSampleSize: 1}
	for _, g := range b.Groups {
		for _, s := range g.Samples {
			if c.seen[s.ID] {
				c.t.Errorf("rollout %v is trained on twice", s.ID)
			}
			c.seen[s.ID] = true
			c.rollouts++
			c.tokens += s.ResponseTokens()
			if err := checkSample(s); err != nil {
				c.t.Errorf("rollout %v as recorded: %v", s.ID, err)
			}
		}
	}
	if err := c.publish(ctx, b.Version+1, b.Lease); err != nil {
		return report, err
	}
	c.steps++
	c.stepped()
	return report, nil
}

// checkSample holds the tokens of every sequence against the policy.
func checkSample(s port.Sample) error {
	begin := 0
	for _, end := range append(append([]int32(nil), s.Breaks...), int32(len(s.Tokens))) {
		for i := begin; i < int(end); i++ {
			if s.LossMask[i] == 0 {
				continue
			}
			from := i
			for i < int(end) && s.LossMask[i] == 1 {
				i++
			}
			g := port.Generation{Tokens: s.Tokens[from:i], Logprobs: s.Logprobs[from:i], Versions: s.Versions[from:i], Interrupted: true}
			if err := faultPolicy.Check(s.Tokens[begin:from], faultContext, g, weightsName); err != nil {
				return err
			}
		}
		begin = int(end)
	}
	return nil
}

func (c *checkingTrainer) publish(ctx context.Context, v loop.Version, lease loop.LeaseID) error {
	model := []port.Tensor{{Name: "model.weight", Shape: []int{1}, Data: []float32{float32(v)}}}
	return c.weights.Publish(ctx, port.Publication{Version: v, Lease: lease, Model: model})
}

// Initialize implements port.Trainer.
func (c *checkingTrainer) Initialize(ctx context.Context) error { return c.publish(ctx, 0, 0) }

// Restore implements port.Trainer.
func (c *checkingTrainer) Restore(context.Context, loop.Version, loop.LeaseID) error { return nil }

// Close implements port.Trainer.
func (c *checkingTrainer) Close() error { return nil }

// A plan fails only what samples: were a switch's own calls to fail as well, its counts would not say what clients met.
func TestFaultsAreOfSampling(t *testing.T) {
	plan := dealt(1, 1)
	for path, want := range map[string]bool{"/pause": false, "/collective_rpc": false, "/v1/completions": true} {
		r, err := http.NewRequest(http.MethodPost, "http://server"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		failed := 0
		for range 100 {
			if kind := plan(r).Kind; kind != "" && kind != enginetest.Pass {
				failed++
			}
		}
		if (failed == len(enginetest.FaultKinds)) != want || (failed == 0) == want {
			t.Errorf("%s fails %d times of 100", path, failed)
		}
	}
}

// draw is a source of a client's own.
func (r *faultRun) draw(client int) *rand.Rand { return rand.New(rand.NewPCG(r.seed, uint64(client))) }
