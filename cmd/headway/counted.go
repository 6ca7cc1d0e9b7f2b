package main

import "github.com/headway-rl/headway/observe/report"

// counted prints a number of things, which are called by the noun of one.
func counted[N int | int32 | int64](n N, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return report.Count(int64(n)) + " " + thing + "s"
}
