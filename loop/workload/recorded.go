package workload

import (
	"errors"
	"math"
	"math/bits"
)

// RecordedTurn is one turn of a recorded rollout: a tool's time, then reading, then generation.
type RecordedTurn struct {
	// GapNS is the time before it, in which tools run; 0 for the first.
	GapNS int64
	// ContextTokens are its whole input. Of these ReadTokens are not in the cache of the turn before.
	ContextTokens, ReadTokens int32
	// Tokens are generated, at least 1.
	Tokens int32
}

// Recorded is a compiled record of rollouts, each with its turns. It is immutable and safe for concurrent use.
type Recorded struct {
	groups *groups // of rollouts
	single bool    // no two rollouts are of one prompt
	starts []uint32
	turns  []RecordedTurn
}

// NewRecorded compiles rollouts, by prompts. Every prompt needs a rollout, every rollout a turn.
func NewRecorded(prompts [][][]RecordedTurn) (*Recorded, error) {
	if len(prompts) == 0 {
		return nil, errors.New("no recorded rollouts: want at least one")
	}
	r := &Recorded{single: true, starts: []uint32{0}}
	members := make([][]uint32, len(prompts))
	for i, rollouts := range prompts {
		r.single = r.single && len(rollouts) == 1
		for _, turns := range rollouts {
			if len(turns) == 0 {
				return nil, errors.New("a recorded rollout without a turn: want at least one")
			}
			if RecordedTokens(turns) > math.MaxInt32 {
				return nil, errors.New("a recorded rollout of more than 2^31 tokens: want fewer")
			}
			members[i] = append(members[i], uint32(len(r.starts)-1))
			r.turns = append(r.turns, turns...)
			r.starts = append(r.starts, uint32(len(r.turns)))
		}
		if len(rollouts) == 0 {
			return nil, errors.New("a prompt without a recorded rollout: want at least one")
		}
	}
	r.groups = newGroups(members)
	return r, nil
}

// Rollouts returns how many there are.
func (r *Recorded) Rollouts() int { return len(r.starts) - 1 }

// Rollout returns the turns of the ith.
func (r *Recorded) Rollout(i int) []RecordedTurn { return r.turns[r.starts[i]:r.starts[i+1]] }

// Draw returns the turns of an attempt: a pure function of its arguments. Samples of a group play rollouts of one
// recorded prompt. Where no two rollouts are of one, every sample draws for itself.
func (r *Recorded) Draw(src Source, prompt, group uint64, sample, attempt uint32) []RecordedTurn {
	if r.single {
		at, _ := bits.Mul64(src.Bits(group, sample, attempt), uint64(r.Rollouts()))
		return r.Rollout(int(at))
	}
	return r.Rollout(int(r.groups.drawPrompt(src, prompt, group, sample, attempt)))
}

// RecordedTokens returns what the turns of a rollout generate in all.
func RecordedTokens(turns []RecordedTurn) int {
	sum := 0
	for i := range turns {
		sum += int(turns[i].Tokens)
	}
	return sum
}

// Lengths returns the lengths of the rollouts as a model; those above [MaxTokens] are cut to it.
func (r *Recorded) Lengths() *Lengths {
	measured := make([][]int, r.groups.len())
	for i := range measured {
		for _, member := range r.groups.members(i) {
			measured[i] = append(measured[i], RecordedTokens(r.Rollout(int(member))))
		}
	}
	return empiricalLengths(measured, MaxTokens)
}
