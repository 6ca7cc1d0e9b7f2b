package workload

import (
	"math"
	"math/bits"
	"testing"
)

// chiSquareLimit is the 1 − 1e-6 quantile of a chi-square with k degrees of
// freedom (Wilson and Hilferty's cube). The draws are fixed by their seeds, so
// a failure means a worse generator, not bad luck.
func chiSquareLimit(k float64) float64 {
	const z = 4.7534
	c := 2 / (9 * k)
	return k * math.Pow(1-c+z*math.Sqrt(c), 3)
}

func chiSquare(counts []int, expected []float64) (statistic, freedom float64) {
	for i, n := range counts {
		d := float64(n) - expected[i]
		statistic += d * d / expected[i]
	}
	return statistic, float64(len(counts) - 1)
}

func TestSourceIsAFunctionOfItsKey(t *testing.T) {
	a, b := NewSource(7, StreamLength), NewSource(7, StreamLength)
	var forward, backward [64]uint64
	for i := range forward {
		forward[i] = a.Bits(uint64(i/8), uint32(i%8), 1)
	}
	for i := len(backward) - 1; i >= 0; i-- {
		backward[i] = b.Bits(uint64(i/8), uint32(i%8), 1)
	}
	if forward != backward {
		t.Fatal("draws depend on the order of calls")
	}
}

// TestSourceSeparatesItsArguments: changing any one of seed, stream, group,
// sample and attempt gives another draw, over a block of small values, where
// weak keyed hashes collide.
func TestSourceSeparatesItsArguments(t *testing.T) {
	seen := map[uint64][5]uint32{}
	for seed := range uint32(4) {
		for stream := range uint32(4) {
			src := NewSource(uint64(seed), Stream(stream))
			for group := range uint32(64) {
				for sample := range uint32(16) {
					for attempt := range uint32(4) {
						key := [5]uint32{seed, stream, group, sample, attempt}
						bits := src.Bits(uint64(group), sample, attempt)
						if other, ok := seen[bits]; ok {
							t.Fatalf("draws of %v and %v are equal", key, other)
						}
						seen[bits] = key
					}
				}
			}
		}
	}
}

// TestSourceIsUniform counts the draws of consecutive groups and samples in
// cells taken from either end of the word.
func TestSourceIsUniform(t *testing.T) {
	const cells, draws = 1 << 10, 1 << 19
	for _, shift := range []int{0, 27, 54} {
		counts := make([]int, cells)
		expected := make([]float64, cells)
		src := NewSource(1, StreamLength)
		for i := range draws {
			counts[src.Bits(uint64(i/8), uint32(i%8), 1)>>shift%cells]++
		}
		for i := range expected {
			expected[i] = draws / cells
		}
		if x, k := chiSquare(counts, expected); x > chiSquareLimit(k) {
			t.Errorf("shift %d: chi-square %.1f above %.1f", shift, x, chiSquareLimit(k))
		}
	}
}

// TestSourceNeighboursAreIndependent counts pairs of draws that differ by one
// in a single argument in a two-dimensional table.
func TestSourceNeighboursAreIndependent(t *testing.T) {
	const side, draws = 32, 1 << 19
	base := NewSource(3, StreamLength)
	neighbours := map[string]func(i int) uint64{
		"group":   func(i int) uint64 { return base.Bits(uint64(i)+1, 2, 1) },
		"sample":  func(i int) uint64 { return base.Bits(uint64(i), 3, 1) },
		"attempt": func(i int) uint64 { return base.Bits(uint64(i), 2, 2) },
		"seed":    func(i int) uint64 { return NewSource(4, StreamLength).Bits(uint64(i), 2, 1) },
		"stream":  func(i int) uint64 { return NewSource(3, StreamEnvironment).Bits(uint64(i), 2, 1) },
	}
	for name, neighbour := range neighbours {
		counts := make([]int, side*side)
		expected := make([]float64, side*side)
		for i := range draws {
			a, b := base.Bits(uint64(i), 2, 1)>>59, neighbour(i)>>59
			counts[a*side+b]++
		}
		for i := range expected {
			expected[i] = draws / (side * side)
		}
		if x, k := chiSquare(counts, expected); x > chiSquareLimit(k) {
			t.Errorf("neighbouring %s: chi-square %.1f above %.1f", name, x, chiSquareLimit(k))
		}
	}
}

// TestMixAvalanches: flipping one input bit moves each output bit in nearly
// half of the cases.
func TestMixAvalanches(t *testing.T) {
	const inputs = 4096
	src := NewSource(5, StreamLength)
	for in := range 64 {
		var flips [64]int
		for i := range uint64(inputs) {
			x := src.Bits(i, 0, 0)
			diff := mix(x) ^ mix(x^1<<in)
			for ; diff != 0; diff &= diff - 1 {
				flips[bits.TrailingZeros64(diff)]++
			}
		}
		for out, n := range flips {
			// 6 standard deviations of a fair coin are 6·√4096/2 = 192.
			if n < inputs/2-192 || n > inputs/2+192 {
				t.Errorf("input bit %d moves output bit %d in %d of %d cases", in, out, n, inputs)
			}
		}
	}
}

func TestFloat64StaysInside(t *testing.T) {
	for _, bits := range []uint64{0, 1, math.MaxUint64} {
		if u := unit(bits); !(u > 0 && u < 1) {
			t.Errorf("unit(%#x) = %v, want strictly between 0 and 1", bits, u)
		}
	}
}
