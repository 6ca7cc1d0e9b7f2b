package soak

import (
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
)

// Range is the seeds from the first to the last, both of them included.
type Range [2]uint64

// Ranges are seeds: ranges in order, which neither overlap nor touch.
type Ranges []Range

// Parse reads seeds as a user writes them: 7, 1-100, or 1-10,20-30.
func Parse(text string) (Ranges, error) {
	var all Ranges
	for part := range strings.SplitSeq(text, ",") {
		low, high, two := strings.Cut(strings.TrimSpace(part), "-")
		if !two {
			high = low
		}
		first, err := strconv.ParseUint(low, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%q is no seed: want a number, a range such as 1-100, or several of them with commas", part)
		}
		last, err := strconv.ParseUint(high, 10, 64)
		if err != nil || last < first || last == ^uint64(0) {
			return nil, fmt.Errorf("%q is no range of seeds: want the lowest seed, a hyphen and the highest, such as 1-100", part)
		}
		all.addRange(Range{first, last})
	}
	return all, nil
}

// String writes the ranges as Parse reads them.
func (r Ranges) String() string {
	parts := make([]string, len(r))
	for i, p := range r {
		if parts[i] = strconv.FormatUint(p[0], 10); p[1] > p[0] {
			parts[i] += "-" + strconv.FormatUint(p[1], 10)
		}
	}
	return strings.Join(parts, ",")
}

// Add adds one seed.
func (r *Ranges) Add(seed uint64) { r.addRange(Range{seed, seed}) }

func (r *Ranges) addRange(added Range) {
	at, _ := slices.BinarySearchFunc(*r, added, func(have, want Range) int {
		if have[1]+1 < want[0] {
			return -1
		}
		return 1
	})
	to := at
	for to < len(*r) && (*r)[to][0] <= added[1]+1 {
		added = Range{min(added[0], (*r)[to][0]), max(added[1], (*r)[to][1])}
		to++
	}
	*r = slices.Replace(*r, at, to, added)
}

// Has reports whether a seed is among them.
func (r Ranges) Has(seed uint64) bool {
	_, found := slices.BinarySearchFunc(r, seed, func(have Range, want uint64) int {
		switch {
		case have[1] < want:
			return -1
		case have[0] > want:
			return 1
		}
		return 0
	})
	return found
}

// Len counts the seeds.
func (r Ranges) Len() int64 {
	n := int64(0)
	for _, p := range r {
		n += int64(p[1] - p[0] + 1)
	}
	return n
}

// Without iterates over the seeds that are not among others, in order.
func (r Ranges) Without(others Ranges) iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		for _, p := range r {
			for seed := p[0]; seed <= p[1]; seed++ {
				if !others.Has(seed) && !yield(seed) {
					return
				}
			}
		}
	}
}

// Left counts the seeds that are not among others.
func (r Ranges) Left(others Ranges) int64 {
	n := r.Len()
	for _, p := range r {
		for _, o := range others {
			if low, high := max(p[0], o[0]), min(p[1], o[1]); low <= high {
				n -= int64(high - low + 1)
			}
		}
	}
	return n
}
