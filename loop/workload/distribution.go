package workload

import (
	"fmt"
	"math"
	"sort"
)

// Distribution is a discrete probability distribution over ascending values.
// It is how this package hands out exact capped, rounded lengths and
// discretised times. The zero Distribution has no values; build one with
// [NewDistribution]. It is immutable.
type Distribution struct {
	values []float64
	probs  []float64
	cum    []float64 // cum[i] = P(X <= values[i]); the last is exactly 1
}

// NewDistribution builds a distribution from values in any order and their
// weights. Equal values are merged and weights are normalised to sum to one.
// It is an error if there is no value, a value is not finite, or a weight is
// negative or all are zero.
func NewDistribution(values, weights []float64) (Distribution, error) {
	if len(values) == 0 || len(values) != len(weights) {
		return Distribution{}, fmt.Errorf("distribution: %d values with %d weights: want as many of each, at least one", len(values), len(weights))
	}
	order := make([]int, len(values))
	total := 0.0
	for i := range order {
		order[i] = i
		if !finite(values[i]) || !finite(weights[i]) || weights[i] < 0 {
			return Distribution{}, fmt.Errorf("distribution: entry %d is value %v with weight %v: want finite numbers and no negative weight", i, values[i], weights[i])
		}
		total += weights[i]
	}
	if !(total > 0) || math.IsInf(total, 0) {
		return Distribution{}, fmt.Errorf("distribution: weights sum to %v: want a positive sum", total)
	}
	sort.SliceStable(order, func(a, b int) bool { return values[order[a]] < values[order[b]] })
	var d Distribution
	for _, i := range order {
		if n := len(d.values); n > 0 && d.values[n-1] == values[i] {
			d.probs[n-1] += weights[i] / total
			continue
		}
		d.values = append(d.values, values[i])
		d.probs = append(d.probs, weights[i]/total)
	}
	return d.accumulated(), nil
}

// ascending wraps values that are already ascending and distinct, with
// probabilities that sum to one up to rounding.
func ascending(values, probs []float64) Distribution {
	return Distribution{values: values, probs: probs}.accumulated()
}

// accumulated fills the cumulative sums.
func (d Distribution) accumulated() Distribution {
	d.cum = make([]float64, len(d.probs))
	sum := 0.0
	for i, p := range d.probs {
		sum += p
		d.cum[i] = min(sum, 1)
	}
	d.cum[len(d.cum)-1] = 1
	return d
}

// Len returns the number of distinct values.
func (d Distribution) Len() int { return len(d.values) }

// At returns the i-th smallest value and its probability, i in [0, Len).
func (d Distribution) At(i int) (value, prob float64) { return d.values[i], d.probs[i] }

// Mean returns E[X].
func (d Distribution) Mean() float64 {
	sum := 0.0
	for i, v := range d.values {
		sum += v * d.probs[i]
	}
	return sum
}

// MeanSquare returns E[X²].
func (d Distribution) MeanSquare() float64 {
	sum := 0.0
	for i, v := range d.values {
		sum += v * v * d.probs[i]
	}
	return sum
}

// CDF returns P(X <= x).
func (d Distribution) CDF(x float64) float64 {
	i := sort.Search(len(d.values), func(i int) bool { return d.values[i] > x })
	if i == 0 {
		return 0
	}
	return d.cum[i-1]
}

// ScaledCDF returns P(f·X <= x) for a positive f: that of Scale(f), without making it.
func (d Distribution) ScaledCDF(f, x float64) float64 {
	i := sort.Search(len(d.values), func(i int) bool { return d.values[i]*f > x })
	if i == 0 {
		return 0
	}
	return d.cum[i-1]
}

// Quantile returns the smallest value x with P(X <= x) >= p. It clamps p to [0, 1], so that 0 gives
// the least and 1 the greatest value.
func (d Distribution) Quantile(p float64) float64 {
	i := sort.SearchFloat64s(d.cum, p)
	return d.values[min(i, len(d.values)-1)]
}

// Max returns the distribution of the largest of n independent draws, by
// F^n. n below 1 counts as 1.
func (d Distribution) Max(n int) Distribution {
	if n <= 1 {
		return d
	}
	probs := make([]float64, len(d.probs))
	below := 0.0
	for i, f := range d.cum {
		at := math.Pow(f, float64(n))
		probs[i] = at - below
		below = at
	}
	return ascending(d.values, probs)
}

// MeanMax returns E[largest of n independent draws] = Σ v·(F(v)^n − F(v−)^n),
// which for whole numbers is Σ_{k>=0} 1 − F(k)^n.
func (d Distribution) MeanMax(n int) float64 {
	if n <= 1 {
		return d.Mean()
	}
	sum, below := 0.0, 0.0
	for i, f := range d.cum {
		at := math.Pow(f, float64(n))
		sum += d.values[i] * (at - below)
		below = at
	}
	return sum
}

// MeanMaxSum returns E[max · sum] over n independent draws, which is
// n·E[X₁·max(X₁, Y)] with Y the largest of the other n−1.
func (d Distribution) MeanMaxSum(n int) float64 {
	if n <= 1 {
		return d.MeanSquare()
	}
	rest := d.Max(n - 1)
	above := 0.0 // Σ over y > v of y·P(Y = y)
	sum := 0.0
	for i := len(d.values) - 1; i >= 0; i-- {
		v := d.values[i]
		sum += d.probs[i] * v * (v*rest.cum[i] + above)
		above += v * rest.probs[i]
	}
	return float64(n) * sum
}

// Scale returns the distribution of f·X for a positive f.
func (d Distribution) Scale(f float64) Distribution {
	values := make([]float64, len(d.values))
	for i, v := range d.values {
		values[i] = v * f
	}
	return Distribution{values: values, probs: d.probs, cum: d.cum}
}

// thinned returns a distribution of at most about 2·limit values with the same
// mean: neighbours are merged into their conditional mean, in cells that get
// finer towards the upper tail, because the largest of n draws lives there. The
// last 1e-7 of probability is not resolved further.
func (d Distribution) thinned(limit int) Distribution {
	if len(d.values) <= limit {
		return d
	}
	var values, probs []float64
	weight, moment := 0.0, 0.0
	for i, v := range d.values {
		weight += d.probs[i]
		moment += d.probs[i] * v
		left := 1 - d.cum[i]
		cell := min(2, max(8*left, 1e-7*float64(limit))) / float64(limit)
		if weight >= cell || (i == len(d.values)-1 && weight > 0) {
			values, probs = append(values, moment/weight), append(probs, weight)
			weight, moment = 0, 0
		}
	}
	return ascending(values, probs)
}
