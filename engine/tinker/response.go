package tinker

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	service "github.com/headway-rl/headway/internal/tinker"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

const (
	// logprobMissing stands for a log-prob that a server does not have.
	logprobMissing = -9999
	// zerosMost is how many tokens of a piece may all have the log-prob 0, exactly. A policy that leaves nothing to
	// chance has some in a row; SkyRL puts zeros where its vLLM has said no log-probs.
	zerosMost = 15
)

// response is what there is of a response.
type response struct {
	req      port.GenerateRequest
	sampling port.Sampling
	// stop are the tokens that end it.
	stop       []int32
	vocabulary int

	tokens   []int32
	logprobs []float32
	versions []loop.Version
	// ended: by a token or a text; the others are as in port.Generation.
	ended, truncated, interrupted, pruned bool
}

// newResponse checks a request and returns the response to be.
func (e *Engine) newResponse(req port.GenerateRequest) (*response, error) {
	r := &response{req: req, sampling: port.Sampling{Temperature: 1}, stop: e.opt.Ends, vocabulary: e.opt.Vocabulary}
	if e.opt.Sampling != nil {
		r.sampling = *e.opt.Sampling
	}
	if req.Sampling != nil {
		r.sampling = *req.Sampling
	}
	if len(r.sampling.StopTokens) > 0 {
		r.stop = slices.Compact(slices.Sorted(slices.Values(slices.Concat(e.opt.Ends, r.sampling.StopTokens))))
	}
	if err := r.check(); err != nil {
		return nil, e.fail("rollout %v: %w", req.Rollout, err)
	}
	p := req.Prefix
	r.tokens, r.logprobs, r.versions = slices.Clone(p.Tokens), slices.Clone(p.Logprobs), slices.Clone(p.Versions)
	return r, nil
}

// check refuses what cannot be sampled.
func (r *response) check() error {
	p, n := r.req.Prefix, len(r.req.Prefix.Tokens)
	if err := sayable(&r.sampling); err != nil {
		return err
	}
	if len(r.req.Prompt) == 0 {
		return errors.New("it has no prompt: want at least one token")
	}
	if n != len(p.Logprobs) || n != len(p.Versions) || r.req.MaxTokens < 1 || n >= r.req.MaxTokens {
		return fmt.Errorf("it goes on from %d tokens, %d log-probs and %d versions up to %d tokens, want equal numbers below the last, at least 1",
			n, len(p.Logprobs), len(p.Versions), r.req.MaxTokens)
	}
	for _, part := range [...][]int32{r.req.Prompt, p.Tokens} {
		for i, token := range part {
			if !r.known(token) {
				return fmt.Errorf("it has the token %d before what is to be sampled, at %d; the vocabulary has %d", token, i, r.vocabulary)
			}
		}
	}
	for i, token := range p.Tokens {
		if p.Versions[i] < 0 || slices.Contains(r.stop, token) {
			return fmt.Errorf("it cannot go on from token %d of version %d at %d: it ended there, or its sampler is unknown", token, p.Versions[i], i)
		}
	}
	return nil
}

// sayable refuses a sampling for which the API has no words.
func sayable(s *port.Sampling) error {
	if s.MinP != 0 {
		return fmt.Errorf("tokens are to be drawn with min_p %g, which Tinker's API does not have: want 0", s.MinP)
	}
	return nil
}

// known reports whether there is such a token.
func (r *response) known(token int32) bool {
	return token >= 0 && (r.vocabulary == 0 || int(token) < r.vocabulary)
}

// complete reports whether nothing is left to sample.
func (r *response) complete() bool { return r.ended || r.truncated || r.pruned }

// request is the next piece to ask for. One with texts that end it asks for all that is left: a text that
// stands over the border of two pieces would not be found.
func (r *response) request(piece int) service.SampleRequest {
	s := &r.sampling
	q := service.SampleRequest{
		Prompt: slices.Concat(r.req.Prompt, r.tokens), MaxTokens: r.req.MaxTokens - len(r.tokens),
		Temperature: s.Temperature, TopP: s.TopP, TopK: s.TopK, Seed: seed(r.req.Rollout, r.req.Turn, len(r.tokens)),
	}
	q.TopP = cmp.Or(q.TopP, 1)
	if len(s.Stop) > 0 {
		q.StopTexts = s.Stop // the API takes texts or tokens; the tokens are looked for in what it brings
		return q
	}
	q.Stop, q.MaxTokens = r.stop, min(q.MaxTokens, piece)
	return q
}

// judge refuses what no honest service says, and what cannot be trained on. It returns how many tokens of
// a piece count: those up to the first that ends the response. Drawn without a stop at that token, they are what they
// would be with one.
func (r *response) judge(q service.SampleRequest, s service.Sequence) (used int, err error) {
	n, at := len(s.Tokens), len(r.tokens)
	switch {
	case n != len(s.Logprobs):
		return 0, fmt.Errorf("%d tokens with %d log-probs behind token %d of the response", n, len(s.Logprobs), at)
	case n > q.MaxTokens:
		return 0, fmt.Errorf("%d tokens behind token %d of the response, where %d were asked for", n, at, q.MaxTokens)
	case n == 0 && !s.Stopped:
		return 0, fmt.Errorf("no token behind token %d of the response, where up to %d were asked for, and no stop", at, q.MaxTokens)
	}
	zeros := 0
	for i, token := range s.Tokens {
		if !r.known(token) {
			return 0, fmt.Errorf("token %d of the response is %d, the vocabulary has %d", at+i, token, r.vocabulary)
		}
		p := float64(s.Logprobs[i])
		if math.IsNaN(p) || p <= logprobMissing || p > 0 {
			return 0, fmt.Errorf("token %d of the response, %d, has no log-prob: it says %g", at+i, token, p)
		}
		if p == 0 {
			zeros++
		}
	}
	if zeros == n && n > zerosMost && r.sampling.Policy() {
		return 0, fmt.Errorf("all %d tokens behind token %d of the response have the log-prob 0, which stands for log-probs that the service does not have", n, at)
	}
	if i := slices.IndexFunc(s.Tokens, func(token int32) bool { return slices.Contains(r.stop, token) }); i >= 0 {
		return i + 1, nil
	}
	if s.Stopped && (len(q.StopTexts) == 0 || n == 0) {
		return 0, fmt.Errorf("it stopped behind token %d of the response without a token that ends one (%v): the log-prob of the end is not known. Either it keeps that token to itself, or it ends responses at other tokens: name those among the ends of the run's model",
			at+n, r.stop)
	}
	return n, nil
}

// take records the tokens of a piece that count, up to where Check stops the response, and says how many those are.
func (r *response) take(s service.Sequence, used int, version loop.Version) int {
	before := len(r.tokens)
	ended := used > 0 && slices.Contains(r.stop, s.Tokens[used-1]) || s.Stopped
	if before == 0 && used > 0 && r.req.FirstToken != nil {
		r.req.FirstToken(version)
	}
	for i, token := range s.Tokens[:used] {
		r.tokens = append(r.tokens, token)
		r.logprobs = append(r.logprobs, s.Logprobs[i])
		r.versions = append(r.versions, version)
		last := i == used-1
		switch {
		case last && ended:
			r.ended = true
		case len(r.tokens) == r.req.MaxTokens:
			r.truncated = true
		case r.req.Check != nil && r.req.Check(r.tokens[:len(r.tokens):len(r.tokens)]):
			r.pruned = true
		}
		if r.complete() {
			break
		}
	}
	if r.req.OnTokens != nil {
		r.req.OnTokens(port.Delta{Tokens: r.tokens[before:], Logprobs: r.logprobs[before:]})
	}
	return len(r.tokens) - before
}

// generation is the response as far as it has come.
func (r *response) generation() port.Generation {
	n, p := len(r.tokens), r.req.Prefix
	return port.Generation{
		Tokens: r.tokens[:n:n], Logprobs: r.logprobs[:n:n], Versions: r.versions[:n:n],
		Truncated: r.truncated, Interrupted: r.interrupted, Pruned: r.pruned, Derived: p.Derived,
		Text: p.Text, TextPartial: p.TextPartial || n > len(p.Tokens),
	}
}
