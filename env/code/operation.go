package code

import "slices"

// operation is a word of prompts and, as a response's token, a statement on the list x.
type operation struct {
	name           string
	python, golang string
	// apply is what the statement does, to a list of its own.
	apply func(x []int64) []int64
}

// operations are what prompts may ask for. They are total: every list has a result, and none is
// much longer or has much larger values than the list, so that eight in a row fit 64 bits.
var operations = []operation{
	{"sort", "x = sorted(x)", "slices.Sort(x)", func(x []int64) []int64 { slices.Sort(x); return x }},
	{"reverse", "x = x[::-1]", "slices.Reverse(x)", func(x []int64) []int64 { slices.Reverse(x); return x }},
	{"double", "x = [v * 2 for v in x]", "for i := range x { x[i] *= 2 }", each(func(v int64) int64 { return v * 2 })},
	{"increment", "x = [v + 1 for v in x]", "for i := range x { x[i]++ }", each(func(v int64) int64 { return v + 1 })},
	{"negate", "x = [-v for v in x]", "for i := range x { x[i] = -x[i] }", each(func(v int64) int64 { return -v })},
	{"absolute", "x = [abs(v) for v in x]", "for i := range x { x[i] = max(x[i], -x[i]) }", each(func(v int64) int64 { return max(v, -v) })},
	{"digit", "x = [v % 10 for v in x]", "for i := range x { x[i] = (x[i]%10 + 10) % 10 }", each(func(v int64) int64 { return (v%10 + 10) % 10 })},
	{"halve", "x = [v // 2 for v in x]", "for i := range x { x[i] >>= 1 }", each(func(v int64) int64 { return v >> 1 })},
	{"rest", "x = x[1:]", "x = x[min(1, len(x)):]", func(x []int64) []int64 { return x[min(1, len(x)):] }},
	{"init", "x = x[:-1]", "x = x[:max(0, len(x)-1)]", func(x []int64) []int64 { return x[:max(0, len(x)-1)] }},
	{"rotate", "x = x[1:] + x[:1]", "if len(x) > 0 { x = append(x[1:], x[0]) }", rotate},
	{"evens", "x = [v for v in x if v % 2 == 0]", "x = slices.DeleteFunc(x, func(v int64) bool { return v%2 != 0 })",
		only(func(v int64) bool { return v%2 == 0 })},
	{"positives", "x = [v for v in x if v > 0]", "x = slices.DeleteFunc(x, func(v int64) bool { return v <= 0 })",
		only(func(v int64) bool { return v > 0 })},
	{"unique", "x = list(dict.fromkeys(x))", "{ seen := map[int64]bool{}; x = slices.DeleteFunc(x, func(v int64) bool { was := seen[v]; seen[v] = true; return was }) }", unique},
	{"ends", "x = x[:1] + x[-1:]", "if len(x) > 0 { x = []int64{x[0], x[len(x)-1]} }", ends},
	{"total", "x = x + [sum(x)]", "{ sum := int64(0); for _, v := range x { sum += v }; x = append(x, sum) }", func(x []int64) []int64 { return append(x, sum(x)) }},
	{"count", "x = x + [len(x)]", "x = append(x, int64(len(x)))", func(x []int64) []int64 { return append(x, int64(len(x))) }},
	{"running", "x = [sum(x[:i + 1]) for i in range(len(x))]", "for i := 1; i < len(x); i++ { x[i] += x[i-1] }", running},
}

// hazards are statements that no prompt asks for, and that meet a limit: the policy has to learn
// to leave them out, as one that writes code must.
var hazards = []operation{
	{name: "forever", python: "while True: pass", golang: "for { _ = x }"},
	{name: "hoard", python: "x = [0] * (1 << 40)", golang: "for { x = append(x, x...); x = append(x, 0) }"},
}

func each(f func(int64) int64) func([]int64) []int64 {
	return func(x []int64) []int64 {
		for i, v := range x {
			x[i] = f(v)
		}
		return x
	}
}

func only(keep func(int64) bool) func([]int64) []int64 {
	return func(x []int64) []int64 { return slices.DeleteFunc(x, func(v int64) bool { return !keep(v) }) }
}

func rotate(x []int64) []int64 {
	if len(x) == 0 {
		return x
	}
	return append(x[1:], x[0])
}

func unique(x []int64) []int64 {
	seen := map[int64]bool{}
	return only(func(v int64) bool {
		fresh := !seen[v]
		seen[v] = true
		return fresh
	})(x)
}

func ends(x []int64) []int64 {
	if len(x) == 0 {
		return x
	}
	return []int64{x[0], x[len(x)-1]}
}

func sum(x []int64) (s int64) {
	for _, v := range x {
		s += v
	}
	return s
}

func running(x []int64) []int64 {
	for i := 1; i < len(x); i++ {
		x[i] += x[i-1]
	}
	return x
}
