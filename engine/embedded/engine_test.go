package embedded

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/internal/transformer"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/store/weights"
)

const (
	promptTokens = 6
	maxTokens    = 7
	endToken     = 2
)

var model = transformer.Config{Vocabulary: 19, Context: 12, Width: 16, Layers: 2, Heads: 2}.WithDefaults()

// policies publishes two versions of random weights.
func policies(t *testing.T) (port.Weights, [2]*transformer.Parameters) {
	t.Helper()
	store, err := weights.Open(t.TempDir(), weights.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var all [2]*transformer.Parameters
	for v := range all {
		if all[v], err = transformer.NewParameters(model, uint64(v)+1); err != nil {
			t.Fatal(err)
		}
		// The first policy of a run is close to uniform; a sharper one tells more.
		gain, err := all[v].Tensor("final_norm")
		if err != nil {
			t.Fatal(err)
		}
		for i := range gain {
			gain[i] *= 5
		}
		p := port.Publication{Version: loop.Version(v), Lease: loop.LeaseID(v), Model: weights.Tensors(all[v])}
		if err := store.Publish(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	return store, all
}

func options(store port.Weights, slots int) Options {
	return Options{Name: "test", Model: model, PromptTokens: promptTokens, Slots: slots, End: endToken, Seed: 3, Weights: store}
}

// start returns an engine that serves version 0.
func start(t *testing.T, o Options) *Engine {
	t.Helper()
	e, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	serve(t, e, 0)
	return e
}

func serve(t *testing.T, e *Engine, v loop.Version) {
	t.Helper()
	if err := e.Load(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	if err := e.Switch(t.Context(), v, false); err != nil {
		t.Fatal(err)
	}
}

// request is rollout number i, with a prompt whose length varies.
func request(i int) port.GenerateRequest {
	prompt := []int32{0}
	for k := range 1 + i%(promptTokens-1) {
		prompt = append(prompt, int32(3+(i*7+k*5)%16))
	}
	return port.GenerateRequest{
		Rollout: port.RolloutID{Group: loop.GroupID(i / 4), Sample: int32(i % 4), Attempt: 1},
		Prompt:  prompt, MaxTokens: maxTokens,
	}
}

func generate(t *testing.T, e *Engine, req port.GenerateRequest) port.Generation {
	t.Helper()
	g, err := e.Generate(t.Context(), req)
	if err != nil {
		t.Error(err)
	}
	return g
}

// TestLogprobsAreThePolicys compares the recorded log-probs with a whole-sequence
// forward pass of the trainer's kind, and the end of a response with its rules.
func TestLogprobsAreThePolicys(t *testing.T) {
	store, all := policies(t)
	e := start(t, options(store, 1))
	pass, err := transformer.NewPass(model)
	if err != nil {
		t.Fatal(err)
	}
	ended := map[bool]int{}
	for i := range 60 {
		req := request(i)
		g := generate(t, e, req)
		n := len(g.Tokens)
		if n < 1 || n > maxTokens || len(g.Logprobs) != n || len(g.Versions) != n {
			t.Fatalf("rollout %d: generation %+v", i, g)
		}
		if at := slices.Index(g.Tokens, endToken); (at >= 0) == g.Truncated || (at >= 0 && at != n-1) || (g.Truncated && n != maxTokens) {
			t.Fatalf("rollout %d: generation %+v ends wrongly", i, g)
		}
		ended[g.Truncated]++
		want := forward(t, pass, all[0], req.Prompt, g.Tokens)
		for k := range g.Logprobs {
			if math.Abs(float64(g.Logprobs[k]-want[k])) > 2e-5 {
				t.Fatalf("rollout %d token %d: log-prob %g, the forward pass has %g", i, k, g.Logprobs[k], want[k])
			}
		}
	}
	if ended[true] == 0 || ended[false] == 0 {
		t.Errorf("%d responses were cut and %d ended: the test needs both", ended[true], ended[false])
	}
}

// forward returns the log-probs of a response by the training path.
func forward(t *testing.T, pass *transformer.Pass, w *transformer.Parameters, prompt, response []int32) []float32 {
	t.Helper()
	b := &transformer.Batch{
		Tokens:  append(slices.Clone(prompt), response...),
		Offsets: []int32{0, int32(len(prompt) + len(response))},
		First:   []int32{int32(promptTokens - len(prompt))},
	}
	for i := range b.Tokens {
		b.Scored = append(b.Scored, i >= len(prompt))
	}
	logp := make([]float32, len(b.Tokens))
	if err := pass.Forward(w, b, logp); err != nil {
		t.Fatal(err)
	}
	return logp[len(prompt):]
}

// TestCompanyDoesNotMatter plays the same rollouts one at a time and many at
// once: the same bits, log-probs included.
func TestCompanyDoesNotMatter(t *testing.T) {
	store, _ := policies(t)
	alone, crowd := start(t, options(store, 1)), start(t, options(store, 7))
	const rollouts = 70
	want, got := make([]port.Generation, rollouts), make([]port.Generation, rollouts)
	for i := range want {
		want[i] = generate(t, alone, request(i))
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, crowd.Slots())
	for i := range got {
		slots <- struct{}{}
		wg.Go(func() {
			got[i] = generate(t, crowd, request(i))
			<-slots
		})
	}
	wg.Wait()
	if !reflect.DeepEqual(got, want) {
		t.Error("what a rollout samples depends on its company")
	}
	distinct := map[string]bool{}
	for _, g := range want {
		distinct[fmt.Sprint(g.Tokens)] = true
	}
	if len(distinct) < rollouts/2 {
		t.Errorf("only %d distinct responses of %d: draws repeat", len(distinct), rollouts)
	}
}

func TestDrawsFollowTheName(t *testing.T) {
	base := port.RolloutID{Group: 5, Sample: 2, Attempt: 1}
	names := []source{
		newSource(3, base, 0), newSource(4, base, 0), newSource(3, base, 1),
		newSource(3, port.RolloutID{Group: 6, Sample: 2, Attempt: 1}, 0),
		newSource(3, port.RolloutID{Group: 5, Sample: 1, Attempt: 2}, 0),
		newSource(3, port.RolloutID{Group: 2, Sample: 5, Attempt: 1}, 0),
	}
	seen := map[float64]bool{}
	var sum float64
	const positions = 2000
	for _, s := range names {
		for p := range positions {
			u := s.uniform(p)
			if u < 0 || u >= 1 || seen[u] {
				t.Fatalf("draw %g at position %d is out of range or was seen before", u, p)
			}
			seen[u] = true
			sum += u
		}
	}
	n := float64(len(names) * positions)
	if mean := sum / n; math.Abs(mean-0.5) > 4/math.Sqrt(12*n) {
		t.Errorf("%g draws have the mean %g, want 0.5", n, mean)
	}
}

// long finds a rollout that runs to its limit under both versions served from
// its first token.
func long(t *testing.T, store port.Weights) port.GenerateRequest {
	t.Helper()
	e := start(t, options(store, 1))
	for i := range 200 {
		if g := generate(t, e, request(i)); g.Truncated {
			return request(i)
		}
	}
	t.Fatal("no response runs to its limit")
	return port.GenerateRequest{}
}

// TestSwitchBetweenTokens changes the weights in the middle of a rollout, on
// fake time with a second a step.
func TestSwitchBetweenTokens(t *testing.T) {
	for _, hold := range []bool{false, true} {
		store, all := policies(t)
		req := long(t, store)
		synctest.Test(t, func(t *testing.T) {
			o := options(store, 2)
			o.DecodeStepS = 1
			e := start(t, o)
			began := time.Now()
			var firstAt time.Duration
			req.FirstToken = func(v loop.Version) {
				firstAt = time.Since(began)
				if v != 0 {
					t.Errorf("the first token is of version %d, want 0", v)
				}
			}
			done := make(chan port.Generation)
			go func() { done <- generate(t, e, req) }()
			time.Sleep(2500 * time.Millisecond)
			if err := e.Load(t.Context(), 1); err != nil {
				t.Error(err)
			}
			if err := e.Switch(t.Context(), 1, hold); err != nil {
				t.Error(err)
			}
			if at := time.Since(began); at != 3*time.Second {
				t.Errorf("the switch took place at %v, want the end of the step at 3s", at)
			}
			g := <-done
			want := make([]loop.Version, len(g.Tokens))
			for i := range want {
				if i >= 3 {
					want[i] = 1
				}
			}
			if len(want) < 4 || !slices.Equal(g.Versions, want) {
				t.Errorf("versions %v, want %v: tokens of both", g.Versions, want)
			}
			if firstAt != time.Second {
				t.Errorf("the first token was reported at %v, want 1s", firstAt)
			}
			pass, err := transformer.NewPass(model)
			if err != nil {
				t.Fatal(err)
			}
			before := forward(t, pass, all[0], req.Prompt, g.Tokens)
			for i := range 3 {
				if math.Abs(float64(g.Logprobs[i]-before[i])) > 2e-5 {
					t.Errorf("token %d before the switch has log-prob %g, the old policy %g", i, g.Logprobs[i], before[i])
				}
			}
			if math.Abs(float64(g.Logprobs[3]-before[3])) < 1e-3 {
				t.Errorf("token 3 after the switch still has the old policy's log-prob %g", before[3])
			}
			_ = e.Close()
		})
	}
}

// TestAbortFreesTheSlot aborts a generation between two of its steps. Its slot
// serves the next one, which comes out as if nothing had been there.
func TestAbortFreesTheSlot(t *testing.T) {
	store, _ := policies(t)
	req := long(t, store)
	other := request(3)
	want := generate(t, start(t, options(store, 1)), other)
	synctest.Test(t, func(t *testing.T) {
		o := options(store, 1)
		o.DecodeStepS = 1
		e := start(t, o)
		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer cancel()
		began := time.Now()
		if _, err := e.Generate(ctx, req); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("an aborted generation ends with %v", err)
		}
		if at := time.Since(began); at != 2500*time.Millisecond {
			t.Errorf("it ended after %v, want at once", at)
		}
		if g := generate(t, e, other); !reflect.DeepEqual(g, want) {
			t.Errorf("after an abort %+v, want %+v", g, want)
		}
		// An abort before the first step leaves nothing behind either.
		cancelled, stop := context.WithCancel(t.Context())
		stop()
		if _, err := e.Generate(cancelled, req); !errors.Is(err, context.Canceled) {
			t.Errorf("a generation aborted from the start ends with %v", err)
		}
		if g := generate(t, e, other); !reflect.DeepEqual(g, want) {
			t.Errorf("after an early abort %+v, want %+v", g, want)
		}
		_ = e.Close()
	})
}

// TestDecodeTimes counts steps on fake time by active slots and trainer.
func TestDecodeTimes(t *testing.T) {
	store, _ := policies(t)
	req := long(t, store)
	synctest.Test(t, func(t *testing.T) {
		o := options(store, 2)
		o.DecodeStepS = 1
		e := start(t, o)
		generate(t, e, req)
		e.SetTrainerBusy(true)
		var wg sync.WaitGroup
		for sample := range int32(2) {
			wg.Go(func() {
				pair := req
				pair.MaxTokens = 1
				pair.Rollout.Sample = sample
				generate(t, e, pair)
			})
		}
		wg.Wait()
		synctest.Wait()
		steps, ns := map[bool]int64{}, map[bool]int64{}
		for _, c := range e.TakeDecodeTimes() {
			if c.Active < 1 || c.Active > 2 || (!c.TrainerBusy && c.Active != 1) {
				t.Errorf("cell %+v", c)
			}
			steps[c.TrainerBusy] += c.Steps * int64(c.Active)
			ns[c.TrainerBusy] += c.NS
		}
		if steps[false] != maxTokens || ns[false] != maxTokens*int64(time.Second) || steps[true] != 2 {
			t.Errorf("slot-steps %v in ns %v, want %d alone and 2 beside the trainer", steps, ns, maxTokens)
		}
		if again := e.TakeDecodeTimes(); again != nil {
			t.Errorf("taken twice: %v", again)
		}
		_ = e.Close()
	})
}

func TestCloseEndsWhatRuns(t *testing.T) {
	store, _ := policies(t)
	req := long(t, store)
	synctest.Test(t, func(t *testing.T) {
		o := options(store, 3)
		o.DecodeStepS = 1
		e := start(t, o)
		ends := make(chan error, 3)
		for sample := range int32(3) {
			go func() {
				other := req
				other.Rollout.Sample += sample
				_, err := e.Generate(t.Context(), other)
				ends <- err
			}()
		}
		time.Sleep(500 * time.Millisecond)
		for range 2 {
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		}
		for range 3 {
			if err := <-ends; !errors.Is(err, ErrClosed) {
				t.Errorf("a generation ends with %v, want ErrClosed", err)
			}
		}
		if _, err := e.Generate(t.Context(), req); !errors.Is(err, ErrClosed) {
			t.Errorf("a closed engine generates: %v", err)
		}
		if err := e.Switch(t.Context(), 0, false); !errors.Is(err, ErrClosed) {
			t.Errorf("a closed engine switches: %v", err)
		}
	})
}

func TestEngineRefuses(t *testing.T) {
	store, _ := policies(t)
	e := start(t, options(store, 1))
	good := request(1)
	for name, change := range map[string]func(*port.GenerateRequest){
		"no prompt":     func(r *port.GenerateRequest) { r.Prompt = nil },
		"long prompt":   func(r *port.GenerateRequest) { r.Prompt = make([]int32, promptTokens+1) },
		"unknown token": func(r *port.GenerateRequest) { r.Prompt = []int32{19} },
		"no tokens":     func(r *port.GenerateRequest) { r.MaxTokens = 0 },
		"too many":      func(r *port.GenerateRequest) { r.MaxTokens = maxTokens + 1 },
	} {
		bad := good
		change(&bad)
		if _, err := e.Generate(t.Context(), bad); err == nil {
			t.Errorf("%s: generated", name)
		}
	}
	if err := e.Switch(t.Context(), 1, false); err == nil {
		t.Error("switched to a version that is not loaded")
	}
	if err := e.Load(t.Context(), 9); !errors.Is(err, weights.ErrNotFound) {
		t.Errorf("loading a version that does not exist gives %v", err)
	}
	generate(t, e, good) // still alive
	for name, change := range map[string]func(*Options){
		"slots":   func(o *Options) { o.Slots = 0 },
		"prompt":  func(o *Options) { o.PromptTokens = model.Context },
		"end":     func(o *Options) { o.End = 19 },
		"step":    func(o *Options) { o.DecodeStepS = math.NaN() },
		"weights": func(o *Options) { o.Weights = nil },
		"model":   func(o *Options) { o.Model.Width = 0 },
	} {
		o := options(store, 1)
		change(&o)
		if _, err := New(o); err == nil {
			t.Errorf("%s: engine made", name)
		}
	}
}

// TestOverflowingWeights has finite weights whose forward pass overflows: the response is an error that names the
// version, and the next version's responses are whole.
func TestOverflowingWeights(t *testing.T) {
	store, all := policies(t)
	gain, err := all[0].Tensor("final_norm")
	if err != nil {
		t.Fatal(err)
	}
	for i := range gain {
		gain[i] = 3e38
	}
	if err := store.Publish(t.Context(), port.Publication{Version: 2, Lease: 2, Model: weights.Tensors(all[0])}); err != nil {
		t.Fatal(err)
	}
	e := start(t, options(store, 2))
	serve(t, e, 2)
	if g, err := e.Generate(t.Context(), request(1)); err == nil || !strings.Contains(err.Error(), "version 2 gives no finite probabilities") || len(g.Tokens) != 0 {
		t.Errorf("%+v, %v", g, err)
	}
	serve(t, e, 1)
	for i := range 4 { // both slots are free again
		generate(t, e, request(i))
	}
}

// TestMoreThanTheSlots asks for one generation more than there are slots.
func TestMoreThanTheSlots(t *testing.T) {
	store, _ := policies(t)
	req := long(t, store)
	synctest.Test(t, func(t *testing.T) {
		o := options(store, 1)
		o.DecodeStepS = 1
		e := start(t, o)
		go generate(t, e, req)
		synctest.Wait()
		if _, err := e.Generate(t.Context(), request(2)); err == nil {
			t.Error("a second generation in one slot was accepted")
		}
		time.Sleep(time.Minute)
		generate(t, e, request(2))
		_ = e.Close()
	})
}

// TestGreedyIsTheMostProbable checks each answered token against the forward
// pass: no other token may be likelier there.
func TestGreedyIsTheMostProbable(t *testing.T) {
	store, all := policies(t)
	e := start(t, options(store, 1))
	pass, err := transformer.NewPass(model)
	if err != nil {
		t.Fatal(err)
	}
	var prompts [][]int32
	for i := range 70 { // more than one round of slots
		prompts = append(prompts, request(i).Prompt)
	}
	answers, err := e.Greedy(t.Context(), 1, prompts, maxTokens)
	if err != nil {
		t.Fatal(err)
	}
	for i, answer := range answers {
		if n := len(answer); n < 1 || n > maxTokens || (n < maxTokens && answer[n-1] != endToken) {
			t.Fatalf("answer %d is %v", i, answer)
		}
		for k := range answer {
			tried := slices.Clone(answer[:k+1])
			chosen := forward(t, pass, all[1], prompts[i], tried)[k]
			for token := range int32(model.Vocabulary) {
				tried[k] = token
				if p := forward(t, pass, all[1], prompts[i], tried)[k]; p > chosen+1e-5 {
					t.Fatalf("answer %d token %d is %d with log-prob %g, %d has %g", i, k, answer[k], chosen, token, p)
				}
			}
		}
	}
	if _, err := e.Greedy(t.Context(), 9, prompts, maxTokens); !errors.Is(err, weights.ErrNotFound) {
		t.Errorf("a version that does not exist answers with %v", err)
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if _, err := e.Greedy(stopped, 1, prompts, maxTokens); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled evaluation gives %v", err)
	}
}
