package tinkertest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// client speaks to a service without a client's cares.
type client struct {
	t *testing.T
	*http.Client
	service *Service
}

func newClient(t *testing.T, o Options) client {
	t.Helper()
	service := New(o)
	transport := &http.Transport{DialContext: service.Dial, DisableKeepAlives: true}
	t.Cleanup(service.Close)
	return client{t, &http.Client{Transport: transport}, service}
}

// post sends JSON and reads JSON.
func (c client) post(operation string, body map[string]any) (status int, read map[string]any) {
	c.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		c.t.Fatal(err)
	}
	response, err := c.Post(c.service.URL()+"/api/v1/"+operation, "application/json", bytes.NewReader(text))
	if err != nil {
		return 0, nil
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	_ = json.Unmarshal(answer, &read)
	return response.StatusCode, read
}

// model makes one and is its id.
func (c client) model() string {
	c.t.Helper()
	_, session := c.post("create_session", map[string]any{"tags": []string{}})
	_, made := c.post("create_model", map[string]any{"session_id": session["session_id"], "base_model": "test/base", "lora_config": map[string]any{"rank": 1}})
	_, result := c.post("retrieve_future", map[string]any{"request_id": made["request_id"]})
	return fmt.Sprint(result["model_id"])
}

// save sends a save of the number given and returns its future.
func (c client) save(model string, seq int, name string) any {
	c.t.Helper()
	status, taken := c.post("save_weights", map[string]any{"model_id": model, "seq_id": seq, "path": name})
	if status != http.StatusOK {
		c.t.Fatalf("save %s: status %d, %v", name, status, taken)
	}
	return taken["request_id"]
}

// Requests that come out of order, and one that comes twice, fare in each order as at the server that has it.
func TestOrders(t *testing.T) {
	for order, want := range map[Order][]string{
		BySequence: {"1a", "2b", "3c"},
		Strict:     {"1a", "2b"},
		ByArrival:  {"3c", "1a", "2b", "2d"},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newClient(t, Options{Order: order, Poll: time.Second})
			model := c.model()
			early := c.save(model, 3, "c")
			if status, said := c.post("retrieve_future", map[string]any{"request_id": early}); order == Strict && status != http.StatusConflict ||
				order == BySequence && said["type"] != "try_again" || order == ByArrival && said["path"] == nil {
				t.Errorf("order %d: number 3 before 1: status %d, %v", order, status, said)
			}
			c.save(model, 1, "a")
			second := c.save(model, 2, "b")
			again := c.save(model, 2, "d")
			if status, said := c.post("retrieve_future", map[string]any{"request_id": again}); order == Strict && status != http.StatusConflict ||
				order == BySequence && again != second || order == ByArrival && status != http.StatusOK {
				t.Errorf("order %d: number 2 again: future %v after %v, status %d, %v", order, again, second, status, said)
			}
			var got []string
			for _, e := range c.service.Executed() {
				got = append(got, fmt.Sprint(e.Seq, e.Name))
			}
			if !slices.Equal(got, want) {
				t.Errorf("order %d executed %q, want %q", order, got, want)
			}
		})
	}
}

// The gradient of every loss is the slope of the loss, by small steps to both sides.
func TestGradients(t *testing.T) {
	d := datum{
		tokens: []int32{1, 2, 1}, targets: []int32{2, 1, 0},
		inputs: map[string][]float64{"weights": {0, 1, 0.5}, "logprobs": {-1.5, -0.4, -2.5}, "advantages": {1, -2, 0.5}},
	}
	for name := range lossInputs {
		l := loss{name, map[string]float64{"clip_low_threshold": 0.5, "clip_high_threshold": 3}}
		if name == "cispo" {
			l.config = map[string]float64{"clip_low_threshold": 0, "clip_high_threshold": 1000}
		}
		w := newWeights(4)
		gradient := map[int32]row{}
		if err := w.check(d, l); err != nil {
			t.Fatal(err)
		}
		w.pass([]datum{d}, l, gradient)
		if name == "cispo" { // whose ratio has no slope: it is importance sampling where nothing is clipped
			other := map[int32]row{}
			w.pass([]datum{d}, loss{"importance_sampling", nil}, other)
			if !maps.EqualFunc(gradient, other, slices.Equal) {
				t.Errorf("cispo's gradient is %v, want %v", gradient, other)
			}
			continue
		}
		for token := range gradient {
			for v := range gradient[token] {
				const little = 1e-5
				sums := [2]float64{}
				for side, by := range [2]float64{-little, little} {
					moved := w.clone()
					at(moved.delta, token, 4)[v] += by
					_, sums[side] = moved.pass([]datum{d}, l, nil)
				}
				if slope := (sums[1] - sums[0]) / (2 * little); math.Abs(slope-gradient[token][v]) > 1e-6 {
					t.Errorf("%s: gradient of row %d token %d is %v, the slope %v", name, token, v, gradient[token][v], slope)
				}
			}
		}
	}
}

// A ratio outside of its bounds has no slope in ppo, and its bound in cispo.
func TestClipping(t *testing.T) {
	d := datum{tokens: []int32{0}, targets: []int32{0}, inputs: map[string][]float64{"logprobs": {-9}, "advantages": {2}}}
	for name, want := range map[string]float64{"ppo": 0, "cispo": -2.4} {
		if _, slope := (loss{name: name}).of(d, 0, -1); math.Abs(slope-want) > 1e-12 {
			t.Errorf("%s: slope %v, want %v", name, slope, want)
		}
	}
}

// A step goes along the gradient, scaled down to the norm that is asked for, by what Adam keeps of the ones before.
func TestStep(t *testing.T) {
	a := adam{LearningRate: 0.1, Beta1: 0.9, Beta2: 0.95, Epsilon: 1e-12}
	w := newWeights(2)
	if norm := w.step(map[int32]row{1: {3, -4}}, a); norm != 5 {
		t.Errorf("norm %v, want 5", norm)
	}
	if d := w.delta[1]; math.Abs(d[0]+0.1) > 1e-9 || math.Abs(d[1]-0.1) > 1e-9 {
		t.Errorf("the first step is %v, want the learning rate against the gradient's signs", d)
	}
	kept := w.clone()
	kept.step(map[int32]row{1: {-1, 0}}, a)
	a.Norm = 0.5
	w.step(map[int32]row{1: {-1, 0}}, a)
	if slices.Equal(w.delta[1], kept.delta[1]) {
		t.Errorf("a norm of 1 scaled down to 0.5 makes no difference: %v", w.delta[1])
	}
}

// Samples follow the distribution that is asked for.
func TestSampling(t *testing.T) {
	w, counts := newWeights(4), map[int32]float64{}
	all := w.logprobs(3)
	const n = 20_000
	for seed := range int64(n) {
		tokens, logprobs, _ := w.sample([]int32{3}, sampling{Most: 1, Temperature: 1, Seed: &seed}, nil)
		counts[tokens[0]]++
		if logprobs[0] != float32(all[tokens[0]]) {
			t.Fatalf("log-prob %v of token %d, want %v", logprobs[0], tokens[0], all[tokens[0]])
		}
	}
	for v, logprob := range all {
		want := n * math.Exp(logprob)
		if off := (counts[int32(v)] - want) / math.Sqrt(want); math.Abs(off) > 5 {
			t.Errorf("token %d was drawn %v times of %d, want %v", v, counts[int32(v)], n, want)
		}
	}
	likeliest := int32(slices.Index(all, slices.Max(all)))
	for seed := range int64(50) {
		for name, p := range map[string]sampling{
			"temperature 0": {Most: 1, Seed: &seed}, "one token": {Most: 1, Temperature: 1, TopK: 1, Seed: &seed},
			"little mass": {Most: 1, Temperature: 1, TopP: 1e-9, Seed: &seed},
		} {
			if tokens, _, _ := w.sample([]int32{3}, p, nil); tokens[0] != likeliest {
				t.Errorf("%s drew %d, want the likeliest, %d", name, tokens[0], likeliest)
			}
		}
	}
}

// With one adapter a sampler of an old version samples from the weights in training.
func TestOneAdapter(t *testing.T) {
	for _, one := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := newClient(t, Options{Order: ByArrival, Encoding: JSON, OneAdapter: one})
			model := c.model()
			c.post("save_weights_for_sampler", map[string]any{"model_id": model, "path": "v"})
			_, session := c.post("create_session", map[string]any{})
			_, sampler := c.post("create_sampling_session", map[string]any{"session_id": session["session_id"], "model_path": pathOf(model, "sampler_weights", "v")})
			sample := func() any {
				_, taken := c.post("asample", map[string]any{
					"prompt": map[string]any{"chunks": []any{map[string]any{"tokens": []int{1}}}}, "seq_id": 1,
					"sampling_session_id": sampler["sampling_session_id"], "sampling_params": map[string]any{"max_tokens": 1, "temperature": 0},
				})
				_, result := c.post("retrieve_future", map[string]any{"request_id": taken["request_id"]})
				return result["sequences"]
			}
			before := fmt.Sprint(sample())
			c.post("forward_backward", map[string]any{"model_id": model, "forward_backward_input": map[string]any{"loss_fn": "cross_entropy", "data": []any{map[string]any{
				"model_input":    map[string]any{"chunks": []any{map[string]any{"tokens": []int{1}}}},
				"loss_fn_inputs": map[string]any{"target_tokens": map[string]any{"data": []int{9}}, "weights": map[string]any{"data": []float64{1}}},
			}}}})
			c.post("optim_step", map[string]any{"model_id": model, "adam_params": map[string]any{"learning_rate": 5, "beta1": 0.9, "beta2": 0.95, "eps": 1e-12}})
			if after := fmt.Sprint(sample()); (after != before) != one {
				t.Errorf("one adapter %v: sampled %s and, after a step, %s", one, before, after)
			}
		})
	}
}
