package checker

import (
	"slices"
	"strings"
	"testing"
)

// A chat that a plane plays itself is one sequence, has the environment's answers, and the verdict of its last message.
func TestPlayed(t *testing.T) {
	first, last := []int32{20, 30, 4}, []int32{21, 22, 23, 4}
	chat := func(answers ...[]int32) sequence {
		s := sequence{group: 1}
		add := func(mask byte, tokens ...int32) {
			for _, token := range tokens {
				s.tokens, s.mask = append(s.tokens, token), append(s.mask, mask)
			}
		}
		add(0, 1, 5, 4, 2)
		add(1, first...)
		for _, answer := range answers {
			add(0, answer...)
			add(1, last...)
		}
		return s
	}
	one, two := sampler.answered(sampler.spell(first), 1), sampler.answered(sampler.spell(last), 2)
	strange := slices.Clone(two)
	strange[1]++
	for name, test := range map[string]struct {
		sequences []sequence
		reward    float32
		claimed   bool
		broken    string
	}{
		"a chat":                          {[]sequence{chat(one, two)}, 0, false, ""},
		"a strange second answer":         {[]sequence{chat(one, strange)}, 0, false, ""},
		"one turn":                        {[]sequence{chat()}, 0, false, ""},
		"another answer":                  {[]sequence{chat(two)}, 0, false, "message 1 of"},
		"a second answer of another size": {[]sequence{chat(one, one[1:])}, 0, false, "message 2 of"},
		"two sequences":                   {[]sequence{chat(), chat(one)}, 0, false, "in 2 sequences"},
		"another verdict":                 {[]sequence{chat(one)}, 0.25, false, "has the reward 0.25"},
		"a worker's":                      {[]sequence{chat(), chat(one)}, 0.25, true, ""},
	} {
		id := attemptID{1, 0, 1}
		a := &attempt{id: id, reward: test.reward}
		c := &check{count: map[string]int{}, sampler: sampler, said: &testimony{}, log: &ledger{newest: map[attemptID]*attempt{{1, 0, 0}: a}}}
		c.log.rules.played = true
		if test.claimed {
			c.said.claims = []claim{{id: id}}
		}
		(&tokens{c: c}).played(&batch{}, test.sequences)
		if ok := len(c.found) == 0; ok != (test.broken == "") || !ok && !strings.Contains(c.found[0].Text, test.broken) {
			t.Errorf("%s: %+v", name, c.found)
		}
	}
}
