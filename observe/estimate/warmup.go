package estimate

import "math"

// mserBatch is the batch of MSER-5: means over five values smooth what would
// otherwise end a warm-up at a chance value.
const mserBatch = 5

// Truncation is where a warm-up ends.
type Truncation struct {
	// Steps is how many values to leave out at the beginning.
	Steps int
	// Found is false where the best place to cut is among the last tried, half-way. Then more than
	// half of the series is transient, or it drifts to its end, and Steps is only a lower bound.
	Found bool
}

// Warmup finds the transient at the beginning of a series by MSER-5 (White, Cobb and Spratt 2000).
// It cuts where the squared standard error of the mean of the rest, over batches of five, is least.
// Cuts up to half of the series are tried, because the statistic is erratic where little remains. A
// series of less than 20 values has none to find: 0 steps, not found.
func Warmup(x []float64) Truncation {
	count := len(x) / mserBatch
	if count < 4 {
		return Truncation{}
	}
	means := make([]float64, count)
	for b := range means {
		for _, v := range x[b*mserBatch : (b+1)*mserBatch] {
			means[b] += v / mserBatch
		}
	}
	// Sums from the end on, about the last half's mean to lose no digits.
	centre := 0.0
	for _, v := range means[count/2:] {
		centre += v / float64(count-count/2)
	}
	sum, squares := 0.0, 0.0
	best, at := math.Inf(1), 0
	for b := count - 1; b >= 0; b-- {
		v := means[b] - centre
		sum += v
		squares += v * v
		left := float64(count - b)
		if b > count/2 {
			continue
		}
		// The tolerance takes rounding for no gain, so that a constant series is cut at 0.
		if statistic := (squares - sum*sum/left) / (left * left); statistic <= best+1e-12*squares {
			best, at = math.Min(best, statistic), b
		}
	}
	return Truncation{Steps: at * mserBatch, Found: at < count/2-count/20}
}
