package bias

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"
)

// kolmogorov returns the probability of a distance at least this large between
// two samples of n and m independent values of one distribution: the asymptotic
// law with Stephens' correction for small samples. It is conservative for values
// in bins.
func kolmogorov(d, n, m float64) float64 {
	if n <= 0 || m <= 0 || d <= 0 {
		return 1
	}
	root := math.Sqrt(n * m / (n + m))
	lambda := (root + 0.12 + 0.11/root) * d
	if lambda < 0.2 {
		return 1 // the series converges too slowly, to 1
	}
	p, sign := 0.0, 1.0
	for k := 1.0; k <= 100; k++ {
		term := math.Exp(-2 * k * k * lambda * lambda)
		p += 2 * sign * term
		if term < 1e-12 {
			break
		}
		sign = -sign
	}
	return min(max(p, 0), 1)
}

// share is one cell of a comparison: groups started and, of them, trained.
type share struct {
	started, trained int64
}

// cellMin is the expected count below which the chi-square law fails for a cell.
const cellMin = 5

// homogeneity tests whether one share of the groups of every cell was trained:
// Pearson's chi-square of the table of trained and untrained. Cells with an
// expected count below 5 are pooled, the smallest first. It returns the degrees of
// freedom left, 0 for no test, and how many cells were pooled.
func homogeneity(cells []share) (chi2 float64, df, pooled int, p float64) {
	var all share
	var kept []share
	for _, c := range cells {
		all.started += c.started
		all.trained += c.trained
		if c.started > 0 {
			kept = append(kept, c)
		}
	}
	rate := float64(all.trained) / math.Max(float64(all.started), 1)
	least := math.Min(rate, 1-rate)
	if len(kept) < 2 || least <= 0 {
		return 0, 0, 0, 1
	}
	slices.SortStableFunc(kept, func(a, b share) int { return int(min(max(b.started-a.started, -1), 1)) })
	for len(kept) > 1 && float64(kept[len(kept)-1].started)*least < cellMin {
		last := kept[len(kept)-1]
		kept = kept[:len(kept)-1]
		kept[len(kept)-1].started += last.started
		kept[len(kept)-1].trained += last.trained
		pooled = cmp.Or(pooled, 1)
		pooled++
		// The pool is larger than its neighbour at most; it stays last until it is large enough.
	}
	if len(kept) < 2 {
		return 0, 0, pooled, 1
	}
	for _, c := range kept {
		n := float64(c.started)
		diff := float64(c.trained) - rate*n
		chi2 += diff * diff / (n * rate * (1 - rate))
	}
	df = len(kept) - 1
	return chi2, df, pooled, distuv.ChiSquared{K: float64(df)}.Survival(chi2)
}

// Intervals rest on batches of steps: as many as this, at least the fewest.
const (
	batchesMax    = 20
	batchesFewest = 8
)

// jackknife estimates a function of sums over correlated steps: it leaves out one
// batch after the other and returns the estimate over all, and the half width of
// its 95 % interval by Student's law. It is NaN for fewer than 8 batches. Steps are
// correlated; batches of many hardly are.
func jackknife(batches []block, estimate func(*block) float64) (value, half float64) {
	var all block
	for i := range batches {
		all.add(&batches[i])
	}
	value = estimate(&all)
	n := len(batches)
	if n < batchesFewest {
		return value, math.NaN()
	}
	without := make([]float64, n)
	mean := 0.0
	for i := range batches {
		rest := all
		rest.subtract(&batches[i])
		without[i] = estimate(&rest)
		mean += without[i] / float64(n)
	}
	sum := 0.0
	for _, v := range without {
		sum += (v - mean) * (v - mean)
	}
	deviation := math.Sqrt(sum * float64(n-1) / float64(n))
	return value, deviation * distuv.StudentsT{Sigma: 1, Nu: float64(n - 1)}.Quantile(0.975)
}
