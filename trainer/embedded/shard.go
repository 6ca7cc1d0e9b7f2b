package embedded

import (
	"github.com/headway-rl/headway/grpo"
	"github.com/headway-rl/headway/transformer"
)

// microItems bounds the sequences of one pass, whose activations are kept for its backward half.
const microItems = 64

// shard is one thread's part of a step.
type shard struct {
	pass   *transformer.Pass
	grad   []float32
	report grpo.Report
	err    error
	batch  transformer.Batch
	logp   []float32
	dlogp  []float32
	// sequence is here so that the hot path does not allocate one a sample.
	sequence grpo.Sequence
}

// train adds up the gradient of its items, each token weighted by one over the optimizer step's scored tokens.
func (s *shard) train(t *Trainer, items []item, scored float32) {
	clear(s.grad)
	s.err = nil
	for len(items) > 0 && s.err == nil {
		n := min(len(items), microItems)
		s.err = s.trainMicro(t, items[:n], scored)
		items = items[n:]
	}
}

func (s *shard) trainMicro(t *Trainer, items []item, scored float32) error {
	if err := s.forward(t, items); err != nil {
		return err
	}
	at := 0
	for i := range items {
		it := &items[i]
		n := len(it.tokens)
		s.derivative(t, it, s.logp[at:at+n], s.dlogp[at:at+n], scored)
		at += n
	}
	return s.pass.Backward(t.current, &s.batch, s.dlogp, s.grad)
}

// derivative writes the derivative of the optimizer step's loss by each token's log-prob.
func (s *shard) derivative(t *Trainer, it *item, logp, dlogp []float32, scored float32) {
	if it.supervised {
		for k, m := range it.sampled {
			dlogp[k] = -float32(m) / scored
		}
		return
	}
	s.sequence = grpo.Sequence{Sampled: it.sampled, Current: logp, Proximal: it.proximal, Behaviour: it.logprobs,
		Lags: it.lags, Advantage: it.advantage, Staleness: it.staleness}
	t.correction.Gradient(dlogp, &s.sequence, &s.report)
	for k := range dlogp {
		dlogp[k] /= scored
	}
	if it.proximal != nil {
		logp = it.proximal
	}
	for k := range it.ratios {
		if it.sampled[k] != 0 {
			it.ratios[k] = logp[k] - it.logprobs[k]
		}
	}
	it.drift, it.driftTokens = grpo.AbsoluteLogRatio(logp, it.logprobs, it.sampled)
}

// measure fills in the proximal log-probs of its items, for which they have room.
func (s *shard) measure(t *Trainer, items []item) {
	s.err = nil
	for len(items) > 0 && s.err == nil {
		n := min(len(items), microItems)
		s.err = s.forward(t, items[:n])
		at := 0
		for i := range items[:n] {
			at += copy(items[i].proximal, s.logp[at:])
		}
		items = items[n:]
	}
}

// forward computes the log-probs of the items' sampled tokens.
func (s *shard) forward(t *Trainer, items []item) error {
	b := &s.batch
	b.Tokens, b.First, b.Scored, b.Offsets = b.Tokens[:0], b.First[:0], b.Scored[:0], append(b.Offsets[:0], 0)
	for i := range items {
		it := &items[i]
		b.Tokens = append(b.Tokens, it.tokens...)
		for _, m := range it.sampled {
			b.Scored = append(b.Scored, m != 0)
		}
		b.Offsets = append(b.Offsets, int32(len(b.Tokens)))
		b.First = append(b.First, int32(t.opt.PromptTokens-it.prompt))
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
