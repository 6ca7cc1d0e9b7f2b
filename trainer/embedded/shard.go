package embedded

import (
	"fmt"

	"github.com/headway-rl/headway/grpo"
	"github.com/headway-rl/headway/live"
	"github.com/headway-rl/headway/transformer"
)

// item is one sequence to train on.
type item struct {
	tokens []int32
	// prompt is how many tokens come before the response.
	prompt    int
	logprobs  []float32
	advantage float32
	// supervised items raise their tokens' log-probs; they have no log-probs of their own.
	supervised bool
}

// items turns a batch into sequences with the advantages of their groups.
func (t *Trainer) items(batch live.Batch) ([]item, error) {
	var out []item
	var rewards, advantages []float32
	for g := range batch.Groups {
		samples := batch.Groups[g].Samples
		rewards, advantages = rewards[:0], advantages[:0]
		for i := range samples {
			rewards = append(rewards, samples[i].Reward)
			advantages = append(advantages, 0)
		}
		grpo.Advantages(advantages, rewards, t.opt.NormalizeStd)
		for i := range samples {
			it, err := t.item(&samples[i])
			if err != nil {
				return nil, err
			}
			it.advantage = advantages[i]
			out = append(out, it)
		}
	}
	return out, nil
}

// item checks that a sample is a prompt and one response that the model can hold.
func (t *Trainer) item(s *live.Sample) (item, error) {
	prompt := 0
	for prompt < len(s.LossMask) && s.LossMask[prompt] == 0 {
		prompt++
	}
	for _, m := range s.LossMask[prompt:] {
		if m == 0 {
			return item{}, fmt.Errorf("trainer: rollout %v has several turns, which the embedded trainer does not train on", s.ID)
		}
	}
	if prompt < 1 || prompt > t.opt.PromptTokens || t.opt.PromptTokens-prompt+len(s.Tokens) > t.opt.Model.Context {
		return item{}, fmt.Errorf("trainer: rollout %v has %d prompt and %d response tokens; the model holds %d and %d",
			s.ID, prompt, len(s.Tokens)-prompt, t.opt.PromptTokens, t.opt.Model.Context-t.opt.PromptTokens)
	}
	for _, token := range s.Tokens {
		if token < 0 || int(token) >= t.opt.Model.Vocabulary {
			return item{}, fmt.Errorf("trainer: rollout %v has the token %d, the vocabulary has %d", s.ID, token, t.opt.Model.Vocabulary)
		}
	}
	return item{tokens: s.Tokens, prompt: prompt, logprobs: s.Logprobs}, nil
}

// microItems bounds the sequences of one pass, whose activations are kept for its backward half.
const microItems = 64

// shard is one thread's part of a step.
type shard struct {
	pass  *transformer.Pass
	grad  []float32
	stats grpo.Statistics
	err   error
	batch transformer.Batch
	logp  []float32
	dlogp []float32
}

// run adds up the gradient of its items, each token weighted by one over the batch's scored tokens.
func (s *shard) run(t *Trainer, items []item, scored float32) {
	clear(s.grad)
	s.stats, s.err = grpo.Statistics{}, nil
	for len(items) > 0 && s.err == nil {
		n := min(len(items), microItems)
		s.err = s.micro(t, items[:n], scored)
		items = items[n:]
	}
}

func (s *shard) micro(t *Trainer, items []item, scored float32) error {
	b := &s.batch
	b.Tokens, b.First, b.Scored, b.Offsets = b.Tokens[:0], b.First[:0], b.Scored[:0], append(b.Offsets[:0], 0)
	for i := range items {
		it := &items[i]
		b.Tokens = append(b.Tokens, it.tokens...)
		for k := range it.tokens {
			b.Scored = append(b.Scored, k >= it.prompt)
		}
		b.Offsets = append(b.Offsets, int32(len(b.Tokens)))
		b.First = append(b.First, int32(t.opt.PromptTokens-it.prompt))
	}
	s.logp, s.dlogp = grow(s.logp, len(b.Tokens)), grow(s.dlogp, len(b.Tokens))
	if err := s.pass.Forward(t.current, b, s.logp); err != nil {
		return err
	}
	at := 0
	for i := range items {
		it := &items[i]
		for k := range it.tokens {
			if k >= it.prompt {
				derivative := -1.0
				if !it.supervised {
					derivative = s.stats.Add(s.logp[at], it.logprobs[k], it.advantage, t.opt.ClipEpsilon)
				}
				s.dlogp[at] = float32(derivative) / scored
			}
			at++
		}
	}
	return s.pass.Backward(t.current, b, s.dlogp, s.grad)
}

func grow(x []float32, n int) []float32 {
	if cap(x) < n {
		x = make([]float32, n, 2*n)
	}
	return x[:n]
}
