package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headway-rl/headway/engine/enginetest"
	adapter "github.com/headway-rl/headway/engine/tinker"
	"github.com/headway-rl/headway/internal/tinker"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

const (
	tinkerSlots = 16
	// tinkerPiece is small, so that responses are made of several pieces and switches come between them.
	tinkerPiece = 16
	// tinkerTokens is the most of a prompt and of a response.
	tinkerTokens = 85
	tinkerRank   = 8
	// tinkerScored is how many responses of each version are scored again, by the model in training.
	tinkerScored = 8
	// tinkerPatience is how long one request may take: the service compiles for each shape that it has not seen.
	tinkerPatience = 5 * time.Minute
	// tinkerNumerics is how far the log-probs of two programs for the same weights may lie apart on average, in nats.
	tinkerNumerics = 1e-4
	modelTokens    = 64
	modelEnd       = 4
)

// TestTinker holds the client of Tinker's API and the engine over it against a real service: make test-engines.
func TestTinker(t *testing.T) {
	url := os.Getenv("HEADWAY_TEST_TINKER")
	if url == "" {
		t.Skip("no service is named: make test-engines starts one")
	}
	s := &tinkerSuite{url: url, count: 1000}
	if text := os.Getenv("HEADWAY_TEST_REQUESTS"); text != "" {
		var err error
		if s.count, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	defer func() { saveReport(t, slices.Concat(s.report, s.learned)) }()
	if !t.Run("start", s.start) {
		return
	}
	defer s.end()
	t.Run("service", func(t *testing.T) { // at once: both wait most of the time
		t.Run("conforms", func(t *testing.T) {
			t.Parallel()
			t.Run("versions", s.versions)
			t.Run("requests", s.requests)
			t.Run("one step however divided", s.divided)
		})
		t.Run("learns", func(t *testing.T) {
			t.Parallel()
			s.learns(t)
		})
	})
}

// tinkerSuite is one run of the suite.
type tinkerSuite struct {
	url   string
	count int
	// report is what has been counted, learned the same of the run that learns.
	report, learned enginetest.Report

	recorder *enginetest.Recorder
	wire     *wireHooks
	session  *tinker.Session
	model    *tinker.Model
	engine   *adapter.Engine
	base     string
	// paths are where the service keeps each version.
	paths []string
	// earlier is how many exchanges there were before the random requests.
	earlier int
}

// add counts under a name.
func (s *tinkerSuite) add(what string, n int) {
	for i := range s.report {
		if s.report[i].What == what {
			s.report[i].Count += n
			return
		}
	}
	s.report = append(s.report, enginetest.Count{What: what, Count: n})
}

// learn notes a figure of the run that learns.
func (s *tinkerSuite) learn(what string, n int) {
	s.learned = append(s.learned, enginetest.Count{What: what, Count: n})
}

// start opens a session through a recorder, and an engine over it. The session outlives this test.
func (s *tinkerSuite) start(t *testing.T) {
	s.wire = &wireHooks{at: map[int]*wireHook{}}
	s.recorder = enginetest.NewRecorder(s.url, s.wire.observe)
	s.session = openTinker(t, s.recorder.URL())
	bases, err := s.session.Bases(t.Context())
	if err != nil || len(bases) != 1 {
		t.Fatalf("base models %v, %v: want one", bases, err)
	}
	s.base = bases[0]
	s.model = s.newModel(t, s.session)
	s.engine, err = adapter.New(adapter.Options{
		Name: "service", Slots: tinkerSlots, Service: adapter.FromSession(s.session), Path: s.path, Piece: tinkerPiece,
		Vocabulary: modelTokens, Ends: []int32{modelEnd},
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (s *tinkerSuite) end() {
	if s.engine != nil {
		_ = s.engine.Close()
	}
	_ = s.session.Close()
	s.recorder.Close()
}

func openTinker(t *testing.T, url string) *tinker.Session {
	t.Helper()
	session, err := tinker.Open(t.Context(), tinker.Options{URL: url, Key: "tml-suite", Name: "suite"})
	if err != nil {
		t.Fatal(err)
	}
	return session
}

// newModel makes an adapter; all have the same weights at first.
func (s *tinkerSuite) newModel(t *testing.T, session *tinker.Session) *tinker.Model {
	t.Helper()
	o := tinker.ModelOptions{Base: s.base, Rank: tinkerRank, Seed: 7}
	if err := session.ClearPlace(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	model, err := session.NewModel(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return model
}

func (s *tinkerSuite) path(v loop.Version) (string, error) {
	if v < 0 || int(v) >= len(s.paths) {
		return "", fmt.Errorf("version %d: %w", v, os.ErrNotExist)
	}
	return s.paths[v], nil
}

// serve takes the engine to a version.
func (s *tinkerSuite) serve(t *testing.T, v loop.Version, hold bool) {
	t.Helper()
	if err := s.engine.Load(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	if err := s.engine.Switch(t.Context(), v, hold); err != nil {
		t.Fatal(err)
	}
}

// versions trains the versions between which the random requests switch, and asks the model in training for the
// log-probs of what each has sampled: they are the version's own, and the next version's are others.
func (s *tinkerSuite) versions(t *testing.T) {
	draw := rand.New(rand.NewPCG(20261122, 0))
	largest := 0.0
	var last []port.Generation
	var lastPrompts [][]int32
	for v := range loop.Version(switches + 1) {
		if v > 0 {
			s.train(t, s.model, trainingData(16))
			if apart := s.apart(t, lastPrompts, last); apart < 100*tinkerNumerics {
				t.Errorf("what version %d has sampled has, under version %d, log-probs that are %.2g nats away: the weights have not changed", v-1, v, apart)
			}
			s.add("versions after whose training the log-probs of a fixed text had changed", 1)
		}
		path, err := s.model.SaveSampler(t.Context(), fmt.Sprintf("version-%d", v))
		if err != nil {
			t.Fatal(err)
		}
		s.paths = append(s.paths, path)
		s.serve(t, v, true)
		last, lastPrompts = nil, nil
		for i := range tinkerScored {
			prompt := tokens(draw, 8+draw.IntN(8))
			g, err := s.engine.Generate(t.Context(), port.GenerateRequest{Rollout: port.RolloutID{Group: loop.GroupID(1e6 + 100*int(v) + i)}, Prompt: prompt, MaxTokens: tinkerPiece})
			if err != nil {
				t.Fatal(err)
			}
			last, lastPrompts = append(last, g), append(lastPrompts, prompt)
		}
		apart := s.apart(t, lastPrompts, last)
		if largest = max(largest, apart); apart > tinkerNumerics {
			t.Errorf("what version %d has sampled has, under the model in training, log-probs that are %.2g nats away: want at most %g", v, apart, tinkerNumerics)
		}
		s.add("responses whose log-probs the model in training says as well", len(last))
		t.Logf("progress: version %d at %s, %.2g nats from the model in training", v, path, apart)
	}
	s.add("largest mean difference of their log-probs under their own weights, in millionths of a nat", int(math.Ceil(largest*1e6)))
}

// apart is how far the log-probs of responses lie, on average over tokens, from those that the model in training has for them.
func (s *tinkerSuite) apart(t *testing.T, prompts [][]int32, responses []port.Generation) float64 {
	t.Helper()
	var data []tinker.Datum
	for i, g := range responses {
		whole := slices.Concat(prompts[i], g.Tokens)
		data = append(data, tinker.Datum{Tokens: whole[:len(whole)-1], Targets: whole[1:], Weights: ones(len(whole) - 1)})
	}
	out, err := s.model.Forward(t.Context(), data, tinker.Loss{Name: "cross_entropy"})
	if err != nil {
		t.Fatal(err)
	}
	sum, n := 0.0, 0
	for i, g := range responses {
		theirs := out.Logprobs[i][len(prompts[i])-1:]
		for j, ours := range g.Logprobs {
			sum, n = sum+math.Abs(float64(ours)-float64(theirs[j])), n+1
		}
	}
	return sum / float64(n)
}

// train makes one step that is large enough to be seen, and returns the norm of its gradient as the service says it.
func (s *tinkerSuite) train(t *testing.T, model *tinker.Model, data []tinker.Datum) float64 {
	t.Helper()
	if _, err := model.ForwardBackward(t.Context(), data, tinker.Loss{Name: "importance_sampling"}); err != nil {
		t.Fatal(err)
	}
	metrics, err := model.OptimStep(t.Context(), tinker.Adam{LearningRate: 1e-3})
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range metrics {
		if strings.HasSuffix(name, "grad_norm") {
			return value
		}
	}
	t.Fatalf("metrics %v: no gradient norm", metrics)
	return 0
}

// trainingData is so many sequences with advantages, the same ones each time. All are of one length: the service
// compiles for each.
func trainingData(n int) []tinker.Datum {
	draw := rand.New(rand.NewPCG(20261122, 1))
	data := make([]tinker.Datum, n)
	for i := range data {
		const length = 24
		whole := tokens(draw, length+1)
		d := tinker.Datum{Tokens: whole[:length], Targets: whole[1:], Logprobs: make([]float32, length), Advantages: make([]float32, length)}
		advantage := float32(1 - 2*(i%2))
		for j := length / 3; j < length; j++ {
			d.Logprobs[j], d.Advantages[j] = -float32(math.Log(modelTokens)), advantage
		}
		data[i] = d
	}
	return data
}

func ones(n int) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = 1
	}
	return out
}

// bounded bounds one call, so that one that hangs fails.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, tinkerPatience, fmt.Errorf("nothing after %v: it hangs", tinkerPatience))
}
