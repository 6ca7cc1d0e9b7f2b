package tinker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	service "github.com/headway-rl/headway/internal/tinker"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// Figures of the test against a real service.
const (
	realVersions = 4
	realRequests = 320
	realSlots    = 8
	realPiece    = 16
	realSwitches = 12
	// realSame is how far the log-probs of the same tokens under the same weights may be apart, in nats.
	realSame = 0.01
)

// recorded is a service whose answers are written down.
type recorded struct {
	record
	Service
	versionOf func(path string) loop.Version
}

type recordedSampler struct {
	Sampler
	r    *recorded
	path string
}

func (r *recorded) NewSampler(ctx context.Context, path string) (Sampler, error) {
	s, err := r.Service.NewSampler(ctx, path)
	return &recordedSampler{s, r, path}, err
}

func (s *recordedSampler) Sample(ctx context.Context, q service.SampleRequest) (service.Sequence, error) {
	sequence, err := s.Sampler.Sample(ctx, q)
	s.r.add(&call{s.path, s.r.versionOf(s.path), q, service.Sequence{
		Tokens: slices.Clone(sequence.Tokens), Logprobs: slices.Clone(sequence.Logprobs), Stopped: sequence.Stopped}, err})
	return sequence, err
}

// openReal is a session at the service that the environment names, and versions of a model that was trained there
// between them, saved before anything is sampled: a service may keep one set of weights of a model in memory.
//
//	HEADWAY_TINKER_URL=http://127.0.0.1:8000 HEADWAY_TINKER_BASE=Qwen/Qwen3-0.6B go test -v -run Real ./engine/tinker
//
// HEADWAY_TINKER_KEY is its key, where it wants one.
func openReal(t *testing.T) (*recorded, []string) {
	t.Helper()
	url, base := os.Getenv("HEADWAY_TINKER_URL"), os.Getenv("HEADWAY_TINKER_BASE")
	if url == "" || base == "" {
		t.Skip("HEADWAY_TINKER_URL and HEADWAY_TINKER_BASE name no service")
	}
	session, err := service.Open(t.Context(), service.Options{URL: url, Key: os.Getenv("HEADWAY_TINKER_KEY"), Name: "headway test", Patience: time.Minute, Logf: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	model, err := session.NewModel(t.Context(), service.ModelOptions{Base: base, Rank: 8, Seed: 7})
	if err != nil {
		t.Fatal(err)
	}
	data := service.Datum{Tokens: []int32{20, 21, 22, 23}, Targets: []int32{21, 22, 23, 24}, Logprobs: []float32{-3, -3, -3, -3}, Advantages: []float32{1, -1, 1, 1}}
	paths := make([]string, realVersions)
	for v := range paths {
		if v > 0 {
			if _, err := model.ForwardBackward(t.Context(), []service.Datum{data}, service.Loss{Name: "importance_sampling"}); err != nil {
				t.Fatal(err)
			}
			if _, err := model.OptimStep(t.Context(), service.Adam{LearningRate: 0.02}); err != nil {
				t.Fatal(err)
			}
		}
		if paths[v], err = model.SaveSampler(t.Context(), fmt.Sprintf("v%d-%d", v, time.Now().UnixNano())); err != nil {
			t.Fatal(err)
		}
	}
	return &recorded{Service: FromSession(session), versionOf: func(path string) loop.Version { return loop.Version(slices.Index(paths, path)) }}, paths
}

// engineAt is an engine over the service that serves version 0. Its versions are the same again after realVersions.
func engineAt(t *testing.T, s Service, paths []string, change func(*Options)) *Engine {
	t.Helper()
	o := Options{Name: "real", Slots: realSlots, Service: s, Piece: realPiece, Ends: []int32{2}, Logf: t.Logf,
		Path: func(v loop.Version) (string, error) { return paths[int(v)%len(paths)], nil }}
	change(&o)
	e, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	serve(t, e, 0, false)
	return e
}

// Random requests, some given up and some interrupted and resumed, while weights change: every token that is recorded
// is one that the service has answered, by id, log-prob and version, and weights differ where versions do.
func TestRealServiceIsRecorded(t *testing.T) {
	r, paths := openReal(t)
	e := engineAt(t, r, paths, func(o *Options) { // a small model with one end would hardly ever end
		for id := int32(8); len(o.Ends) < 16; id += 7 {
			o.Ends = append(o.Ends, id)
		}
	})
	var next, done atomic.Int64
	var mu sync.Mutex
	counts := map[string]int{}
	count := func(what string, n int) {
		mu.Lock()
		defer mu.Unlock()
		counts[what] += n
	}
	finished := make(chan struct{}, realRequests)
	var group sync.WaitGroup
	for range realSlots {
		group.Go(func() {
			for n := next.Add(1) - 1; n < realRequests; n = next.Add(1) - 1 {
				if err := realOne(t, r, e, int(n), count); err != nil {
					t.Errorf("request %d: %v", n, err)
				}
				done.Add(1)
				finished <- struct{}{}
			}
		})
	}
	version := loop.Version(0)
	for n := 1; n <= realRequests; n++ {
		<-finished
		if n%(realRequests/(realSwitches+1)) == 0 && version < realSwitches {
			version++
			serve(t, e, version%realVersions, version%2 == 0)
		}
	}
	group.Wait()
	t.Logf("%d requests: %v; %d switches; %+v", realRequests, counts, version, e.Status())
	testRealVersions(t, r, paths)
}

// realOne makes a request and compares what came of it.
func realOne(t *testing.T, r *recorded, e *Engine, number int, count func(string, int)) error {
	draw := rand.New(rand.NewPCG(11, uint64(number)))
	req := port.GenerateRequest{Rollout: port.RolloutID{Group: loop.GroupID(number/4 + 1), Sample: int32(number % 4)}, MaxTokens: realPiece * (1 + draw.IntN(4))}
	req.Prompt = []int32{int32(200 + number%256), int32(200 + number/256)}
	for range draw.IntN(8) {
		req.Prompt = append(req.Prompt, int32(200+draw.IntN(256)))
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	wish := draw.Float64()
	for round := 0; ; round++ {
		var o told
		listening := o.listen(req)
		stop := make(chan struct{})
		listening.Interrupt = stop
		after := time.Duration(draw.IntN(3000)) * time.Millisecond
		switch {
		case wish < 0.15:
			defer time.AfterFunc(after, cancel).Stop()
		case wish < 0.4 && round < 3:
			defer time.AfterFunc(after, func() { close(stop) }).Stop()
		}
		g, err := e.Generate(ctx, listening)
		if wish < 0.15 && errors.Is(err, context.Canceled) {
			count("given up", 1)
			err = nil
		}
		pieces, different := r.compare(listening, g)
		before := len(req.Prefix.Tokens)
		count("pieces compared", pieces)
		count("tokens compared", len(g.Tokens)-before)
		if err = errors.Join(err, different, o.check(g, before)); err != nil || !g.Interrupted {
			count("truncated", bit(g.Truncated))
			count("under more than one version", bit(len(slices.Compact(slices.Clone(g.Versions))) > 1))
			return err
		}
		count("interrupted and resumed", 1)
		req.Prefix = g.Prefix()
	}
}

// testRealVersions asks for some recorded pieces again: with the same seed the same come out under the weights that
// they are said to be of, and others under other weights.
func testRealVersions(t *testing.T, r *recorded, paths []string) {
	t.Helper()
	asked := map[loop.Version][]*call{}
	for _, c := range r.calls {
		if c.err == nil && len(c.sequence.Tokens) == realPiece && len(asked[c.version]) < 6 {
			asked[c.version] = append(asked[c.version], c)
		}
	}
	again, same, other := 0, 0, 0
	for v, path := range paths {
		sampler, err := r.Service.NewSampler(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		for of, calls := range asked {
			for _, c := range calls {
				s, err := sampler.Sample(t.Context(), c.request)
				if err != nil {
					t.Fatal(err)
				}
				again++
				near := slices.Equal(s.Tokens, c.sequence.Tokens) && farthest(s.Logprobs, c.sequence.Logprobs) < realSame
				switch {
				case near && int(of) == v:
					same++
				case near != (int(of) == v):
					other++
				}
			}
		}
	}
	t.Logf("%d pieces sampled again: %d under their own weights as recorded, %d not as their version says", again, same, other)
	if other > 0 || same < 2*realVersions {
		t.Errorf("%d of %d pieces are not of the version that they are recorded with", other, again)
	}
}

func farthest(a, b []float32) float64 {
	most := 0.0
	for i := range a {
		most = max(most, math.Abs(float64(a[i])-float64(b[i])))
	}
	return most
}

// How fast responses are sampled in pieces of several sizes, for the docs: nothing is judged.
func TestRealServiceSpeed(t *testing.T) {
	r, paths := openReal(t)
	const responses, length = 32, 256
	for _, piece := range []int{length, 64, 16} {
		e := engineAt(t, r.Service, paths, func(o *Options) { o.Slots, o.Piece = responses/2, piece })
		var took time.Duration
		var before, after Status
		for round := range 2 { // the first compiles
			before = e.Status()
			began := time.Now()
			var next atomic.Int64
			var group sync.WaitGroup
			for range e.Slots() {
				group.Go(func() {
					for n := next.Add(1); n <= responses; n = next.Add(1) {
						id := port.RolloutID{Group: loop.GroupID(round + 1), Sample: int32(n)}
						if _, err := e.Generate(t.Context(), port.GenerateRequest{Rollout: id, Prompt: []int32{200, 201, 202}, MaxTokens: length}); err != nil {
							t.Error(err)
						}
					}
				})
			}
			group.Wait()
			took, after = time.Since(began), e.Status()
		}
		tokens := after.Tokens - before.Tokens
		t.Logf("pieces of %3d: %d tokens of %d responses, %d at once, in %d pieces and %.1f s: %.0f tokens/s", piece, tokens, responses, e.Slots(),
			after.Pieces-before.Pieces, took.Seconds(), float64(tokens)/took.Seconds())
	}
}
