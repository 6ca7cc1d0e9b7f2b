package bias

import "math/bits"

// binsPerOctave and bins make the histogram of a positive whole number: exact
// below 64, then 32 bins to every doubling, up to 2^40. Coarser bins would make the test
// of their distributions find less.
const (
	binsPerOctave = 32
	bins          = binsPerOctave * 36
)

// binOf returns the bin of a value: about 32·log2 of it.
func binOf(v int64) int {
	if v < binsPerOctave {
		return int(max(v, 0))
	}
	octave := bits.Len64(uint64(v)) - 6 // v>>octave is in [32, 64)
	return min(binsPerOctave*octave+int(v>>octave), bins-1)
}

// binLow returns the least value of a bin.
func binLow(bin int) int64 {
	if bin < 2*binsPerOctave {
		return int64(bin)
	}
	octave := bin/binsPerOctave - 1
	return int64(bin-binsPerOctave*octave) << octave
}

type histogram [bins]int64

func (h *histogram) total() int64 {
	n := int64(0)
	for _, c := range h {
		n += c
	}
	return n
}

// distance is the largest difference of two cumulative distributions, 0 if
// either is empty.
func distance(a, b *histogram) float64 {
	na, nb := a.total(), b.total()
	if na == 0 || nb == 0 {
		return 0
	}
	d, sumA, sumB := 0.0, int64(0), int64(0)
	for i := range a {
		sumA += a[i]
		sumB += b[i]
		diff := float64(sumA)/float64(na) - float64(sumB)/float64(nb)
		d = max(d, diff, -diff)
	}
	return d
}
