package upstream

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

func TestGenerateRecordsEveryToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newFakeEngine(t, newFakeServer(t), nil)
		var told []int32
		first := loop.NoVersion
		req := request(0, 40)
		req.OnTokens = func(d port.Delta) { told = append(told, d.Tokens...) }
		req.FirstToken = func(v loop.Version) { first = v }
		g, err := e.Generate(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		checkTokens(t, g, fakePromptOf)
		if len(g.Tokens) != 40 || !g.Truncated || g.Interrupted || g.Pruned || !g.Derived {
			t.Errorf("%d tokens, %+v", len(g.Tokens), g)
		}
		if first != 0 || !slices.Equal(told, g.Tokens) {
			t.Errorf("the first token was told as of version %d, tokens as %v", first, told)
		}
	})
}

func TestInterruptKeepsWhatThereIs(t *testing.T) {
	for _, spans := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeServer(t)
			f.caps.VersionSpans = spans
			e := newFakeEngine(t, f, nil)
			interrupt := make(chan struct{})
			req := request(0, 100)
			req.Interrupt = interrupt
			req.OnTokens = closeAfter(10, interrupt)
			g, err := e.Generate(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			checkTokens(t, g, fakePromptOf)
			if !g.Interrupted || len(g.Tokens) < 10 || len(g.Tokens) > 12 || g.Derived == spans {
				t.Errorf("spans %v: %d tokens, interrupted %v, derived %v", spans, len(g.Tokens), g.Interrupted, g.Derived)
			}
			synctest.Wait()
			f.mu.Lock()
			running := len(f.active)
			f.mu.Unlock()
			if running != 0 {
				t.Errorf("%d responses go on at the server", running)
			}

			// And on, as if nothing had been.
			req = request(0, 100)
			req.Prefix = g.Prefix()
			req.FirstToken = func(loop.Version) { t.Error("the first token of a resumed response was told") }
			whole, err := e.Generate(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			checkTokens(t, whole, fakePromptOf)
			if len(whole.Tokens) != 100 || !whole.Truncated {
				t.Errorf("%d tokens in the whole", len(whole.Tokens))
			}
		})
	}
}

// closeAfter closes a channel when n tokens have been told of.
func closeAfter(n int, c chan struct{}) func(port.Delta) {
	return func(d port.Delta) {
		for range d.Tokens {
			if n--; n == 0 {
				close(c)
			}
		}
	}
}

func TestInterruptedBeforeItBegan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		f.fault = func(int, fakeCall) fault { return fault{hangs: true} }
		e := newFakeEngine(t, f, nil)
		interrupt := make(chan struct{})
		close(interrupt)
		req := request(0, 5)
		req.Interrupt = interrupt
		g, err := e.Generate(t.Context(), req)
		if err != nil || !g.Interrupted || len(g.Tokens) != 0 {
			t.Errorf("%+v, %v", g, err)
		}
	})
}

func TestCheckStopsAtTheTokenItSays(t *testing.T) {
	for _, c := range []struct {
		name            string
		together, spans bool
	}{{"token by token", false, false}, {"all in one event", true, false}, {"with spans", false, true}, {"all in one event, with spans", true, true}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeServer(t)
				f.caps.VersionSpans = c.spans
				f.fault = func(int, fakeCall) fault { return fault{together: c.together} }
				e := newFakeEngine(t, f, nil)
				seen := 0
				req := request(0, 50)
				req.Check = func(tokens []int32) bool {
					if len(tokens) != seen+1 {
						t.Errorf("the check sees %d tokens after %d", len(tokens), seen)
					}
					seen = len(tokens)
					return seen == 9
				}
				g, err := e.Generate(t.Context(), req)
				if err != nil {
					t.Fatal(err)
				}
				if !c.together {
					checkTokens(t, g, fakePromptOf)
				}
				if len(g.Tokens) != 9 || !g.Pruned || g.Truncated || g.Interrupted || g.Derived == c.spans {
					t.Errorf("%d tokens, %+v", len(g.Tokens), g)
				}
			})
		})
	}
}

func TestCheckIsNotAskedOfTheLastToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newFakeEngine(t, newFakeServer(t), nil)
		req := request(0, 6)
		req.Check = func(tokens []int32) bool { return len(tokens) == 6 }
		g, err := e.Generate(t.Context(), req)
		if err != nil || g.Pruned || !g.Truncated || len(g.Tokens) != 6 {
			t.Errorf("%+v, %v", g, err)
		}
	})
}

func TestContextEndsAResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newFakeEngine(t, newFakeServer(t), nil)
		ctx, cancel := context.WithCancel(t.Context())
		req := request(0, 100)
		n := 0
		req.OnTokens = func(port.Delta) {
			if n++; n == 7 {
				cancel()
			}
		}
		g, err := e.Generate(ctx, req)
		if !errors.Is(err, context.Canceled) || len(g.Tokens) < 7 {
			t.Errorf("%d tokens, %v", len(g.Tokens), err)
		}
		checkTokens(t, g, fakePromptOf)
	})
}

func TestBadRequestsAreRefusedHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		e := newFakeEngine(t, f, func(o *Options) { o.Vocabulary = 100 << 10; f.caps.Vocabulary = 0 })
		for name, change := range map[string]func(*port.GenerateRequest){
			"no prompt":                     func(r *port.GenerateRequest) { r.Prompt = nil },
			"a prompt over the context":     func(r *port.GenerateRequest) { r.Prompt = make([]int32, placesMax) },
			"a token beyond the vocabulary": func(r *port.GenerateRequest) { r.Prompt[2] = 100 << 10 },
			"a negative token":              func(r *port.GenerateRequest) { r.Prompt[2] = -1 },
			"no tokens asked for":           func(r *port.GenerateRequest) { r.MaxTokens = 0 },
			"a prefix without log-probs":    func(r *port.GenerateRequest) { r.Prefix.Tokens = []int32{1} },
			"a prefix of unknown version": func(r *port.GenerateRequest) {
				r.Prefix = port.Prefix{Tokens: []int32{1}, Logprobs: []float32{-1}, Versions: []loop.Version{-1}}
			},
		} {
			req := request(0, 5)
			change(&req)
			if _, err := e.Generate(t.Context(), req); err == nil {
				t.Errorf("%s is accepted", name)
			}
		}
		if len(f.calls) != 0 {
			t.Errorf("the server was asked %d times", len(f.calls))
		}
	})
}

// Where the context leaves less than what is asked for, the response ends there and says so.
func TestContextCutsMaxTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		f.caps.Context = 20
		e := newFakeEngine(t, f, nil)
		g, err := e.Generate(t.Context(), request(0, 100))
		if err != nil || len(g.Tokens) != 20-fakePromptOf || !g.Truncated {
			t.Fatalf("%d tokens, %v", len(g.Tokens), err)
		}
		req := request(0, 100)
		req.Prefix = g.Prefix()
		g, err = e.Generate(t.Context(), req)
		if err != nil || len(g.Tokens) != 20-fakePromptOf || !g.Truncated {
			t.Errorf("from a prefix that fills the context: %d tokens, %v", len(g.Tokens), err)
		}
	})
}

func TestTrap8EveryCallSaysHowManyTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		f.fault = func(call int, _ fakeCall) fault { return fault{breaks: call == 0, after: 4} }
		e := newFakeEngine(t, f, nil)
		if _, err := e.Generate(t.Context(), request(0, 10)); err != nil {
			t.Fatal(err)
		}
		if len(f.calls) != 2 || f.calls[0].Max != 10 || f.calls[1].Max != 6 {
			t.Errorf("calls for %+v", f.calls)
		}
		// A server with a limit of its own, such as 16, cuts responses that nobody meant to cut.
		f.fault = func(int, fakeCall) fault { return fault{after: 16, finish: "length"} }
		if _, err := e.Generate(t.Context(), request(0, 100)); !errors.Is(err, ErrLied) {
			t.Errorf("a response of 16 tokens, of 100 asked for, ends by length: %v", err)
		}
	})
}

func TestSlotsAreNotExceeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newFakeEngine(t, newFakeServer(t), func(o *Options) { o.Slots = 1 })
		req := request(0, 3)
		req.OnTokens = func(port.Delta) {
			if _, err := e.Generate(t.Context(), request(1, 3)); err == nil {
				t.Error("a second response has found a slot")
			}
		}
		if _, err := e.Generate(t.Context(), req); err != nil {
			t.Error(err)
		}
	})
}

func TestNothingIsSampledBeforeTheFirstSwitch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newBareEngine(t, newFakeServer(t), nil)
		if _, err := e.Generate(t.Context(), request(0, 3)); err == nil || e.Status().State != "new" {
			t.Errorf("%v in state %s", err, e.Status().State)
		}
	})
}

func TestCloseEndsResponses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newFakeEngine(t, newFakeServer(t), nil)
		req := request(0, 100)
		n := 0
		req.OnTokens = func(port.Delta) {
			if n++; n == 3 {
				go func() { _ = e.Close() }()
			}
		}
		if _, err := e.Generate(t.Context(), req); !errors.Is(err, ErrClosed) {
			t.Errorf("ended with %v", err)
		}
		if _, err := e.Generate(t.Context(), req); !errors.Is(err, ErrClosed) {
			t.Errorf("a closed engine says %v", err)
		}
		if err := e.Load(t.Context(), 1); !errors.Is(err, ErrClosed) {
			t.Errorf("a closed engine loads: %v", err)
		}
	})
}
