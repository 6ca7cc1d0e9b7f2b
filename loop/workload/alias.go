package workload

import (
	"math"
	"math/bits"
)

// alias draws from a discrete distribution in constant time: one table cell is
// chosen uniformly, then one of the cell's two values by a threshold
// (Walker 1977, Vose 1991). The zero alias is not usable.
type alias struct {
	cells []aliasCell
	// firsts are the first values of the cells; nil where that of cell i is low+i, so that
	// the table is as small as can be: it is read at random, and fits no inner cache.
	firsts []uint32
	low    uint32
}

// aliasCell holds a cell's second value itself rather than its index, so that a draw
// touches one cache line.
type aliasCell struct {
	threshold uint32 // the cell's first value is taken when the 32-bit fraction is below it
	second    uint32
}

// draw maps 64 uniform bits to a value. The high half of bits·len chooses the
// cell, the low half is the fraction within it.
func (a *alias) draw(random uint64) uint32 {
	cell, fraction := bits.Mul64(random, uint64(len(a.cells)))
	first := a.low + uint32(cell)
	if a.firsts != nil {
		first = a.firsts[cell]
	}
	c := &a.cells[cell]
	value := c.second
	if uint32(fraction>>32) < c.threshold {
		value = first // a conditional move: both are at hand, as a guess would be wrong too often
	}
	return value
}

// newAlias builds the table of a distribution whose values are whole numbers
// below 2^32. Values of probability zero get no cell. Resolution is 2^-32 of a
// cell, far below what any run can see.
func newAlias(d Distribution) alias {
	var values []uint32
	var scaled []float64
	for i, p := range d.probs {
		if p > 0 {
			values = append(values, uint32(d.values[i]))
			scaled = append(scaled, p)
		}
	}
	n := len(values)
	cells := make([]aliasCell, n)
	small := make([]int, 0, n)
	large := make([]int, 0, n)
	for i := range scaled {
		scaled[i] *= float64(n)
		if scaled[i] < 1 {
			small = append(small, i)
		} else {
			large = append(large, i)
		}
	}
	for len(small) > 0 && len(large) > 0 {
		s, l := small[len(small)-1], large[len(large)-1]
		small = small[:len(small)-1]
		cells[s] = aliasCell{threshold(scaled[s]), values[l]}
		scaled[l] -= 1 - scaled[s]
		if scaled[l] < 1 {
			large = large[:len(large)-1]
			small = append(small, l)
		}
	}
	// What is left differs from a full cell by rounding alone.
	for _, i := range append(small, large...) {
		cells[i] = aliasCell{math.MaxUint32, values[i]}
	}
	for i, v := range values {
		if v != values[0]+uint32(i) {
			return alias{cells: cells, firsts: values}
		}
	}
	return alias{cells: cells, low: values[0]}
}

// threshold scales a probability to the 32-bit fraction of a cell.
func threshold(p float64) uint32 {
	t := math.Round(p * (1 << 32))
	return uint32(min(max(t, 0), math.MaxUint32))
}
