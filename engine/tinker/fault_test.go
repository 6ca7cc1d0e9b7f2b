package tinker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	service "github.com/headway-rl/headway/internal/tinker"
	"github.com/headway-rl/headway/loop/port"
)

// A service that lies is found out, and what it said before stands beside the error.
func TestLies(t *testing.T) {
	for want, lie := range map[string]func(s *service.Sequence){
		"token 11 of the response is 512":                func(s *service.Sequence) { s.Tokens[3] = fakeVocabulary },
		"token 8 of the response is -1":                  func(s *service.Sequence) { s.Tokens[0] = -1 },
		"8 tokens with 0 log-probs behind token 8":       func(s *service.Sequence) { s.Logprobs = nil },
		"8 tokens with 7 log-probs":                      func(s *service.Sequence) { s.Logprobs = s.Logprobs[1:] },
		"it says NaN":                                    func(s *service.Sequence) { s.Logprobs[7] = float32(math.NaN()) },
		"it says 0.5":                                    func(s *service.Sequence) { s.Logprobs[1] = 0.5 },
		"it says -9999":                                  func(s *service.Sequence) { s.Logprobs[1] = -9999 },
		"it says -Inf":                                   func(s *service.Sequence) { s.Logprobs[1] = float32(math.Inf(-1)) },
		"it says +Inf":                                   func(s *service.Sequence) { s.Logprobs[1] = float32(math.Inf(1)) },
		"no token behind token 8":                        func(s *service.Sequence) { *s = service.Sequence{} },
		"9 tokens behind token 8":                        func(s *service.Sequence) { s.Tokens, s.Logprobs = append(s.Tokens, 9), append(s.Logprobs, -1) },
		"it stopped behind token 16 of the response":     func(s *service.Sequence) { s.Stopped = true },
		"it stopped behind token 8 of the response with": func(s *service.Sequence) { *s = service.Sequence{Stopped: true} },
		"it stopped behind token 11 of the response wit": func(s *service.Sequence) {
			*s = service.Sequence{Tokens: s.Tokens[:3], Logprobs: s.Logprobs[:3], Stopped: true}
		},
		"token 15 of the response is 600": func(s *service.Sequence) { s.Tokens[1], s.Tokens[7] = fakeEnd, 600 }, // behind the end too
	} {
		f := &fakeService{}
		f.answer = func(n int, c *call) {
			if n == 2 {
				lie(&c.sequence)
			}
		}
		e := newEngine(t, f, nil)
		req := request(0, 24)
		g, err := e.Generate(t.Context(), req)
		if !errors.Is(err, ErrLied) || errors.Is(err, port.ErrEngineDown) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "engine fake: rollout ") {
			t.Errorf("%v, want something with %q", err, want)
		}
		if len(g.Tokens) != 8 || len(g.Logprobs) != 8 || len(g.Versions) != 8 || e.Status().Tokens != 8 {
			t.Errorf("%s: %d tokens stand beside the error, want the 8 before", want, len(g.Tokens))
		}
	}
}

// Zeros in place of log-probs are found out where they are too many to be true, and believed where tokens are not
// left to chance.
func TestZeroLogprobs(t *testing.T) {
	for _, c := range []struct {
		zeros int
		greed bool
		lied  bool
	}{{zerosMost, false, false}, {zerosMost + 1, false, true}, {zerosMost + 1, true, false}} {
		f := &fakeService{}
		f.answer = func(_ int, c *call) { clear(c.sequence.Logprobs) }
		e := newEngine(t, f, func(o *Options) { o.Piece = 64 })
		req := request(0, c.zeros)
		if c.greed {
			req.Sampling = &port.Sampling{}
		}
		if _, err := e.Generate(t.Context(), req); errors.Is(err, ErrLied) != c.lied {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// A piece that is shorter than it was to be, without a stop, is a limit of the service's: the next goes on.
func TestShortPieces(t *testing.T) {
	f := &fakeService{length: func([]int32) int { return 20 }}
	f.answer = func(_ int, c *call) {
		if s := &c.sequence; len(s.Tokens) > 3 {
			*s = service.Sequence{Tokens: s.Tokens[:3], Logprobs: s.Logprobs[:3]}
		}
	}
	e := newEngine(t, f, nil)
	g, err := e.Generate(t.Context(), request(0, 30))
	if err != nil || len(g.Tokens) != 20 || f.called.Load() != 7 {
		t.Errorf("%d tokens after %d requests, %v", len(g.Tokens), f.called.Load(), err)
	}
	if _, err := f.compare(request(0, 30), g); err != nil {
		t.Error(err)
	}
}

// What the service's errors become.
func TestServiceErrors(t *testing.T) {
	other := errors.New("something else")
	for _, c := range []struct {
		name           string
		errs           map[int]error // by the number of the request
		open           map[int]error // by that of the sampler, from 2 on: 1 was loaded
		want           error
		down           bool
		called, opened int64
	}{
		{"down", map[int]error{3: service.ErrDown}, nil, service.ErrDown, true, 3, 1},
		{"refused", map[int]error{3: service.ErrRefused}, nil, service.ErrRefused, false, 3, 1},
		{"unknown", map[int]error{3: other}, nil, other, false, 3, 1},
		{"gone", map[int]error{3: service.ErrGone}, nil, nil, false, 5, 2},
		{"gone for two pieces", map[int]error{2: service.ErrGone, 4: service.ErrGone}, nil, nil, false, 6, 3},
		{"gone twice", map[int]error{3: service.ErrGone, 4: service.ErrGone}, nil, service.ErrGone, true, 4, 2},
		{"gone, then down", map[int]error{3: service.ErrGone, 4: service.ErrDown}, nil, service.ErrDown, true, 4, 2},
		{"gone with its path", map[int]error{3: service.ErrGone}, map[int]error{2: service.ErrGone}, service.ErrGone, true, 3, 2},
		{"gone, and down", map[int]error{3: service.ErrGone}, map[int]error{2: service.ErrDown}, service.ErrDown, true, 3, 2},
		{"gone, and refused", map[int]error{3: service.ErrGone}, map[int]error{2: service.ErrRefused}, service.ErrRefused, false, 3, 2},
	} {
		f := &fakeService{}
		f.answer = func(n int, call *call) {
			if err := c.errs[n]; err != nil {
				call.sequence, call.err = service.Sequence{}, fmt.Errorf("asample: %w", err)
			}
		}
		f.open = func(_ context.Context, n int, path string) error {
			if path != pathOf(0) {
				t.Errorf("%s: a sampler for %s", c.name, path)
			}
			return c.open[n]
		}
		e := newEngine(t, f, nil)
		g, err := e.Generate(t.Context(), request(0, 32))
		if !errors.Is(err, c.want) || (err != nil) != (c.want != nil) || errors.Is(err, port.ErrEngineDown) != c.down || errors.Is(err, ErrLied) {
			t.Errorf("%s: ended with %v", c.name, err)
		}
		if f.called.Load() != c.called || f.opened.Load() != c.opened {
			t.Errorf("%s: %d requests and %d samplers, want %d and %d", c.name, f.called.Load(), f.opened.Load(), c.called, c.opened)
		}
		want := 32
		if c.want != nil {
			want = 16
		}
		if _, different := f.compare(request(0, 32), g); different != nil || len(g.Tokens) != want {
			t.Errorf("%s: %d tokens, want %d; %v", c.name, len(g.Tokens), want, different)
		}
		if s := e.Status(); (s.State == "down") != errors.Is(c.want, service.ErrDown) {
			t.Errorf("%s: %+v", c.name, s)
		}
		if g, err := e.Generate(t.Context(), request(1, 8)); err != nil || len(g.Tokens) != 8 || e.Status().State != "serving" {
			t.Errorf("%s: afterwards %+v, %v, %+v", c.name, g, err, e.Status())
		}
	}
}

// Pieces that find the sampler gone at once share the one that is made anew, and none waits longer than it may.
func TestGoneForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeService{}
		gone := make(chan struct{})
		f.answer = func(n int, c *call) {
			if n <= 8 {
				<-gone
				c.sequence, c.err = service.Sequence{}, service.ErrGone
			}
		}
		making := make(chan struct{})
		f.open = func(ctx context.Context, n int, _ string) error {
			if n == 2 {
				<-making
			}
			return nil
		}
		e := newEngine(t, f, nil)
		var group sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		for i := range 8 {
			group.Go(func() {
				ctx := ctx
				if i > 0 {
					ctx = t.Context()
				}
				g, err := e.Generate(ctx, request(i, 8))
				if i > 0 && (err != nil || len(g.Tokens) != 8) || i == 0 && err != nil && !errors.Is(err, context.Canceled) {
					t.Errorf("%+v, %v", g, err)
				}
			})
		}
		synctest.Wait()
		close(gone)
		synctest.Wait()
		cancel()
		close(making)
		group.Wait()
		if n := f.opened.Load(); n != 2 {
			t.Errorf("%d samplers, want the loaded one and another", n)
		}
	})
}

// Answers are not kept: who changes a response changes nothing of the service's, and a request's prefix is left alone.
func TestPrefixIsLeftAlone(t *testing.T) {
	f := &fakeService{}
	e := newEngine(t, f, nil)
	g, err := e.Generate(t.Context(), request(0, 8))
	if err != nil {
		t.Fatal(err)
	}
	req := request(0, 16)
	req.Prefix = port.Generation{Tokens: g.Tokens[:4:8], Logprobs: g.Logprobs[:4:8], Versions: g.Versions[:4:8]}.Prefix()
	before := slices.Clone(g.Tokens)
	serve(t, e, 1, false) // which goes on with other tokens
	if _, err := e.Generate(t.Context(), req); err != nil || !slices.Equal(g.Tokens, before) {
		t.Errorf("%v: %v became %v", err, before, g.Tokens)
	}
}
