package sequence

import (
	"fmt"
	"math"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/train/grpo"
)

// Sequence is one sequence to train on. Its slices have one element a token.
type Sequence struct {
	// ID names its rollout; several sequences have the same where the rollout's history branched.
	ID     port.RolloutID
	Tokens []int32
	// Sampled is 1 where the policy sampled the token; Prompt is how many come before the first such.
	Sampled []uint8
	Prompt  int
	// Logprobs are those that the tokens were sampled with, in nats. They are nil for tokens that were not sampled,
	// which are to become likelier and no more.
	Logprobs []float32
	// Proximal are log-probs under the weights the step began with; nil where those being trained are the same.
	Proximal []float32
	// Lags is how many versions before the step's each token was sampled.
	Lags []int32
	// Advantage of its rollout, Staleness of its group in versions.
	Advantage float32
	Staleness int32
	// Group counts the batch's groups from 0.
	Group int
	// Ratios is room for the log-ratios of its tokens, filled in by [Tally.Gradient]; nil where they are not wanted.
	Ratios []float32
	// drift sums |log p_start − log p_rollout| over driftTokens tokens, once it was trained on.
	drift       float64
	driftTokens int
}

// Scored is the number of tokens with a loss.
func (s *Sequence) Scored() int {
	n := 0
	for _, m := range s.Sampled {
		n += int(m)
	}
	return n
}

// Scored is the number of tokens with a loss of all sequences.
func Scored(sequences []Sequence) int {
	n := 0
	for i := range sequences {
		n += sequences[i].Scored()
	}
	return n
}

// Of turns a batch into sequences, in the order of its groups, with the advantages of their groups (divided by
// the standard deviation with normalize). Sequences of agents that are not trained are left out. Check, if not nil, says what a model cannot hold. An error names the rollout
// and its fault; nothing may be trained on then.
func Of(batch port.Batch, normalize bool, check func(*Sequence) error) ([]Sequence, error) {
	out := make([]Sequence, 0, count(batch))
	var rewards, advantages []float32
	for g := range batch.Groups {
		group := &batch.Groups[g]
		rewards, advantages = rewards[:0], advantages[:0]
		for i := range group.Samples {
			rewards = append(rewards, group.Samples[i].Reward)
			advantages = append(advantages, 0)
		}
		grpo.Advantages(advantages, rewards, normalize)
		staleness := int32(min(max(batch.Version-group.StartVersion, 0), math.MaxInt32))
		for i := range group.Samples {
			first := len(out)
			var err error
			if out, err = appendRollout(out, group.Samples[i].Trained(), batch.Version, check); err != nil {
				return nil, err
			}
			for k := range out[first:] {
				s := &out[first+k]
				s.Advantage, s.Group, s.Staleness = advantages[i], g, staleness
			}
		}
	}
	return out, nil
}

// count is the number of sequences of a batch.
func count(batch port.Batch) int {
	n := 0
	for g := range batch.Groups {
		for i := range batch.Groups[g].Samples {
			n += 1 + len(batch.Groups[g].Samples[i].Breaks)
		}
	}
	return n
}

// appendRollout appends the sequences of a rollout: one, or one for each branch that its history took.
func appendRollout(to []Sequence, s *port.Sample, training loop.Version, check func(*Sequence) error) ([]Sequence, error) {
	if len(s.LossMask) != len(s.Tokens) || len(s.Logprobs) != len(s.Tokens) || len(s.Versions) != len(s.Tokens) {
		return nil, fmt.Errorf("trainer: rollout %v has %d tokens, %d loss marks, %d log-probs and %d versions, want as many of each",
			s.ID, len(s.Tokens), len(s.LossMask), len(s.Logprobs), len(s.Versions))
	}
	if err := s.CheckAgents(); err != nil {
		return nil, fmt.Errorf("trainer: %w", err)
	}
	first := 0
	for k := range len(s.Breaks) + 1 {
		end := len(s.Tokens)
		if k < len(s.Breaks) {
			if end = int(s.Breaks[k]); end <= first || end >= len(s.Tokens) {
				return nil, fmt.Errorf("trainer: rollout %v has a break at %d after %d, want breaks that rise, above 0 and below its %d tokens", s.ID, end, first, len(s.Tokens))
			}
		}
		one, err := part(s, first, end, training, check)
		if err != nil {
			return nil, err
		}
		to = append(to, one)
		first = end
	}
	return to, nil
}

// part is the sequence of the tokens from first to end, if every one that the policy sampled says which
// version made it, and with what log-prob. Its several turns are one sequence: its positions go on from the
// first turn's, which the engine must have sampled it at.
func part(s *port.Sample, first, end int, training loop.Version, check func(*Sequence) error) (Sequence, error) {
	out := Sequence{ID: s.ID, Tokens: s.Tokens[first:end], Sampled: s.LossMask[first:end], Logprobs: s.Logprobs[first:end], Lags: make([]int32, end-first)}
	for out.Prompt < len(out.Tokens) && out.Sampled[out.Prompt] == 0 {
		out.Prompt++
	}
	if check != nil {
		if err := check(&out); err != nil {
			return Sequence{}, err
		}
	}
	for k := first; k < end; k++ {
		if err := sampledToken(s, k, training); err != nil {
			return Sequence{}, err
		}
	}
	grpo.Lags(out.Lags, s.Versions[first:end], training)
	return out, nil
}

// sampledToken checks what is known of token k, if the policy sampled it.
func sampledToken(s *port.Sample, k int, training loop.Version) error {
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
