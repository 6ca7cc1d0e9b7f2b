package sim

import (
	"math"
	"math/bits"
)

// never is the key of a slot in which nothing will end.
const never = math.MaxUint64

// leaf is a rollout that will reach the end of a phase, and the order among those
// that do so at once.
type leaf struct {
	// key is what sorts: a time in nanoseconds, or an amount of an engine's work, as
	// the bits of a float64 that is not negative, which sort as the number does. Whole
	// numbers far below 2^53 are kept exactly wherever speeds are constant.
	key  uint64
	slot uint64
}

// tree finds the first rollout to end among a fixed number of slots. It is a
// tournament: node i holds the earlier of nodes 2i and 2i+1, the slots are the
// leaves, and node 1 is the first of all. A change costs one comparison a level.
type tree struct {
	nodes []leaf
	first int32 // slot of the first leaf
	// leaves is the number of leaves, a power of two.
	leaves int
}

// newTree returns a tree over n slots from the given one on, in which nothing ends.
func newTree(first int32, n int) tree {
	leaves := 1
	for leaves < n {
		leaves *= 2
	}
	t := tree{nodes: make([]leaf, 2*leaves), first: first, leaves: leaves}
	for i := range t.nodes {
		t.nodes[i] = leaf{key: never}
	}
	return t
}

func keyOf(v float64) uint64 { return math.Float64bits(v) }

func valueOf(key uint64) float64 { return math.Float64frombits(key) }

// top returns the slot that ends first; ok is false if none does.
func (t *tree) top() (at leaf, ok bool) {
	at = t.nodes[1]
	return at, at.key != never
}

// set puts the end of what runs in a slot. Of equal keys the lower group, then
// the lower sample comes first, which the slots themselves tell.
//
// Which of two rollouts ends first is a coin toss to the processor, so that the
// choice is arithmetic instead of a branch: half again as fast.
func (t *tree) set(slot int32, key uint64, slots []slot) {
	nodes := t.nodes
	i := uint(t.leaves) + uint(slot-t.first)
	at := uint64(slot)
	nodes[i] = leaf{key, at}
	for i > 1 {
		other := nodes[i^1]
		if other.key == key && key != never && slots[at].before(&slots[other.slot]) {
			other.key = never
		}
		_, first := bits.Sub64(key, other.key, 0) // 1 if key is the lower one
		mask := first - 1
		key ^= (key ^ other.key) & mask
		at ^= (at ^ other.slot) & mask
		i >>= 1
		nodes[i] = leaf{key, at}
	}
}
