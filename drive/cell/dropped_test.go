package cell

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// steps is an engine that samples a token whenever it is told to.
type steps struct {
	port.Engine
	step chan struct{}
}

func (e *steps) Name() string { return "steps" }

func (e *steps) Generate(ctx context.Context, req port.GenerateRequest) (port.Generation, error) {
	g := port.Generation{Tokens: slices.Clone(req.Prefix.Tokens), Logprobs: slices.Clone(req.Prefix.Logprobs), Versions: slices.Clone(req.Prefix.Versions)}
	for len(g.Tokens) < req.MaxTokens {
		select {
		case <-e.step:
			g.Tokens, g.Logprobs, g.Versions = append(g.Tokens, int32(len(g.Tokens))), append(g.Logprobs, -1), append(g.Versions, 1)
		case <-req.Interrupt:
			g.Interrupted = true
			return g, nil
		case <-ctx.Done():
			return g, ctx.Err()
		}
	}
	return g, nil
}

// dropping is a rollout in a slot of an engine that is stepped by hand.
type dropping struct {
	*rollout
	engine *steps
	posted []loop.EventKind
}

func newDropping(t *testing.T) *dropping {
	d := &dropping{engine: &steps{step: make(chan struct{})}}
	d.rollout = newRollout(t.Context(), port.RolloutRequest{ID: port.RolloutID{Group: 1, Attempt: 1}}, func() int64 { return 0 }, &outbox{post: func(ev *Event) { d.posted = append(d.posted, ev.Kind) }})
	d.rollout.engine, d.firstPosted = d.engine, true
	return d
}

// ask samples in the background; steps tokens are sampled before it returns.
func (d *dropping) ask(t *testing.T, tokens, steps int, dropped <-chan struct{}) chan port.Generation {
	got := make(chan port.Generation, 1)
	go func() {
		g, err := d.Sample(t.Context(), port.SampleRequest{Prompt: []int32{7}, MaxTokens: tokens, Dropped: dropped})
		if err != nil {
			if !errors.Is(err, port.ErrDropped) {
				t.Error(err)
			}
			close(got)
			return
		}
		got <- g
	}()
	for range steps {
		d.engine.step <- struct{}{}
	}
	synctest.Wait()
	return got
}

// drop has nobody want a response any more, which is then not returned.
func drop(t *testing.T, dropped chan struct{}, got <-chan port.Generation) {
	t.Helper()
	close(dropped)
	if _, ok := <-got; ok {
		t.Fatal("a dropped response was returned")
	}
}

// TestDropped: a response that nobody wants any more ends at once, at its engine and while the
// rollout stands interrupted, and leaves nothing: not in what was sampled, not in the places of
// resumes, not as an engine's failure. An interruption that meets it is answered.
func TestDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDropping(t)
		// At its engine, while an interruption is under way.
		dropped := make(chan struct{})
		got := d.ask(t, 9, 3, dropped)
		d.mu.Lock()
		d.asked = true // as interrupt does before it closes stop
		d.mu.Unlock()
		drop(t, dropped, got)
		if want := []loop.EventKind{loop.RolloutInterrupted}; !slices.Equal(d.posted, want) || d.sampled != 0 || d.generateErr != nil {
			t.Fatalf("posted %v, %d tokens sampled, error %v: want %v and nothing", d.posted, d.sampled, d.generateErr, want)
		}
		// While it stands interrupted.
		dropped = make(chan struct{})
		got = d.ask(t, 9, 0, dropped)
		drop(t, dropped, got)
		if !d.resumeIn(d.engine, 0, 1, 4) {
			t.Fatal("it cannot be resumed")
		}
		first := <-d.ask(t, 2, 2, nil)
		// Resumed in the middle of a response that is dropped: the place moves to the next one.
		dropped = make(chan struct{})
		got = d.ask(t, 9, 3, dropped)
		d.interrupt()
		synctest.Wait()
		if !d.resumeIn(d.engine, 0, 0, 5) {
			t.Fatal("it cannot be resumed")
		}
		d.engine.step <- struct{}{}
		drop(t, dropped, got)
		got = d.ask(t, 3, 2, nil)
		d.interrupt()
		synctest.Wait()
		if !d.resumeIn(d.engine, 0, 0, 6) {
			t.Fatal("it cannot be resumed")
		}
		d.engine.step <- struct{}{}
		second := <-got
		if want := []port.ResumePoint{{At: 0, Version: 5}, {At: 2, Version: 6}}; first.Resumes != nil || !reflect.DeepEqual(second.Resumes, want) {
			t.Errorf("resumes %v and %v, want none and %v", first.Resumes, second.Resumes, want)
		}
		s := port.Sample{Tokens: make([]int32, 7), LossMask: []uint8{0, 1, 1, 0, 1, 1, 1}}
		place(&s, d.resumes, d.told)
		if want := []port.ResumePoint{{At: 4, Version: 5}, {At: 6, Version: 6}}; !reflect.DeepEqual(s.Resumes, want) {
			t.Errorf("placed at %v, want %v", s.Resumes, want)
		}
		placed := port.Sample{Tokens: make([]int32, 7), Resumes: []port.ResumePoint{{At: 1, Version: 5}}}
		d.told--
		place(&placed, d.resumes, d.told)
		if want := []port.ResumePoint{{At: 1, Version: 5}, {At: 7, Version: 6}}; !reflect.DeepEqual(placed.Resumes, want) {
			t.Errorf("an environment's own places become %v, want %v", placed.Resumes, want)
		}
		if d.sampled != 5 {
			t.Errorf("%d tokens were sampled, want 5", d.sampled)
		}
	})
}

// TestPrunedAfterDropped: Check, which hears of it as soon as an engine does, may stop a dropped
// response before the engine looks at anything else. That is no response either, and an interruption
// that meets it is answered.
func TestPrunedAfterDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDropping(t)
		dropped, ended := make(chan struct{}), make(chan error, 1)
		req := port.SampleRequest{Prompt: []int32{7}, MaxTokens: 9, Dropped: dropped, Check: func([]int32) bool { return isClosed(dropped) }}
		d.rollout.engine = &checking{d.engine}
		go func() {
			_, err := d.Sample(t.Context(), req)
			ended <- err
		}()
		d.engine.step <- struct{}{}
		synctest.Wait()
		d.interrupt()
		close(dropped)
		d.engine.step <- struct{}{}
		if err := <-ended; !errors.Is(err, port.ErrDropped) {
			t.Errorf("ended with %v, want %v", err, port.ErrDropped)
		}
		if want := []loop.EventKind{loop.RolloutInterrupted}; !slices.Equal(d.posted, want) || d.sampled != 0 {
			t.Errorf("posted %v with %d tokens sampled: want %v and none", d.posted, d.sampled, want)
		}
		if !d.resumeIn(d.engine, 0, 1, 4) {
			t.Error("it cannot be resumed")
		}
	})
}

// checking samples when it is told to, and ends a response by nothing but Check.
type checking struct{ *steps }

func (e *checking) Generate(_ context.Context, req port.GenerateRequest) (port.Generation, error) {
	var g port.Generation
	for {
		<-e.step
		g.Tokens, g.Logprobs, g.Versions = append(g.Tokens, 1), append(g.Logprobs, -1), append(g.Versions, 1)
		if req.Check(g.Tokens) {
			g.Pruned = true
			return g, nil
		}
	}
}
