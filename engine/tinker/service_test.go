package tinker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	service "github.com/headway-rl/headway/internal/tinker"
	"github.com/headway-rl/headway/internal/tinker/tinkertest"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// fixture is an engine over a session at a service in memory, which has three versions.
type fixture struct {
	*recorded
	engine  *Engine
	session *service.Session
	paths   []string
}

// newFixture is one that serves version 0, in pieces of 8 tokens of fakeToken each.
func newFixture(t *testing.T, server *tinkertest.Service) *fixture {
	t.Helper()
	session, err := service.Open(t.Context(), service.Options{URL: server.URL(), Dial: server.Dial, Patience: time.Minute, Logf: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	model, err := session.NewModel(t.Context(), service.ModelOptions{Base: "test/base", Rank: 4})
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{session: session}
	data := service.Datum{Tokens: []int32{5, 6, 7}, Targets: []int32{6, 7, 8}, Logprobs: []float32{-3, -3, -3}, Advantages: []float32{1, -1, 1}}
	for v := range 3 {
		if _, err := model.ForwardBackward(t.Context(), []service.Datum{data}, service.Loss{Name: "importance_sampling"}); err != nil {
			t.Fatal(err)
		}
		if _, err := model.OptimStep(t.Context(), service.Adam{LearningRate: 0.5}); err != nil {
			t.Fatal(err)
		}
		path, err := model.SaveSampler(t.Context(), fmt.Sprintf("v%d", v))
		if err != nil {
			t.Fatal(err)
		}
		f.paths = append(f.paths, path)
	}
	f.recorded = &recorded{Service: FromSession(session), versionOf: func(path string) loop.Version { return loop.Version(slices.Index(f.paths, path)) }}
	if f.engine, err = New(Options{
		Name: "memory", Slots: 8, Service: f, Piece: 8, Vocabulary: 32, Ends: []int32{2}, Logf: t.Logf,
		Path: func(v loop.Version) (string, error) { return f.paths[v], nil },
	}); err != nil {
		t.Fatal(err)
	}
	if f.engine.Name() != "memory" || f.engine.Slots() != 8 {
		t.Errorf("%s with %d slots", f.engine.Name(), f.engine.Slots())
	}
	t.Cleanup(func() {
		if err := errors.Join(f.engine.Close(), session.Close()); err != nil {
			t.Error(err)
		}
		server.Close()
	})
	serve(t, f.engine, 0, false)
	return f
}

// memoryRequest is one of a number.
func memoryRequest(number, most int) port.GenerateRequest {
	return port.GenerateRequest{Rollout: port.RolloutID{Group: 1, Sample: int32(number)}, Prompt: []int32{5, int32(6 + number)}, MaxTokens: most}
}

// At a service in the manner of each of the real ones, responses go on through switches and what is recorded is what
// was answered; a service that was started anew in between is not noticed but by its log.
func TestServicesInMemory(t *testing.T) {
	for name, o := range map[string]tinkertest.Options{
		"like-Tinker": {Order: tinkertest.BySequence},
		"like-TuFT":   {Order: tinkertest.Strict, Deaf: true},
		"like-SkyRL":  {Order: tinkertest.ByArrival, Encoding: tinkertest.JSON, Deaf: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o.TokenTime = fakeToken
				server := tinkertest.New(o)
				f := newFixture(t, server)
				var group sync.WaitGroup
				var mu sync.Mutex
				seen := map[loop.Version]int{}
				draws := map[string]bool{}
				for i := range 8 {
					group.Go(func() {
						var o told
						req := o.listen(memoryRequest(i%4, 80)) // in pairs that have the same prompt
						req.Rollout.Sample = int32(i)
						g, err := f.engine.Generate(t.Context(), req)
						if err == nil {
							_, err = f.compare(req, g)
						}
						if err = errors.Join(err, o.check(g, 0)); err != nil {
							t.Error(err)
							return
						}
						if i := slices.Index(g.Tokens, 2); i >= 0 && i != len(g.Tokens)-1 || g.Truncated != (i < 0) {
							t.Errorf("%+v: ends, and goes on", g)
						}
						mu.Lock()
						defer mu.Unlock()
						for _, v := range g.Versions {
							seen[v]++
						}
						draws[fmt.Sprint(g.Tokens)] = true
					})
				}
				for v := range loop.Version(2) {
					time.Sleep(12 * fakeToken)
					serve(t, f.engine, v+1, v == 0)
					if v == 0 {
						server.Forget()
					}
				}
				group.Wait()
				if len(seen) != 3 || len(draws) != 8 {
					t.Errorf("tokens of versions %v, %d different responses of 8", seen, len(draws))
				}
			})
		})
	}
}

// A service that is told that nobody waits any more, where it listens.
func TestAbandonedPiecesAreCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := tinkertest.New(tinkertest.Options{TokenTime: time.Hour})
		f := newFixture(t, server)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, cancel)
		began := time.Now()
		if _, err := f.engine.Generate(ctx, memoryRequest(0, 8)); !errors.Is(err, context.Canceled) || time.Since(began) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		synctest.Wait()
		if n := server.Cancelled(); n != 1 || f.engine.Status().Abandoned != 1 {
			t.Errorf("%d futures cancelled, %+v", n, f.engine.Status())
		}
	})
}

// A service that has gone for good, or has lost the version, ends responses as a lost engine does, with what they
// have; another engine goes on with that.
func TestServiceIsLost(t *testing.T) {
	for name, c := range map[string]struct {
		lose func(t *testing.T, f *fixture, server *tinkertest.Service)
		want error
	}{
		"unreachable": {func(_ *testing.T, _ *fixture, server *tinkertest.Service) {
			server.Fail(tinkertest.Fault{LoseRequest: true, Times: 1 << 30})
		}, service.ErrDown},
		"version-deleted": {func(t *testing.T, f *fixture, server *tinkertest.Service) {
			if err := f.session.Delete(t.Context(), f.paths[0]); err != nil {
				t.Error(err)
			}
		}, service.ErrGone},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := tinkertest.New(tinkertest.Options{TokenTime: fakeToken})
				f := newFixture(t, server)
				peer := newFixture(t, tinkertest.New(tinkertest.Options{}))
				serve(t, peer.engine, 2, false)
				req := memoryRequest(1, 60)
				var o told
				listening := o.listen(req)
				hear := listening.OnTokens
				listening.OnTokens = func(d port.Delta) {
					if hear(d); len(o.delta.Tokens) == 16 {
						c.lose(t, f, server)
					}
				}
				g, err := f.engine.Generate(t.Context(), listening)
				if !errors.Is(err, port.ErrEngineDown) || !errors.Is(err, c.want) || len(g.Tokens) != 16 || !strings.Contains(err.Error(), "engine memory: rollout ") {
					t.Fatalf("%+v, %v", g, err)
				}
				req.Prefix = g.Prefix()
				g, err = peer.engine.Generate(t.Context(), req)
				if err == nil {
					_, err = peer.compare(req, g)
				}
				if err != nil || g.Versions[15] != 0 || g.Versions[16] != 2 {
					t.Errorf("%+v, %v", g, err)
				}
				if err := f.engine.Load(t.Context(), 0); !errors.Is(err, c.want) || errors.Is(err, port.ErrEngineDown) != (c.want == service.ErrDown) {
					t.Errorf("loading it again: %v", err)
				}
			})
		})
	}
}

// What a service does not take, however often it is asked, is an error in its words.
func TestServiceRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := tinkertest.New(tinkertest.Options{})
		f := newFixture(t, server)
		server.Fail(tinkertest.Fault{Operation: "asample", Fails: "the prompt is over the context", Times: againMost + 1})
		if _, err := f.engine.Generate(t.Context(), memoryRequest(0, 8)); err == nil || errors.Is(err, port.ErrEngineDown) || !strings.Contains(err.Error(), "over the context") {
			t.Errorf("%v", err)
		}
		req := memoryRequest(0, 8)
		req.Sampling = &port.Sampling{Temperature: 1, Stop: []string{"stop"}}
		if _, err := f.engine.Generate(t.Context(), req); !errors.Is(err, service.ErrRefused) || errors.Is(err, port.ErrEngineDown) {
			t.Errorf("%v", err)
		}
		if _, err := f.engine.Generate(t.Context(), memoryRequest(0, 8)); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}

// A sample that fails, because what samples behind the service is away for a while, is asked for again.
func TestAFailedSampleIsAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := tinkertest.New(tinkertest.Options{Order: tinkertest.ByArrival, Encoding: tinkertest.JSON})
		f := newFixture(t, server)
		server.Fail(tinkertest.Fault{Operation: "asample", Fails: "All connection attempts failed", Times: againMost})
		if g, err := f.engine.Generate(t.Context(), memoryRequest(0, 8)); err != nil || len(g.Tokens) == 0 {
			t.Errorf("%+v, %v", g, err)
		}
		if s := f.engine.Status(); s.Retries != againMost {
			t.Errorf("%+v, want %d retries", s, againMost)
		}
	})
}
