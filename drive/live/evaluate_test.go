package live_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/drive/cell"
	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// evaluating has an environment that plays held-out prompts beside those of the loop, and counts slots of engines.
func evaluating(t *testing.T, w *world, env port.Environment, slots ...int) *cell.Evaluator {
	t.Helper()
	began := time.Now()
	opt := cell.EvaluatorOptions{ShareOptions: cell.ShareOptions{Slots: slots, Environment: env}, Attempts: 2, Logf: t.Logf,
		Clock: func() int64 { return time.Since(began).Nanoseconds() }}
	for _, e := range w.engines {
		opt.Engines = append(opt.Engines, e)
	}
	e, err := cell.NewEvaluator(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestEvaluationBeside: held-out prompts are played while a run goes on, over switches of every mode. Nothing of them is
// in the log, the ledger or a batch, and the run decides as it would without where its order is its own.
func TestEvaluationBeside(t *testing.T) {
	for name, mode := range map[string]loop.SyncMode{"in flight": loop.SyncInFlight, "pause": loop.SyncPause, "drain": loop.SyncDrain, "restart": loop.SyncRestart} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := asyncConfig()
				cfg.Sync = mode
				w := newWorld(cfg)
				for _, e := range w.engines {
					e.slots += 2
				}
				env := fakeEnvironment{reward: func(id port.RolloutID) float32 { return float32(id.Sample) }}
				w.env = env
				e := evaluating(t, w, env, 2)
				var found []cell.Evaluation
				var evaluations sync.WaitGroup
				var mu sync.Mutex
				w.change = func(o *live.Options) {
					o.Engines = e.Engines()
					o.OnStep = func(d live.StepDone) {
						if v := d.Point.Step; v%10 == 0 && v < 40 {
							evaluations.Go(func() {
								got, err := e.Evaluate(context.Background(), v, 5)
								if err != nil {
									t.Errorf("version %d: %v", v, err)
								}
								mu.Lock()
								defer mu.Unlock()
								found = append(found, got)
							})
						}
					}
				}
				if _, err := w.runtime(t, nil).Run(t.Context()); err != nil {
					t.Fatal(err)
				}
				evaluations.Wait()
				if len(found) != 3 {
					t.Fatalf("%d evaluations", len(found))
				}
				for _, got := range found {
					if got.Scored != 5 || got.Reward != 2 || got.Infra+got.Data != 0 || got.Oldest < 0 || got.Newest < got.Oldest {
						t.Errorf("evaluated %+v", got)
					}
				}
				if n := w.engines[0].busySwitches; n > 0 && (mode == loop.SyncDrain || mode == loop.SyncRestart) {
					t.Errorf("%d rollouts ran while engines switched", n)
				}
				for _, b := range w.trainer.batches {
					for _, g := range b.Groups {
						if g.ID < 1 {
							t.Errorf("trained on group %d", g.ID)
						}
					}
				}
				replay(t, w)
				if mode == loop.SyncRestart {
					return // what is interrupted at one instant answers in any order
				}
				plain := newWorld(cfg)
				plain.env = env
				if _, err := plain.runtime(t, nil).Run(t.Context()); err != nil {
					t.Fatal(err)
				}
				if got, want := actions(w.records(t)), actions(plain.records(t)); !slices.Equal(got, want) {
					t.Errorf("%d decisions beside evaluations, %d without, and they differ", len(got), len(want))
				}
			})
		})
	}
}

// heldOut is an environment of held-out prompts alone.
type heldOut struct {
	play   func(ctx context.Context, id port.RolloutID, s port.Sampler) (port.Generation, error)
	logged map[port.RolloutID]bool
	mu     *sync.Mutex
}

func (h heldOut) Play(ctx context.Context, task port.RolloutRequest, s port.Sampler) (port.Sample, error) {
	g, err := h.play(ctx, task.ID, s)
	if err != nil {
		return port.Sample{}, err
	}
	return port.Sample{ID: task.ID, Tokens: append([]int32{7}, g.Tokens...), LossMask: append([]uint8{0}, bytes.Repeat([]byte{1}, len(g.Tokens))...),
		Logprobs: append([]float32{0}, g.Logprobs...), Versions: append([]loop.Version{loop.NoVersion}, g.Versions...), Reward: 1, Exact: task.ID.Sample%2 == 0}, nil
}

func (h heldOut) Logged(id port.RolloutID, counted bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.logged[id] = counted
}

// TestEvaluationsFailures: a machine's is tried again, a task's is not, and neither is a zero.
func TestEvaluationsFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(asyncConfig())
		env := heldOut{logged: map[port.RolloutID]bool{}, mu: &sync.Mutex{}}
		env.play = func(ctx context.Context, id port.RolloutID, s port.Sampler) (port.Generation, error) {
			switch {
			case id.Group != -7:
				t.Errorf("%v is not of version 7", id)
			case id.Sample == 1:
				return port.Generation{}, fmt.Errorf("%w: no answer", port.ErrData)
			case id.Sample == 2 || id.Sample == 3 && id.Attempt == 1:
				return port.Generation{}, errors.New("no route to the machine")
			}
			return s.Sample(ctx, port.SampleRequest{Prompt: []int32{7}, MaxTokens: 2})
		}
		serving := func() *cell.Evaluator {
			e := evaluating(t, w, env, 2)
			if err := errors.Join(e.Engines()[0].Load(t.Context(), 3), e.Engines()[0].Switch(t.Context(), 3, false)); err != nil {
				t.Fatal(err)
			}
			return e
		}
		got, err := serving().Evaluate(t.Context(), 7, 5)
		want := cell.Evaluation{Scored: 3, Infra: 1, Data: 1, Reward: 1, Accuracy: 2. / 3, Oldest: 3, Newest: 3}
		if err != nil || got != want {
			t.Errorf("%+v, %v, want %+v", got, err, want)
		}
		scored := maps.Clone(env.logged)
		maps.DeleteFunc(scored, func(_ port.RolloutID, counted bool) bool { return !counted })
		if len(env.logged) != 7 || len(scored) != 3 || !scored[port.RolloutID{Group: -7, Sample: 3, Attempt: 2}] {
			t.Errorf("logged %v", env.logged)
		}
		env.play = func(context.Context, port.RolloutID, port.Sampler) (port.Generation, error) {
			return port.Generation{}, errors.New("no route to the machine")
		}
		if got, err := serving().Evaluate(t.Context(), 7, 5); err == nil || !strings.Contains(err.Error(), "no route to the machine") {
			t.Errorf("nothing was scored: %+v, %v", got, err)
		}
	})
}
