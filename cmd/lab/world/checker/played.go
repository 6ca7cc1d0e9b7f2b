package checker

import (
	"fmt"
	"hash/fnv"
	"slices"
)

// Roles of messages, each a token before its text.
const (
	roleUser      = 1
	roleAssistant = 2
)

// strangeStep is the answer of an environment that need not follow from the action.
const strangeStep = 2

// played checks a rollout that a plane or a cell has played itself: its chat is one sequence, whatever restarts it outlived. The
// environment answered each message but the last, and the verdict is of that one.
func (t *tokens) played(b *batch, sequences []sequence) {
	c, s := t.c, &sequences[0]
	a := c.log.newest[attemptID{s.group, s.sample, 0}]
	if a == nil || !c.played(a.id) {
		return
	}
	if len(sequences) != 1 {
		c.fail(RulePlayed, b.line, "the chat of %v, which nobody outside played, is in %d sequences", a.id, len(sequences))
		return
	}
	said, step, end := "", 0, 0
	for from, to := range s.turns() {
		if step > 0 {
			want := c.sampler.answered(said, step)
			got := s.tokens[end:from]
			if len(got) == len(want) && step == strangeStep {
				copy(want[1:3], got[1:3])
			}
			if !slices.Equal(got, want) {
				c.fail(RulePlayed, b.line, "the environment answered %q, message %d of %v, by the tokens %v, and the chat goes on with %v", said, step, a.id, want, got)
			}
		}
		said, step, end = c.sampler.spell(s.tokens[from:to]), step+1, to
	}
	if want := float32(len(said)%4) / 4; a.reward != want {
		c.fail(RulePlayed, b.line, "%v ends with %q, whose verdict is %g, and has the reward %g", a.id, said, want, a.reward)
	}
}

// answered are the tokens between a message and the next, with the environment's answer.
func (s *Sampler) answered(said string, step int) []int32 {
	hash := fnv.New64a()
	fmt.Fprint(hash, said, step)
	n := hash.Sum64()
	return []int32{roleUser, int32(8 + n%16), int32(8 + n/16%16), s.EOS, roleAssistant}
}
