package cell

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// countingEngine samples the token n as the n-th of a response, one a second.
type countingEngine struct {
	name    string
	version loop.Version
	fail    error
}

func (e *countingEngine) Name() string                                     { return e.name }
func (e *countingEngine) Slots() int                                       { return 1 }
func (e *countingEngine) Load(context.Context, loop.Version) error         { return nil }
func (e *countingEngine) Switch(context.Context, loop.Version, bool) error { return nil }
func (e *countingEngine) Close() error                                     { return nil }
func (e *countingEngine) Generate(ctx context.Context, r port.GenerateRequest) (port.Generation, error) {
	g := port.Generation{Tokens: slices.Clone(r.Prefix.Tokens), Logprobs: slices.Clone(r.Prefix.Logprobs), Versions: slices.Clone(r.Prefix.Versions)}
	for len(g.Tokens) < r.MaxTokens {
		if e.fail != nil {
			return g, e.fail
		}
		select {
		case <-time.After(time.Second):
		case <-r.Interrupt:
			g.Interrupted = true
			return g, nil
		case <-ctx.Done():
			return g, ctx.Err()
		}
		if len(g.Tokens) == 0 && r.FirstToken != nil {
			r.FirstToken(e.version)
		}
		g.Tokens, g.Logprobs, g.Versions = append(g.Tokens, int32(len(g.Tokens)+1)), append(g.Logprobs, -1), append(g.Versions, e.version)
	}
	return g, nil
}

// turns plays two responses with a tool of so many seconds after each.
type turns struct {
	tokens int
	toolS  int
}

func (e turns) Play(ctx context.Context, t port.RolloutRequest, s port.Sampler) (port.Sample, error) {
	out := port.Sample{ID: t.ID, Reward: 1}
	for range 2 {
		g, err := s.Sample(ctx, port.SampleRequest{Prompt: []int32{9}, MaxTokens: e.tokens, Final: e.toolS == 0})
		if err != nil {
			return port.Sample{}, err
		}
		out.Tokens = append(append(out.Tokens, 9), g.Tokens...)
		out.LossMask = append(append(out.LossMask, 0), slices.Repeat([]uint8{1}, len(g.Tokens))...)
		out.Logprobs = append(append(out.Logprobs, 0), g.Logprobs...)
		out.Versions = append(append(out.Versions, loop.NoVersion), g.Versions...)
		select {
		case <-time.After(time.Duration(e.toolS) * time.Second):
		case <-ctx.Done():
			return port.Sample{}, ctx.Err()
		}
	}
	return out, nil
}

// payloads keeps what is put; the rest of a Store is not there.
type payloads struct {
	port.Store
	mu  sync.Mutex
	put []port.Sample
}

func (p *payloads) PutSample(s port.Sample) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.put = append(p.put, s)
	return nil
}

// scene is one rollout on two engines, played at the speed of a token a second.
type scene struct {
	c        *Cell
	clock    func() int64
	posted   chan Event
	p        *rollout
	engines  [2]*countingEngine
	payloads *payloads
}

func newScene(e port.Environment) *scene {
	s := &scene{payloads: &payloads{}, posted: make(chan Event, 64), engines: [2]*countingEngine{{name: "a", version: 3}, {name: "b", version: 5}}}
	began := time.Now()
	s.clock = func() int64 { return time.Since(began).Nanoseconds() }
	post := func(ev *Event) { s.posted <- *ev }
	s.c, _ = New(context.Background(), Options{Environment: e, Payloads: s.payloads, Space: &Space{}, Clock: s.clock, Post: post})
	s.p = newRollout(context.Background(), port.RolloutRequest{ID: port.RolloutID{Group: 1, Attempt: 1}}, s.clock, &outbox{post: post})
	s.p.engine, s.p.slot = s.engines[0], 7
	return s
}

// events returns what has been posted since the last call.
func (s *scene) events() (out []loop.Event) {
	synctest.Wait()
	for len(s.posted) > 0 {
		out = append(out, (<-s.posted).Event)
	}
	return out
}

// at lets time pass until so many seconds and a half.
func (s *scene) at(seconds int) {
	time.Sleep(time.Duration(seconds)*time.Second + 500*time.Millisecond - time.Duration(s.clock()))
}

func expect(t *testing.T, got []loop.Event, kinds ...loop.EventKind) {
	t.Helper()
	var have []loop.EventKind
	for _, ev := range got {
		have = append(have, ev.Kind)
	}
	if !slices.Equal(have, kinds) {
		t.Fatalf("events %v, want the kinds %v", got, kinds)
	}
}

// TestInterruptedWhileSampling: the engine answers, the environment notices
// nothing, and the sample knows its spans and the state that it was resumed in.
func TestInterruptedWhileSampling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(turns{tokens: 4})
		go s.c.play(s.p)
		s.at(2)
		s.p.interrupt()
		s.p.interrupt() // twice is once
		got := s.events()
		expect(t, got, loop.FirstToken, loop.RolloutInterrupted)
		if got[1].Tokens != 2 || got[1].Slot != 7 {
			t.Errorf("%+v, want 2 tokens in slot 7", got[1])
		}
		s.at(10)
		expect(t, s.events())
		if !s.p.resumeIn(s.engines[1], 0, 2, 5) || s.p.resumeIn(s.engines[1], 0, 2, 5) {
			t.Error("it was to be resumed once")
		}
		s.at(30)
		got = s.events()
		expect(t, got, loop.RolloutScored)
		if got[0].Slot != 2 || got[0].Tokens != 8 {
			t.Errorf("%+v, want 8 tokens in slot 2", got[0])
		}
		if len(s.payloads.put) != 1 {
			t.Fatalf("%d payloads", len(s.payloads.put))
		}
		p := s.payloads.put[0]
		if want := []int32{9, 1, 2, 3, 4, 9, 1, 2, 3, 4}; !slices.Equal(p.Tokens, want) {
			t.Errorf("tokens %v, want %v", p.Tokens, want)
		}
		wantSpans := []port.Span{{First: 1, End: 3, Version: 3, Resumed: false}, {First: 3, End: 5, Version: 5, Resumed: true}, {First: 6, End: 10, Version: 5, Resumed: false}}
		if spans := p.Spans(); !slices.Equal(spans, wantSpans) {
			t.Errorf("spans %v, want %v", spans, wantSpans)
		}
		low, high := p.StateVersions()
		if low != 3 || high != 3 || p.StateLag() != 2 || !p.Resumed() {
			t.Errorf("state of versions %d to %d, lag %d, want 3 to 3 and 2", low, high, p.StateLag())
		}
		if p.GenerateNS != 8500*time.Millisecond.Nanoseconds() || p.EnvironmentNS != 0 {
			t.Errorf("%d ns at engines and %d ns in tools, want 8.5 s and 0: what it stood interrupted is in neither", p.GenerateNS, p.EnvironmentNS)
		}
	})
}

// TestInterruptedInItsEnvironment: the slot is given back at once, the tool goes on
// without it, and what follows waits for a slot.
func TestInterruptedInItsEnvironment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(turns{tokens: 2, toolS: 4})
		go s.c.play(s.p)
		s.at(3) // two tokens, then the tool until second 6
		s.p.interrupt()
		got := s.events()
		expect(t, got, loop.FirstToken, loop.RolloutInterrupted)
		if got[1].Tokens != 2 {
			t.Errorf("%+v, want 2 tokens", got[1])
		}
		s.at(20) // the tool is long done, the second response has not begun
		expect(t, s.events())
		s.p.resumeIn(s.engines[1], 0, 2, 5)
		s.at(23) // second 22.5: second response done, its tool runs until 26.5
		s.p.interrupt()
		expect(t, s.events(), loop.RolloutInterrupted)
		s.at(40) // the rollout is over but for the slot to end in
		expect(t, s.events())
		if len(s.payloads.put) > 0 {
			t.Error("it was scored without a slot")
		}
		s.p.resumeIn(s.engines[0], 0, 6, 3)
		got = s.events()
		expect(t, got, loop.RolloutScored)
		if got[0].Slot != 6 || got[0].Tokens != 4 {
			t.Errorf("%+v, want 4 tokens in slot 6", got[0])
		}
		p := s.payloads.put[0]
		if want := []port.ResumePoint{{At: 4, Version: 5}, {At: 6, Version: 3}}; !slices.Equal(p.Resumes, want) {
			t.Errorf("resumed at %v, want %v", p.Resumes, want)
		}
		if p.StateLag() != 0 || p.EnvironmentNS != 8*time.Second.Nanoseconds() {
			t.Errorf("lag %d, %d ns in tools, want 0 and 8 s", p.StateLag(), p.EnvironmentNS)
		}
	})
}

// TestInterruptAsItCompletes: a complete response is scored if nothing is left to
// do, and gives its slot back if a tool is. A first token that no engine has told is told before the score.
func TestInterruptAsItCompletes(t *testing.T) {
	for toolS, want := range map[int][]loop.EventKind{0: {loop.FirstToken, loop.RolloutScored}, 5: {loop.RolloutInterrupted}} {
		synctest.Test(t, func(t *testing.T) {
			s := newScene(oneTurn{toolS})
			s.p.engine = &stubborn{}
			go s.c.play(s.p)
			synctest.Wait()
			s.p.interrupt()
			time.Sleep(2 * time.Second)
			expect(t, s.events(), want...)
			s.p.abort()
			synctest.Wait()
		})
	}
}

// stubborn completes its response in spite of an interruption.
type stubborn struct{ countingEngine }

func (*stubborn) Name() string { return "stubborn" }
func (*stubborn) Generate(context.Context, port.GenerateRequest) (port.Generation, error) {
	time.Sleep(time.Second)
	return port.Generation{Tokens: []int32{1}, Logprobs: []float32{-1}, Versions: []loop.Version{0}}, nil
}

type oneTurn struct{ toolS int }

func (e oneTurn) Play(ctx context.Context, t port.RolloutRequest, s port.Sampler) (port.Sample, error) {
	g, err := s.Sample(ctx, port.SampleRequest{Prompt: []int32{9}, MaxTokens: 1, Final: e.toolS == 0})
	if err != nil {
		return port.Sample{}, err
	}
	select {
	case <-time.After(time.Duration(e.toolS) * time.Second):
	case <-ctx.Done():
	}
	return port.Sample{ID: t.ID, Tokens: g.Tokens, LossMask: []uint8{1}, Logprobs: g.Logprobs, Versions: g.Versions}, nil
}

// TestAbortOfAnInterrupted: nothing answers, and nothing is kept.
func TestAbortOfAnInterrupted(t *testing.T) {
	for name, s := range map[string]int{"in its response": 2, "in its tool": 5} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stage := newScene(turns{tokens: 4, toolS: 3})
				done := make(chan struct{})
				go func() { stage.c.play(stage.p); close(done) }()
				stage.at(s)
				stage.p.interrupt()
				expect(t, stage.events(), loop.FirstToken, loop.RolloutInterrupted)
				stage.p.abort()
				<-done
				expect(t, stage.events())
				if stage.p.resumeIn(stage.engines[1], 0, 0, 5) || len(stage.payloads.put) > 0 {
					t.Error("an aborted rollout went on")
				}
			})
		})
	}
}

// TestAbortRightAfterAResume: it holds a slot again, so the abort is answered,
// though it may not have noticed that it was resumed.
func TestAbortRightAfterAResume(t *testing.T) {
	for name, at := range map[string]int{"in its response": 2, "at its end": 8} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScene(turns{tokens: 2, toolS: 3})
				go s.c.play(s.p)
				s.at(at)
				s.p.interrupt()
				s.at(30)
				s.events()
				if !s.p.resumeIn(s.engines[1], 0, 4, 5) {
					t.Error("it was to hold a slot")
				}
				s.p.abort()
				expect(t, s.events(), loop.RolloutAborted)
			})
		})
	}
}

// TestFailsWhereItWasResumed: the engine's error ends it in the slot it has then.
func TestFailsWhereItWasResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(turns{tokens: 4})
		s.engines[1].fail = errors.New("out of memory")
		go s.c.play(s.p)
		s.at(2)
		s.p.interrupt()
		s.events()
		s.p.resumeIn(s.engines[1], 0, 3, 5)
		got := s.events()
		expect(t, got, loop.RolloutFailed)
		if got[0].Reason != loop.ReasonEngine || got[0].Slot != 3 || got[0].Tokens != 2 {
			t.Errorf("%+v, want the engine's failure in slot 3 after 2 tokens", got[0])
		}
	})
}

// TestOneAnswerASlot interrupts, resumes and aborts at random instants, those at
// which something else happens included: whoever gave a slot gets one answer.
func TestOneAnswerASlot(t *testing.T) {
	for seed := range uint64(300) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			s := newScene(turns{tokens: 3, toolS: rng.IntN(3)})
			done := make(chan struct{})
			go func() { s.c.play(s.p); close(done) }()
			holds := true
			for step := 0; ; step++ {
				time.Sleep(time.Duration(rng.IntN(5)) * 500 * time.Millisecond)
				if rng.IntN(3) > 0 {
					s.p.interrupt()
				}
				ended := false
				for _, ev := range s.events() {
					if ev.Kind == loop.FirstToken {
						continue
					}
					if !holds {
						t.Fatalf("seed %d: %v without a slot", seed, ev)
					}
					holds, ended = false, ev.Kind != loop.RolloutInterrupted
				}
				if ended {
					break
				}
				if rng.IntN(12) == 0 {
					s.p.abort()
					if holds { // else nothing answers, as is seen below
						expectOne(t, s.events())
					}
					break
				}
				if !holds {
					holds = s.p.resumeIn(s.engines[rng.IntN(2)], 0, int32(step), 5)
				}
			}
			<-done
			expect(t, s.events())
		})
	}
}

func expectOne(t *testing.T, got []loop.Event) {
	t.Helper()
	if len(got) != 1 || got[0].Kind != loop.RolloutAborted && got[0].Kind != loop.RolloutScored {
		t.Fatalf("an abort was answered by %v", got)
	}
}
