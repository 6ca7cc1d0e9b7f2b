package doctor

import (
	"math"
	"strconv"
)

// short prints a number with three significant digits, whole ones in full.
func short(x float64) string {
	if math.Abs(x) >= 100 || x == math.Trunc(x) {
		return strconv.FormatFloat(x, 'f', 0, 64)
	}
	return strconv.FormatFloat(x, 'g', 3, 64)
}

// percent prints a share.
func percent(x float64) string {
	switch {
	case x != 0 && math.Abs(x) < 0.001:
		return strconv.FormatFloat(100*x, 'g', 1, 64) + " %"
	case math.Abs(x) < 0.0995:
		return strconv.FormatFloat(100*x, 'f', 1, 64) + " %"
	}
	return strconv.FormatFloat(100*x, 'f', 0, 64) + " %"
}

// plural prints a count of things.
func plural(n float64, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return short(n) + " " + thing + "s"
}
