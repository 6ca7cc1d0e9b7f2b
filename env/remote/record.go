package remote

import (
	"cmp"
	"math"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop"
)

// checkTokens refuses ids that the vocabulary does not have.
func (e *Dispatcher) checkTokens(name string, tokens []int32) error {
	for i, token := range tokens {
		if token < 0 || int(token) >= e.opt.Vocabulary {
			return protocol.Refuse(protocol.CodeInvalid, "%s[%d] is %d: want a token id from 0 to %d", name, i, token, e.opt.Vocabulary-1).With("index", i)
		}
	}
	return nil
}

// checkPrompt refuses a call to sample that cannot be meant, and fills in the limit
// where none is asked for.
func (e *Dispatcher) checkPrompt(req *protocol.SampleRequest) error {
	limits := e.opt.Limits
	req.MaxTokens = cmp.Or(req.MaxTokens, limits.ResponseTokens)
	switch {
	case req.Turn < 0:
		return protocol.Refuse(protocol.CodeInvalid, "turn is %d: turns count from 0", req.Turn)
	case len(req.Prompt) == 0:
		return protocol.Refuse(protocol.CodeInvalid, "prompt is empty: want at least one token id")
	case limits.PromptTokens > 0 && len(req.Prompt) > limits.PromptTokens:
		return protocol.Refuse(protocol.CodeTooLarge, "the prompt has %d tokens, and may have at most %d, earlier turns included: shorten it; %s", len(req.Prompt), limits.PromptTokens, protocol.PromptLimit).With("limit", limits.PromptTokens)
	case req.MaxTokens < 1 || limits.ResponseTokens > 0 && req.MaxTokens > limits.ResponseTokens:
		return protocol.Refuse(protocol.CodeInvalid, "max_tokens is %d: want at least 1 and at most %d, as environment.response_tokens_max or an embedded engine's task has it", req.MaxTokens, orNoLimit(limits.ResponseTokens)).With("limit", limits.ResponseTokens)
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
func (e *Dispatcher) recordOf(req *protocol.FinishRequest) (record, error) {
	n, limits := len(req.Tokens), e.opt.Limits
	switch {
	case e.opt.Newest == nil:
		return record{}, protocol.Refuse(protocol.CodeInvalid, "tokens: this control plane takes only rollouts that are sampled through it: call sample")
	case len(req.LossMask) != n || len(req.Logprobs) != n || len(req.Versions) != n:
		return record{}, protocol.Refuse(protocol.CodeInvalid, "%d tokens, %d loss_mask, %d logprobs and %d versions: want one entry a token in each", n, len(req.LossMask), len(req.Logprobs), len(req.Versions))
	case limits.PromptTokens > 0 && limits.ResponseTokens > 0 && n > limits.PromptTokens+limits.ResponseTokens:
		return record{}, protocol.Refuse(protocol.CodeTooLarge, "%d tokens: prompt and response together may have %d, as environment.prompt_tokens_max and response_tokens_max add up to: raise them, or finish it by failed", n, limits.PromptTokens+limits.ResponseTokens).With("limit", limits.PromptTokens+limits.ResponseTokens)
	}
	if err := e.checkTokens("tokens", req.Tokens); err != nil {
		return record{}, err
	}
	newest, sampled := e.opt.Newest(), 0
	var out branch
	for i, token := range req.Tokens {
		mask, logprob, version := req.LossMask[i], req.Logprobs[i], req.Versions[i]
		if mask == 0 {
			out.add(token, 0, 0, loop.NoVersion)
			continue
		}
		sampled++
		p := float64(logprob)
		switch {
		case i == 0: // no output of a model predicts it: a trainer would take that of the sequence before
			return record{}, protocol.Refuse(protocol.CodeInvalid, "loss_mask[0] is %d: want 0. A policy samples after a prompt of at least one token", mask).With("index", i)
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
	return record{branches: []*branch{&out}}, nil
}
