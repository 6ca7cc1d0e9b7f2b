package calibrate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// modelled is an engine whose speeds are known: a slot's by how many decode, and that of reading
// prompts. pieces is how many tokens come at once, 0 for none before the end.
type modelled struct {
	slots   int
	speed   func(active int) float64
	reading float64
	asking  time.Duration
	asks    func(n int) float64 // seconds that the n-th request takes before it is read, nil for asking
	pieces  int
	// length of the responses to a prompt; nil means MaxTokens.
	length func(prompt []int32) int
	sync   time.Duration
	fail   error
	// refuse says which requests fail by errNoRoom, of which so many decode or wait; nil for none.
	refuse func(r port.GenerateRequest, asked int) bool

	mu       sync.Mutex
	active   int
	asked    int
	requests int
	prompts  map[int32]int
	served   []loop.Version
}

func (e *modelled) Name() string { return "modelled" }
func (e *modelled) Slots() int   { return e.slots }
func (e *modelled) Close() error { return nil }

func (e *modelled) Load(context.Context, loop.Version) error { return nil }

func (e *modelled) Switch(_ context.Context, v loop.Version, _ bool) error {
	time.Sleep(e.sync) // of the bubble's clock
	e.served = append(e.served, v)
	return nil
}

// join adds to those that decode and returns the time of a token then.
func (e *modelled) join(by int) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.active += by
	return time.Duration(1e9 / e.speed(max(e.active, 1)))
}

// Generate implements port.Engine on the bubble's clock.
func (e *modelled) Generate(ctx context.Context, r port.GenerateRequest) (port.Generation, error) {
	e.mu.Lock()
	e.requests++
	if e.prompts != nil {
		e.prompts[r.Prompt[0]]++
	}
	e.asked++
	failed, asking := e.fail, e.asking
	if e.refuse != nil && e.refuse(r, e.asked) {
		failed = errNoRoom
	}
	defer func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.asked--
	}()
	if e.asks != nil {
		asking = time.Duration(1e9 * e.asks(e.requests))
	}
	e.mu.Unlock()
	if failed != nil {
		return port.Generation{}, failed
	}
	if stopped, err := e.wait(ctx, r, asking+time.Duration(float64(len(r.Prompt))/e.reading*1e9)); stopped || err != nil {
		return port.Generation{Interrupted: true}, err
	}
	length := r.MaxTokens
	if e.length != nil {
		length = min(length, e.length(r.Prompt))
	}
	return e.decode(ctx, r, length)
}

// decode brings one token after the other.
func (e *modelled) decode(ctx context.Context, r port.GenerateRequest, length int) (port.Generation, error) {
	g := port.Generation{Truncated: length == r.MaxTokens}
	told := 0
	tell := func() {
		if e.pieces > 0 && r.OnTokens != nil && len(g.Tokens) > told {
			r.OnTokens(port.Delta{Tokens: g.Tokens[told:], Logprobs: g.Logprobs[told:]})
			told = len(g.Tokens)
		}
	}
	e.join(1)
	defer e.join(-1)
	for {
		g.Tokens, g.Logprobs, g.Versions = append(g.Tokens, 9), append(g.Logprobs, 0), append(g.Versions, 0)
		if len(g.Tokens) == 1 && r.FirstToken != nil {
			r.FirstToken(0)
		}
		if len(g.Tokens) == length {
			tell()
			return g, nil
		}
		if e.pieces > 0 && len(g.Tokens)%e.pieces == 0 {
			tell()
		}
		stopped, err := e.wait(ctx, r, e.join(0))
		if stopped || err != nil {
			tell()
			g.Interrupted, g.Truncated = true, false
			return g, err
		}
	}
}

// wait lets time pass, unless the request is stopped.
func (e *modelled) wait(ctx context.Context, r port.GenerateRequest, d time.Duration) (stopped bool, err error) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return false, nil
	case <-r.Interrupt:
		return true, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// saturating is a curve with a knee: 100 tokens/s alone, at most 800 in all.
func saturating(active int) float64 { return 100 / (1 + float64(active)/8) }

func options(e *modelled) Options {
	return Options{Engine: e, Slots: e.slots, PromptTokens: 40, ResponseTokens: 64, Vocabulary: 1000, Context: 4096,
		Point: 12 * time.Second, Repeats: 6, PrefillTokens: []int{32, 64, 256, 1024}, Seed: 1}
}

// A known curve comes back within 2 %, however the engine tells of its tokens.
func TestCurveIsRecovered(t *testing.T) {
	for _, pieces := range []int{1, 7, 0} {
		t.Run(fmt.Sprint("pieces of ", pieces), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &modelled{slots: 24, speed: saturating, reading: 5000, asking: 3 * time.Millisecond, pieces: pieces}
				r, err := Measure(t.Context(), options(e))
				if err != nil {
					t.Fatal(err)
				}
				want := []int{1, 2, 4, 8, 16, 24}
				if len(r.Decode) != len(want) {
					t.Fatalf("points %+v", r.Decode)
				}
				for i, p := range r.Decode {
					truth := saturating(p.Slots)
					if p.Slots != want[i] || math.Abs(p.SlotTokensPerS.Value/truth-1) > 0.02 || math.Abs(p.TokensPerS-float64(p.Slots)*p.SlotTokensPerS.Value) > 1e-9 {
						t.Errorf("%d slots: %+v, want %g a slot", p.Slots, p, truth)
					}
				}
				if math.Abs(r.PrefillTokensPerS/5000-1) > 0.02 || math.Abs(r.FirstTokenS-0.003) > 0.0005 {
					t.Errorf("prefill %g tokens/s and %g s, want 5000 and 0.003", r.PrefillTokensPerS, r.FirstTokenS)
				}
				if r.Knee != 8 || len(r.Notes) != 0 {
					t.Errorf("knee at %d, notes %q", r.Knee, r.Notes)
				}
			})
		})
	}
}

// Responses that end early leave stretches in which not all slots decode; those do not count.
func TestUnevenResponses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &modelled{slots: 4, speed: saturating, reading: 400, pieces: 1, length: func(p []int32) int { return 5 + int(p[0])%60 }}
		r, err := Measure(t.Context(), options(e))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range r.Decode {
			if truth := saturating(p.Slots); math.Abs(p.SlotTokensPerS.Value/truth-1) > 0.03 {
				t.Errorf("%d slots: %+v, want %g a slot", p.Slots, p.SlotTokensPerS, truth)
			}
		}
	})
}

// An engine whose responses end with their first token has no speed of decoding, and the error says why.
func TestNoStretch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &modelled{slots: 2, speed: saturating, reading: 400, pieces: 1, length: func([]int32) int { return 1 }}
		_, err := Measure(t.Context(), options(e))
		if err == nil || !strings.Contains(err.Error(), "hardly ever did all of them decode at once") {
			t.Error(err)
		}
	})
}

// A machine that something else uses now and then is said to be noisy.
func TestNoise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		born := time.Now()
		e := &modelled{slots: 1, reading: 5000, pieces: 1, speed: func(int) float64 {
			if int(time.Since(born).Seconds()/2)%2 == 0 {
				return 100
			}
			return 60
		}}
		r, err := Measure(t.Context(), options(e))
		if err != nil || len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "1 slot: the rounds differ by") {
			t.Errorf("%q, %v", r.Notes, err)
		}
	})
}

// Lengths are by prompt, switches are timed, and progress counts up to its end.
func TestLengthsAndSwitches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &modelled{slots: 3, speed: saturating, reading: 5000, pieces: 1, sync: 1500 * time.Millisecond, prompts: map[int32]int{}, length: func(p []int32) int { return int(p[0]) }}
		o := options(e)
		o.Prompts, o.Samples, o.LengthMax = [][]int32{{7, 1}, {300, 2}}, 4, 200
		o.Versions = []loop.Version{1, 2}
		last, all, steps := -1, 0, 0
		o.Progress = func(done, of int, _ string) {
			if done < last || of != o.pieces() {
				t.Errorf("%d of %d after %d", done, of, last)
			}
			last, all = done, of
			steps++
		}
		o.PrefillTokens = nil
		o.PromptTokens = 40
		r, err := Measure(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if last != all || steps != all+1 {
			t.Errorf("progress ended at %d of %d in %d steps", last, all, steps)
		}
		for i, want := range []int{7, 200} {
			for _, got := range r.Lengths[i] {
				if got != want {
					t.Errorf("prompt %d: %v, want %d", i, r.Lengths[i], want)
				}
			}
		}
		if e.prompts[7] < 4 || r.Truncated != 4 || len(r.Notes) != 1 {
			t.Errorf("%d responses to the first prompt, %d truncated, notes %q", e.prompts[7], r.Truncated, r.Notes)
		}
		if len(r.SyncS) != 2 || math.Abs(MedianOf(r.SyncS).Value-1.5) > 1e-6 || len(e.served) != 2 {
			t.Errorf("switches took %v, of %v", r.SyncS, e.served)
		}
	})
}

// An engine's error ends everything, with its words, and leaves nothing running (synctest sees to that).
func TestEngineFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := fmt.Errorf("no route: %w", port.ErrEngineDown)
		e := &modelled{slots: 8, speed: saturating, reading: 5000, pieces: 1, fail: gone}
		if _, err := Measure(t.Context(), options(e)); !errors.Is(err, port.ErrEngineDown) {
			t.Error(err)
		}
		e.fail = nil
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		if _, err := Measure(ctx, options(e)); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

// What was measured before an engine fails is kept, with a note of what is missing.
func TestWhatWasMeasuredIsKept(t *testing.T) {
	for _, c := range []struct {
		name    string
		refuse  func(r port.GenerateRequest, active int) bool
		points  int
		prefill int
		note    string
	}{
		{"many slots", func(_ port.GenerateRequest, active int) bool { return active > 2 }, 2, 0,
			"not measured: the speed of decoding in 4 slots and more; the speed of reading prompts; the time of a switch of weights: no room"},
		{"long prompts", func(r port.GenerateRequest, _ int) bool { return len(r.Prompt) > 1000 }, 3, 3,
			"not measured: the time to read prompts of 2048 tokens and more; the time of a switch of weights: no room"},
		{"any other prompts", func(r port.GenerateRequest, _ int) bool { return r.MaxTokens == 1 }, 3, 0,
			"not measured: the speed of reading prompts; the time of a switch of weights: no room"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &modelled{slots: 4, speed: saturating, reading: 5000, pieces: 1, refuse: c.refuse}
				o := options(e)
				o.PrefillTokens, o.Versions = []int{64, 256, 1000, 2048}, []loop.Version{1}
				r, err := Measure(t.Context(), o)
				if !errors.Is(err, errNoRoom) || len(r.Decode) != c.points || len(r.Prefill) != c.prefill || (r.PrefillTokensPerS > 0) != (c.prefill > 1) {
					t.Errorf("%+v, %v", r, err)
				}
				if len(r.Notes) == 0 || r.Notes[0] != c.note {
					t.Errorf("notes %q, want first %q", r.Notes, c.note)
				}
				if !strings.Contains(string(r.Document("it")), "# "+c.note) {
					t.Errorf("the document lacks the note:\n%s", r.Document("it"))
				}
			})
		})
	}
}

// errNoRoom is what a modelled engine refuses by.
var errNoRoom = errors.New("no room")

// The longest prompt leaves room for a token, whatever the context, and the lengths rise.
func TestPrefillLengths(t *testing.T) {
	for context := range 9000 {
		for i, n := range PrefillLengths(context) {
			if n > 8192 || context > 0 && n >= context || i > 0 && n <= PrefillLengths(context)[i-1] {
				t.Fatalf("a context of %d: %v", context, PrefillLengths(context))
			}
		}
	}
}

// What cannot be measured is refused before anything is asked.
func TestOptions(t *testing.T) {
	for _, c := range []struct {
		change func(*Options)
		want   string
	}{
		{func(o *Options) { o.Engine = nil }, "no engine"},
		{func(o *Options) { o.Slots = 9 }, "9 slots, the engine has 4"},
		{func(o *Options) { o.ResponseTokens = 1 }, "want at least 1 and 2"},
		{func(o *Options) { o.Context = 100 }, "do not fit in the engine's context of 100"},
		{func(o *Options) { o.Vocabulary = 2 }, "a vocabulary of 2"},
		{func(o *Options) { o.Repeats = 0 }, "in 0 rounds"},
		{func(o *Options) { o.PrefillTokens = []int{5000} }, "a prompt of 5000 tokens in a context of 4096"},
		{func(o *Options) { o.Prompts = [][]int32{{1}} }, "0 responses of at most 0 tokens"},
	} {
		o := options(&modelled{slots: 4})
		c.change(&o)
		if _, err := Measure(t.Context(), o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}
