package sequence

import (
	"fmt"
	"math/rand/v2"

	"github.com/headway-rl/headway/loop"
)

// Division says how the groups of a batch are divided over optimizer steps.
type Division struct {
	// Parts is the number of minibatches; 0 means 1.
	Parts int
	// Shuffle draws the groups of each by Seed and the version that the step starts from. Otherwise they come in the
	// order of the batch.
	Shuffle bool
	Seed    uint64
}

// Minibatches divides sequences, which are in the order of their groups, into parts of whole groups, as even
// in groups as can be. It is an error if there are fewer groups than parts.
func (d Division) Minibatches(sequences []Sequence, groups int, version loop.Version) ([][]Sequence, error) {
	parts := max(d.Parts, 1)
	if parts > max(groups, 1) {
		return nil, fmt.Errorf("trainer: a batch of %d groups cannot be divided into %d minibatches: lower the minibatches or train on more groups", groups, parts)
	}
	if parts == 1 {
		return [][]Sequence{sequences}, nil
	}
	order := make([]int, groups)
	for g := range order {
		order[g] = g
	}
	if d.Shuffle {
		rng := rand.New(rand.NewPCG(d.Seed, uint64(version)))
		rng.Shuffle(groups, func(a, b int) { order[a], order[b] = order[b], order[a] })
	}
	first := make([]int, groups+1) // index of each group's first sequence
	for i := range sequences {
		first[sequences[i].Group+1] = i + 1
	}
	for g := range groups {
		first[g+1] = max(first[g+1], first[g])
	}
	out := make([][]Sequence, parts)
	for p := range out {
		for _, g := range order[p*groups/parts : (p+1)*groups/parts] {
			out[p] = append(out[p], sequences[first[g]:first[g+1]]...)
		}
	}
	return out, nil
}

// Proximal gives sequences room for the log-probs of the weights that the step begins with.
func Proximal(sequences []Sequence) {
	tokens := 0
	for i := range sequences {
		tokens += len(sequences[i].Tokens)
	}
	room := make([]float32, tokens)
	for i := range sequences {
		n := len(sequences[i].Tokens)
		sequences[i].Proximal, room = room[:n:n], room[n:]
	}
}
