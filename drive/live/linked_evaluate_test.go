package live_test

import (
	"context"
	"fmt"
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

// share is the part of the cell's process in evaluations, nil where it has none.
func (w *linkedWorld) share(t *testing.T, ctx context.Context, o *cell.Options) *cell.Share {
	if w.beside == nil {
		return nil
	}
	s, err := cell.NewShare(ctx, cell.ShareOptions{Engines: o.Engines, Slots: append([]int{0}, w.beside[1:]...), Environment: w.heldOut})
	if err != nil {
		t.Fatal(err)
	}
	o.Engines = s.Engines()
	return s
}

// slowHeldOut plays held-out prompts for five seconds each, and notes the attempts.
type slowHeldOut struct {
	fakeEnvironment
	mu     sync.Mutex
	played []port.RolloutID
}

func (e *slowHeldOut) Play(ctx context.Context, t port.RolloutRequest, s port.Sampler) (port.Sample, error) {
	out, err := e.fakeEnvironment.Play(ctx, t, s)
	if t.ID.Group > 0 || err != nil {
		return out, err
	}
	select {
	case <-time.After(5 * time.Second):
	case <-ctx.Done():
		return port.Sample{}, ctx.Err()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.played = append(e.played, t.ID)
	out.Reward, out.Exact = float32(t.ID.Sample), t.ID.Sample == 0
	return out, nil
}

// TestCellsEvaluate: a cell plays held-out prompts that it asks for. Those of a process that dies are played by others, by its
// successor too. Where nobody is there they are missing, and the evaluation ends all the same.
func TestCellsEvaluate(t *testing.T) {
	const prompts = 12
	all := func(got cell.Evaluation) bool {
		return got.Scored == prompts && got.Reward == 5.5 && got.Accuracy == 1./prompts && got.Infra+got.Data == 0 && got.Oldest >= 0 && got.Newest >= got.Oldest
	}
	for name, test := range map[string]struct {
		beside     []int
		faults     float64
		kill, back bool
		right      func(cell.Evaluation) bool
	}{
		"calm":                           {beside: []int{1, 1, 1}, right: all},
		"all in the cell":                {beside: []int{0, 1, 1}, right: all},
		"words lost, doubled and late":   {beside: []int{0, 1, 1}, faults: 0.1, right: all},
		"killed, and played by others":   {beside: []int{1, 1, 1}, kill: true, right: all},
		"killed, and played by the next": {beside: []int{0, 1, 1}, kill: true, back: true, right: all},
		"killed, and there is no other": {beside: []int{0, 1, 1}, kill: true, right: func(got cell.Evaluation) bool {
			return got.Scored > 0 && got.Scored+got.Infra == prompts && got.Infra > 1
		}},
		"killed, with faults, and others":    {beside: []int{1, 1, 1}, faults: 0.1, kill: true, back: true, right: all},
		"killed, with faults, and next only": {beside: []int{0, 1, 1}, faults: 0.1, kill: true, back: true, right: all},
	} {
		if testing.Short() && test.faults == 0 {
			continue // long under the race detector; without it, all are there
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := asyncConfig()
				w := newLinkedWorld(cfg, 5, test.faults)
				w.work(work{stepNS: 2_000_000_001})
				for _, e := range w.engines {
					e.slots++
				}
				env := &slowHeldOut{}
				w.heldOut, w.beside = env, test.beside
				var said []string
				change, found := w.change, make(chan cell.Evaluation, 1)
				w.change = func(o *live.Options) {
					change(o)
					e, err := cell.NewEvaluator(t.Context(), cell.EvaluatorOptions{
						ShareOptions: cell.ShareOptions{Engines: o.Engines, Slots: []int{test.beside[0], 0, 0}, Environment: env},
						Cells:        true, Clock: o.Clock, Logf: func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }})
					if err != nil {
						t.Fatal(err)
					}
					o.Engines = e.Engines()
					w.deal = func(ev *cell.Event) cell.Deal { return e.Deal(ev.Origin.Cell, ev.Origin.Incarnation, *ev.Ask) }
					o.OnStep = func(d live.StepDone) {
						if d.Point.Step == 5 {
							go func() {
								got, err := e.Evaluate(t.Context(), 5, prompts)
								if err != nil {
									t.Error(err)
								}
								found <- got
							}()
						}
					}
				}
				w.startCell(t)
				if test.kill {
					time.AfterFunc(25*time.Second, func() {
						w.end()
						<-w.ended
						if test.back {
							w.startCell(t)
						}
					})
				}
				if res, err := w.lead(t, t.Context()); err != nil || res.Reason != loop.ReasonSteps || !res.Status.Ledger.Balanced() {
					t.Fatalf("ended by %v: %v\n%s", res.Reason, err, w.logged)
				}
				if got := <-found; !test.right(got) {
					t.Errorf("evaluated %+v", got)
				}
				w.end()
				if !test.kill || test.back {
					<-w.ended
				}
				slices.SortFunc(env.played, func(a, b port.RolloutID) int { return int(a.Sample - b.Sample) })
				if again := len(env.played) - prompts; !test.kill && again != 0 || again > 4 {
					t.Errorf("played %v", env.played)
				}
				if len(said) > 0 != test.kill || test.kill && !strings.Contains(said[0], "cell b") {
					t.Errorf("the operator is told %q", said)
				}
				if strings.Contains(w.store.log.String(), `"group":-`) {
					t.Error("the log has a held-out prompt")
				}
			})
		})
	}
}
