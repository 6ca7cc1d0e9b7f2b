package report

import (
	"fmt"
)

// Briefly prints the time of one simulation.
func Briefly(s float64) string {
	if s < 1 {
		return fmt.Sprintf("%.3g ms", 1000*s)
	}
	return Roughly(s)
}

// Period prints the time of one train step or period, in three digits.
func Period(s float64) string {
	if s < 1 {
		return fmt.Sprintf("%.3g ms", 1000*s)
	}
	return fmt.Sprintf("%.3g s", s)
}

// Roughly prints a duration in the unit a person would.
func Roughly(s float64) string {
	switch {
	case s < 99:
		return fmt.Sprintf("%.0f s", s)
	case s < 99*60:
		return fmt.Sprintf("%.0f min", s/60)
	case s < 48*3600:
		return fmt.Sprintf("%.1f h", s/3600)
	case s < 700*86400:
		return fmt.Sprintf("%s days", Count(int64(s/86400)))
	}
	return fmt.Sprintf("%s years", Count(int64(s/86400/365.25)))
}
