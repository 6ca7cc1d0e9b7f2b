package microbatch

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// drawGroups makes groups of lognormal lengths whose siblings correlate.
func drawGroups(rng *rand.Rand, groups, size int, tailness float64) [][]int {
	out := make([][]int, groups)
	sigma := 1.3 * tailness / 100
	for g := range out {
		prompt := 0.7 * rng.NormFloat64()
		for range size {
			x := 1400 * math.Exp(sigma*(prompt+0.7*rng.NormFloat64())-sigma*sigma/2)
			out[g] = append(out[g], max(1, min(int(x), 12000)))
		}
	}
	return out
}

// inOrder is what a trainer does that does not balance: as many groups to each
// rank in the batch's order, each micro-batch filled in order up to the limit.
func inOrder(groups [][]int, s Settings) Assignment {
	out := Assignment{Ranks: make([][]Batch, s.Ranks)}
	for r := range out.Ranks {
		var b Batch
		flush := func() {
			if len(b.Samples) > 0 {
				out.Ranks[r] = append(out.Ranks[r], b)
			}
			b = Batch{}
		}
		for g := r * len(groups) / s.Ranks; g < (r+1)*len(groups)/s.Ranks; g++ {
			tokens := 0
			for _, n := range groups[g] {
				tokens += n
			}
			if s.TokensMax > 0 && b.Tokens+tokens > s.TokensMax {
				flush()
			}
			for i, n := range groups[g] {
				b.Samples = append(b.Samples, Sample{g, i})
				b.Tokens += n
				b.Cost += s.Cost.Of(n)
			}
		}
		flush()
	}
	return out
}

// check judges an assignment by what it promises, with nothing of the code that made it.
func check(t *testing.T, groups [][]int, s Settings, a Assignment) {
	t.Helper()
	seen := map[Sample]int{}
	rankOf := map[int]int{}
	total := 0.0
	largest := 0.0
	if len(a.Ranks) != max(s.Ranks, 1) {
		t.Fatalf("%d ranks, want %d", len(a.Ranks), s.Ranks)
	}
	most := 0
	for _, batches := range a.Ranks {
		most = max(most, len(batches))
	}
	if s.Number > 0 && most != s.Number {
		t.Fatalf("%d micro-batches a rank, want %d", most, s.Number)
	}
	for r, batches := range a.Ranks {
		units := 0
		for k, b := range batches {
			tokens, cost, inBatch := 0, 0.0, map[int]int{}
			for _, name := range b.Samples {
				seen[name]++
				if before, ok := rankOf[name.Group]; ok && before != r {
					t.Fatalf("group %d is on ranks %d and %d", name.Group, before, r)
				}
				rankOf[name.Group] = r
				inBatch[name.Group]++
				n := groups[name.Group][name.Sample]
				tokens, cost = tokens+n, cost+s.Cost.Of(n)
			}
			for g, n := range inBatch {
				if !s.SplitGroups && n != len(groups[g]) {
					t.Fatalf("group %d is split: %d of %d samples in one micro-batch", g, n, len(groups[g]))
				}
			}
			if s.SplitGroups {
				units += len(b.Samples)
			} else {
				units += len(inBatch)
			}
			if tokens == 0 || tokens != b.Tokens || math.Abs(cost-b.Cost) > 1e-6*cost || s.TokensMax > 0 && tokens > s.TokensMax {
				t.Fatalf("rank %d micro-batch %d has %d tokens (says %d, at most %d) and cost %g (says %g)", r, k, tokens, b.Tokens, s.TokensMax, cost, b.Cost)
			}
			if k > 0 && b.Cost > batches[k-1].Cost {
				t.Fatalf("rank %d: micro-batch %d costs more than the one before", r, k)
			}
			if !slices.IsSortedFunc(b.Samples, func(x, y Sample) int {
				return cmp.Or(cmp.Compare(x.Group, y.Group), cmp.Compare(x.Sample, y.Sample))
			}) {
				t.Fatalf("rank %d: micro-batch %d is not in order: %v", r, k, b.Samples)
			}
		}
		if len(batches) != min(most, units) || len(batches) == 0 {
			t.Fatalf("rank %d makes %d passes over %d units, others %d", r, len(batches), units, most)
		}
	}
	for g, lengths := range groups {
		groupCost := 0.0
		for i, n := range lengths {
			if seen[Sample{g, i}] != 1 {
				t.Fatalf("sample %d of group %d is trained %d times", i, g, seen[Sample{g, i}])
			}
			groupCost += s.Cost.Of(n)
		}
		total += groupCost
		largest = max(largest, groupCost)
	}
	// Where no micro-batch count moved a group, list scheduling's bound holds.
	ranks := float64(len(a.Ranks))
	if makespan(a) < lowerLimit(groups, s)*(1-1e-9) {
		t.Fatalf("makespan %g is below the lower limit %g", makespan(a), lowerLimit(groups, s))
	}
	if bound := total/ranks + largest*(1-1/ranks); s.Number == 0 && makespan(a) > bound*(1+1e-9) {
		t.Fatalf("makespan %g is above %g, mean and largest group together", makespan(a), bound)
	}
	if lockstep(a) < makespan(a)*(1-1e-9) {
		t.Fatalf("in lockstep %g, less than %g apart", lockstep(a), makespan(a))
	}
}

// TestAssign draws batches and settings; whatever is accepted keeps its promises
// and is the same the second time.
func TestAssign(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	accepted := 0
	for range 600 {
		groups := drawGroups(rng, 1+rng.IntN(40), 1+rng.IntN(8), float64(rng.IntN(100)))
		s := Settings{Ranks: 1 + rng.IntN(9), SplitGroups: rng.IntN(2) == 0}
		if rng.IntN(2) == 0 {
			s.TokensMax = 12000 * (1 + rng.IntN(6))
		}
		if rng.IntN(3) == 0 {
			s.Number = 1 + rng.IntN(5)
		}
		if rng.IntN(2) == 0 {
			s.Cost = Cost{Linear: 1, Quadratic: 1e-3}
		}
		a, err := Assign(groups, s)
		if err != nil {
			continue
		}
		accepted++
		check(t, groups, s, a)
		if again, _ := Assign(groups, s); !reflect.DeepEqual(a, again) {
			t.Fatalf("%+v: two calls differ", s)
		}
	}
	if accepted < 300 {
		t.Errorf("only %d of 600 batches were accepted", accepted)
	}
}

// best is the smallest makespan there is, by trying everything.
func best(costs []float64, loads []float64) float64 {
	if len(costs) == 0 {
		return slices.Max(loads)
	}
	least := math.Inf(1)
	for r := range loads {
		loads[r] += costs[0]
		least = min(least, best(costs[1:], loads))
		loads[r] -= costs[0]
	}
	return least
}

// TestAgainstTheBest: Graham's bound always, and the best makespan nearly always.
func TestAgainstTheBest(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	within, cases := 0, 300
	for range cases {
		ranks, n := 2+rng.IntN(2), 3+rng.IntN(6)
		groups, costs := make([][]int, max(n, ranks)), []float64{}
		for g := range groups {
			groups[g] = []int{1 + rng.IntN(100)}
			costs = append(costs, float64(groups[g][0]))
		}
		a, err := Assign(groups, Settings{Ranks: ranks})
		if err != nil {
			t.Fatal(err)
		}
		optimum := best(costs, make([]float64, ranks))
		if makespan(a) > (4.0/3-1/(3*float64(ranks)))*optimum {
			t.Fatalf("%v over %d ranks: makespan %g, the best is %g", groups, ranks, makespan(a), optimum)
		}
		if makespan(a) <= 1.02*optimum {
			within++
		}
	}
	if within < cases*9/10 {
		t.Errorf("only %d of %d cases within 2 %% of the best", within, cases)
	}
}

// TestAgainstOrder: against the batch's own order a balanced step is never
// longer, and with tails much shorter; it is close to the lower limit.
func TestAgainstOrder(t *testing.T) {
	for _, c := range []struct {
		groups, ranks int
		tailness      float64
		cost          Cost
		limit, gain   float64 // makespan at most limit × lower limit, in order at least gain × makespan
	}{
		{64, 8, 50, Cost{}, 1.005, 1.2},
		{64, 8, 90, Cost{}, 1.01, 1.3},
		{64, 8, 90, Cost{1, 1.0 / (6 * 4096)}, 1.01, 1.3},
		{128, 32, 50, Cost{}, 1.02, 1.4},
		{16, 2, 50, Cost{}, 1.01, 1.02},
	} {
		rng := rand.New(rand.NewPCG(3, uint64(c.groups)))
		balanced, naive, limit := 0.0, 0.0, 0.0
		for range 20 {
			groups := drawGroups(rng, c.groups, 8, c.tailness)
			s := Settings{Ranks: c.ranks, Cost: c.cost}
			a, err := Assign(groups, s)
			if err != nil {
				t.Fatal(err)
			}
			check(t, groups, s, a)
			o := inOrder(groups, s)
			if makespan(o) < makespan(a)*(1-1e-9) {
				t.Fatalf("%+v: in order %g, balanced %g", c, makespan(o), makespan(a))
			}
			balanced, naive, limit = balanced+makespan(a), naive+makespan(o), limit+lowerLimit(groups, s)
		}
		t.Logf("%d groups of 8, %d ranks, tailness %g, quadratic %.1e: balanced %.4f of the lower limit, in order %.4f", c.groups, c.ranks, c.tailness, c.cost.Quadratic, balanced/limit, naive/limit)
		if balanced > c.limit*limit || naive < c.gain*balanced {
			t.Errorf("%+v: balanced %.4f of the lower limit, in order %.4f", c, balanced/limit, naive/limit)
		}
	}
}

// TestPacking: with a token limit the passes are no more than in order, and in lockstep the step is shorter.
func TestPacking(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	for _, split := range []bool{false, true} {
		balanced, naive := 0.0, 0.0
		for range 20 {
			groups := drawGroups(rng, 64, 8, 50)
			s := Settings{Ranks: 4, TokensMax: 60000, SplitGroups: split}
			a, err := Assign(groups, s)
			if err != nil {
				t.Fatal(err)
			}
			check(t, groups, s, a)
			o := inOrder(groups, s)
			passes := 0
			for _, batches := range o.Ranks {
				passes = max(passes, len(batches))
			}
			if len(a.Ranks[0]) > passes {
				t.Errorf("%d passes, in order %d", len(a.Ranks[0]), passes)
			}
			balanced, naive = balanced+lockstep(a), naive+lockstep(o)
		}
		t.Logf("split %v: in lockstep %.3f of the batch's order", split, balanced/naive)
		if balanced > 0.9*naive {
			t.Errorf("split %v: in lockstep %.3f of the batch's order", split, balanced/naive)
		}
	}
}

func TestRefuses(t *testing.T) {
	two := [][]int{{5, 6}, {7, 8}}
	for want, c := range map[string]struct {
		groups [][]int
		s      Settings
	}{
		"0 groups cannot be divided":                 {nil, Settings{}},
		"2 groups cannot be divided over 3 ranks":    {two, Settings{Ranks: 3}},
		"group 1 has no samples":                     {[][]int{{1}, {}}, Settings{}},
		"sample 1 of group 0 has 0 tokens":           {[][]int{{1, 0}}, Settings{}},
		"sample 1 of group 1 has 8 tokens, above":    {two, Settings{TokensMax: 7, SplitGroups: true}},
		"group 1 has 15 tokens, above the 14":        {two, Settings{TokensMax: 14}},
		"at most -1 tokens":                          {two, Settings{TokensMax: -1}},
		"a cost of -1 a token":                       {two, Settings{Cost: Cost{Linear: -1}}},
		"a cost of NaN a token":                      {two, Settings{Cost: Cost{Linear: math.NaN()}}},
		"2 groups cannot fill 3 micro-batches":       {two, Settings{Number: 3}},
		"4 samples cannot fill 5 micro-batches":      {two, Settings{Number: 5, SplitGroups: true}},
		"no packing found for 26 tokens in 1 micro-": {two, Settings{Number: 1, TokensMax: 15}},
	} {
		if _, err := Assign(c.groups, c.s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, want an error with %q", c.s, err, want)
		}
	}
}

// TestNumberMovesGroups: one rank would get a single large group, but has two passes to make.
func TestNumberMovesGroups(t *testing.T) {
	groups := [][]int{{1000}, {10}, {10}, {10}, {10}}
	s := Settings{Ranks: 2, Number: 2}
	a, err := Assign(groups, s)
	if err != nil {
		t.Fatal(err)
	}
	check(t, groups, s, a)
}

// FuzzAssign: whatever the lengths and limits, an assignment keeps its promises or is refused.
func FuzzAssign(f *testing.F) {
	f.Add([]byte{2, 3, 40, 0, 10, 20, 30, 5, 200, 7})
	f.Add([]byte{1, 0, 0, 1, 255, 255, 0, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) < 6 || len(data) > 400 {
			return
		}
		s := Settings{Ranks: int(data[0] % 6), Number: int(data[1] % 5), TokensMax: 8 * int(data[2]), SplitGroups: data[3]&1 == 1}
		size := 1 + int(data[4]%5)
		var groups [][]int
		for part := range slices.Chunk(data[5:], size) {
			var g []int
			for _, n := range part {
				g = append(g, int(n))
			}
			groups = append(groups, g)
		}
		if a, err := Assign(groups, s); err == nil {
			check(t, groups, s, a)
		}
	})
}

func BenchmarkAssign(b *testing.B) {
	for _, c := range []struct{ groups, ranks, tokens int }{{64, 8, 0}, {64, 8, 60000}, {512, 64, 60000}} {
		b.Run(fmt.Sprintf("groups=%d/ranks=%d/tokens=%d", c.groups, c.ranks, c.tokens), func(b *testing.B) {
			groups := drawGroups(rand.New(rand.NewPCG(1, 1)), c.groups, 8, 50)
			s := Settings{Ranks: c.ranks, TokensMax: c.tokens}
			var a Assignment
			for b.Loop() {
				a, _ = Assign(groups, s)
			}
			limit := lowerLimit(groups, s)
			b.ReportMetric(makespan(a)/limit, "makespan/limit")
			b.ReportMetric(makespan(inOrder(groups, s))/limit, "in-order/limit")
		})
	}
}

// makespan is the cost of the rank that costs most: the time of a step whose
// ranks meet only at its end.
func makespan(a Assignment) float64 {
	longest := 0.0
	for _, batches := range a.Ranks {
		sum := 0.0
		for i := range batches {
			sum += batches[i].Cost
		}
		longest = max(longest, sum)
	}
	return longest
}

// lockstep is the sum over the passes of their most expensive micro-batch: the
// time of a step whose ranks meet after each, as they do when weights are sharded.
func lockstep(a Assignment) float64 {
	sum := 0.0
	for pass := 0; ; pass++ {
		longest, found := 0.0, false
		for _, batches := range a.Ranks {
			if pass < len(batches) {
				longest, found = max(longest, batches[pass].Cost), true
			}
		}
		if !found {
			return sum
		}
		sum += longest
	}
}

// lowerLimit is a makespan that no assignment of whole groups is below: the mean
// over the ranks, which is the linear relaxation's, or the most expensive group.
func lowerLimit(groups [][]int, s Settings) float64 {
	total, largest := 0.0, 0.0
	for _, lengths := range groups {
		cost := 0.0
		for _, n := range lengths {
			cost += s.Cost.Of(n)
		}
		total, largest = total+cost, max(largest, cost)
	}
	return max(total/float64(max(s.Ranks, 1)), largest)
}
