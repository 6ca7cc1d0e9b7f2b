package enginetest

import (
	"math"
	"strings"
	"testing"

	"github.com/headway-rl/headway/engine/upstream"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

const (
	// scoredResponses is how many recorded responses are scored again.
	scoredResponses = 20
	// sameWithin is how far log-probs of the same tokens under the same weights may be apart, in nats:
	// servers sum in other orders in other batches, and keep keys and values in half precision.
	sameWithin = 0.02
)

// weights makes sure that an update changes what the server computes to the new model's, and back.
func (c *conformance) weights(t *testing.T) {
	if !c.canSwitch() {
		c.report.add("checks of weights skipped, since they cannot change while it runs", 1)
		t.Skip("weights cannot change: the road is " + string(c.Delivery))
	}
	measure := c.greedy
	if _, ok := c.engines[0].dialect.(upstream.Scorer); ok && c.caps.Score {
		measure = c.score
	} else {
		c.report.add("responses scored again skipped, since it returns no log-probs of given tokens", 1)
	}
	for _, s := range c.engines {
		before := measure(t, s)
		c.version++
		c.serve(t, s, c.version)
		changed := measure(t, s)
		if d := distance(before, changed); d < sameWithin {
			t.Errorf("%s: after an update log-probs are %g nats from those before: it serves the old weights", s.engine.Name(), d)
		}
		c.version++
		c.serve(t, s, c.version)
		if d := distance(before, measure(t, s)); d > sameWithin {
			t.Errorf("%s: back at the first weights, log-probs are %g nats from what they were", s.engine.Name(), d)
		}
		c.report.add(countChanged, 2)
		c.version -= 2
	}
	c.version += 2
	c.scoreAgain(t)
}

// score is what log-probs a fixed sequence has.
func (c *conformance) score(t *testing.T, s *subject) []float32 {
	t.Helper()
	tokens := c.prompt(c.source(1<<30), 7)
	for len(tokens) < 32 {
		tokens = append(tokens, tokens[len(tokens)%digitTokens]+1)
	}
	return c.scoreOf(t, s, tokens)
}

// scoreOf asks the server itself for log-probs.
func (c *conformance) scoreOf(t *testing.T, s *subject, tokens []int32) []float32 {
	t.Helper()
	ctx, cancel := c.context(t)
	defer cancel()
	caps, _ := s.engine.Capabilities()
	scores, err := s.dialect.(upstream.Scorer).Score(ctx, s.server, tokens, &caps)
	if err != nil {
		t.Fatal(err)
	}
	return scores
}

// greedy is the log-probs of the likeliest response to a fixed prompt, and its tokens among them,
// where a server cannot score.
func (c *conformance) greedy(t *testing.T, s *subject) []float32 {
	t.Helper()
	ctx, cancel := c.context(t)
	defer cancel()
	g, err := s.engine.Generate(ctx, port.GenerateRequest{
		Rollout: port.RolloutID{Group: loop.GroupID(c.Requests + 10)}, Prompt: c.prompt(c.source(1<<30), c.Requests+10),
		MaxTokens: 16, Sampling: &port.Sampling{TopP: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	said := make([]float32, 0, 2*len(g.Tokens))
	for i, token := range g.Tokens {
		said = append(said, float32(token), g.Logprobs[i])
	}
	return said
}

// distance is the mean difference, infinite for lists of different lengths.
func distance(a, b []float32) float64 {
	if len(a) != len(b) || len(a) == 0 {
		return math.Inf(1)
	}
	sum := 0.0
	for i := range a {
		sum += math.Abs(float64(a[i]) - float64(b[i]))
	}
	return sum / float64(len(a))
}

// scoreAgain holds log-probs as they were recorded against the server's own of the same tokens: they
// are of the version that the tokens are said to be of, and not of the other model.
func (c *conformance) scoreAgain(t *testing.T) {
	s := c.engines[0]
	if _, ok := s.dialect.(upstream.Scorer); !ok || !c.caps.Score {
		return
	}
	for range 2 {
		scored, worst := 0, 0.0
		for _, o := range c.outcomes {
			if o.err != nil || scored == scoredResponses || !c.scorable(o) {
				continue
			}
			scored++
			n := len(o.req.Prompt)
			scores := c.scoreOf(t, s, append(append([]int32(nil), o.req.Prompt...), o.got.Tokens...))[n-1:]
			own := o.got.Versions[0]%2 == c.version%2
			d := distance(o.got.Logprobs, scores)
			if own {
				worst = max(worst, d)
			}
			if own != (d < sameWithin) {
				t.Errorf("request %d, of version %d: recorded log-probs are %g nats from those under version %d", o.number, o.got.Versions[0], d, c.version)
			}
		}
		c.report.add("responses scored again under their own and the other weights", scored)
		c.report.worst("largest mean difference of their log-probs under their own weights, in millionths of a nat", worst)
		c.switchAll(t)
	}
}

// worst keeps the largest of a figure, in millionths.
func (r *Report) worst(what string, value float64) {
	n := int(math.Round(value * 1e6))
	r.add(what, 0)
	for i := range *r {
		if (*r)[i].What == what {
			(*r)[i].Count = max((*r)[i].Count, n)
		}
	}
}

// scorable reports whether a response is of one version and drawn from the policy as it is.
func (c *conformance) scorable(o *outcome) bool {
	if len(o.got.Tokens) < 4 || !o.req.Sampling.Policy() || len(o.req.Prompt)+len(o.got.Tokens) >= c.Context {
		return false
	}
	for _, v := range o.got.Versions {
		if v%2 != o.got.Versions[0]%2 {
			return false
		}
	}
	return true
}

// badInput makes sure that what cannot be served is refused with a clear error, and hurts nothing.
func (c *conformance) badInput(t *testing.T) {
	over := make([]int32, c.Context+8)
	for i := range over {
		over[i] = firstToken
	}
	for name, prompt := range map[string][]int32{
		"a prompt over the context":        over,
		"an id outside the vocabulary":     {firstToken, int32(c.Vocabulary), firstToken},
		"an id far outside the vocabulary": {firstToken, 1 << 30},
		"an id below 0":                    {firstToken, -1},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			ctx, cancel := c.context(t)
			defer cancel()
			g, err := c.engines[0].engine.Generate(ctx, port.GenerateRequest{Rollout: port.RolloutID{Group: 1 << 20}, Prompt: prompt, MaxTokens: 4})
			if err == nil || ctx.Err() != nil {
				t.Errorf("answered with %d tokens, error %v: want a refusal", len(g.Tokens), err)
			}
			t.Logf("%s: %v", name, err)
			c.alive(t)
			c.report.add(countRefused, 1)
		})
	}
	t.Run("a-version-that-is-not-there", func(t *testing.T) {
		ctx, cancel := c.context(t)
		defer cancel()
		if err := c.engines[0].engine.Load(ctx, loop.Version(c.Switches)+1000); err == nil || ctx.Err() != nil {
			t.Errorf("loaded with error %v: want a refusal", err)
		}
		if err := c.engines[0].engine.Switch(ctx, c.version+50, true); err == nil || ctx.Err() != nil {
			t.Errorf("switched to a version that was not loaded, error %v: want a refusal", err)
		}
		c.alive(t)
		c.report.add(countRefused, 2)
	})
}

// alive makes one request that must be answered by the version that is served.
func (c *conformance) alive(t *testing.T) {
	t.Helper()
	ctx, cancel := c.context(t)
	defer cancel()
	g, err := c.engines[0].engine.Generate(ctx, port.GenerateRequest{Rollout: port.RolloutID{Group: 1 << 21}, Prompt: []int32{firstToken, firstToken + 1}, MaxTokens: 4})
	if err != nil || len(g.Tokens) == 0 || g.Versions[0] != c.version {
		t.Errorf("afterwards it answers %+v, %v: want tokens of version %d", g, err, c.version)
	}
}
