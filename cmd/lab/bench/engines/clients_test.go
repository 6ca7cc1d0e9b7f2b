package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop/port"
)

// clients play the rollouts of a run: they claim them, sample turns, leave now and then, and finish.
type clients struct {
	t   *testing.T
	run *faultRun

	mu sync.Mutex
	// answered turns were complete, refused ones ended with an error, left ones were taken back by the client.
	answered, refused, left, finished int
}

// play starts as many clients as there are slots; the channel is closed when all have gone.
func (c *clients) play(ctx context.Context) <-chan struct{} {
	var all sync.WaitGroup
	for i := range faultEngines * faultSlots {
		all.Go(func() { c.client(ctx, i) })
	}
	done := make(chan struct{})
	go func() {
		all.Wait()
		close(done)
	}()
	return done
}

// client plays rollouts until there are none.
func (c *clients) client(ctx context.Context, number int) {
	draw := c.run.draw(number)
	worker := fmt.Sprintf("client-%d", number)
	for ctx.Err() == nil {
		claims, err := c.run.environ.Claim(ctx, protocol.ClaimRequest{Worker: worker, WaitS: 30})
		if err != nil {
			return // the run is over
		}
		for _, claim := range claims.Rollouts {
			c.run.fail.Do(c.run.begin)
			c.rollout(ctx, draw, worker, claim)
		}
	}
}

// rollout plays one rollout of up to three turns; the first error ends it.
func (c *clients) rollout(ctx context.Context, draw *rand.Rand, worker string, claim protocol.Claim) {
	prompt := tokens(draw, 4+draw.IntN(20))
	for range 1 + draw.IntN(3) {
		reply, err := c.turn(ctx, draw, claim.ID, prompt)
		if err != nil {
			c.refusal(ctx, claim, err)
			return
		}
		prompt = append(append(prompt, reply.Tokens...), tokens(draw, 1+draw.IntN(6))...)
		if len(prompt) > faultContext/3 {
			break
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, turnMax, errors.New("a finish hangs"))
	defer cancel()
	_, err := c.run.environ.Finish(ctx, claim.ID, protocol.FinishRequest{Worker: worker, Reward: new(float32(draw.IntN(2)))})
	if err != nil {
		c.refusal(ctx, claim, err)
		return
	}
	c.count(&c.finished)
	c.mu.Lock()
	defer c.mu.Unlock()
	for engine, at := range c.run.form.kills {
		if c.finished == at || c.finished == at+c.run.form.away {
			c.run.kill(engine, c.finished == at)
		}
	}
}

// turn samples one response; one in eight is left at a random token first, and asked for again.
func (c *clients) turn(ctx context.Context, draw *rand.Rand, id string, prompt []int32) (protocol.TurnReply, error) {
	req := protocol.TurnRequest{Prompt: prompt, MaxTokens: 1 + draw.IntN(40)}
	if draw.IntN(8) == 0 {
		inner, leave := context.WithCancel(ctx)
		at, got := 1+draw.IntN(8), 0
		_, err := c.run.environ.Turn(inner, id, req, func(d protocol.TurnDelta) {
			if got += len(d.Tokens); got >= at {
				leave()
			}
		})
		leave()
		if err != nil && !errors.Is(err, context.Canceled) {
			return protocol.TurnReply{}, err
		}
		if err != nil {
			c.count(&c.left)
		} else {
			return c.turn(ctx, draw, id, prompt) // it was complete before: the same prompt begins a branch
		}
	}
	bounded, cancel := context.WithTimeoutCause(ctx, turnMax, errors.New("a turn hangs"))
	defer cancel()
	var told port.Delta
	reply, err := c.run.environ.Turn(bounded, id, req, func(d protocol.TurnDelta) {
		told.Tokens, told.Logprobs = append(told.Tokens, d.Tokens...), append(told.Logprobs, d.Logprobs...)
	})
	if err != nil {
		return reply, err
	}
	c.count(&c.answered)
	g := port.Generation{Tokens: reply.Tokens, Logprobs: reply.Logprobs, Versions: reply.Versions, Truncated: reply.Finish == "length"}
	if err := faultPolicy.Check(prompt, req.MaxTokens, g, weightsName); err != nil {
		c.t.Errorf("rollout %s is answered wrongly: %v", id, err)
	}
	if fmt.Sprint(told.Tokens, told.Logprobs) != fmt.Sprint(reply.Tokens, reply.Logprobs) {
		c.t.Errorf("rollout %s was told %v on the way and answered %v", id, told.Tokens, reply.Tokens)
	}
	return reply, nil
}

// refusal counts an error, which must say something, and must not be that nobody answered.
func (c *clients) refusal(ctx context.Context, claim protocol.Claim, err error) {
	c.count(&c.refused)
	if errors.Is(err, context.DeadlineExceeded) || err.Error() == "" {
		c.t.Errorf("rollout %s: %v (%v): want an answer or a clear error", claim.ID, err, context.Cause(ctx))
	}
	c.run.logf("client of %s: %v", claim.ID, err)
}

func (c *clients) count(n *int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*n++
}

// tokens draws ids that every model has.
func tokens(draw *rand.Rand, n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = 8 + int32(draw.IntN(40))
	}
	return out
}
