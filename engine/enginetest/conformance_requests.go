package enginetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// wish is how a request is to end.
type wish string

// A third of all requests do not end by themselves.
const (
	wishWhole     wish = "of these, to their end"
	wishAbort     wish = "of these, aborted at a random token"
	wishInterrupt wish = "of these, interrupted at random tokens and resumed"
)

// digitTokens is how many of a prompt's first tokens spell the request's number, digitBase in what base;
// firstToken is the first id that prompts are made of: those before tend to be special.
const (
	digitTokens = 4
	digitBase   = 16
	firstToken  = 8
)

// outcome is one request and what became of it.
type outcome struct {
	number int
	wish   wish
	req    port.GenerateRequest
	got    port.Generation
	// told are the tokens and log-probs that OnTokens was given, first the version of FirstToken.
	told  port.Delta
	first loop.Version
	// resumed is how often it went on after an interrupt.
	resumed int
	err     error
}

// requests makes the random requests while weights change, and compares what was recorded.
func (c *conformance) requests(t *testing.T) {
	outcomes := make([]*outcome, c.Requests)
	var next, done atomic.Int64
	finished := make(chan struct{}, c.Requests)
	var workers sync.WaitGroup
	for range c.Slots {
		workers.Go(func() {
			for {
				n := int(next.Add(1)) - 1
				if n >= c.Requests {
					return
				}
				outcomes[n] = c.request(t, n)
				done.Add(1)
				finished <- struct{}{}
			}
		})
	}
	switched := 0
	for n := 1; n <= c.Requests; n++ {
		<-finished
		if n%100 == 0 {
			t.Logf("progress: %d of %d requests, version %d", n, c.Requests, c.version)
		}
		if switched < c.Switches && n > (switched+1)*c.Requests/(c.Switches+2) && c.canSwitch() {
			switched++
			c.switchAll(t)
		}
	}
	workers.Wait()
	c.outcomes = outcomes
	c.compare(t, outcomes)
}

func (c *conformance) canSwitch() bool { return c.Delivery != "" && c.Delivery != "none" }

// prompt draws one that no other request has: it begins with the request's number.
func (c *conformance) prompt(draw *rand.Rand, number int) []int32 {
	prompt := make([]int32, digitTokens, c.Context)
	for i := range digitTokens {
		prompt[i] = firstToken + int32(number%digitBase)
		number /= digitBase
	}
	most := min(c.Vocabulary, 48) // of a small vocabulary the last ids may stand for nothing
	if c.Vocabulary > 1024 {
		most = c.Vocabulary / 2
	}
	for range draw.IntN(c.Context / 3) {
		prompt = append(prompt, firstToken+int32(draw.IntN(most-firstToken)))
	}
	return prompt
}

// numberOf is the number of the request that a prompt begins with.
func numberOf(prompt []int32) int {
	if len(prompt) < digitTokens {
		return -1
	}
	number := 0
	for i := digitTokens - 1; i >= 0; i-- {
		number = number*digitBase + int(prompt[i]) - firstToken
	}
	return number
}

// request makes one request.
func (c *conformance) request(t *testing.T, number int) *outcome {
	draw := c.source(number)
	o := &outcome{number: number, wish: wishWhole, first: loop.NoVersion}
	switch x := draw.Float64(); {
	case x < 0.15:
		o.wish = wishAbort
	case x < 0.35:
		o.wish = wishInterrupt
	}
	o.req = port.GenerateRequest{Rollout: port.RolloutID{Group: loop.GroupID(number + 1)}, Prompt: c.prompt(draw, number), MaxTokens: 1 + draw.IntN(c.Context/3)}
	if draw.Float64() < 0.2 {
		o.req.Sampling = &port.Sampling{Temperature: 0.5 + draw.Float64(), TopP: 1, TopK: draw.IntN(2) * 20}
	}
	stopAt := draw.IntN(max(1, o.req.MaxTokens/2)) + 1
	from := draw.IntN(len(c.engines))
	if o.wish == wishInterrupt {
		c.interrupted(t, o, draw, from)
		return o
	}
	ctx, cancel := c.context(t)
	defer cancel()
	req := o.listen(o.req, func(n int) {
		if o.wish == wishAbort && n >= stopAt {
			cancel()
		}
	})
	o.got, o.err = c.engines[from].engine.Generate(ctx, req)
	if o.wish == wishAbort && errors.Is(o.err, context.Canceled) {
		o.err = nil
	} else if o.err != nil {
		o.err = fmt.Errorf("%w (%w)", o.err, context.Cause(ctx))
	}
	return o
}

// listen adds what hears of tokens to a request; at, if not nil, is told how many there are.
func (o *outcome) listen(req port.GenerateRequest, at func(int)) port.GenerateRequest {
	req.OnTokens = func(d port.Delta) {
		o.told.Tokens, o.told.Logprobs = append(o.told.Tokens, d.Tokens...), append(o.told.Logprobs, d.Logprobs...)
		if at != nil {
			at(len(o.told.Tokens))
		}
	}
	if len(req.Prefix.Tokens) == 0 {
		req.FirstToken = func(v loop.Version) { o.first = v }
	}
	return req
}

// interrupted interrupts a request at random tokens until it is complete, each time going on at
// another engine where there is one.
func (c *conformance) interrupted(t *testing.T, o *outcome, draw *rand.Rand, from int) {
	req := o.req
	for round := 0; ; round++ {
		ctx, cancel := c.context(t)
		stop := make(chan struct{})
		var once sync.Once
		stopAt := len(o.told.Tokens) + draw.IntN(1+o.req.MaxTokens/3) + 1
		listening := o.listen(req, func(n int) {
			if n >= stopAt && round < 3 {
				once.Do(func() { close(stop) })
			}
		})
		listening.Interrupt = stop
		g, err := c.engines[(from+round)%len(c.engines)].engine.Generate(ctx, listening)
		cancel()
		o.got, o.err = g, err
		if err != nil || !g.Interrupted {
			return
		}
		o.resumed++
		req.Prefix = g.Prefix()
	}
}

// check says what is wrong with a request's outcome by itself.
func (o *outcome) check(vocabulary int) error {
	g := o.got
	n := len(g.Tokens)
	switch {
	case o.err != nil:
		return o.err
	case len(g.Logprobs) != n || len(g.Versions) != n:
		return fmt.Errorf("%d tokens, %d log-probs, %d versions", n, len(g.Logprobs), len(g.Versions))
	case n > o.req.MaxTokens:
		return fmt.Errorf("%d tokens, %d were asked for", n, o.req.MaxTokens)
	case o.wish != wishAbort && (n == 0 || g.Interrupted || g.Pruned):
		return fmt.Errorf("ended with %d tokens, interrupted %v, pruned %v", n, g.Interrupted, g.Pruned)
	case o.wish != wishAbort && g.Truncated && n != o.req.MaxTokens:
		return fmt.Errorf("truncated after %d tokens, %d were asked for", n, o.req.MaxTokens)
	case n > 0 && o.first != g.Versions[0]:
		return fmt.Errorf("FirstToken said version %d, the first token is of %d", o.first, g.Versions[0])
	case n > len(o.told.Tokens) || !slices.Equal(g.Tokens, o.told.Tokens[:n]) || !slices.Equal(g.Logprobs, o.told.Logprobs[:n]):
		return errors.New("OnTokens was told other tokens than were returned")
	case o.wish != wishAbort && n != len(o.told.Tokens):
		return fmt.Errorf("OnTokens was told %d tokens, %d were returned", len(o.told.Tokens), n)
	}
	for i, token := range g.Tokens {
		if token < 0 || int(token) >= vocabulary {
			return fmt.Errorf("token %d is %d, outside the vocabulary of %d", i, token, vocabulary)
		}
		if !(g.Logprobs[i] <= 0) {
			return fmt.Errorf("token %d has the log-prob %v", i, g.Logprobs[i])
		}
	}
	return nil
}
