package microbatch

import (
	"cmp"
	"container/heap"
	"slices"
)

// differencingMax bounds items times parts of the largest differencing method,
// whose memory and time grow with it. Beyond, there are so many items a part that
// placing the longest first leaves nothing to gain.
const differencingMax = 1 << 16

// partition divides items of the given weights into parts whose largest sum is
// small, and returns the part of each item. It is the better of longest
// processing time first (Graham 1969: at most 4/3 − 1/(3·parts) of the best
// possible) and the largest differencing method (Karmarkar and Karp 1982), which is
// close to the best where a part has few items; then single items move or change
// places while that helps. Ties go by the item's number.
func partition(weights []float64, parts int) []int {
	if parts == 1 {
		return make([]int, len(weights))
	}
	first := longestFirst(weights, parts)
	if len(weights) <= parts || len(weights)*parts > differencingMax {
		return first
	}
	second := differencing(weights, parts)
	if largest(weights, second, parts) < largest(weights, first, parts) {
		first = second
	}
	improve(weights, first, parts)
	return first
}

// improve moves an item of the heaviest part to another, or changes it for a
// lighter one, as long as the heavier of the two parts ends below what the
// heaviest was.
func improve(weights []float64, part []int, parts int) {
	sums, items := make([]float64, parts), make([]int, parts)
	for i, w := range weights {
		sums[part[i]] += w
		items[part[i]]++
	}
	for range 8 * parts { // each round lightens the heaviest part; most calls end much earlier
		give, take, to := bestMove(weights, part, sums, items)
		if give < 0 {
			return
		}
		from, moved := part[give], weights[give]
		if take >= 0 {
			moved -= weights[take]
			part[take] = from
		} else {
			items[from]--
			items[to]++
		}
		part[give] = to
		sums[from] -= moved
		sums[to] += moved
	}
}

// bestMove finds the item to give from the heaviest part to another, and the one
// to take for it, −1 for none, so that the heavier of the two becomes lightest;
// give is −1 where nothing is gained.
func bestMove(weights []float64, part []int, sums []float64, items []int) (give, take, to int) {
	heaviest := 0
	for p := range sums {
		if sums[p] > sums[heaviest] {
			heaviest = p
		}
	}
	give, take = -1, -1
	least := sums[heaviest] * (1 - 1e-9) // what is equal but for rounding is no gain
	consider := func(i, j, p int, moved float64) {
		if after := max(sums[heaviest]-moved, sums[p]+moved); after < least {
			least, give, take, to = after, i, j, p
		}
	}
	for i, w := range weights {
		if part[i] != heaviest {
			continue
		}
		for j, p := range part {
			if p != heaviest {
				consider(i, j, p, w-weights[j])
			}
		}
		for p := range sums {
			if p != heaviest && items[heaviest] > 1 {
				consider(i, -1, p, w)
			}
		}
	}
	return give, take, to
}

// largest is the largest sum of a partition.
func largest(weights []float64, part []int, parts int) float64 {
	sums := make([]float64, parts)
	for i, w := range weights {
		sums[part[i]] += w
	}
	return slices.Max(sums)
}

// longestFirst gives each item, the heaviest first, to the part with the least so far.
func longestFirst(weights []float64, parts int) []int {
	order := make([]int, len(weights))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(weights[b], weights[a]) })
	queue := make(leastFirst, parts)
	for p := range queue {
		queue[p].part = p
	}
	out := make([]int, len(weights))
	for _, i := range order {
		out[i] = queue[0].part
		queue[0].sum += weights[i]
		queue[0].items++
		heap.Fix(&queue, 0)
	}
	return out
}

type load struct {
	sum   float64
	items int
	part  int
}

// leastFirst is a heap of parts. Among equal sums, as of items that cost nothing, the one
// with fewer items comes first, so that no part stays empty while another has two.
type leastFirst []load

func (q leastFirst) Len() int { return len(q) }
func (q leastFirst) Less(a, b int) bool {
	return cmp.Or(cmp.Compare(q[a].sum, q[b].sum), cmp.Compare(q[a].items, q[b].items), cmp.Compare(q[a].part, q[b].part)) < 0
}
func (q leastFirst) Swap(a, b int) { q[a], q[b] = q[b], q[a] }
func (q *leastFirst) Push(any)     { panic("microbatch: the number of parts is fixed") }
func (q *leastFirst) Pop() any     { panic("microbatch: the number of parts is fixed") }

// subset is some of the items, as a list by next, from head to tail; −1 for none.
type subset struct {
	sum        float64
	head, tail int
}

// tuple is a partition of some of the items, the heaviest subset first.
type tuple struct {
	subsets []subset
	order   int // when it was made, for ties
}

func (t tuple) spread() float64 { return t.subsets[0].sum - t.subsets[len(t.subsets)-1].sum }

// widest is a heap of tuples, the largest spread first.
type widest []tuple

func (q widest) Len() int { return len(q) }
func (q widest) Less(a, b int) bool {
	return cmp.Or(cmp.Compare(q[b].spread(), q[a].spread()), cmp.Compare(q[a].order, q[b].order)) < 0
}
func (q widest) Swap(a, b int) { q[a], q[b] = q[b], q[a] }
func (q *widest) Push(x any)   { *q = append(*q, x.(tuple)) }
func (q *widest) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}

// differencing joins the two partitions with the largest spreads, the heaviest
// subset of one with the lightest of the other, until one is left.
func differencing(weights []float64, parts int) []int {
	queue := make(widest, len(weights))
	next := make([]int, len(weights))
	for i, w := range weights {
		next[i] = -1
		queue[i] = tuple{make([]subset, parts), i}
		for p := range queue[i].subsets {
			queue[i].subsets[p] = subset{0, -1, -1}
		}
		queue[i].subsets[0] = subset{w, i, i}
	}
	heap.Init(&queue)
	for order := len(weights); queue.Len() > 1; order++ {
		a, b := heap.Pop(&queue).(tuple), heap.Pop(&queue).(tuple)
		for p := range a.subsets {
			a.subsets[p] = joined(a.subsets[p], b.subsets[parts-1-p], next)
		}
		slices.SortStableFunc(a.subsets, func(x, y subset) int { return cmp.Compare(y.sum, x.sum) })
		a.order = order
		heap.Push(&queue, a)
	}
	out := make([]int, len(weights))
	for p, s := range queue[0].subsets {
		for i := s.head; i >= 0; i = next[i] {
			out[i] = p
		}
	}
	return out
}

func joined(a, b subset, next []int) subset {
	switch {
	case a.head < 0:
		return b
	case b.head < 0:
		return a
	}
	next[a.tail] = b.head
	return subset{a.sum + b.sum, a.head, b.tail}
}
