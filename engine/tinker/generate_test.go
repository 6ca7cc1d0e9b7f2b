package tinker

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	service "github.com/headway-rl/headway/internal/tinker"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// However a response is divided, the same comes out, and the pieces ask for what is left.
func TestPieces(t *testing.T) {
	for _, most := range []int{1, 7, 8, 9, 20, 21, 40} {
		var whole port.Generation
		for _, piece := range []int{1000, 1, 3, 8, 20} {
			f := &fakeService{length: func([]int32) int { return 20 }}
			e := newEngine(t, f, func(o *Options) { o.Piece = piece })
			g, err := e.Generate(t.Context(), request(0, most))
			if err != nil {
				t.Fatal(err)
			}
			if pieces, err := f.compare(request(0, most), g); err != nil || pieces != (min(most, 20)+piece-1)/piece {
				t.Errorf("pieces of %d, up to %d tokens: %d pieces, %v", piece, most, pieces, err)
			}
			if len(whole.Tokens) == 0 {
				whole = g
			}
			if !reflect.DeepEqual(g, whole) || g.Truncated != (most < 20) || !g.TextPartial || g.Text != "" || slices.Index(g.Tokens, fakeEnd) != map[bool]int{true: -1, false: 19}[most < 20] {
				t.Errorf("pieces of %d, up to %d tokens: %+v, want %+v", piece, most, g, whole)
			}
			left := most
			for _, c := range f.calls {
				q := c.request
				if q.MaxTokens != min(piece, left) || q.Temperature != 1 || q.TopP != 1 || q.TopK != 0 || !slices.Equal(q.Stop, []int32{fakeEnd}) || q.StopTexts != nil {
					t.Errorf("asked for %+v with %d left", q, left)
				}
				left -= len(c.sequence.Tokens)
			}
		}
	}
}

// An interrupt, the end of the context and Close give up the piece under way, at once; what stands before it is returned,
// and the response goes on from there at another engine.
func TestCutOff(t *testing.T) {
	type test struct {
		cut  func(stop chan struct{}, cancel context.CancelFunc, e *Engine)
		want error
	}
	for name, c := range map[string]test{
		"interrupt": {func(stop chan struct{}, _ context.CancelFunc, _ *Engine) { close(stop) }, nil},
		"context":   {func(_ chan struct{}, cancel context.CancelFunc, _ *Engine) { cancel() }, context.Canceled},
		"close":     {func(_ chan struct{}, _ context.CancelFunc, e *Engine) { _ = e.Close() }, ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fakeService{patient: true}
				e := newEngine(t, f, nil)
				peer := newEngine(t, f, func(o *Options) { o.Name = "peer"; o.Piece = 5 })
				serve(t, peer, 4, false)
				stop := make(chan struct{})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go func() {
					time.Sleep(20 * fakeToken)
					c.cut(stop, cancel, e)
				}()
				var o told
				began := time.Now()
				req := o.listen(request(3, 30))
				req.Interrupt = stop
				g, err := e.Generate(ctx, req)
				if !errors.Is(err, c.want) || g.Interrupted != (c.want == nil) || g.Truncated || len(g.Tokens) != 16 || time.Since(began) != 20*fakeToken {
					t.Fatalf("%+v, %v after %v", g, err, time.Since(began))
				}
				if err := o.check(g, 0); err != nil {
					t.Error(err)
				}
				if s := e.Status(); s.Abandoned != 1 || s.Pieces != 2 || s.Tokens != 16 || s.Running != 0 {
					t.Errorf("%+v", s)
				}
				var rest told
				next := request(3, 30)
				next.Prefix = g.Prefix()
				next.Prefix.Text, next.Prefix.Derived = "so far", true
				g, err = peer.Generate(t.Context(), rest.listen(next))
				if err != nil || len(g.Tokens) != 30 || !g.Truncated || !g.Derived || g.Text != "so far" || !g.TextPartial {
					t.Fatalf("%+v, %v", g, err)
				}
				if err := errors.Join(rest.check(g, 16), func() error { _, err := f.compare(next, g); return err }()); err != nil {
					t.Error(err)
				}
				if g.Versions[15] != 0 || g.Versions[16] != 4 || len(rest.first) != 0 {
					t.Errorf("versions %v, first %v", g.Versions, rest.first)
				}
			})
		})
	}
}

// An interrupt that was there before begins nothing, and one that comes with the end changes nothing.
func TestInterruptedBefore(t *testing.T) {
	f := &fakeService{}
	e := newEngine(t, f, nil)
	req := request(0, 16)
	stop := make(chan struct{})
	req.Interrupt = stop
	req.OnTokens = func(d port.Delta) { close(stop) }
	if g, err := e.Generate(t.Context(), req); err != nil || !g.Interrupted || len(g.Tokens) != 8 || f.called.Load() != 1 {
		t.Errorf("%+v, %v after %d requests", g, err, f.called.Load())
	}
	req.OnTokens = nil
	if g, err := e.Generate(t.Context(), req); err != nil || !g.Interrupted || len(g.Tokens) != 0 || f.called.Load() != 1 {
		t.Errorf("%+v, %v after %d requests", g, err, f.called.Load())
	}
	req.MaxTokens, req.Interrupt = 8, make(chan struct{})
	stop = make(chan struct{})
	req.Interrupt = stop
	req.OnTokens = func(port.Delta) { close(stop) }
	if g, err := e.Generate(t.Context(), req); err != nil || g.Interrupted || !g.Truncated {
		t.Errorf("%+v, %v", g, err)
	}
}

// Check is asked about every beginning of a response but the whole, in order, and the response ends where it says so.
func TestCheckEveryToken(t *testing.T) {
	f := &fakeService{length: func([]int32) int { return 20 }}
	for _, most := range []int{18, 30} { // one is cut at its greatest length, one ends
		complete := min(most, 20)
		for stopAt := 1; stopAt <= complete+1; stopAt++ {
			e := newEngine(t, f, nil)
			var asked []int
			var o told
			req := o.listen(request(0, most))
			req.Check = func(tokens []int32) bool {
				asked = append(asked, len(tokens))
				return len(tokens) == stopAt
			}
			g, err := e.Generate(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			want := min(stopAt, complete)
			pruned := stopAt < complete
			if len(g.Tokens) != want || g.Pruned != pruned || g.Interrupted || g.Truncated != (!pruned && complete == most) {
				t.Errorf("stopped at %d of %d: %d tokens, pruned %v, truncated %v", stopAt, complete, len(g.Tokens), g.Pruned, g.Truncated)
			}
			if asks := min(stopAt, complete-1); len(asked) != asks || asked[0] != 1 || asked[asks-1] != asks || !slices.IsSorted(asked) {
				t.Errorf("stopped at %d of %d: asked about %v", stopAt, complete, asked)
			}
			if err := o.check(g, 0); err != nil {
				t.Error(err)
			}
			if s := e.Status(); s.Tokens != int64(want) || s.Tokens+s.Unused < int64(want) || s.Unused != (s.Pieces*8-int64(want))*int64(bit(pruned)) && stopAt < 16 {
				t.Errorf("stopped at %d: %+v", stopAt, s)
			}
		}
	}
}

func bit(x bool) int {
	if x {
		return 1
	}
	return 0
}

// A response holds the token that ended it once, wherever that falls and whether the service stops there or not.
func TestEnds(t *testing.T) {
	for _, deaf := range []bool{false, true} { // a service that does not heed stops
		for _, length := range []int{1, 7, 8, 9, 15, 16, 17} {
			f := &fakeService{length: func([]int32) int { return length }}
			if deaf {
				f.answer = func(_ int, c *call) {
					q := c.request
					q.Stop = nil
					c.sequence = f.sample(c.path, q)
				}
			}
			e := newEngine(t, f, nil)
			g, err := e.Generate(t.Context(), request(0, 24))
			if err != nil || len(g.Tokens) != length || slices.Index(g.Tokens, fakeEnd) != length-1 || g.Truncated {
				t.Errorf("heeding no stops %v, length %d: %+v, %v", deaf, length, g, err)
			}
			if s := e.Status(); (s.Unused > 0) != (deaf && length%8 != 0) {
				t.Errorf("heeding no stops %v, length %d: %+v", deaf, length, s)
			}
		}
	}
}

// Stop tokens of a request end it as the ends do, and so do texts, for which the whole rest is asked for at once.
func TestStops(t *testing.T) {
	f := &fakeService{}
	whole := f.sample(pathOf(0), service.SampleRequest{Prompt: fakePrompt(0), MaxTokens: 30})
	e := newEngine(t, f, func(o *Options) { o.Sampling = &port.Sampling{Temperature: 0.5, TopP: 0.9, TopK: 7} })
	req := request(0, 30)
	req.Sampling = &port.Sampling{Temperature: 1, StopTokens: []int32{whole.Tokens[20], fakeEnd}}
	g, err := e.Generate(t.Context(), req)
	at := slices.Index(whole.Tokens, whole.Tokens[20]) + 1
	if err != nil || !slices.Equal(g.Tokens, whole.Tokens[:at]) || g.Truncated {
		t.Errorf("%+v, %v", g, err)
	}
	want := []int32{fakeEnd, whole.Tokens[20]}
	if q := f.calls[0].request; !slices.Equal(q.Stop, want) || q.StopTexts != nil {
		t.Errorf("asked with stops %v", q.Stop)
	}
	f.calls = nil
	req.Sampling = &port.Sampling{Temperature: 1, Stop: []string{"\n\n"}}
	f.answer = func(_ int, c *call) {
		c.sequence = service.Sequence{Tokens: whole.Tokens[:11], Logprobs: whole.Logprobs[:11], Stopped: true}
	}
	asked := 0
	req.Check = func([]int32) bool { asked++; return false }
	g, err = e.Generate(t.Context(), req)
	if err != nil || len(g.Tokens) != 11 || g.Truncated || asked != 10 || !g.TextPartial {
		t.Errorf("%+v, %v, asked %d times", g, err, asked)
	}
	if q := f.calls[0].request; len(f.calls) != 1 || q.MaxTokens != 30 || q.Stop != nil || !slices.Equal(q.StopTexts, []string{"\n\n"}) {
		t.Errorf("%d requests, the first %+v", len(f.calls), q)
	}
	f.answer = func(_ int, c *call) { c.sequence = service.Sequence{Stopped: true} }
	if g, err = e.Generate(t.Context(), req); !errors.Is(err, ErrLied) || len(g.Tokens) > 0 {
		t.Errorf("nothing, and a stop: %+v, %v", g, err)
	}
	f.answer = func(_ int, c *call) { // it samples on behind the end of the sequence
		c.sequence = service.Sequence{Tokens: []int32{9, fakeEnd, 9}, Logprobs: []float32{-1, -1, -1}, Stopped: true}
	}
	if g, err = e.Generate(t.Context(), req); err != nil || !slices.Equal(g.Tokens, []int32{9, fakeEnd}) {
		t.Errorf("%+v, %v", g, err)
	}
	f.answer, f.calls = nil, nil
	if _, err = e.Generate(t.Context(), request(0, 3)); err != nil {
		t.Fatal(err)
	}
	if q := f.calls[0].request; q.Temperature != 0.5 || q.TopP != 0.9 || q.TopK != 7 {
		t.Errorf("the engine's own sampling: %+v", q)
	}
}

// Every piece draws otherwise: those of siblings, of turns, of attempts, and of places in a response.
func TestSeeds(t *testing.T) {
	seen := map[int64]string{}
	for _, group := range []loop.GroupID{1, 2, 3, 1 << 40} {
		for sample := range int32(8) {
			for attempt := range int32(4) {
				for turn := range 4 {
					for _, position := range []int{0, 1, 64, 256, 512} {
						s := seed(port.RolloutID{Group: group, Sample: sample, Attempt: attempt}, turn, position)
						name := fmt.Sprint(group, sample, attempt, turn, position)
						if s < 1 || s >= 1<<31 || seen[s] != "" {
							t.Errorf("%s has the seed %d, which %q has too, or which is no seed", name, s, seen[s])
						}
						seen[s] = name
					}
				}
			}
		}
	}
	f := &fakeService{}
	e := newEngine(t, f, nil)
	if _, err := e.Generate(t.Context(), request(0, 24)); err != nil {
		t.Fatal(err)
	}
	var asked []int64
	for _, c := range f.calls {
		asked = append(asked, c.request.Seed)
	}
	id := request(0, 1).Rollout
	if !slices.Equal(asked, []int64{seed(id, 0, 0), seed(id, 0, 8), seed(id, 0, 16)}) {
		t.Errorf("asked with the seeds %v", asked)
	}
}

// What cannot be sampled is refused before the service is asked.
func TestRefuses(t *testing.T) {
	f := &fakeService{}
	e := newEngine(t, f, nil)
	prefix := func(tokens []int32, version loop.Version) port.Prefix {
		return port.Prefix{Tokens: tokens, Logprobs: make([]float32, len(tokens)), Versions: slices.Repeat([]loop.Version{version}, len(tokens))}
	}
	for want, change := range map[string]func(*port.GenerateRequest){
		"no prompt":                     func(r *port.GenerateRequest) { r.Prompt = nil },
		"the token 512 before":          func(r *port.GenerateRequest) { r.Prompt = []int32{3, 512} },
		"the token -1 before":           func(r *port.GenerateRequest) { r.Prompt = []int32{-1} },
		"up to 0 tokens":                func(r *port.GenerateRequest) { r.MaxTokens = 0 },
		"goes on from 8 tokens":         func(r *port.GenerateRequest) { r.Prefix = prefix(slices.Repeat([]int32{9}, 8), 0) },
		"1 tokens, 0 log-probs":         func(r *port.GenerateRequest) { r.Prefix = port.Prefix{Tokens: []int32{9}} },
		"token 2 of version 0 at 1":     func(r *port.GenerateRequest) { r.Prefix = prefix([]int32{9, fakeEnd}, 0) },
		"token 9 of version -1 at 0":    func(r *port.GenerateRequest) { r.Prefix = prefix([]int32{9}, -1) },
		"the token 600 before what is":  func(r *port.GenerateRequest) { r.Prefix = prefix([]int32{600}, 0) },
		"min_p 0.1, which Tinker's API": func(r *port.GenerateRequest) { r.Sampling = &port.Sampling{Temperature: 1, MinP: 0.1} },
		"token 77 of version 0 at 0: it": func(r *port.GenerateRequest) {
			r.Prefix, r.Sampling = prefix([]int32{77}, 0), &port.Sampling{Temperature: 1, StopTokens: []int32{77}}
		},
	} {
		req := request(0, 8)
		change(&req)
		if _, err := e.Generate(t.Context(), req); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want something with %q", err, want)
		}
	}
	if f.called.Load() != 0 || e.Status().Running != 0 {
		t.Errorf("%d requests, %+v", f.called.Load(), e.Status())
	}
}

// Options that cannot be are refused, with what to do.
func TestOptions(t *testing.T) {
	for want, change := range map[string]func(*Options){
		"0 slots":           func(o *Options) { o.Slots = 0 },
		"Service or Path":   func(o *Options) { o.Service = nil },
		"Path is missing":   func(o *Options) { o.Path = nil },
		"Piece is -1":       func(o *Options) { o.Piece = -1 },
		"Ends is missing":   func(o *Options) { o.Ends = nil },
		"the token 10 ends": func(o *Options) { o.Ends = []int32{10} },
		"with min_p":        func(o *Options) { o.Sampling = &port.Sampling{MinP: 1} },
	} {
		o := Options{Slots: 1, Service: &fakeService{}, Path: func(loop.Version) (string, error) { return "", nil }, Vocabulary: 10, Ends: []int32{1}}
		if err := o.Validate(); err != nil {
			t.Fatal(err)
		}
		change(&o)
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want something with %q", err, want)
		}
	}
	var lines []string
	o := Options{Slots: 1, Service: &fakeService{}, Path: func(loop.Version) (string, error) { return "", nil }, Ends: []int32{1},
		Sampling: &port.Sampling{Temperature: 0.7}, Logf: func(f string, a ...any) { lines = append(lines, fmt.Sprintf(f, a...)) }}
	e, err := New(o)
	if err != nil || len(lines) != 1 || !strings.Contains(lines[0], "temperature 0.7") || e.opt.Piece != PieceDefault {
		t.Errorf("%v, %q", err, lines)
	}
}

// Many responses at once, switched, interrupted, resumed, pruned and given up, over a service that forgets samplers:
// every token is one that the service has answered, of the version that was asked.
func TestEverythingAtOnce(t *testing.T) {
	f := &fakeService{length: func(p []int32) int { return 5 + int(p[1])%60 }}
	f.answer = func(n int, c *call) {
		if n%17 == 0 {
			c.sequence, c.err = service.Sequence{}, service.ErrGone
		}
	}
	e := newEngine(t, f, func(o *Options) { o.Slots, o.Piece, o.Logf = 8, 4, nil })
	var group sync.WaitGroup
	var switching sync.Mutex
	version := loop.Version(0)
	for worker := range 8 {
		group.Go(func() {
			for i := range 60 {
				if i%4 == worker%4 {
					switching.Lock()
					version++
					serve(t, e, version, version%2 == 0)
					switching.Unlock()
				}
				if err := randomOne(t, f, e, worker*60+i); err != nil {
					t.Errorf("request %d: %v", worker*60+i, err)
				}
			}
		})
	}
	group.Wait()
	s := e.Status()
	if s.Running != 0 || s.Retries == 0 || s.Tokens == 0 || s.Version != 120 || s.State != "serving" {
		t.Errorf("%+v", s)
	}
}

// randomOne makes a request that ends in one way or another, and compares what came of it.
func randomOne(t *testing.T, f *fakeService, e *Engine, number int) error {
	req := request(number, 40)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for round := 0; ; round++ {
		var o told
		listening := o.listen(req)
		hear, stop := listening.OnTokens, make(chan struct{})
		var once sync.Once
		listening.Interrupt = stop
		listening.OnTokens = func(d port.Delta) {
			hear(d)
			switch {
			case number%5 == 1 && round < 3:
				once.Do(func() { close(stop) })
			case number%5 == 2:
				cancel()
			}
		}
		if number%5 == 3 {
			listening.Check = func(tokens []int32) bool { return len(tokens) == 7 }
		}
		before := len(req.Prefix.Tokens)
		g, err := e.Generate(ctx, listening)
		if number%5 == 2 && errors.Is(err, context.Canceled) || errors.Is(err, port.ErrEngineDown) {
			err = nil // given up, or forgotten twice in a row
		}
		_, different := f.compare(listening, g)
		if err = errors.Join(err, different, o.check(g, before)); err != nil || !g.Interrupted {
			return err
		}
		req.Prefix = g.Prefix()
	}
}
