package tinker

import (
	"context"
	"errors"
	"math"
	"os"
	"testing"
	"time"
)

// realService is a session at the service that the environment names, such as a SkyRL server on this machine:
//
//	HEADWAY_TINKER_URL=http://127.0.0.1:8000 HEADWAY_TINKER_BASE=Qwen/Qwen3-0.6B go test -run Real ./tinker
//
// HEADWAY_TINKER_KEY is its key, where it wants one. HEADWAY_TINKER_TOY=1 says that its weights are not to be looked
// at: TuFT without a GPU (TUFT_CPU_TEST=1) has one set of them for all models, and saves none.
func realService(t *testing.T) (*Session, string) {
	t.Helper()
	url, base := os.Getenv("HEADWAY_TINKER_URL"), os.Getenv("HEADWAY_TINKER_BASE")
	if url == "" || base == "" {
		t.Skip("HEADWAY_TINKER_URL and HEADWAY_TINKER_BASE name no service")
	}
	s, err := Open(t.Context(), Options{URL: url, Key: os.Getenv("HEADWAY_TINKER_KEY"), Name: "headway test", Patience: 20 * time.Second, Logf: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s, base
}

func isToy() bool { return os.Getenv("HEADWAY_TINKER_TOY") != "" }

func realModel(t *testing.T, s *Session, base string) *Model {
	t.Helper()
	m, err := s.NewModel(t.Context(), ModelOptions{Base: base, Rank: 8, Seed: 7})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// realData are sequences of one length, so that a server that compiles for shapes does so once.
func realData(n int) []Datum {
	data := make([]Datum, n)
	for i := range data {
		a := int32(5 + 3*i)
		data[i] = Datum{
			Tokens: []int32{a, a + 1, a + 2, a + 3}, Targets: []int32{a + 1, a + 2, a + 3, a + 4},
			Logprobs: []float32{0, 0, -6, -6}, Advantages: []float32{0, 0, 1, -0.5},
		}
	}
	return data
}

func mustPass(t *testing.T, pass func(context.Context, []Datum, Loss) (Output, error), data []Datum) Output {
	t.Helper()
	o, err := pass(t.Context(), data, Loss{Name: "importance_sampling"})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func farthest(a, b [][]float32) float64 {
	most := 0.0
	for i := range a {
		for j := range a[i] {
			most = max(most, math.Abs(float64(a[i][j])-float64(b[i][j])))
		}
	}
	return most
}

func TestRealServiceTrainsSavesAndSamples(t *testing.T) {
	s, base := realService(t)
	bases, err := s.Bases(t.Context())
	if err != nil || len(bases) == 0 {
		t.Fatalf("bases %q, %v", bases, err)
	}
	m, data := realModel(t, s, base), realData(4)
	name := "n" + time.Now().UTC().Format("150405") // names are the service's for good
	before := mustPass(t, m.Forward, data)
	gradient := mustPass(t, m.ForwardBackward, data)
	if d := farthest(before.Logprobs, gradient.Logprobs); d > 1e-3 {
		t.Errorf("log-probs of Forward and ForwardBackward differ by %v on the same weights", d)
	}
	state, err := m.SaveState(t.Context(), name+"s0")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.OptimStep(t.Context(), Adam{LearningRate: 1e-2}); err != nil {
		t.Fatal(err)
	}
	after := mustPass(t, m.Forward, data)
	if d := farthest(before.Logprobs, after.Logprobs); d < 1e-3 {
		t.Errorf("log-probs differ by %v after a step of learning rate 0.01: want a change", d)
	}
	path, err := m.SaveSampler(t.Context(), name+"v1")
	if err != nil {
		t.Fatal(err)
	}
	sampler, err := s.NewSampler(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	q := SampleRequest{Prompt: []int32{5, 6, 7}, MaxTokens: 8, Temperature: 1, TopP: 1, Stop: []int32{2}, Seed: 11}
	first, err := sampler.Sample(t.Context(), q)
	if err != nil || len(first.Tokens) == 0 {
		t.Fatalf("sampled %+v, %v", first, err)
	}
	second, err := sampler.Sample(t.Context(), q)
	if err != nil || !first.Stopped && len(first.Tokens) != q.MaxTokens {
		t.Errorf("sampled %+v, then %+v, %v", first, second, err)
	}
	if err := m.LoadState(t.Context(), state); err != nil {
		t.Fatal(err)
	}
	loaded := mustPass(t, m.Forward, data)
	if d := farthest(before.Logprobs, loaded.Logprobs); d > 1e-3 && !isToy() {
		t.Errorf("log-probs differ by %v from those before the step after its state was loaded", d)
	}
	t.Logf("deletion: %v", s.Delete(t.Context(), path))
}

func TestRealServiceAddsTheGradientsOfChunks(t *testing.T) {
	s, base := realService(t)
	data := realData(4)
	trained := func(most int) [][]float32 {
		s.limits.MostData = most
		m := realModel(t, s, base)
		before := mustPass(t, m.Forward, data)
		if d := farthest(before.Logprobs, mustPass(t, m.ForwardBackward, data).Logprobs); d > 1e-3 {
			t.Errorf("in requests of at most %d data, outputs are off by %v from those of the same data", most, d)
		}
		if _, err := m.OptimStep(t.Context(), Adam{LearningRate: 1e-2}); err != nil {
			t.Fatal(err)
		}
		s.limits.MostData = 1024
		return mustPass(t, m.Forward, data).Logprobs
	}
	if d := farthest(trained(1024), trained(1)); d > 1e-3 && !isToy() {
		t.Errorf("after one request of four data and after four of one, log-probs differ by %v", d)
	}
}

// A name that is there already is refused, and the model goes on.
func TestRealServiceRefusesANameTwice(t *testing.T) {
	s, base := realService(t)
	m := realModel(t, s, base)
	name := "twice" + time.Now().UTC().Format("150405")
	must[string](t)(m.SaveState(t.Context(), name))
	if path, err := m.SaveState(t.Context(), name); !errors.Is(err, ErrRefused) && !isToy() {
		t.Errorf("saved twice under %s: %q, %v", name, path, err)
	}
	must[string](t)(m.SaveState(t.Context(), name+"b"))
}
