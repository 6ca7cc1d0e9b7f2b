// Package microbatch divides a batch of groups over data-parallel ranks, and
// each rank's part into micro-batches, so that all take about as long. Whole
// groups go to a rank, since their rollouts share a prompt and their advantages
// a mean. It is a pure function of the lengths: the same batch gives the same
// assignment everywhere, so that ranks need not agree on one.
package microbatch

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
)

// Cost is what a sample of n tokens costs to train on: Linear·n + Quadratic·n²,
// the feed-forward and the attention part, in any unit. The zero Cost is one a token.
// Quadratic over Linear is about 1 over 6 times the model's width.
type Cost struct {
	Linear, Quadratic float64
}

// Of returns the cost of a sample.
func (c Cost) Of(tokens int) float64 {
	if c == (Cost{}) {
		return float64(tokens)
	}
	n := float64(tokens)
	return c.Linear*n + c.Quadratic*n*n
}

// Settings say over what a batch is divided.
type Settings struct {
	// Ranks is the number of data-parallel ranks; 0 means 1.
	Ranks int
	// TokensMax is the most tokens of a micro-batch, as many as its activations leave memory for; 0
	// for no limit.
	TokensMax int
	// Number of micro-batches of each rank. 0 means as few as TokensMax permits on
	// the rank that needs most, since ranks that synchronize must make as many passes.
	Number int
	// SplitGroups lets samples of one group go to different micro-batches of its
	// rank. That changes no gradient where advantages are computed before; code that
	// computes them within a micro-batch needs groups whole.
	SplitGroups bool
	// Cost that is balanced.
	Cost Cost
}

// Sample names a sample by its group's place in the batch and its own in the group.
type Sample struct {
	Group, Sample int
}

// Batch is one micro-batch.
type Batch struct {
	// Samples in the order of groups, and within a group of samples.
	Samples []Sample
	// Tokens and Cost are sums over them.
	Tokens int
	Cost   float64
}

// Assignment says which rank trains what. Ranks[r] are rank r's micro-batches,
// the most expensive first. All ranks have as many, save one with fewer groups (or,
// with SplitGroups, samples) than that, which has one for each.
type Assignment struct {
	Ranks [][]Batch
}

// Assign divides groups of samples, given by their lengths in tokens. Ranks are
// balanced by cost, then each rank's micro-batches within TokensMax. It returns
// an error where that cannot be, and says what would have to change.
func Assign(groups [][]int, s Settings) (Assignment, error) {
	s.Ranks = max(s.Ranks, 1)
	if err := s.check(groups); err != nil {
		return Assignment{}, err
	}
	whole := unitsOf(groups, s.Cost, false)
	costs := make([]float64, len(whole))
	for i := range whole {
		costs[i] = whole[i].cost
	}
	ranks := make([][]unit, s.Ranks)
	for g, rank := range partition(costs, s.Ranks) {
		ranks[rank] = append(ranks[rank], whole[g])
	}
	if s.Number > 0 {
		fillRanks(ranks, s)
	}
	if s.SplitGroups {
		for r := range ranks {
			ranks[r] = split(ranks[r], groups, s.Cost)
		}
	}
	number := s.Number
	packed := make([][][]unit, s.Ranks)
	for r := range ranks {
		var err error
		if packed[r], err = pack(ranks[r], s.Number, s.TokensMax); err != nil {
			return Assignment{}, fmt.Errorf("microbatch: rank %d: %w", r, err)
		}
		number = max(number, len(packed[r]))
	}
	out := Assignment{Ranks: make([][]Batch, s.Ranks)}
	for r := range packed {
		if len(packed[r]) < number {
			packed[r] = divide(ranks[r], packed[r], number, s.TokensMax)
		}
		out.Ranks[r] = batches(packed[r])
	}
	return out, nil
}

// check refuses what cannot be assigned.
func (s Settings) check(groups [][]int) error {
	switch {
	case s.TokensMax < 0 || s.Number < 0:
		return fmt.Errorf("microbatch: at most %d tokens and %d micro-batches a rank; neither may be negative", s.TokensMax, s.Number)
	case !(s.Cost.Linear >= 0 && s.Cost.Quadratic >= 0) || math.IsInf(s.Cost.Linear+s.Cost.Quadratic, 1):
		return fmt.Errorf("microbatch: a cost of %g a token and %g a token squared; both must be finite and not negative", s.Cost.Linear, s.Cost.Quadratic)
	case len(groups) < s.Ranks:
		return fmt.Errorf("microbatch: %d groups cannot be divided over %d ranks: a group stays whole on one rank; use fewer ranks or larger batches", len(groups), s.Ranks)
	}
	samples := 0
	for g, lengths := range groups {
		if len(lengths) == 0 {
			return fmt.Errorf("microbatch: group %d has no samples: leave it out", g)
		}
		tokens := 0
		for i, n := range lengths {
			if n < 1 {
				return fmt.Errorf("microbatch: sample %d of group %d has %d tokens, want at least 1", i, g, n)
			}
			if s.TokensMax > 0 && n > s.TokensMax {
				return fmt.Errorf("microbatch: sample %d of group %d has %d tokens, above the %d of a micro-batch: raise the limit or cap responses", i, g, n, s.TokensMax)
			}
			tokens += n
		}
		if s.TokensMax > 0 && tokens > s.TokensMax && !s.SplitGroups {
			return fmt.Errorf("microbatch: group %d has %d tokens, above the %d of a micro-batch: raise the limit or set SplitGroups", g, tokens, s.TokensMax)
		}
		samples += len(lengths)
	}
	if s.Number > 0 && !s.SplitGroups && len(groups) < s.Ranks*s.Number {
		return fmt.Errorf("microbatch: %d groups cannot fill %d micro-batches on each of %d ranks: use fewer, or set SplitGroups", len(groups), s.Number, s.Ranks)
	}
	if s.Number > 0 && samples < s.Ranks*s.Number {
		return fmt.Errorf("microbatch: %d samples cannot fill %d micro-batches on each of %d ranks: use fewer", samples, s.Number, s.Ranks)
	}
	return nil
}

// unit is what moves as a whole: a group or, where groups are split, a sample.
type unit struct {
	samples []Sample
	tokens  int
	cost    float64
}

func unitsOf(groups [][]int, c Cost, split bool) []unit {
	var out []unit
	for g, lengths := range groups {
		for i, n := range lengths {
			if split || i == 0 {
				out = append(out, unit{})
			}
			u := &out[len(out)-1]
			u.samples = append(u.samples, Sample{g, i})
			u.tokens += n
			u.cost += c.Of(n)
		}
	}
	return out
}

// split turns groups into their samples.
func split(units []unit, groups [][]int, c Cost) []unit {
	var out []unit
	for _, u := range units {
		for _, name := range u.samples {
			n := groups[name.Group][name.Sample]
			out = append(out, unit{samples: []Sample{name}, tokens: n, cost: c.Of(n)})
		}
	}
	return out
}

// fillRanks moves the cheapest groups to ranks with too few for their number of
// micro-batches, from those with most to spare; check has seen to it that there are some.
func fillRanks(ranks [][]unit, s Settings) {
	held := func(r int) int {
		if !s.SplitGroups {
			return len(ranks[r])
		}
		n := 0
		for _, u := range ranks[r] {
			n += len(u.samples)
		}
		return n
	}
	for {
		least, most := 0, -1
		for r := range ranks {
			if held(r) < held(least) {
				least = r
			}
			if len(ranks[r]) > 1 && (most < 0 || held(r) > held(most)) {
				most = r
			}
		}
		if held(least) >= s.Number || most < 0 || most == least {
			return
		}
		cheapest := 0
		for i := range ranks[most] {
			if ranks[most][i].cost < ranks[most][cheapest].cost {
				cheapest = i
			}
		}
		if s.SplitGroups && held(most)-len(ranks[most][cheapest].samples) < s.Number {
			return
		}
		if !s.SplitGroups && held(most) <= s.Number {
			return
		}
		ranks[least] = append(ranks[least], ranks[most][cheapest])
		ranks[most] = slices.Delete(ranks[most], cheapest, cheapest+1)
	}
}

// errTooMany: no packing into that many micro-batches was found.
var errTooMany = errors.New("no packing found")

// pack divides a rank's units into number micro-batches, or as few as it can.
func pack(units []unit, number, tokensMax int) ([][]unit, error) {
	total := 0
	for i := range units {
		total += units[i].tokens
	}
	if number > 0 {
		if len(units) < number {
			return nil, fmt.Errorf("%d groups or samples cannot fill %d micro-batches: use fewer, or set SplitGroups", len(units), number)
		}
		out := fit(units, number, tokensMax)
		if out == nil {
			return nil, fmt.Errorf("%w for %d tokens in %d micro-batches of at most %d: use more micro-batches, raise the limit or set SplitGroups", errTooMany, total, number, tokensMax)
		}
		return out, nil
	}
	if tokensMax == 0 {
		return [][]unit{units}, nil
	}
	// Any two units above half the limit need two micro-batches.
	halves := 0
	for i := range units {
		if 2*units[i].tokens > tokensMax {
			halves++
		}
	}
	most := firstFit(units, tokensMax)
	for n := max((total+tokensMax-1)/tokensMax, halves); n < len(most); n++ {
		if out := balanced(units, n, tokensMax); out != nil {
			return out, nil
		}
	}
	if out := balanced(units, len(most), tokensMax); out != nil {
		return out, nil
	}
	return most, nil
}

// fit divides units into n micro-batches within tokensMax, nil where it finds no
// way: balanced or, where that is too many tokens, by first fit decreasing,
// which fills and does not balance.
func fit(units []unit, n, tokensMax int) [][]unit {
	if out := balanced(units, n, tokensMax); out != nil {
		return out
	}
	out := firstFit(units, tokensMax)
	if len(out) > n {
		return nil
	}
	return spread(out, n)
}

// balanced divides units into n micro-batches by cost or, where that is too many
// tokens, by tokens; nil where neither is within tokensMax.
func balanced(units []unit, n, tokensMax int) [][]unit {
	for _, weight := range []func(unit) float64{
		func(u unit) float64 { return u.cost },
		func(u unit) float64 { return float64(u.tokens) },
	} {
		weights := make([]float64, len(units))
		for i := range units {
			weights[i] = weight(units[i])
		}
		out := make([][]unit, n)
		for i, part := range partition(weights, n) {
			out[part] = append(out[part], units[i])
		}
		if within(out, tokensMax) {
			return out
		}
	}
	return nil
}

// within reports whether no micro-batch is empty or has more than tokensMax tokens.
func within(parts [][]unit, tokensMax int) bool {
	for _, part := range parts {
		tokens := 0
		for i := range part {
			tokens += part[i].tokens
		}
		if len(part) == 0 || tokensMax > 0 && tokens > tokensMax {
			return false
		}
	}
	return true
}

// firstFit puts each unit, the longest first, into the first micro-batch with room.
func firstFit(units []unit, tokensMax int) [][]unit {
	order := slices.Clone(units)
	slices.SortStableFunc(order, func(a, b unit) int { return cmp.Compare(b.tokens, a.tokens) })
	var out [][]unit
	var room []int
	for _, u := range order {
		at := slices.IndexFunc(room, func(left int) bool { return left >= u.tokens })
		if at < 0 {
			at, out, room = len(out), append(out, nil), append(room, tokensMax)
		}
		out[at] = append(out[at], u)
		room[at] -= u.tokens
	}
	return out
}

// spread divides the micro-batch with most units until there are n.
func spread(parts [][]unit, n int) [][]unit {
	for len(parts) < n {
		most := 0
		for i := range parts {
			if len(parts[i]) > len(parts[most]) {
				most = i
			}
		}
		half := len(parts[most]) / 2
		if half == 0 {
			break // one each
		}
		parts = append(parts, parts[most][half:])
		parts[most] = parts[most][:half:half]
	}
	return parts
}

// divide packs a rank again into as many micro-batches as others have.
func divide(units []unit, packed [][]unit, number, tokensMax int) [][]unit {
	number = min(number, len(units))
	if out := fit(units, number, tokensMax); out != nil {
		return out
	}
	return spread(packed, number)
}

// batches puts micro-batches in order, the most expensive first.
func batches(parts [][]unit) []Batch {
	out := make([]Batch, len(parts))
	for i, part := range parts {
		b := &out[i]
		for _, u := range part {
			b.Samples = append(b.Samples, u.samples...)
			b.Tokens += u.tokens
			b.Cost += u.cost
		}
		slices.SortFunc(b.Samples, func(x, y Sample) int {
			return cmp.Or(cmp.Compare(x.Group, y.Group), cmp.Compare(x.Sample, y.Sample))
		})
	}
	slices.SortStableFunc(out, func(a, b Batch) int { return cmp.Compare(b.Cost, a.Cost) })
	return out
}
