package cell

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// takenBack has a response dropped after its first tokens, and brings tokens of its own, of older weights.
type takenBack struct{}

func (takenBack) Play(ctx context.Context, t port.RolloutRequest, s port.Sampler) (port.Sample, error) {
	dropped := make(chan struct{})
	time.AfterFunc(2500*time.Millisecond, func() { close(dropped) })
	if _, err := s.Sample(ctx, port.SampleRequest{Prompt: []int32{9}, MaxTokens: 9, Dropped: dropped}); !errors.Is(err, port.ErrDropped) {
		return port.Sample{}, err
	}
	return port.Sample{ID: t.ID, Reward: 1, Tokens: []int32{9, 1}, LossMask: []uint8{0, 1}, Logprobs: []float32{0, -1}, Versions: []loop.Version{loop.NoVersion, 1}}, nil
}

// oldestTold is the lowest version that first tokens are told of.
func oldestTold(evs []loop.Event) loop.Version {
	v := loop.Version(1 << 30)
	for _, ev := range evs {
		if ev.Kind == loop.FirstToken {
			v = min(v, ev.Version)
		}
	}
	return v
}

// TestOwnTokensAfterATurnThatWasTakenBack: the oldest version of a rollout is told before its score, whatever was told before.
func TestOwnTokensAfterATurnThatWasTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(takenBack{})
		go s.c.play(s.p)
		s.at(5)
		if v := oldestTold(s.events()); v != 1 {
			t.Errorf("oldest told v%d, the payload's oldest is v%d", v, s.payloads.put[0].Versions[1])
		}
	})
}

// namedLater says its first token by the barrier, and names an older version at the end, as engine/upstream does.
type namedLater struct{ countingEngine }

func (e *namedLater) Generate(ctx context.Context, r port.GenerateRequest) (port.Generation, error) {
	g, err := e.countingEngine.Generate(ctx, r)
	if len(g.Versions) > 0 {
		g.Versions[0] = e.version - 1
	}
	return g, err
}

// TestVersionsNamedLater: so it is where the server names versions at the end.
func TestVersionsNamedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(turns{tokens: 2})
		s.p.engine = &namedLater{countingEngine{name: "a", version: 6}}
		go s.c.play(s.p)
		s.at(9)
		if v := oldestTold(s.events()); v != 5 {
			t.Errorf("oldest told v%d, oldest token v5", v)
		}
	})
}

// afterRestart goes on with a turn of a process before.
type afterRestart struct{}

func (afterRestart) Play(ctx context.Context, t port.RolloutRequest, s port.Sampler) (port.Sample, error) {
	g, err := s.Sample(ctx, port.SampleRequest{Prompt: []int32{9, 8, 7}, MaxTokens: 1, Final: true})
	if err != nil {
		return port.Sample{}, err
	}
	return port.Sample{ID: t.ID, Reward: 1, Tokens: []int32{9, 1, 7, g.Tokens[0]}, LossMask: []uint8{0, 1, 0, 1}, Logprobs: []float32{0, -1, 0, -1}, Versions: []loop.Version{-1, 2, -1, g.Versions[0]}}, nil
}

// TestFirstTokenOfARestoredRollout: so it is of turns of a process before, whose first token the log may lack.
func TestFirstTokenOfARestoredRollout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(afterRestart{})
		s.p.restored(port.Progress{Turns: 1, Sampled: 1}) // of version 2, its first token not in the log
		go s.c.play(s.p)
		s.at(5)
		if v := oldestTold(s.events()); v != 2 {
			t.Errorf("oldest told v%d, oldest token v2", v)
		}
	})
}

// slowScorer takes a minute.
type slowScorer struct{ port.Scorer }

func (slowScorer) Score(ctx context.Context, s *port.Sample) ([]port.Scores, error) {
	select {
	case <-time.After(time.Minute):
	case <-ctx.Done():
	}
	return nil, context.DeadlineExceeded
}

// TestInterruptBeforeScoring: an interrupt that comes with the last tokens gives the slot back before the sample is scored.
func TestInterruptBeforeScoring(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(oneTurn{0})
		s.c.opt.Scorer = slowScorer{}
		s.p.engine, s.p.isScored = &stubborn{}, true
		go s.c.play(s.p)
		synctest.Wait()
		s.p.interrupt() // while the engine brings the last tokens
		s.at(20)        // scoring by now
		s.p.interrupt()
		for _, ev := range s.events() {
			if ev.Kind == loop.RolloutInterrupted {
				s.p.abort()
				synctest.Wait()
				return
			}
		}
		t.Error("the slot is not given back while it is scored")
		s.p.abort()
		synctest.Wait()
	})
}
