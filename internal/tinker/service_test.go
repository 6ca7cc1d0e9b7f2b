package tinker

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/internal/tinker/tinkertest"
)

// kinds are services as those of Tinker, TuFT and SkyRL.
var kinds = map[string]tinkertest.Options{
	"by sequence": {},
	"strict":      {Order: tinkertest.Strict},
	"by arrival":  {Order: tinkertest.ByArrival, Encoding: tinkertest.JSON},
}

// onEachKind runs a test in a bubble with a service of each kind.
func onEachKind(t *testing.T, set func(*tinkertest.Options), test func(*testing.T, *tinkertest.Service, *Session)) {
	for name, o := range kinds {
		t.Run(name, func(t *testing.T) {
			if set != nil {
				set(&o)
			}
			inBubble(t, o, test)
		})
	}
}

// inBubble runs a test with a service under a bubble's clock. The bubble fails a test that leaves a goroutine behind.
func inBubble(t *testing.T, o tinkertest.Options, test func(*testing.T, *tinkertest.Service, *Session)) {
	synctest.Test(t, func(t *testing.T) {
		service := tinkertest.New(o)
		defer service.Close()
		s, err := Open(t.Context(), Options{URL: service.URL(), Dial: service.Dial, Key: o.Key, Patience: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Close() }()
		test(t, service, s)
	})
}

func newModel(t *testing.T, s *Session) *Model {
	t.Helper()
	m, err := s.NewModel(t.Context(), ModelOptions{Base: "test/base", Rank: 4, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// someData are n data that differ, each longer than the one before.
func someData(n int) []Datum {
	data := make([]Datum, n)
	for i := range data {
		for j := range int32(i + 2) {
			a := (int32(3*i) + 5*j) % 32
			data[i].Tokens = append(data[i].Tokens, a)
			data[i].Targets = append(data[i].Targets, (a+5)%32)
			data[i].Logprobs = append(data[i].Logprobs, -3.5)
			data[i].Advantages = append(data[i].Advantages, float32(j)-0.5)
		}
	}
	return data
}

var sampled = Loss{Name: "importance_sampling"}

// step is an OptimStep that must succeed.
func step(t *testing.T, m *Model) {
	t.Helper()
	if _, err := m.OptimStep(t.Context(), Adam{LearningRate: 0.1}); err != nil {
		t.Fatal(err)
	}
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// firstTokens are those of the data of each pass that was executed, which tell the data apart.
func firstTokens(service *tinkertest.Service) (firsts []int32) {
	for _, e := range service.Executed() {
		if e.Operation == "forward_backward" {
			for _, tokens := range e.Tokens {
				firsts = append(firsts, tokens[0])
			}
		}
	}
	return firsts
}

// Trap 13: a pass is several requests, whose order is their number at Tinker, a condition at TuFT and the order of
// arrival at SkyRL. They are executed in the order of the data at all three, also when the first is late, outputs
// come back in that order, and the gradient is that of one request.
func TestTrap13PartsAreExecutedInOrder(t *testing.T) {
	data := someData(7)
	var want []int32
	for _, d := range data {
		want = append(want, d.Tokens[0])
	}
	whole := map[string]Output{}
	onEachKind(t, nil, func(t *testing.T, _ *tinkertest.Service, s *Session) {
		m := newModel(t, s)
		must[Output](t)(m.ForwardBackward(t.Context(), data, sampled))
		step(t, m)
		whole[t.Name()] = must[Output](t)(m.Forward(t.Context(), data, sampled))
	})
	for _, late := range []time.Duration{0, time.Second} {
		onEachKind(t, func(o *tinkertest.Options) { o.MostData = 2 }, func(t *testing.T, service *tinkertest.Service, s *Session) {
			m := newModel(t, s)
			before := must[Output](t)(m.Forward(t.Context(), data, sampled))
			service.Fail(tinkertest.Fault{Operation: "forward_backward", Delay: late})
			got := must[Output](t)(m.ForwardBackward(t.Context(), data, sampled))
			if firsts := firstTokens(service); !slices.Equal(firsts, want) {
				t.Errorf("data were executed in the order %v, want %v", firsts, want)
			}
			if d := farthest(got.Logprobs, before.Logprobs); d != 0 || len(got.Logprobs) != len(data) {
				t.Errorf("%d outputs are off by %v from those of the same data in order", len(got.Logprobs), d)
			}
			if fmt.Sprintf("%.6f", got.Metrics["loss:sum"]) != fmt.Sprintf("%.6f", before.Metrics["loss:sum"]) {
				t.Errorf("loss %v, want %v", got.Metrics, before.Metrics)
			}
			step(t, m)
			after := must[Output](t)(m.Forward(t.Context(), data, sampled))
			if d := farthest(after.Logprobs, before.Logprobs); d < 0.01 {
				t.Errorf("a step changed log-probs by %v", d)
			}
			for name, one := range whole {
				if d := farthest(after.Logprobs, one.Logprobs); d > 1e-6 {
					t.Errorf("after a step along the gradient of four requests log-probs are off by %v from those after one (%s)", d, name)
				}
			}
			for i, e := range service.Executed() {
				if e.Seq != i+1 {
					t.Errorf("request %d has number %d", i+1, e.Seq)
				}
			}
		})
	}
	if len(whole) != 3 {
		t.Errorf("%d services computed the whole, want 3", len(whole))
	}
}

// What a model saves is what is sampled and gone on from, whatever the model does then.
func TestTrainsSavesAndSamples(t *testing.T) {
	onEachKind(t, nil, func(t *testing.T, service *tinkertest.Service, s *Session) {
		m, data := newModel(t, s), someData(3)
		state := must[string](t)(m.SaveState(t.Context(), "s0"))
		path := must[string](t)(m.SaveSampler(t.Context(), "v0"))
		sampler := must[*Sampler](t)(s.NewSampler(t.Context(), path))
		q := SampleRequest{Prompt: []int32{1, 2, 3}, MaxTokens: 12, Temperature: 1, TopP: 1, Seed: 5}
		first := must[Sequence](t)(sampler.Sample(t.Context(), q))
		before := must[Output](t)(m.ForwardBackward(t.Context(), data, sampled))
		step(t, m)
		changed := must[Output](t)(m.Forward(t.Context(), data, sampled))
		if d := farthest(before.Logprobs, changed.Logprobs); d < 0.01 {
			t.Errorf("a step changed log-probs by %v", d)
		}
		again := must[Sequence](t)(sampler.Sample(t.Context(), q))
		if !slices.Equal(first.Tokens, again.Tokens) || !slices.Equal(first.Logprobs, again.Logprobs) || first.Stopped {
			t.Errorf("from the same saved weights by the same seed %+v and then %+v", first, again)
		}
		other := newModel(t, s)
		if err := other.LoadState(t.Context(), state); err != nil {
			t.Fatal(err)
		}
		loaded := must[Output](t)(other.Forward(t.Context(), data, sampled))
		if d := farthest(before.Logprobs, loaded.Logprobs); d != 0 {
			t.Errorf("loaded state is off by %v", d)
		}
		q.Stop = []int32{first.Tokens[3]}
		stopped := must[Sequence](t)(sampler.Sample(t.Context(), q))
		if !stopped.Stopped || !slices.Equal(stopped.Tokens, first.Tokens[:len(stopped.Tokens)]) {
			t.Errorf("stopped at %v: %+v", q.Stop, stopped)
		}
		if err := s.Delete(t.Context(), path); err != nil {
			t.Error(err)
		}
		if err := s.Delete(t.Context(), path); err != nil {
			t.Errorf("what is not there: %v", err)
		}
		if paths := service.Paths(); !slices.Equal(paths, []string{state}) {
			t.Errorf("left are %q, want %q", paths, state)
		}
	})
}
