package calibrate

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"
)

// Median is the middle of several values. Low and High are two of the sorted values. Where there are values enough,
// their interval holds the true middle in 95 of 100 cases.
type Median struct {
	Value float64 `json:"median"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
	// Values is how many there were; below 6 the interval is from the least to the greatest and
	// holds the true median in fewer cases.
	Values int `json:"values"`
}

// level is how often an interval is to hold the true median.
const level = 0.95

// MedianOf is the median of values that are independent of each other; there is at least one.
func MedianOf(values []float64) Median {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	m := Median{Value: (sorted[(n-1)/2] + sorted[n/2]) / 2, Values: n}
	coin := distuv.Binomial{N: float64(n), P: 0.5}
	inner := 0
	for 2*(inner+1) < n && 1-2*coin.CDF(float64(inner+1)) >= level {
		inner++
	}
	m.Low, m.High = sorted[inner], sorted[n-1-inner]
	return m
}

// noisyShare is the width of an interval over its median from which on a point counts as noisy.
const noisyShare = 0.2

func (m Median) noisy() bool { return m.Values > 1 && m.High-m.Low > noisyShare*m.Value }

// line is a straight one through points.
type line struct {
	slope, at0          float64
	slopeLow, slopeHigh float64 // the middle half of the slopes between two points
}

// lineThrough takes the median of the slopes between any two points of different x, which single
// outliers do not move (Theil and Sen), and the median of what is left at 0.
func lineThrough(x, y []float64) line {
	var slopes []float64
	for i := range x {
		for j := range i {
			if x[i] != x[j] {
				slopes = append(slopes, (y[i]-y[j])/(x[i]-x[j]))
			}
		}
	}
	if len(slopes) == 0 {
		return line{slope: math.NaN(), at0: math.NaN()}
	}
	slices.Sort(slopes)
	l := line{slope: MedianOf(slopes).Value, slopeLow: slopes[len(slopes)/4], slopeHigh: slopes[len(slopes)*3/4]}
	rest := make([]float64, len(x))
	for i := range x {
		rest[i] = y[i] - l.slope*x[i]
	}
	l.at0 = MedianOf(rest).Value
	return l
}

// kneeElasticity is the share of a further slot's speed that must come through for it to be worth while.
const kneeElasticity = 0.5

// knee is the number of slots beyond which no doubling brings some 1.4 times the tokens (an elasticity
// of 0.5), 0 where the last one does. A single step that brings less, before one that brings more, is none.
func knee(points []Point) int {
	at := 0
	for i := len(points) - 1; i > 0; i-- {
		slots := math.Log(float64(points[i].Slots) / float64(points[i-1].Slots))
		if math.Log(points[i].TokensPerS/points[i-1].TokensPerS) >= kneeElasticity*slots {
			break
		}
		at = points[i-1].Slots
	}
	return at
}
