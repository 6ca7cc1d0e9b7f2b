package remote

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// history is a run in which everybody does whatever may happen.
type history struct {
	t   *testing.T
	env *Dispatcher

	mu  sync.Mutex
	rng *rand.Rand
	// plays counts returns of Play, logged what the runtime said, told what workers heard.
	plays  map[port.RolloutID]int
	logged map[string]bool
	told   map[string]bool
}

func (h *history) draw(n int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.rng.IntN(n)
}

func (h *history) pause() { time.Sleep(time.Duration(h.draw(int(ttl)))) }

// runtime plays a rollout as live does: a failed attempt is followed by another, a
// sample is logged, or given up with or without a word.
func (h *history) runtime(group loop.GroupID) {
	for attempt := int32(1); attempt <= 5; attempt++ {
		task := id(group, 0, attempt)
		ctx, cancel := context.WithCancel(h.t.Context())
		if h.draw(5) == 0 {
			time.AfterFunc(time.Duration(h.draw(int(3*ttl))), cancel)
		}
		s, err := h.env.Play(ctx, port.RolloutRequest{ID: task}, &slot{takes: time.Duration(h.draw(int(ttl)))})
		h.mu.Lock()
		h.plays[task]++
		h.mu.Unlock()
		if err == nil && (s.ID != task || len(s.Tokens) == 0) {
			h.t.Errorf("%v was played to %+v", task, s)
		}
		counts := err == nil && ctx.Err() == nil && h.draw(4) > 0
		if err == nil && (counts || h.draw(2) == 0) {
			h.mu.Lock()
			h.logged[claimID(task)] = counts
			h.mu.Unlock()
			h.env.Logged(task, counts)
		}
		if err != nil {
			h.env.Logged(task, false)
		}
		cancel()
		if err == nil || errors.Is(err, context.Canceled) && h.draw(2) == 0 {
			return
		}
	}
}

// worker claims and calls until the run has ended; now and then it goes silent, drops a
// call, calls twice, or fails the rollout.
func (h *history) worker(name string) {
	for {
		got, err := h.env.Claim(h.t.Context(), protocol.ClaimRequest{Worker: name, Max: 1 + h.draw(3), WaitS: float64(h.draw(20))})
		if err != nil {
			if !errors.Is(err, protocol.ErrRunEnded) {
				h.t.Errorf("a claim ended by %v", err)
			}
			return
		}
		for _, c := range got.Rollouts {
			h.play(name, c.ID)
		}
	}
}

func (h *history) play(name, id string) {
	if h.draw(8) == 0 {
		return
	}
	ctx, cancel := context.WithCancel(h.t.Context())
	defer cancel()
	if h.draw(3) == 0 {
		time.AfterFunc(time.Duration(h.draw(int(ttl))), cancel)
	}
	ask := protocol.SampleRequest{Worker: name, Prompt: []int32{20}, MaxTokens: 4}
	h.env.Sample(ctx, id, ask)
	if _, err := h.env.Sample(h.t.Context(), id, ask); err != nil {
		return
	}
	if h.draw(3) == 0 {
		h.pause()
	}
	finish := protocol.FinishRequest{Worker: name, Reward: new(float32(1))}
	if h.draw(10) == 0 {
		finish.Failed = "broken"
	}
	if h.draw(3) == 0 {
		go h.env.Finish(ctx, id, finish)
		h.pause()
	}
	reply, err := h.env.Finish(h.t.Context(), id, finish)
	if err == nil {
		h.mu.Lock()
		h.told[id] = reply.Counted
		h.mu.Unlock()
	}
}

// TestAnyHistory: whatever workers and the loop do, every attempt ends once, nothing is
// left of it, and nobody is told that a rollout counts that does not.
func TestAnyHistory(t *testing.T) {
	expired, counted := 0, 0
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			h := &history{t: t, rng: rand.New(rand.NewPCG(seed, 3)), plays: map[port.RolloutID]int{}, logged: map[string]bool{}, told: map[string]bool{}}
			h.env = open(t, nil)
			var rollouts, workers sync.WaitGroup
			for g := range loop.GroupID(20) {
				rollouts.Go(func() { h.runtime(g + 1) })
			}
			for _, name := range []string{"a", "b", "c", "d"} {
				workers.Go(func() { h.worker(name) })
			}
			rollouts.Wait()
			h.env.EndRun()
			workers.Wait()
			synctest.Wait()
			empty(t, h.env)
			for _, o := range h.env.past.outcomes {
				if o.kind == outcomeExpired {
					expired++
				}
			}
			for id, n := range h.plays {
				if n != 1 {
					t.Errorf("seed %d: %v ended %d times", seed, id, n)
				}
			}
			for id, counts := range h.told {
				if counts && !h.logged[id] {
					t.Errorf("seed %d: a worker was told that %s counts, and it does not", seed, id)
				}
				if counts {
					counted++
				}
			}
		})
	}
	if expired < 40 || counted < 40 {
		t.Errorf("%d claims expired and %d rollouts counted: the test needs more of both", expired, counted)
	}
}
