package estimate

import "math"

// Rounded rounds up to two digits: the estimate is no better.
func Rounded(steps float64) int64 {
	unit := math.Pow(10, math.Max(math.Floor(math.Log10(math.Max(steps, 1)))-1, 0))
	return int64(math.Ceil(steps/unit) * unit)
}
