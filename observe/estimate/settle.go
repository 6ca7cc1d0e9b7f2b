package estimate

import (
	"math"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Cause says why a mean has not settled.
type Cause uint8

// Causes.
const (
	// Settled: nothing speaks against the mean.
	Settled Cause = iota
	// Short: the series has too few values to tell anything.
	Short
	// Transient: the beginning of the series differs from its rest.
	Transient
	// Trend: the series drifts from its beginning to its end.
	Trend
	// Correlated: the series remembers itself for so long that it holds too few
	// independent values.
	Correlated
)

// The evidence that a verdict needs.
const (
	// ValuesMin is how many values are the least that can show anything.
	ValuesMin = 20
	// IndependentMin is how many independent values a mean should rest on.
	IndependentMin = 16
	// tolerance is the share of the scale that a drift may reach over the series
	// before it counts; half of it is what a transient may move the mean by, and how
	// wide an interval may be without enough independent values.
	tolerance = 0.02
	// significance is the level of each test against drift: a sound series is
	// refused once in some hundreds.
	significance = 0.001
)

// Settling says whether a mean has settled.
type Settling struct {
	// Cause is Settled, or why not.
	Cause Cause
	// Interval of the mean, with or without: that of [OfSeries], widened where
	// Independent is low.
	Interval Interval
	// Drift is by how much the series moved from its beginning to its end, as a
	// line through it says; its unit is the series'.
	Drift float64
	// Independent is how many independent values would have a mean as uncertain:
	// the number of values over their autocorrelation time. Infinite for a constant
	// series.
	Independent float64
	// More is how many further values it should take until the mean settles, by
	// what the series shows; NaN where it shows no end.
	More float64
}

// OK reports whether the mean has settled.
func (v Settling) OK() bool { return v.Cause == Settled }

// SettlingOf says whether the mean of a series has settled. A drift is measured by scale, 0 for the
// magnitude of the mean: a drift of less than 2 % of it passes, against every test. A mean has not
// settled
//
//   - with less than 20 values;
//   - if a line through the batch means has a slope that is not chance (Student's
//     t at 0.1 %, widened by the residuals' correlation);
//   - if the first tenth, quarter or half differs beyond chance from the rest
//     (Geweke 1992, with batch means) and moves the mean by over 1 %;
//   - if the series holds less than 16 independent values and its interval is
//     wider than 1 % of the scale to either side.
//
// Independent values are counted from the series' autocorrelation alone, not from the
// interval's width, or else narrow intervals would be let pass for being narrow. The
// autocorrelation of a short series is underestimated as the interval is, though: where
// 16 are counted, there may be 8. So the interval is widened by 1 + (16/Independent)²,
// to twice its width at 16 and by 4 % at 80.
func SettlingOf(x []float64, scale float64) Settling {
	v := Settling{Interval: OfSeries(x), More: math.NaN()}
	n := len(x)
	if n < ValuesMin {
		v.Cause, v.More = Short, float64(ValuesMin-n)
		return v
	}
	if scale == 0 {
		scale = math.Abs(v.Interval.Mean)
	}
	slope := trendOf(x)
	v.Drift = slope.drift
	v.Independent = independent(x, v.Interval)
	few := IndependentMin / v.Independent
	v.Interval.Half *= 1 + few*few
	transient := transientOf(x)
	switch {
	case slope.significant && math.Abs(slope.drift) > tolerance*scale:
		v.Cause, v.More = Trend, untilFlat(x, tolerance*scale/2)
	case math.Abs(transient) > tolerance/2*scale:
		v.Cause, v.More = Transient, float64(n)
	case v.Independent < IndependentMin && v.Interval.Half > tolerance/2*scale && slope.explains > 0.5:
		v.Cause, v.More = Trend, untilFlat(x, tolerance*scale/2)
	case v.Independent < IndependentMin && v.Interval.Half > tolerance/2*scale:
		v.Cause = Correlated
		v.More = math.Max(float64(n)*(1.5*IndependentMin/math.Max(v.Independent, 1)-1), float64(n)/2)
	}
	return v
}

// independent is how many independent values a series is worth: the number of values
// over their autocorrelation time.
func independent(x []float64, v Interval) float64 {
	if !(stat.Variance(x, nil) > 0) || v.Half == 0 {
		return math.Inf(1)
	}
	return float64(len(x)) / memory(x)
}

// memoryValues bounds the values that memory looks at, so that its cost does not
// grow with the square of a long series.
const memoryValues = 4096

// memory is the integrated autocorrelation time in values: 1 + 2·Σ of the
// autocorrelations, summed in pairs of lags while those are positive (Geyer's
// initial positive sequence, 1992); at least 1.
func memory(x []float64) float64 {
	size := (len(x) + memoryValues - 1) / memoryValues
	x = batchMeans(x, len(x)/size)
	n := len(x)
	mean := stat.Mean(x, nil)
	at := func(lag int) float64 {
		sum := 0.0
		for i := lag; i < n; i++ {
			sum += (x[i] - mean) * (x[i-lag] - mean)
		}
		return sum / float64(n)
	}
	first := at(0)
	if !(first > 0) {
		return 1
	}
	time := -1.0
	for lag := 0; lag+1 < n/2; lag += 2 {
		pair := (at(lag) + at(lag+1)) / first
		if pair <= 0 {
			break
		}
		time += 2 * pair
	}
	// The mean was taken from the series itself, which takes about time/n off every
	// coefficient.
	time *= 1 + math.Min(2*time/float64(n), 1)
	return math.Max(time*float64(size), 1)
}

// trend is a line through a series.
type trend struct {
	drift       float64 // from one end to the other
	explains    float64 // the share of the batch means' variance that is the line's
	significant bool
}

// trendOf fits a line to the batch means, in longer and longer batches until what
// the line leaves is not correlated.
func trendOf(x []float64) trend {
	for count := min(BatchesMax, len(x)); ; count = max(count/2, BatchesMin) {
		means := batchMeans(x, count)
		k := float64(count)
		at := make([]float64, count)
		for i := range at {
			at[i] = float64(i)
		}
		intercept, slope := stat.LinearRegression(at, means, nil, false)
		sum, all := 0.0, stat.Variance(means, nil)*(k-1)
		for i := range means {
			means[i] -= intercept + slope*at[i]
			sum += means[i] * means[i]
		}
		t := trend{drift: slope * k, explains: 1 - sum/math.Max(all, math.SmallestNonzeroFloat64)}
		if !(sum > 1e-24*t.drift*t.drift*k) { // all on the line
			t.significant = slope != 0
			return t
		}
		variance := sum / (k - 2)
		r := lag1(means, 0, variance) + 2/k // two parameters were fitted
		left := math.Min(math.Max(r, 0), lag1Max)
		deviation := k * math.Sqrt(variance*12/(k*(k*k-1))*(1+left)/(1-left))
		t.significant = math.Abs(t.drift) > tailT(k-2)*deviation
		if r <= vonNeumannZ*math.Sqrt((k-2)/(k*k-1)) || count == BatchesMin {
			return t
		}
	}
}

// tailT is the quantile of Student's t for a two-sided test.
func tailT(freedom float64) float64 {
	return distuv.StudentsT{Sigma: 1, Nu: freedom}.Quantile(1 - significance/2)
}

// transientOf is by how much the first tenth, quarter or half of a series moves its
// mean, where that part differs from the rest by more than chance: the largest such
// effect; 0 for none. The part's own error is taken from the rest's, since a
// transient would widen it.
func transientOf(x []float64) float64 {
	largest := 0.0
	for _, share := range []int{10, 4, 2} {
		cut := len(x) / share
		rest := OfSeries(x[cut:])
		if cut == 0 || !rest.Known() {
			continue
		}
		freedom := float64(rest.Batches - 1)
		deviation := rest.Half / quantileT(freedom) * math.Sqrt(1+float64(len(x)-cut)/float64(cut))
		difference := stat.Mean(x[:cut], nil) - rest.Mean
		effect := difference * float64(cut) / float64(len(x))
		if math.Abs(difference) > tailT(freedom)*deviation && math.Abs(effect) > math.Abs(largest) {
			largest = effect
		}
	}
	return largest
}

// untilFlat extrapolates a series that approaches its end value ever more slowly:
// how many further values until it would move by less than the tolerance over as
// many as there are. NaN where it does not slow down.
func untilFlat(x []float64, tolerance float64) float64 {
	n := len(x)
	third := n / 3
	mean := func(part []float64) float64 { return stat.Mean(part, nil) }
	a, b, c := mean(x[:third]), mean(x[third:2*third]), mean(x[2*third:])
	first, second := math.Abs(b-a), math.Abs(c-b)
	if !(second < 0.9*first) || (b-a)*(c-b) < 0 {
		return math.NaN()
	}
	decay := math.Log(first/second) / float64(third) // per value
	left := second * first / (first - second)        // the rest of a geometric approach
	return math.Max(math.Log(math.Max(left/tolerance, 1))/decay, float64(n)/2)
}
