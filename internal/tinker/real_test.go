package tinker

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"
)

// realService is a session at the service that the environment names, such as a SkyRL server on this machine:
//
//	HEADWAY_TINKER_URL=http://127.0.0.1:8000 HEADWAY_TINKER_BASE=Qwen/Qwen3-0.6B go test -run Real ./internal/tinker
//
// HEADWAY_TINKER_KEY is its key, where it wants one. HEADWAY_TINKER_TOY=1 says that its weights are not to be looked
// at: TuFT without a GPU (TUFT_CPU_TEST=1) has one set of them for all models, and saves none.
func realService(t *testing.T) (*Session, string) { return realServiceOver(t, nil) }

// realServiceOver is the same by connections of the test's.
func realServiceOver(t *testing.T, dial func(context.Context, string, string) (net.Conn, error)) (*Session, string) {
	t.Helper()
	url, base := os.Getenv("HEADWAY_TINKER_URL"), os.Getenv("HEADWAY_TINKER_BASE")
	if url == "" || base == "" {
		t.Skip("HEADWAY_TINKER_URL and HEADWAY_TINKER_BASE name no service")
	}
	s, err := Open(t.Context(), Options{URL: url, Key: os.Getenv("HEADWAY_TINKER_KEY"), Name: "headway test", Patience: 20 * time.Second, Dial: dial, Logf: t.Logf})
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
	t.Cleanup(func() { // a service has few places
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := m.Unload(ctx); err != nil {
			t.Logf("unload: %v", err)
		}
	})
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
	if err := m.Unload(t.Context()); err != nil {
		t.Error(err)
	}
	_, err = sampler.Sample(t.Context(), q)
	t.Logf("sample after the model was unloaded: %v", err)
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
	path, err := m.SaveState(t.Context(), name)
	t.Logf("saved twice under %s: %q, %v", name, path, err)
	if !errors.Is(err, ErrRefused) && !isToy() {
		t.Error("want the second to be refused")
	}
	must[string](t)(m.SaveState(t.Context(), name+"b"))
}

// lossy connections lose, once each is armed, a request for optim_step on its way, or its answer.
type lossy struct {
	net.Conn
	request, answer *atomic.Bool
	deaf            atomic.Bool
}

func (l *lossy) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("/optim_step")) {
		if l.request.Swap(false) {
			return len(b), l.Close()
		}
		l.deaf.Store(l.answer.Swap(false))
	}
	return l.Conn.Write(b)
}

func (l *lossy) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	if l.deaf.Load() {
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

// A request that is lost is sent again where the service executes a number once, and breaks the model elsewhere; one
// whose answer is lost is not executed twice anywhere.
func TestRealServiceAfterALoss(t *testing.T) {
	var request, answer atomic.Bool
	var dialer net.Dialer
	s, base := realServiceOver(t, func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dialer.DialContext(ctx, network, address)
		return &lossy{Conn: c, request: &request, answer: &answer}, err
	})
	for _, lose := range []*atomic.Bool{&request, &answer} {
		m := realModel(t, s, base)
		mustPass(t, m.ForwardBackward, realData(2))
		lose.Store(true)
		_, err := m.OptimStep(t.Context(), Adam{LearningRate: 1e-2})
		if lose.Load() {
			t.Fatal("nothing was lost")
		}
		known := s.numbers == byNumber
		t.Logf("requests are known by number: %v; after a loss: %v", known, err)
		if err == nil && !known || err != nil && (!errors.Is(err, ErrBroken) || known && lose == &request) {
			t.Errorf("after a loss: %v", err)
		}
		if err == nil {
			mustPass(t, m.Forward, realData(2))
		}
	}
}
