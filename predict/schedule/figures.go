package schedule

import (
	"math"

	"github.com/headway-rl/headway/observe/report"
)

// seconds prints a time with about three digits.
func seconds(s float64) string {
	switch a := math.Abs(s); {
	case a >= 100:
		return report.Figure(s, 0)
	case a >= 10:
		return report.Figure(s, 1)
	}
	return report.Figure(s, 2)
}

// signed prints a time with its sign.
func signed(s float64) string {
	if s > 0 {
		return "+" + seconds(s)
	}
	return seconds(s)
}

// ratio prints a speed-up.
func ratio(r float64) string { return report.Figure(r, 2) }

// percent prints a share.
func percent(share float64) string { return report.Share(share) }
