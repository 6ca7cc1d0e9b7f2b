package main

import (
	"github.com/headway-rl/headway/observe/metrics"
)

// verlMetrics are a summary's figures under verl's names.
func verlMetrics(s metrics.Summary) map[string]float64 {
	named := map[string]float64{}
	for _, m := range metrics.VerlMetrics(s) {
		named[m.Name] = m.Value
	}
	return named
}
