package remote_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/headway-rl/headway/api/gateway"
	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/env"
	"github.com/headway-rl/headway/env/remote"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

var _ gateway.Rollouts = (*remote.Dispatcher)(nil)

// listening is an engine whose whole responses are written down, by rollout.
type listening struct {
	port.Engine
	run *agentRun
}

func (l *listening) Generate(ctx context.Context, req port.GenerateRequest) (port.Generation, error) {
	g, err := l.Engine.Generate(ctx, req)
	if err == nil && !g.Interrupted && !g.Pruned {
		l.run.note(l.run.sampled, nameOf(req.Rollout), response(req.Prompt, g.Tokens, g.Logprobs, g.Versions))
	}
	return g, err
}

func nameOf(id port.RolloutID) string {
	return fmt.Sprintf("g%d-s%d-a%d", id.Group, id.Sample, id.Attempt)
}

func response(prompt, tokens []int32, logprobs []float32, versions []loop.Version) string {
	return fmt.Sprint(prompt, tokens, logprobs, versions)
}

// agentRun is a run whose rollouts are played by agents that call Turn.
type agentRun struct {
	*run
	// sampled and answered are the responses by rollout: the engine's, and what agents got. What an
	// agent's call was given up for may be either.
	mu                  sync.Mutex
	sampled, answered   map[string][]string
	branched, takenBack int
}

func (a *agentRun) note(where map[string][]string, rollout, text string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	where[rollout] = append(where[rollout], text)
}

// checkBatch compares what is trained on with what agents were answered and the engine sampled.
func (a *agentRun) checkBatch(b port.Batch) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, g := range b.Groups {
		for _, s := range g.Samples {
			var trained []string
			first := 0
			for _, end := range append(slices.Clone(s.Breaks), int32(len(s.Tokens))) {
				at := first + slices.Index(s.LossMask[first:end], 1)
				trained = append(trained, response(s.Tokens[first:at], s.Tokens[at:end], s.Logprobs[at:end], s.Versions[at:end]))
				first = int(end)
			}
			name := nameOf(s.ID)
			if answered := a.answered[name]; !slices.Equal(sorted(trained), sorted(answered)) {
				a.t.Errorf("%s: trained on\n%v\nanswered was\n%v", name, trained, answered)
			}
			for _, text := range trained {
				if !slices.Contains(a.sampled[name], text) {
					a.t.Errorf("%s: %s is trained on, and the engine sampled %v", name, text, a.sampled[name])
				}
			}
			if s.Resumed() {
				a.resumed++
			}
			if len(s.Breaks) > 0 {
				a.branched++
			}
			if at := s.Resumes; !slices.IsSortedFunc(at, func(x, y port.ResumePoint) int { return int(x.At - y.At) }) {
				a.t.Errorf("%s: resumes %v do not rise", name, at)
			}
		}
	}
}

func sorted(texts []string) []string {
	texts = slices.Clone(texts)
	slices.Sort(texts)
	return texts
}

// play is an agent that asks several times, now and then at once, and leaves in the middle of some calls.
func (a *agentRun) play(c protocol.Claim, rng *rand.Rand) {
	problem := env.TrainingProblem(a.task, c.Seed, c.Prompt, int(c.Level))
	var calls sync.WaitGroup
	n := 1 + rng.IntN(3)
	for i := range n {
		ctx, cancel := context.WithCancel(a.t.Context())
		if leave := rng.IntN(12); i > 0 && leave < 4 {
			time.AfterFunc(time.Duration(leave)*4*time.Millisecond, cancel)
		}
		calls.Go(func() {
			defer cancel()
			var heard []int32
			reply, err := a.env.Turn(ctx, c.ID, protocol.TurnRequest{Prompt: problem.Prompt}, func(d protocol.TurnDelta) { heard = append(heard, d.Tokens...) })
			switch {
			case err == nil:
				if !slices.Equal(heard, reply.Tokens) {
					a.t.Errorf("%s: heard %v of %v", c.ID, heard, reply.Tokens)
				}
				a.note(a.answered, c.ID, response(problem.Prompt, reply.Tokens, reply.Logprobs, reply.Versions))
			case errors.Is(err, context.Canceled):
				a.mu.Lock()
				a.takenBack++
				a.mu.Unlock()
			default:
				if code := protocol.RefusalOf(err).Code; code != protocol.CodeExpired && code != protocol.CodeUnavailable {
					a.t.Errorf("%s: %v", c.ID, err)
				}
			}
		})
		if rng.IntN(2) == 0 {
			calls.Wait()
		}
	}
	calls.Wait()
	_, err := a.env.Finish(a.t.Context(), c.ID, protocol.FinishRequest{Worker: "w", Reward: new(rng.Float32())})
	if err != nil {
		if code := protocol.RefusalOf(err).Code; code != protocol.CodeExpired && code != protocol.CodeUnavailable && code != protocol.CodeConflict {
			a.t.Errorf("%s: %v", c.ID, err)
		}
	}
}

// TestAgentsRun: a run whose rollouts are agents' calls, interrupted and resumed by every switch of
// weights, with clients that leave at random places. What is trained on is what was answered and
// what the engine sampled, branch by branch, and the ledger balances.
func TestAgentsRun(t *testing.T) {
	cfg := loop.Config{GroupSize: 4, BatchGroups: 2, EngineSlots: []int{12}, QueueGroups: 4, Sync: loop.SyncRestart, MaxAttempts: 8}
	a := &agentRun{sampled: make(map[string][]string), answered: make(map[string][]string)}
	a.run = newRun(t, cfg, func(r *run) {
		r.check, r.mortals = a.checkBatch, 0
		r.wrap = func(e port.Engine) port.Engine { return &listening{e, a} }
	})
	var agents sync.WaitGroup
	for i := range 12 {
		rng := rand.New(rand.NewPCG(runSeed, uint64(i)))
		agents.Go(func() {
			for {
				claims, err := a.env.Claim(t.Context(), protocol.ClaimRequest{Worker: "w", WaitS: 30})
				if err != nil {
					return
				}
				for _, c := range claims.Rollouts {
					a.play(c, rng)
				}
			}
		})
	}
	res, err := a.runtime.Run(t.Context())
	a.env.EndRun()
	agents.Wait()
	if err != nil || res.Reason != loop.ReasonStopped {
		t.Fatalf("ended by %v at version %d: %v", res.Reason, res.Status.Version, err)
	}
	if l := res.Status.Ledger; !l.Balanced() {
		t.Errorf("ledger %+v", l)
	}
	if a.resumed == 0 || a.branched == 0 || a.takenBack == 0 {
		t.Errorf("%d rollouts resumed, %d branched, %d calls taken back: the test needs some of each", a.resumed, a.branched, a.takenBack)
	}
	t.Logf("%d rollouts resumed, %d branched, %d calls taken back, ledger %+v", a.resumed, a.branched, a.takenBack, res.Status.Ledger)
}
