package remote

import (
	"math"
	"slices"

	"github.com/headway-rl/headway/live"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/protocol"
)

// turn is one call to sample.
type turn struct {
	number int
	// The record's tokens[:first] are the prompt, everything before the response; maxTokens
	// bounds the response, as it was asked for.
	first     int
	maxTokens int
	// done is closed when the response is recorded as tokens[first:end]; end is 0 before.
	done   chan struct{}
	end    int
	finish string
}

// record is what a rollout's turns have left so far: one entry a token in every slice.
type record struct {
	tokens   []int32
	mask     []uint8
	logprobs []float32
	versions []loop.Version
	turns    []*turn
}

// begin adds the prompt of a turn, whose beginning is the record.
func (r *record) begin(prompt []int32, maxTokens int) *turn {
	for _, token := range prompt[len(r.tokens):] {
		r.add(token, 0, 0, loop.NoVersion)
	}
	t := &turn{number: len(r.turns), first: len(r.tokens), maxTokens: maxTokens, done: make(chan struct{})}
	r.turns = append(r.turns, t)
	return t
}

// prompt is a turn's. It stays as it is while the record grows.
func (r *record) prompt(t *turn) []int32 { return r.tokens[:t.first:t.first] }

// sampled adds the response of a turn.
func (r *record) sampled(t *turn, g live.Generation) {
	for i, token := range g.Tokens {
		r.add(token, 1, g.Logprobs[i], g.Versions[i])
	}
	t.end, t.finish = len(r.tokens), "stop"
	switch {
	case g.Pruned:
		t.finish = "pruned"
	case g.Truncated:
		t.finish = "length"
	}
}

func (r *record) add(token int32, mask uint8, logprob float32, version loop.Version) {
	r.tokens, r.mask = append(r.tokens, token), append(r.mask, mask)
	r.logprobs, r.versions = append(r.logprobs, logprob), append(r.versions, version)
}

// reply is the response of a turn that is done.
func (r *record) reply(t *turn) protocol.SampleReply {
	first := t.first
	return protocol.SampleReply{
		Tokens: slices.Clone(r.tokens[first:t.end]), Logprobs: slices.Clone(r.logprobs[first:t.end]),
		Versions: slices.Clone(r.versions[first:t.end]), Finish: t.finish,
	}
}

// truncated reports whether the last response was cut.
func (r *record) truncated() bool {
	n := len(r.turns)
	return n > 0 && r.turns[n-1].finish == "length"
}

// checkTokens refuses ids that the vocabulary does not have.
func (e *Environment) checkTokens(name string, tokens []int32) error {
	for i, token := range tokens {
		if token < 0 || int(token) >= e.opt.Vocabulary {
			return protocol.Refuse(protocol.CodeInvalid, "%s[%d] is %d: want a token id from 0 to %d", name, i, token, e.opt.Vocabulary-1).With("index", i)
		}
	}
	return nil
}

// checkPrompt refuses a call to sample that cannot be meant, and fills in the limit
// where none is asked for.
func (e *Environment) checkPrompt(req *protocol.SampleRequest) error {
	limits := e.opt.Limits
	if req.MaxTokens == 0 {
		req.MaxTokens = limits.ResponseTokens
	}
	switch {
	case req.Turn < 0:
		return protocol.Refuse(protocol.CodeInvalid, "turn is %d: turns count from 0", req.Turn)
	case len(req.Prompt) == 0:
		return protocol.Refuse(protocol.CodeInvalid, "prompt is empty: want at least one token id")
	case limits.PromptTokens > 0 && len(req.Prompt) > limits.PromptTokens:
		return protocol.Refuse(protocol.CodeTooLarge, "prompt has %d tokens: the engines take at most %d, earlier turns included", len(req.Prompt), limits.PromptTokens).With("limit", limits.PromptTokens)
	case req.MaxTokens < 1 || limits.ResponseTokens > 0 && req.MaxTokens > limits.ResponseTokens:
		return protocol.Refuse(protocol.CodeInvalid, "max_tokens is %d: want at least 1 and at most %d", req.MaxTokens, orNoLimit(limits.ResponseTokens)).With("limit", limits.ResponseTokens)
	}
	return e.checkTokens("prompt", req.Prompt)
}

func orNoLimit(n int) int {
	if n == 0 {
		return math.MaxInt32
	}
	return n
}

// recordOf checks what a worker sampled elsewhere and takes it as the rollout's record.
func (e *Environment) recordOf(req *protocol.FinishRequest) (record, error) {
	n, limits := len(req.Tokens), e.opt.Limits
	switch {
	case e.opt.Newest == nil:
		return record{}, protocol.Refuse(protocol.CodeInvalid, "tokens: this control plane takes only rollouts that are sampled through it: call sample")
	case len(req.LossMask) != n || len(req.Logprobs) != n || len(req.Versions) != n:
		return record{}, protocol.Refuse(protocol.CodeInvalid, "%d tokens, %d loss_mask, %d logprobs and %d versions: want one entry a token in each", n, len(req.LossMask), len(req.Logprobs), len(req.Versions))
	case limits.PromptTokens > 0 && limits.ResponseTokens > 0 && n > limits.PromptTokens+limits.ResponseTokens:
		return record{}, protocol.Refuse(protocol.CodeTooLarge, "%d tokens: prompt and response together may have %d", n, limits.PromptTokens+limits.ResponseTokens).With("limit", limits.PromptTokens+limits.ResponseTokens)
	}
	if err := e.checkTokens("tokens", req.Tokens); err != nil {
		return record{}, err
	}
	newest, sampled := e.opt.Newest(), 0
	var out record
	for i, token := range req.Tokens {
		mask, logprob, version := req.LossMask[i], req.Logprobs[i], req.Versions[i]
		if mask == 0 {
			out.add(token, 0, 0, loop.NoVersion)
			continue
		}
		sampled++
		p := float64(logprob)
		switch {
		case mask != 1:
			return record{}, protocol.Refuse(protocol.CodeInvalid, "loss_mask[%d] is %d: want 0 or 1", i, mask).With("index", i)
		case math.IsNaN(p) || math.IsInf(p, 0) || p > 0:
			return record{}, protocol.Refuse(protocol.CodeInvalid, "logprobs[%d] is %g: want a finite number of at most 0, in nats", i, p).With("index", i)
		case version < 0 || version > newest:
			return record{}, protocol.Refuse(protocol.CodeInvalid, "versions[%d] is %d: want a version from 0 to %d, the newest there is", i, version, newest).With("index", i).With("newest", newest)
		}
		out.add(token, 1, logprob, version)
	}
	if sampled == 0 {
		return record{}, protocol.Refuse(protocol.CodeInvalid, "loss_mask has no 1: want at least one token that the policy sampled")
	}
	return out, nil
}
