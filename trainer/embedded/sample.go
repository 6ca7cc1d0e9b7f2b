package embedded

import (
	"fmt"
	"math"

	"github.com/headway-rl/headway/grpo"
	"github.com/headway-rl/headway/live"
	"github.com/headway-rl/headway/loop"
)

// item is one sequence to train on. Its slices have one element a token.
type item struct {
	tokens []int32
	// sampled is 1 where the policy sampled the token; prompt is how many come before the first such.
	sampled  []uint8
	prompt   int
	logprobs []float32
	// proximal are log-probs under the weights the step began with; nil where those being trained are the same.
	proximal  []float32
	lags      []int32
	advantage float32
	staleness int32
	// group counts the batch's groups from 0.
	group int
	// drift sums |log p_start − log p_rollout| over driftTokens tokens, once the item was trained on.
	drift       float64
	driftTokens int
	// ratios are the log-ratios of its tokens, filled in where there is room; id names its rollout.
	ratios []float32
	id     live.RolloutID
	// supervised items raise their tokens' log-probs; they have no log-probs of their own.
	supervised bool
}

// scored is the number of tokens with a loss.
func (it *item) scored() int {
	n := 0
	for _, m := range it.sampled {
		n += int(m)
	}
	return n
}

// items turns a batch into sequences with the advantages of their groups.
func (t *Trainer) items(batch live.Batch) ([]item, error) {
	var out []item
	var rewards, advantages []float32
	for g := range batch.Groups {
		group := &batch.Groups[g]
		rewards, advantages = rewards[:0], advantages[:0]
		for i := range group.Samples {
			rewards = append(rewards, group.Samples[i].Reward)
			advantages = append(advantages, 0)
		}
		grpo.Advantages(advantages, rewards, t.opt.NormalizeStd)
		staleness := int32(min(max(batch.Version-group.StartVersion, 0), math.MaxInt32))
		for i := range group.Samples {
			made, err := t.sequences(&group.Samples[i], batch.Version)
			if err != nil {
				return nil, err
			}
			for k := range made {
				made[k].advantage, made[k].group, made[k].staleness = advantages[i], g, staleness
			}
			out = append(out, made...)
		}
	}
	return out, nil
}

// sequences are those of a rollout: one, or one for each branch that its history took.
func (t *Trainer) sequences(s *live.Sample, training loop.Version) ([]item, error) {
	if len(s.LossMask) != len(s.Tokens) || len(s.Logprobs) != len(s.Tokens) || len(s.Versions) != len(s.Tokens) {
		return nil, fmt.Errorf("trainer: rollout %v has %d tokens, %d loss marks, %d log-probs and %d versions, want as many of each",
			s.ID, len(s.Tokens), len(s.LossMask), len(s.Logprobs), len(s.Versions))
	}
	out := make([]item, 0, len(s.Breaks)+1)
	first := 0
	for k := range len(s.Breaks) + 1 {
		end := len(s.Tokens)
		if k < len(s.Breaks) {
			if end = int(s.Breaks[k]); end <= first || end >= len(s.Tokens) {
				return nil, fmt.Errorf("trainer: rollout %v has a break at %d after %d, want breaks that rise, above 0 and below its %d tokens", s.ID, end, first, len(s.Tokens))
			}
		}
		part := live.Sample{ID: s.ID, Tokens: s.Tokens[first:end], LossMask: s.LossMask[first:end], Logprobs: s.Logprobs[first:end], Versions: s.Versions[first:end]}
		it, err := t.item(&part, training)
		if err != nil {
			return nil, err
		}
		out = append(out, it)
		first = end
	}
	return out, nil
}

// item checks that a sequence is one that the model can hold and that says of every
// sampled token which version made it, and with what log-prob. Its several turns are
// one sequence: its positions go on from the first turn's, which the engine
// must have sampled it at.
func (t *Trainer) item(s *live.Sample, training loop.Version) (item, error) {
	n, prompt := len(s.Tokens), 0
	for prompt < n && s.LossMask[prompt] == 0 {
		prompt++
	}
	if prompt < 1 || prompt > t.opt.PromptTokens || t.opt.PromptTokens-prompt+n > t.opt.Model.Context {
		return item{}, fmt.Errorf("trainer: rollout %v has %d prompt and %d response tokens; the model holds %d and %d",
			s.ID, prompt, n-prompt, t.opt.PromptTokens, t.opt.Model.Context-t.opt.PromptTokens)
	}
	for k, token := range s.Tokens {
		if token < 0 || int(token) >= t.opt.Model.Vocabulary {
			return item{}, fmt.Errorf("trainer: rollout %v has the token %d, the vocabulary has %d", s.ID, token, t.opt.Model.Vocabulary)
		}
		if err := sampledToken(s, k, training); err != nil {
			return item{}, err
		}
	}
	it := item{id: s.ID, tokens: s.Tokens, sampled: s.LossMask, prompt: prompt, logprobs: s.Logprobs, lags: make([]int32, n)}
	grpo.Lags(it.lags, s.Versions, training)
	return it, nil
}

// sampledToken checks what is known of token k, if the policy sampled it.
func sampledToken(s *live.Sample, k int, training loop.Version) error {
	switch version, logprob := s.Versions[k], float64(s.Logprobs[k]); {
	case s.LossMask[k] > 1:
		return fmt.Errorf("trainer: rollout %v marks token %d with %d, want 1 where the policy sampled and else 0", s.ID, k, s.LossMask[k])
	case s.LossMask[k] == 0:
		return nil
	case version < 0:
		return fmt.Errorf("trainer: rollout %v has no version for token %d, which the policy sampled: a token of unknown version is not trained on", s.ID, k)
	case version > training:
		return fmt.Errorf("trainer: rollout %v has token %d sampled by version %d, but the step starts from version %d", s.ID, k, version, training)
	case math.IsNaN(logprob) || math.IsInf(logprob, 0):
		return fmt.Errorf("trainer: rollout %v has the log-prob %v for token %d, want a finite number", s.ID, logprob, k)
	}
	return nil
}
