package embedded

import (
	"github.com/headway-rl/headway/internal/transformer"
	"github.com/headway-rl/headway/train/sequence"
)

// microItems bounds the sequences of one pass, whose activations are kept for its backward half.
const microItems = 64

// shard is one thread's part of a step.
type shard struct {
	pass  *transformer.Pass
	grad  []float32
	tally sequence.Tally
	err   error
	batch transformer.Batch
	logp  []float32
	dlogp []float32
}

// train adds up the gradient of its items, each token weighted by one over the optimizer step's scored tokens.
func (s *shard) train(t *Trainer, items []sequence.Sequence, scored float32) {
	clear(s.grad)
	s.err = nil
	for len(items) > 0 && s.err == nil {
		n := min(len(items), microItems)
		s.err = s.trainMicro(t, items[:n], scored)
		items = items[n:]
	}
}

func (s *shard) trainMicro(t *Trainer, items []sequence.Sequence, scored float32) error {
	if err := s.forward(t, items); err != nil {
		return err
	}
	at := 0
	for i := range items {
		it := &items[i]
		n := len(it.Tokens)
		s.derivative(t, it, s.logp[at:at+n], s.dlogp[at:at+n], scored)
		at += n
	}
	return s.pass.Backward(t.current, &s.batch, s.dlogp, s.grad)
}

// derivative writes the derivative of the optimizer step's loss by each token's log-prob. Tokens that nobody
// sampled have no log-probs of their own: they become likelier.
func (s *shard) derivative(t *Trainer, it *sequence.Sequence, logp, dlogp []float32, scored float32) {
	if it.Logprobs == nil {
		for k, m := range it.Sampled {
			dlogp[k] = -float32(m) / scored
		}
		return
	}
	s.tally.Gradient(&t.correction, dlogp, it, logp, scored)
}

// measure fills in the proximal log-probs of its items, for which they have room.
func (s *shard) measure(t *Trainer, items []sequence.Sequence) {
	s.err = nil
	for len(items) > 0 && s.err == nil {
		n := min(len(items), microItems)
		s.err = s.forward(t, items[:n])
		at := 0
		for i := range items[:n] {
			at += copy(items[i].Proximal, s.logp[at:])
		}
		items = items[n:]
	}
}

// forward computes the log-probs of the items' sampled tokens.
func (s *shard) forward(t *Trainer, items []sequence.Sequence) error {
	b := &s.batch
	b.Tokens, b.First, b.Scored, b.Offsets = b.Tokens[:0], b.First[:0], b.Scored[:0], append(b.Offsets[:0], 0)
	for i := range items {
		it := &items[i]
		b.Tokens = append(b.Tokens, it.Tokens...)
		for _, m := range it.Sampled {
			b.Scored = append(b.Scored, m != 0)
		}
		b.Offsets = append(b.Offsets, int32(len(b.Tokens)))
		b.First = append(b.First, int32(t.opt.PromptTokens-it.Prompt))
	}
	s.logp, s.dlogp = grow(s.logp, len(b.Tokens)), grow(s.dlogp, len(b.Tokens))
	return s.pass.Forward(t.current, b, s.logp)
}

func grow(x []float32, n int) []float32 {
	if cap(x) < n {
		x = make([]float32, n, 2*n)
	}
	return x[:n]
}
