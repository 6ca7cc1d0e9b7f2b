package checker

import (
	"bytes"
	"iter"
	"math"
	"slices"
)

// tokens recomputes the tokens of batches.
type tokens struct {
	c       *check
	names   names
	prompts map[int64][]int32 // of groups
}

func (c *check) newTokens() *tokens {
	return &tokens{c: c, names: c.newNames(), prompts: map[int64][]int32{}}
}

// copies are the versions that a trainer went back to, each with the one whose weights it published again, byte by byte.
// An engine that still serves the older one serves the newer one as well. A plane that has a model publishes version 0 of it,
// so that no trainer has said its bytes.
func (c *check) copies() map[int32]int32 {
	all, bytesOf := map[int32]int32{}, map[int64][]byte{}
	for i := range c.said.publishes {
		p := &c.said.publishes[i]
		model := p.files["model.safetensors"]
		if len(model) == 0 {
			continue
		}
		bytesOf[p.manifest.Version] = model
		from := p.manifest.RestoredFrom
		if from == nil || *from >= p.manifest.Version {
			continue
		}
		if old, said := bytesOf[*from]; bytes.Equal(old, model) || !said && *from == 0 {
			all[int32(p.manifest.Version)] = int32(*from)
		}
	}
	return all
}

// next is the token that a version samples, by the name under which its weights were published. Where the weights have
// another name beside, it is the one that the recorded token confirms.
func (t *tokens) next(v int32, h before, token int32, logprob float32) (int32, float32) {
	for name := range t.names.all(v) {
		if want, wanted := t.c.sampler.next(name, h); want == token && near(wanted, logprob) {
			return want, wanted
		}
	}
	return t.c.sampler.next(t.names.of(v), h)
}

func (t *tokens) check(b *batch) {
	stamps := map[int64]stamp{}
	for _, s := range b.body.lease.Stamps {
		stamps[s.Group] = s
	}
	var rollout []sequence
	for i, g := range b.body.groups {
		from, to := b.body.offsets[i], b.body.offsets[i+1]
		s := sequence{group: g, sample: b.body.samples[i], tokens: b.body.tokens[from:to], mask: b.body.mask[from:to], versions: b.body.versions[from:to], logprobs: b.body.logprobs[from:to]}
		t.sequence(b, &s, stamps[g])
		rollout = append(rollout, s)
		if last := i+1 == len(b.body.groups); last || b.body.rollouts == nil || b.body.rollouts[i+1] != b.body.rollouts[i] {
			t.rollout(b, rollout)
			rollout = rollout[:0]
		}
	}
}

// rollout checks the sequences of one.
func (t *tokens) rollout(b *batch, sequences []sequence) {
	t.prompt(b, &sequences[0])
	t.logged(b, sequences)
	t.played(b, sequences)
}

// sequence is one of a batch.
type sequence struct {
	group            int64
	sample           int32
	tokens, versions []int32
	mask             []byte
	logprobs         []float32
}

// sequence recomputes the tokens of a sequence, each from the version that it is stamped with.
func (t *tokens) sequence(b *batch, s *sequence, at stamp) {
	c := t.c
	h := before(0)
	for i, token := range s.tokens {
		if s.mask[i] == 0 {
			if s.versions[i] != -1 || s.logprobs[i] != 0 {
				c.fail(RuleBatch, b.line, "token %d of rollout %d of group %d is not the policy's, and has version %d and log-prob %g", i, s.sample, s.group, s.versions[i], s.logprobs[i])
				return
			}
			h = h.and(token)
			continue
		}
		v := s.versions[i]
		if int64(v) < at.Start || int64(v) > b.body.lease.Version {
			c.fail(RuleToken, b.line, "token %d of rollout %d of group %d is of version %d: the group's stamp is %d, and its lease begins from version %d", i, s.sample, s.group, v, at.Start, b.body.lease.Version)
			return
		}
		want, logprob := t.next(v, h, token, s.logprobs[i])
		if want != token || !near(logprob, s.logprobs[i]) {
			c.fail(RuleToken, b.line, "token %d of %d of rollout %d of group %d in lease %d is %d at %g, stamped with version %d, which samples %d at %g",
				i, len(s.tokens), s.sample, s.group, b.body.lease.Lease, token, s.logprobs[i], v, want, logprob)
			return
		}
		if token == c.sampler.EOS && i+1 < len(s.tokens) && s.mask[i+1] == 1 {
			c.fail(RuleToken, b.line, "rollout %d of group %d in lease %d goes on behind its end at token %d", s.sample, s.group, b.body.lease.Lease, i)
			return
		}
		h = h.and(token)
	}
	t.lengths(b, s)
}

// turns are the places of a sequence's responses, from the first token to behind the last.
func (s *sequence) turns() iter.Seq2[int, int] {
	return func(yield func(from, to int) bool) {
		for from := 0; from < len(s.mask); from++ {
			if s.mask[from] == 0 {
				continue
			}
			to := from
			for to < len(s.mask) && s.mask[to] == 1 {
				to++
			}
			if !yield(from, to) {
				return
			}
			from = to
		}
	}
}

// lengths checks where the responses of a sequence end.
func (t *tokens) lengths(b *batch, s *sequence) {
	c, turns := t.c, 0
	for from, to := range s.turns() {
		turns++
		switch most := c.log.rules.responseMax; {
		case most > 0 && to-from > most:
			c.fail(RuleToken, b.line, "a response of rollout %d of group %d in lease %d has %d tokens, and may have %d", s.sample, s.group, b.body.lease.Lease, to-from, most)
		case most > 0 && s.tokens[to-1] != c.sampler.EOS && to-from != most:
			c.fail(RuleToken, b.line, "a response of rollout %d of group %d in lease %d breaks off after %d tokens", s.sample, s.group, b.body.lease.Lease, to-from)
		}
	}
	if turns == 0 {
		c.fail(RuleToken, b.line, "rollout %d of group %d in lease %d has no token of the policy's", s.sample, s.group, b.body.lease.Lease)
	}
}

func near(a, b float32) bool { return math.Abs(float64(a)-float64(b)) <= 1e-5 }

// prompt compares the prompts of a group's rollouts with each other, and with those that workers sent.
func (t *tokens) prompt(b *batch, s *sequence) {
	n := slices.Index(s.mask, 1)
	if n < 0 {
		return
	}
	prompt := s.tokens[:n]
	was, ok := t.prompts[s.group]
	switch {
	case !ok:
		t.prompts[s.group] = prompt
		if !t.c.said.prompts[promptKey(prompt)] && !t.c.log.rules.played {
			t.c.fail(RulePrompt, b.line, "group %d has the prompt %v, and no worker sent it", s.group, prompt)
		}
	case !slices.Equal(was, prompt):
		t.c.fail(RulePrompt, b.line, "rollout %d of group %d has the prompt %v, and another of it %v", s.sample, s.group, prompt, was)
	}
}

// logged compares the tokens of a rollout with what the log says of them, and with what its worker was told.
func (t *tokens) logged(b *batch, sequences []sequence) {
	first := &sequences[0]
	a := t.c.log.newest[attemptID{first.group, first.sample, 0}]
	if a == nil || a.state != scored {
		return
	}
	if said := t.c.said.sampled[turn{a.id, 0}]; said != nil {
		t.heard(b, first, a.id, said)
	}
	t.c.recorded(b.line, a.id, sequences)
	if t.c.played(a.id) {
		t.judged(b, a, first)
	}
	n, sum := int64(0), int64(0)
	for i := range sequences {
		for j, m := range sequences[i].mask {
			if m == 1 {
				n++
				sum += int64(sequences[i].versions[j])
			}
		}
	}
	if n != a.tokens || sum != a.versionTokens {
		t.c.fail(RuleToken, b.line, "%v has %d tokens in lease %d, whose versions sum to %d, and in the log %d and %d", a.id, n, b.body.lease.Lease, sum, a.tokens, a.versionTokens)
	}
}

// judged computes the reward again that a plane gives what it plays: by the length of its last message.
func (t *tokens) judged(b *batch, a *attempt, s *sequence) {
	last := ""
	for from, to := range s.turns() {
		last = t.c.sampler.spell(s.tokens[from:to])
	}
	if want := float32(len(last)%4) / 4; a.reward != want {
		t.c.fail(RuleReward, b.line, "%v was played by a plane, has reward %g, and its text %q makes %g", a.id, a.reward, last, want)
	}
}

// heard compares a rollout of one turn with what its worker was told that the engine sampled.
func (t *tokens) heard(b *batch, s *sequence, id attemptID, said *sampled) {
	if t.c.said.sampled[turn{id, 1}] != nil {
		return
	}
	from := slices.Index(s.mask, 1)
	if from < 0 {
		return
	}
	if !slices.Equal(s.tokens[from:], said.Tokens) || !slices.Equal(s.versions[from:], said.Versions) || !slices.Equal(s.logprobs[from:], said.Logprobs) {
		t.c.fail(RuleToken, b.line, "%v has the tokens %v under %v in lease %d, and its worker was told %v under %v at line %d",
			id, s.tokens[from:], s.versions[from:], b.body.lease.Lease, said.Tokens, said.Versions, said.line)
	}
}
