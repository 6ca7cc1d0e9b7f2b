package embedded

import (
	"context"
	"errors"
	"math"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/internal/transformer"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// cut returns the request that goes on from the first n tokens of a response.
func cut(req port.GenerateRequest, g port.Generation, n int) port.GenerateRequest {
	req.Prefix = port.Prefix{Tokens: g.Tokens[:n], Logprobs: g.Logprobs[:n], Versions: g.Versions[:n]}
	return req
}

// TestResumeIsExact cuts responses at every token and goes on from there on other
// engines and in other slots, in company: under unchanged weights the whole comes
// out as if nothing had happened, to the last bit.
func TestResumeIsExact(t *testing.T) {
	store, _ := policies(t)
	alone, crowd := start(t, options(store, 1)), start(t, options(store, 5))
	slots := make(chan struct{}, crowd.Slots())
	var wg sync.WaitGroup
	resumed := 0
	for i := range 40 {
		req := request(i)
		want := generate(t, alone, req)
		for n := range want.Tokens {
			slots <- struct{}{}
			resumed++
			wg.Go(func() {
				if got := generate(t, crowd, cut(req, want, n)); !reflect.DeepEqual(got, want) {
					t.Errorf("rollout %d resumed at token %d is %+v, uninterrupted %+v", i, n, got, want)
				}
				<-slots
			})
		}
	}
	wg.Wait()
	if resumed < 100 {
		t.Errorf("only %d resumes: the responses are too short to tell", resumed)
	}
}

// TestResumeUnderNewWeights goes on under another version: its keys and values are
// made anew, so that what follows has the new policy's log-probs for the whole
// text, and the tokens before keep theirs.
func TestResumeUnderNewWeights(t *testing.T) {
	store, all := policies(t)
	req := long(t, store)
	old := generate(t, start(t, options(store, 1)), req)
	e := start(t, options(store, 2))
	serve(t, e, 1)
	const at = 3
	g := generate(t, e, cut(req, old, at))
	if !slices.Equal(g.Tokens[:at], old.Tokens[:at]) || !slices.Equal(g.Logprobs[:at], old.Logprobs[:at]) {
		t.Errorf("the prefix came back as %v %v, want %v %v", g.Tokens[:at], g.Logprobs[:at], old.Tokens[:at], old.Logprobs[:at])
	}
	pass, err := transformer.NewPass(model)
	if err != nil {
		t.Fatal(err)
	}
	now := forward(t, pass, all[1], req.Prompt, g.Tokens)
	for i := range g.Tokens {
		if want := loop.Version(min(max(i-at+1, 0), 1)); g.Versions[i] != want {
			t.Errorf("token %d is of version %d, want %d", i, g.Versions[i], want)
		}
		if i >= at && math.Abs(float64(g.Logprobs[i]-now[i])) > 2e-5 {
			t.Errorf("token %d after the resume has log-prob %g, the new policy %g", i, g.Logprobs[i], now[i])
		}
	}
	if len(g.Tokens) <= at {
		t.Fatalf("nothing was sampled after the resume: %+v", g)
	}
}

// TestInterrupt interrupts a generation in the middle of a step, on fake time: it
// ends with that step, keeps its token, and goes on elsewhere to what it would have been.
func TestInterrupt(t *testing.T) {
	store, _ := policies(t)
	req := long(t, store)
	want := generate(t, start(t, options(store, 1)), req)
	synctest.Test(t, func(t *testing.T) {
		o := options(store, 2)
		o.DecodeStepS = 1
		one, two := start(t, o), start(t, o)
		began := time.Now()
		interrupt := make(chan struct{})
		time.AfterFunc(2500*time.Millisecond, func() { close(interrupt) })
		first := req
		first.Interrupt = interrupt
		g := generate(t, one, first)
		if at := time.Since(began); at != 3*time.Second {
			t.Errorf("it ended after %v, want the end of the step at 3s", at)
		}
		if !g.Interrupted || g.Truncated || g.Pruned || len(g.Tokens) != 3 {
			t.Fatalf("interrupted in its third step it is %+v", g)
		}
		rest := req
		rest.Prefix = g.Prefix()
		rest.FirstToken = func(loop.Version) {}
		if whole := generate(t, two, rest); !reflect.DeepEqual(whole, want) {
			t.Errorf("resumed it is %+v, want %+v", whole, want)
		}
		// The slot is free, and one that is interrupted from the start has nothing.
		closed := make(chan struct{})
		close(closed)
		first.Interrupt = closed
		if g := generate(t, one, first); !g.Interrupted || len(g.Tokens) > 1 {
			t.Errorf("interrupted from the start it is %+v", g)
		}
		first.Interrupt = nil
		if g := generate(t, one, first); !reflect.DeepEqual(g, want) {
			t.Errorf("in the slot of an interrupted one %+v, want %+v", g, want)
		}
		_, _ = one.Close(), two.Close()
	})
}

// TestInterruptBeforeWeights: an engine that serves nothing yet gives back what it cannot start.
func TestInterruptBeforeWeights(t *testing.T) {
	store, _ := policies(t)
	synctest.Test(t, func(t *testing.T) {
		e, err := New(options(store, 1))
		if err != nil {
			t.Fatal(err)
		}
		interrupt := make(chan struct{})
		time.AfterFunc(time.Second, func() { close(interrupt) })
		req := request(1)
		req.Interrupt = interrupt
		if g := generate(t, e, req); !g.Interrupted || len(g.Tokens) != 0 {
			t.Errorf("interrupted before there were weights it is %+v", g)
		}
		_ = e.Close()
	})
}

// TestCheckPrunes stops a response at the token that a check condemns; one that is
// complete is not asked about.
func TestCheckPrunes(t *testing.T) {
	store, _ := policies(t)
	req := long(t, store)
	e := start(t, options(store, 1))
	want := generate(t, e, req)
	asked := 0
	req.Check = func(tokens []int32) bool {
		if asked++; len(tokens) != asked || !slices.Equal(tokens, want.Tokens[:asked]) {
			t.Errorf("asked about %v after %d tokens of %v", tokens, asked, want.Tokens)
		}
		return asked == 4
	}
	g := generate(t, e, req)
	if !g.Pruned || g.Truncated || g.Interrupted || !slices.Equal(g.Tokens, want.Tokens[:4]) {
		t.Errorf("pruned at its fourth token it is %+v", g)
	}
	asked = 0
	req.Check = func(tokens []int32) bool { asked++; return false }
	if g := generate(t, e, req); !reflect.DeepEqual(g, want) || asked != len(want.Tokens)-1 {
		t.Errorf("checked %d times it is %+v, want %+v", asked, g, want)
	}
}

// TestAbortTellsWhatIsLost: an aborted generation leaves with the tokens it had.
func TestAbortTellsWhatIsLost(t *testing.T) {
	store, _ := policies(t)
	req := long(t, store)
	want := generate(t, start(t, options(store, 1)), req)
	synctest.Test(t, func(t *testing.T) {
		o := options(store, 1)
		o.DecodeStepS = 1
		e := start(t, o)
		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer cancel()
		g, err := e.Generate(ctx, req)
		if !errors.Is(err, context.DeadlineExceeded) || !slices.Equal(g.Tokens, want.Tokens[:2]) || !slices.Equal(g.Logprobs, want.Logprobs[:2]) {
			t.Errorf("aborted in its third step: %+v, %v", g, err)
		}
		_ = e.Close()
	})
}

// TestBadPrefixesAreRefused: nothing goes on from what cannot have been interrupted.
func TestBadPrefixesAreRefused(t *testing.T) {
	store, _ := policies(t)
	e := start(t, options(store, 1))
	good := port.Prefix{Tokens: []int32{3, 4}, Logprobs: []float32{-1, -1}, Versions: []loop.Version{0, 0}}
	for name, change := range map[string]func(*port.Prefix){
		"lengths":       func(p *port.Prefix) { p.Logprobs = p.Logprobs[:1] },
		"versions":      func(p *port.Prefix) { p.Versions = nil },
		"unknown":       func(p *port.Prefix) { p.Versions = []loop.Version{0, loop.NoVersion} },
		"ended":         func(p *port.Prefix) { p.Tokens = []int32{3, endToken} },
		"no such token": func(p *port.Prefix) { p.Tokens = []int32{3, 19} },
		"whole": func(p *port.Prefix) {
			p.Tokens, p.Logprobs, p.Versions = make([]int32, maxTokens), make([]float32, maxTokens), make([]loop.Version, maxTokens)
		},
	} {
		req := request(1)
		req.Prefix = good
		change(&req.Prefix)
		if _, err := e.Generate(t.Context(), req); err == nil {
			t.Errorf("%s: went on", name)
		}
	}
}
