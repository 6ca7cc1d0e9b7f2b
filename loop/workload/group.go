package workload

import (
	"fmt"
	"math/bits"
)

// groups draws siblings together: a prompt is one measured group chosen by the
// group index, its samples are the members of that group, taken from a random
// starting point and going round. Each member's marginal is then uniform over
// the measured group, and the maximum of s siblings is that of s consecutive
// members, which can be counted exactly.
//
// The members are shuffled once by a fixed hash, because measured files often
// list siblings in finishing order, where consecutive members are alike.
// Samples beyond the size of the measured group repeat its members; a retry
// (attempt above the first) takes another member of the same group.
type groups struct {
	values []uint32 // members of all groups, one group after another
	starts []uint32 // starts[g] is the first member of group g; one extra at the end
}

// newGroups packs measured groups; every one must have a member.
func newGroups(measured [][]uint32) *groups {
	g := &groups{starts: make([]uint32, 1, len(measured)+1)}
	src := NewSource(0, StreamEstimate)
	for i, members := range measured {
		if len(members) == 0 {
			panic(fmt.Sprintf("workload: measured group %d is empty", i))
		}
		first := len(g.values)
		g.values = append(g.values, members...)
		shuffle(g.values[first:], src, uint64(i))
		g.starts = append(g.starts, uint32(len(g.values)))
	}
	return g
}

// shuffle permutes members by a fixed hash of their group's index.
func shuffle(members []uint32, src Source, group uint64) {
	for i := len(members) - 1; i > 0; i-- {
		j, _ := bits.Mul64(src.Bits(group, uint32(i), 0), uint64(i+1))
		members[i], members[j] = members[j], members[i]
	}
}

// len returns the number of measured groups.
func (g *groups) len() int { return len(g.starts) - 1 }

// members returns the measured values of group i.
func (g *groups) members(i int) []uint32 { return g.values[g.starts[i]:g.starts[i+1]] }

// draw returns one sibling's value. Attempts 0 and 1 both count as a first
// attempt, so that callers may number from either.
func (g *groups) draw(src Source, group uint64, sample, attempt uint32) uint32 {
	return g.drawPrompt(src, group, group, sample, attempt)
}

// drawPrompt is draw with the measured group chosen by the prompt. A group that
// plays a prompt of another number has its own starting point in it.
func (g *groups) drawPrompt(src Source, prompt, group uint64, sample, attempt uint32) uint32 {
	which, fraction := bits.Mul64(src.groupBits(prompt), uint64(g.len()))
	if prompt != group {
		_, fraction = bits.Mul64(src.groupBits(group), uint64(g.len()))
	}
	members := g.members(int(which))
	n := uint64(len(members))
	rotation, _ := bits.Mul64(fraction, n)
	at := (rotation + uint64(sample)) % n
	if attempt > 1 {
		at, _ = bits.Mul64(src.Bits(group, sample, attempt), n)
	}
	return members[at]
}

// each calls visit with every window of s consecutive members and its
// probability. A window never holds a member twice: beyond the group's size
// siblings repeat and change no maximum.
func (g *groups) each(s int, visit func(members []uint32, rotation, width int, prob float64)) {
	for i := range g.len() {
		members := g.members(i)
		n := len(members)
		prob := 1 / (float64(g.len()) * float64(n))
		for r := range n {
			visit(members, r, min(s, n), prob)
		}
	}
}

// marginal returns the distribution of one member.
func (g *groups) marginal() Distribution { return g.maxima(1) }

// maxima returns the distribution of the largest of s siblings.
func (g *groups) maxima(s int) Distribution {
	values := make([]float64, 0, len(g.values))
	weights := make([]float64, 0, len(g.values))
	g.each(max(s, 1), func(members []uint32, rotation, width int, prob float64) {
		values = append(values, float64(windowMax(members, rotation, width)))
		weights = append(weights, prob)
	})
	d, err := NewDistribution(values, weights)
	if err != nil {
		panic(fmt.Sprintf("workload: maxima of measured groups: %v", err))
	}
	return d
}

// meanMaxSum returns E[max · sum] of s siblings.
func (g *groups) meanMaxSum(s int) float64 {
	total := 0.0
	g.each(max(s, 1), func(members []uint32, rotation, width int, prob float64) {
		sum := 0.0
		for i := range max(s, 1) {
			sum += float64(members[(rotation+i)%len(members)])
		}
		total += prob * sum * float64(windowMax(members, rotation, width))
	})
	return total
}

// windowMax returns the largest of width consecutive members.
func windowMax(members []uint32, rotation, width int) uint32 {
	largest := uint32(0)
	for i := range width {
		largest = max(largest, members[(rotation+i)%len(members)])
	}
	return largest
}

// capped returns the groups with every value cut to limit.
func (g *groups) capped(limit uint32) *groups {
	values := make([]uint32, len(g.values))
	for i, v := range g.values {
		values[i] = min(v, limit)
	}
	return &groups{values: values, starts: g.starts}
}

// empiricalLengths compiles measured lengths. Groups of one length each carry
// no sibling correlation, so their siblings are independent.
func empiricalLengths(measured [][]int, limit int) *Lengths {
	packed := make([][]uint32, len(measured))
	single := true
	for i, lengths := range measured {
		single = single && len(lengths) == 1
		for _, l := range lengths {
			packed[i] = append(packed[i], uint32(min(l, limit)))
		}
	}
	g := newGroups(packed)
	if single {
		return newLengths(g.marginal())
	}
	return &Lengths{marginal: g.marginal(), groups: g}
}
