package estimate

import (
	"math"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Level is the confidence level of every interval.
const Level = 0.95

// Sizes of batch means.
const (
	// BatchesMax is how many batches a series is cut into at first, and
	// BatchesMin how few are still worth an interval.
	BatchesMax, BatchesMin = 32, 8
)

// Interval is a mean with what it is worth.
type Interval struct {
	// Mean of the series, in its unit.
	Mean float64
	// Half is half the width of the 95 % confidence interval around Mean; NaN
	// where the series is too short for one.
	Half float64
	// Batches is how many batch means the interval rests on, of BatchSize
	// values each; for seeds, how many seeds, of 1. 0 where there is no interval.
	Batches, BatchSize int
	// Lag1 is the autocorrelation of neighbouring batch means, corrected for
	// its bias in short series; 0 for seeds.
	Lag1 float64
	// Independent says that the batches are long enough: von Neumann's test
	// does not find neighbouring ones alike.
	Independent bool
}

// Low is the lower end of the interval.
func (i Interval) Low() float64 { return i.Mean - i.Half }

// High is the upper end of the interval.
func (i Interval) High() float64 { return i.Mean + i.Half }

// Known reports whether there is an interval at all.
func (i Interval) Known() bool { return i.Batches > 0 }

// OfSeeds is the mean of independent values, such as one mean a seed. Its interval is by Student's
// t with one degree of freedom less than there are values. Two values are the least that have an
// interval.
func OfSeeds(values []float64) Interval {
	if len(values) == 0 {
		return Interval{Mean: math.NaN(), Half: math.NaN()}
	}
	mean, sd := stat.MeanStdDev(values, nil)
	if len(values) < 2 {
		return Interval{Mean: mean, Half: math.NaN()}
	}
	k := float64(len(values))
	return Interval{Mean: mean, Half: quantileT(k-1) * sd / math.Sqrt(k), Batches: len(values), BatchSize: 1, Independent: true}
}

// quantileT is the upper quantile of Student's t that Level leaves out half of.
func quantileT(freedom float64) float64 {
	return distuv.StudentsT{Sigma: 1, Nu: freedom}.Quantile((1 + Level) / 2)
}

// OfSeries is the mean of a correlated, stationary series by batch means. The series is cut into
// batches of equal length, whose means are hardly correlated where batches are long against the
// series' memory. Batches are doubled in length, from a 32nd of the series on, until von Neumann's
// test at 5 % no longer finds neighbouring means alike. If only 8 are left before that, Independent
// is false. Correlation that remains widens the interval as that of a first-order autoregression,
// by (1+r)/(1-r) in variance with r = Lag1 where that is positive. (Law and Carson 1979; the test
// and the correction are as in Tafazzoli, Steiger and Wilson's Skart, 2011.) Fewer than 8 values
// have no interval.
func OfSeries(x []float64) Interval {
	return OfRatio(x, nil)
}

// OfRatio is the ratio of the sums of two correlated series, such as idle time
// over time: a mean weighted by den. Its interval is that of the series
// num - ratio·den over den's mean, the linearisation of the ratio, by OfSeries.
// With den nil every weight is 1. A den that sums to 0 has no ratio: NaN.
func OfRatio(num, den []float64) Interval {
	n := len(num)
	weight := func(i int) float64 { return 1 }
	if den != nil {
		weight = func(i int) float64 { return den[i] }
	}
	// Sums are of what differs from the first ratio, so that a constant has itself as mean.
	first, sum, weights := 0.0, 0.0, 0.0
	if n > 0 && weight(0) != 0 {
		first = num[0] / weight(0)
	}
	for i := range num {
		sum += num[i] - first*weight(i)
		weights += weight(i)
	}
	if n == 0 || weights == 0 {
		return Interval{Mean: math.NaN(), Half: math.NaN()}
	}
	ratio := first + sum/weights
	if n < BatchesMin {
		return Interval{Mean: ratio, Half: math.NaN()}
	}
	residuals := make([]float64, n)
	for i := range residuals {
		residuals[i] = (num[i] - ratio*weight(i)) * float64(n) / weights
	}
	v := ofResiduals(residuals)
	v.Mean = ratio
	return v
}

// ofResiduals is the interval around the mean of a series whose mean is about 0.
func ofResiduals(x []float64) Interval {
	var v Interval
	for count := min(BatchesMax, len(x)); ; count = max(count/2, BatchesMin) {
		means := batchMeans(x, count)
		v = intervalOf(means)
		v.BatchSize = len(x) / count
		if v.Independent || count == BatchesMin {
			return v
		}
	}
}

// batchMeans cuts a series into so many batches of equal length; what does not
// fill one is left out at the beginning, which is the likelier to be unlike the rest.
func batchMeans(x []float64, count int) []float64 {
	size := len(x) / count
	x = x[len(x)-size*count:]
	means := make([]float64, count)
	for b := range means {
		for _, v := range x[b*size : (b+1)*size] {
			means[b] += v / float64(size)
		}
	}
	return means
}

// intervalOf is the interval that batch means make.
func intervalOf(means []float64) Interval {
	k := float64(len(means))
	mean, variance := stat.MeanVariance(means, nil)
	v := Interval{Batches: len(means), Independent: true}
	if !(variance > 0) { // all the same: nothing is uncertain
		return v
	}
	r := lag1(means, mean, variance)
	// Under independence the lag-1 coefficient has mean -1/k and about this deviation
	// (von Neumann 1941).
	v.Independent = r+1/k <= vonNeumannZ*math.Sqrt((k-2)/(k*k-1))
	v.Lag1 = r + 1/k
	left := math.Min(math.Max(v.Lag1, 0), lag1Max)
	v.Half = quantileT(k-1) * math.Sqrt(variance/k*(1+left)/(1-left))
	return v
}

// vonNeumannZ is the normal quantile of a one-sided test at 5 %; lag1Max bounds
// the correction, which has nothing to rest on where batch means are all but equal.
const (
	vonNeumannZ = 1.6449
	lag1Max     = 0.9
)

// lag1 is the autocorrelation of neighbours.
func lag1(x []float64, mean, variance float64) float64 {
	sum := 0.0
	for i := 1; i < len(x); i++ {
		sum += (x[i] - mean) * (x[i-1] - mean)
	}
	return sum / (variance * float64(len(x)-1))
}
