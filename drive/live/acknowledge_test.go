package live_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// waitingEnvironment keeps the context of every attempt, as an environment does
// whose workers wait for word of theirs.
type waitingEnvironment struct {
	port.Environment
	mu       sync.Mutex
	contexts map[port.RolloutID]context.Context
	counted  map[port.RolloutID]bool
	early    []port.RolloutID // contexts that had ended before word came that it counts
	logged   func(port.RolloutID) bool
}

func (e *waitingEnvironment) Play(ctx context.Context, task port.RolloutRequest, s port.Sampler) (port.Sample, error) {
	e.mu.Lock()
	e.contexts[task.ID] = ctx
	e.mu.Unlock()
	return e.Environment.Play(ctx, task, s)
}

func (e *waitingEnvironment) Logged(id port.RolloutID, counted bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.counted[id] = counted
	if counted && (e.contexts[id].Err() != nil || !e.logged(id)) {
		e.early = append(e.early, id)
	}
}

// hasScore reports whether the log has the attempt's score.
func (s *memoryStore) hasScore(id port.RolloutID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := fmt.Sprintf(`,"g":%d`, id.Group)
	if id.Sample > 0 {
		name += fmt.Sprintf(`,"s":%d`, id.Sample)
	}
	name += fmt.Sprintf(`,"attempt":%d,`, id.Attempt)
	for line := range bytes.Lines(s.log.Bytes()) {
		if bytes.Contains(line, []byte(`"e":"rollout-scored"`)) && bytes.Contains(line, []byte(name)) {
			return true
		}
	}
	return false
}

// startingEnvironment keeps the order in which rollouts are said to start, and those that were played
// without a word.
type startingEnvironment struct {
	port.Environment
	mu      sync.Mutex
	started map[port.RolloutID]bool
	order   []port.RolloutID
	unsaid  []port.RolloutID
}

func (e *startingEnvironment) Starting(task port.RolloutRequest) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.started[task.ID], e.order = true, append(e.order, task.ID)
}

func (e *startingEnvironment) Play(ctx context.Context, task port.RolloutRequest, s port.Sampler) (port.Sample, error) {
	e.mu.Lock()
	if !e.started[task.ID] {
		e.unsaid = append(e.unsaid, task.ID)
	}
	delete(e.started, task.ID)
	e.mu.Unlock()
	return e.Environment.Play(ctx, task, s)
}

// TestLoggedFollowsTheLog: an environment hears of every attempt that ended, after
// the log has it, while its context lives; and whoever waits for an attempt that
// the loop gave up is freed by the context.
func TestLoggedFollowsTheLog(t *testing.T) {
	for name, change := range map[string]func(*loop.Config){
		"plain":      func(*loop.Config) {},
		"redundancy": func(c *loop.Config) { c.Redundancy = 2 },
		"max abort":  func(c *loop.Config) { c.Policy, c.MaxStaleness, c.Abort = loop.PolicyMax, 1, true },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(asyncConfig())
				change(&w.cfg)
				env := &waitingEnvironment{contexts: map[port.RolloutID]context.Context{}, counted: map[port.RolloutID]bool{}, logged: w.store.hasScore}
				w.change = func(o *live.Options) {
					env.Environment = o.Environment
					o.Environment = env
				}
				res, err := w.runtime(t, nil).Run(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				env.mu.Lock()
				defer env.mu.Unlock()
				counted := int64(0)
				for _, c := range env.counted {
					if c {
						counted++
					}
				}
				l := res.Status.Ledger
				if want := l.Trained + l.Evicted + l.Discarded + l.Filtered + l.Queued + l.Leased + l.Waiting; counted != want {
					t.Errorf("%d attempts were acknowledged as counted, the ledger has %d: %+v", counted, want, l)
				}
				if len(env.early) > 0 {
					t.Errorf("acknowledged before the log had it, or after its context ended: %v", env.early)
				}
				for id, ctx := range env.contexts {
					if ctx.Err() == nil {
						t.Errorf("the context of %v never ended", id)
					}
				}
			})
		})
	}
}

// TestStartingFollowsTheLoop: an environment hears of every attempt before it is played, once, in the
// order in which the loop starts them.
func TestStartingFollowsTheLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(asyncConfig())
		env := &startingEnvironment{started: map[port.RolloutID]bool{}}
		w.change = func(o *live.Options) {
			env.Environment = o.Environment
			o.Environment = env
		}
		if _, err := w.runtime(t, nil).Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		env.mu.Lock()
		defer env.mu.Unlock()
		if len(env.unsaid)+len(env.started) > 0 {
			t.Errorf("played without a word: %v; said and never played: %v", env.unsaid, env.started)
		}
		first := slices.DeleteFunc(slices.Clone(env.order), func(id port.RolloutID) bool { return id.Attempt > 1 })
		sorted := slices.SortedFunc(slices.Values(first), func(a, b port.RolloutID) int {
			return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Sample, b.Sample))
		})
		if len(first) == 0 || !slices.Equal(first, sorted) {
			t.Errorf("first attempts start in the order %v", first)
		}
	})
}

// TestLeaseGivenBack: a trainer that gives a batch back does not fail the step.
func TestLeaseGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(asyncConfig())
		w.cfg.TrainAttempts = 1
		given := 0
		w.trainer.fail = func(b port.Batch) error {
			if given < 3 {
				given++
				return fmt.Errorf("nobody came for batch %d: %w", b.Lease, port.ErrLeaseReturned)
			}
			return nil
		}
		res, err := w.runtime(t, nil).Run(t.Context())
		if err != nil || res.Reason != loop.ReasonSteps || given != 3 {
			t.Fatalf("%d batches given back, the run ended by %v, %v", given, res.Reason, err)
		}
		if res.Status.Ledger.Failed != 0 || !res.Status.Ledger.Balanced() {
			t.Errorf("ledger %+v", res.Status.Ledger)
		}
		replay(t, w)
	})
}
