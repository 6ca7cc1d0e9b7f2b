package upstream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/loop/port"
)

// Whatever breaks a call off, the response goes on where it was.
func TestBrokenCallsGoOn(t *testing.T) {
	for name, first := range map[string]fault{
		"the connection is refused":            {refuse: true},
		"500":                                  {status: 500},
		"429":                                  {status: 429},
		"the connection breaks at once":        {breaks: true},
		"the connection breaks":                {breaks: true, after: 9},
		"the stream ends":                      {ends: true, after: 9},
		"the stream ends at once":              {ends: true},
		"an error inside 200":                  {says: `{"E":"out of memory"}`, after: 9},
		"an event that is not understood":      {says: `{"T":[`, after: 9},
		"silence":                              {hangs: true, after: 9},
		"silence at once":                      {hangs: true},
		"the server cuts it off":               {says: `{"F":"abort"}`, after: 9},
		"the finish comes, the mark does not":  {noMark: true},
		"all in one event, and then no mark":   {noMark: true, together: true},
		"an early end by stop without a mark":  {noMark: true, finish: "stop", after: 12},
		"the connection breaks near the limit": {breaks: true, after: 29},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeServer(t)
				f.fault = func(call int, _ fakeCall) fault {
					if call == 0 {
						return first
					}
					return fault{}
				}
				e := newFakeEngine(t, f, nil)
				g, err := e.Generate(t.Context(), request(0, 30))
				if err != nil {
					t.Fatal(err)
				}
				checkTokens(t, g, fakePromptOf)
				if len(g.Tokens) != 30 || !g.Truncated || e.Status().Retries != 1 {
					t.Errorf("%d tokens, truncated %v, %d retries", len(g.Tokens), g.Truncated, e.Status().Retries)
				}
				if first.noMark && f.calls[1].Max < 1 || !first.noMark && first.after > 0 && f.calls[1].Max > 30-first.after+1 {
					t.Errorf("the second call asks for %d tokens", f.calls[1].Max)
				}
			})
		})
	}
}

// An event that is not understood may hold a completion: no log has it, unless payloads may be logged.
func TestEventsAreNotQuoted(t *testing.T) {
	for name, says := range map[string]string{"event": `{"T":["what was sampled`, "line": "{}\n<what was sampled"} {
		for _, payloads := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeServer(t)
				f.fault = func(int, fakeCall) fault { return fault{says: says} }
				var said strings.Builder
				var mu sync.Mutex
				e := newFakeEngine(t, f, func(o *Options) {
					o.LogPayloads = payloads
					o.Logf = func(format string, args ...any) {
						mu.Lock()
						defer mu.Unlock()
						fmt.Fprintf(&said, format+"\n", args...)
					}
				})
				_, err := e.Generate(t.Context(), request(0, 30))
				mu.Lock()
				defer mu.Unlock()
				if text := fmt.Sprintln(said.String(), err, e.Status()); strings.Contains(text, "what was sampled") != payloads {
					t.Errorf("%s, payloads in logs %v: %s", name, payloads, text)
				}
			})
		}
	}
}

// A server's words end in logs: an error has their beginning alone, whatever quotes them.
func TestWordsAreCut(t *testing.T) {
	long := strings.Repeat("1", 64<<10)
	for name, f := range map[string]fault{
		"an error inside a stream": {says: `{"E":"` + long + `"}`},
		"a number that is none":    {says: `{"T":[` + long + `]}`},
		"an unknown version":       {says: `{"T":[9],"P":[-1],"F":"stop","S":[{"Label":"` + long + `","Start":0,"End":1}]}`},
	} {
		synctest.Test(t, func(t *testing.T) {
			server := newFakeServer(t)
			server.caps.VersionSpans = true
			server.fault = func(int, fakeCall) fault { return f }
			var mu sync.Mutex
			longest := 0
			e := newFakeEngine(t, server, func(o *Options) {
				o.Logf = func(format string, args ...any) {
					mu.Lock()
					defer mu.Unlock()
					longest = max(longest, len(fmt.Sprintf(format, args...)))
				}
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			_, err := e.Generate(ctx, request(0, 30))
			mu.Lock()
			defer mu.Unlock()
			if size := len(fmt.Sprint(err)); err == nil || size > 2<<10 || longest > 2<<10 {
				t.Errorf("%s: an error of %d bytes, a line of %d in the log", name, size, longest)
			}
		})
	}
}

// What is told of is never taken back: the event that ends a response waits for the stream's end.
func TestTrap9WhatIsToldIsNotSampledAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		f.fault = func(call int, _ fakeCall) fault {
			return []fault{{breaks: true, after: 5}, {noMark: true, finish: "stop", after: 8}, {status: 503}, {ends: true, after: 2}, {}}[min(call, 4)]
		}
		e := newFakeEngine(t, f, nil)
		var told port.Generation
		req := request(0, 30)
		req.OnTokens = func(d port.Delta) {
			told.Tokens, told.Logprobs = append(told.Tokens, d.Tokens...), append(told.Logprobs, d.Logprobs...)
			told.Text += d.Text
		}
		g, err := e.Generate(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		checkTokens(t, g, fakePromptOf)
		told.Versions = g.Versions
		checkTokens(t, told, fakePromptOf)
		seen := map[string]bool{}
		for _, call := range f.calls {
			if seen[call.ID] {
				t.Errorf("two calls are called %s", call.ID)
			}
			seen[call.ID] = true
		}
	})
}

func TestTrap15AnErrorInside200FailsTheSampleInTheEnd(t *testing.T) {
	for name, what := range map[string]fault{"an error": {says: `{"E":"no"}`}, "no mark": {ends: true}, "no mark after the finish": {noMark: true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeServer(t)
				f.fault = func(int, fakeCall) fault { return what }
				e := newFakeEngine(t, f, nil)
				g, err := e.Generate(t.Context(), request(0, 1))
				if !errors.Is(err, port.ErrEngineDown) {
					t.Errorf("%+v, %v", g, err)
				}
				if len(f.calls) != fruitlessMax+1 {
					t.Errorf("%d calls", len(f.calls))
				}
			})
		})
	}
}

// A response that alone comes to nothing is its own fault, not the engine's.
func TestOneResponseDoesNotTakeTheEngineDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		f.fault = func(_ int, q fakeCall) fault {
			if strings.Contains(q.ID, "s00000001") {
				return fault{status: 500}
			}
			return fault{}
		}
		e := newFakeEngine(t, f, nil)
		var group sync.WaitGroup
		group.Go(func() {
			if _, err := e.Generate(t.Context(), request(0, 900)); err != nil {
				t.Error(err)
			}
		})
		group.Go(func() {
			if _, err := e.Generate(t.Context(), request(1, 900)); err == nil || errors.Is(err, port.ErrEngineDown) {
				t.Errorf("ended with %v", err)
			}
		})
		group.Wait()
		if s := e.Status(); s.State != "serving" || s.Losses != 0 {
			t.Errorf("%+v", s)
		}
	})
}

func TestADeadServerIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		e := newFakeEngine(t, f, nil)
		var group sync.WaitGroup
		for i := range 8 {
			group.Go(func() {
				g, err := e.Generate(t.Context(), request(i, 500))
				if !errors.Is(err, port.ErrEngineDown) {
					t.Errorf("ended with %v", err)
				}
				checkTokens(t, g, fakePromptOf)
				if len(g.Tokens) < 5 {
					t.Errorf("only %d tokens stand beside the error", len(g.Tokens))
				}
			})
		}
		time.Sleep(105 * time.Millisecond)
		f.kill()
		group.Wait()
		if s := e.Status(); s.State != "down" || s.Losses != 1 {
			t.Errorf("%+v", s)
		}
		if _, ok := e.Capabilities(); ok {
			t.Error("it still believes to know what the server can")
		}
		// It comes back with other weights: nothing is sampled before it was asked and switched.
		f.restart(66)
		if _, err := e.Generate(t.Context(), request(0, 5)); !errors.Is(err, port.ErrEngineDown) {
			t.Errorf("it samples at once: %v", err)
		}
		serveVersion(t, e, 4)
		g, err := e.Generate(t.Context(), request(0, 5))
		if err != nil {
			t.Fatal(err)
		}
		checkTokens(t, g, fakePromptOf)
	})
}

// A server that comes back at once with the weights it was started with must not go on with what
// the one before had begun.
func TestARestartedServerIsRecognised(t *testing.T) {
	for _, spans := range []bool{false, true} {
		for _, busy := range []bool{false, true} {
			t.Run(fmt.Sprintf("spans_%v_busy_%v", spans, busy), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFakeServer(t)
					f.caps.VersionSpans = spans
					e := newFakeEngine(t, f, nil)
					serveVersion(t, e, 3)
					if !busy {
						if _, err := e.Generate(t.Context(), request(0, 20)); err != nil {
							t.Fatal(err)
						}
						f.kill()
						f.restart(0)
					} else {
						go func() {
							time.Sleep(105 * time.Millisecond)
							f.kill()
							f.restart(0)
						}()
					}
					g, err := e.Generate(t.Context(), request(0, 100))
					if !errors.Is(err, port.ErrEngineDown) {
						t.Errorf("ended with %v", err)
					}
					checkTokens(t, g, fakePromptOf)
					if busy != (len(g.Tokens) > 0) {
						t.Errorf("%d tokens stand beside the error", len(g.Tokens))
					}
				})
			})
		}
	}
}

func TestAHungServerIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		f.fault = func(int, fakeCall) fault { return fault{hangs: true, after: 3} }
		e := newFakeEngine(t, f, nil)
		f.set(func() { f.unwell = true })
		began := time.Now()
		g, err := e.Generate(t.Context(), request(0, 50))
		if !errors.Is(err, port.ErrEngineDown) || len(g.Tokens) != 3 {
			t.Errorf("%d tokens, %v", len(g.Tokens), err)
		}
		if took := time.Since(began); took > 11*time.Second {
			t.Errorf("it took %v to notice", took)
		}
	})
}

func TestLiesAreErrors(t *testing.T) {
	token := fmt.Sprint(fakePromptOf + 2)
	for name, says := range map[string]string{
		"a token beyond the vocabulary": `{"T":[99999999],"P":[-1]}`,
		"a negative token":              `{"T":[-3],"P":[-1]}`,
		"a missing log-prob":            `{"T":[` + token + `],"P":[]}`,
		"-9999":                         `{"T":[` + token + `],"P":[-9999]}`,
		"a log-prob above 0":            `{"T":[` + token + `],"P":[0.5]}`,
		"more tokens than asked for":    `{"T":[9,10,11,12,13,14,15,16,17],"P":[0,0,0,0,0,0,0,0,0]}`,
		"an event without an end":       strings.Repeat("x", 1<<20),
		"an unknown finish":             `{"F":"maybe"}`,
		"tokens after the finish":       "{\"F\":\"stop\"}\n\ndata: {\"T\":[9],\"P\":[-1]}",
		"the end without a finish":      `{}`,
		"two finishes":                  "{\"F\":\"stop\"}\n\ndata: {\"F\":\"length\"}",
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeServer(t)
				f.fault = func(int, fakeCall) fault { return fault{says: says} }
				e := newFakeEngine(t, f, nil)
				_, err := e.Generate(t.Context(), request(0, 10))
				if !errors.Is(err, ErrLied) || errors.Is(err, port.ErrEngineDown) {
					t.Errorf("ended with %v", err)
				}
				if len(f.calls) != 1 {
					t.Errorf("%d calls: it was tried again", len(f.calls))
				}
			})
		})
	}
}

func TestTheSameFinishTwiceIsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		f.fault = func(int, fakeCall) fault {
			return fault{says: "{\"T\":[9],\"P\":[-0.0703125],\"X\":\"<9>\",\"F\":\"stop\"}\n\ndata: {\"F\":\"stop\"}", after: 2}
		}
		e := newFakeEngine(t, f, nil)
		g, err := e.Generate(t.Context(), request(0, 10))
		if err != nil || len(g.Tokens) != 3 || g.Truncated {
			t.Errorf("%+v, %v", g, err)
		}
	})
}

// Behind a token that ends a sequence nothing is sampled, though nobody has said that it was the end.
func TestNothingIsSampledBehindAnEnd(t *testing.T) {
	const end = fakePromptOf + 8 // the ninth token
	for name, c := range map[string]struct {
		what      fault
		interrupt bool
		stop      bool
	}{
		"the connection breaks":         {what: fault{breaks: true, after: 9}},
		"silence":                       {what: fault{hangs: true, after: 9}},
		"an interruption":               {what: fault{hangs: true, after: 9}, interrupt: true},
		"a stop token of the request's": {what: fault{ends: true, after: 9}, stop: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeServer(t)
			f.fault = func(int, fakeCall) fault { return c.what }
			req := request(0, 30)
			e := newFakeEngine(t, f, func(o *Options) {
				if !c.stop {
					o.Ends = []int32{5, end}
				}
			})
			if c.stop {
				req.Sampling = &port.Sampling{Temperature: 1, StopTokens: []int32{end}}
			}
			if interrupt := make(chan struct{}); c.interrupt {
				req.Interrupt, req.OnTokens = interrupt, closeAfter(9, interrupt)
			}
			g, err := e.Generate(t.Context(), req)
			if err != nil || len(g.Tokens) != 9 || g.Truncated || g.Interrupted || len(f.calls) != 1 {
				t.Errorf("%s: %+v, %v", name, g, err)
			}
			checkTokens(t, g, fakePromptOf)
		})
	}
}

func TestARefusalIsFinal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		f.fault = func(int, fakeCall) fault { return fault{status: 400} }
		e := newFakeEngine(t, f, nil)
		if _, err := e.Generate(t.Context(), request(0, 10)); !errors.Is(err, ErrRefused) || len(f.calls) != 1 {
			t.Errorf("%d calls, %v", len(f.calls), err)
		}
	})
}

// Where a server's streams have no end mark, its finish is the end.
func TestUnmarkedStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		f.caps.Unmarked = true
		f.fault = func(call int, _ fakeCall) fault { return fault{noMark: true, ends: call == 0, after: 5} }
		e := newFakeEngine(t, f, nil)
		g, err := e.Generate(t.Context(), request(0, 10))
		if err != nil || len(g.Tokens) != 10 || len(f.calls) != 2 {
			t.Fatalf("%d tokens in %d calls, %v", len(g.Tokens), len(f.calls), err)
		}
		checkTokens(t, g, fakePromptOf)
	})
}

// A server that is asked while its weights are unknown is asked for no more than its context holds.
func TestTheContextIsKnownLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		e := newFakeEngine(t, f, nil)
		f.set(func() {
			f.failing["/update"] = 1
			f.fault = func(_ int, q fakeCall) fault {
				if len(q.Prompt)+q.Max > placesMax {
					return fault{status: 400}
				}
				return fault{}
			}
		})
		if err := e.Load(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		if err := e.Switch(t.Context(), 1, false); err == nil {
			t.Fatal("the switch has succeeded")
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			g, err := e.Generate(t.Context(), request(1, 5000))
			if err != nil || !g.Truncated || len(g.Tokens) != placesMax-fakePromptOf {
				t.Errorf("%d tokens, truncated %v, %v", len(g.Tokens), g.Truncated, err)
			}
		}()
		synctest.Wait()
		serveVersion(t, e, 1)
		<-done
	})
}

// Logf may ask for the status.
func TestALossIsLoggedOutsideTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		var e *Engine
		state := ""
		e = newFakeEngine(t, f, func(o *Options) {
			o.Logf = func(string, ...any) { state = e.Status().State }
		})
		if err := e.lose(errors.New("it is gone")); !errors.Is(err, port.ErrEngineDown) || state != "down" {
			t.Errorf("%v, logged while %q", err, state)
		}
	})
}

// A server that leaves places of its context free is not asked for them, and may end without them.
func TestASpareOfTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		f.caps.Spare = 2
		e := newFakeEngine(t, f, nil)
		g, err := e.Generate(t.Context(), request(1, 5000))
		if err != nil || !g.Truncated || len(g.Tokens) != placesMax-fakePromptOf-2 {
			t.Errorf("%d tokens, truncated %v, %v", len(g.Tokens), g.Truncated, err)
		}
		full := request(1, 5)
		full.Prompt = make([]int32, placesMax-2)
		want := fmt.Sprintf("of which it keeps 2 free, leaves room for a response after at most %d", placesMax-3)
		if _, err := e.Generate(t.Context(), full); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), want) {
			t.Errorf("a prompt that leaves the spare places alone: %v, want %q", err, want)
		}
	})
}

// An interruption does not wait for a server that hangs to say whether it is well.
func TestAnInterruptionOfACheckup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		f.fault = func(int, fakeCall) fault { return fault{ends: true, after: 3} }
		asked := make(chan struct{})
		e := newFakeEngine(t, f, nil)
		f.set(func() { f.stuck, f.asked = "/health", asked })
		req, interrupt := request(1, 20), make(chan struct{})
		req.Interrupt = interrupt
		go func() { <-asked; close(interrupt) }()
		began := time.Now()
		g, err := e.Generate(t.Context(), req)
		if err != nil || !g.Interrupted || len(g.Tokens) != 3 || time.Since(began) > time.Second {
			t.Errorf("%d tokens after %v, interrupted %v, %v", len(g.Tokens), time.Since(began), g.Interrupted, err)
		}
	})
}
