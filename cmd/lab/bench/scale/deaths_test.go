package main

import "testing"

// The longest time without a claim counts from the death, and to the end.
func TestLongestGap(t *testing.T) {
	for _, test := range []struct {
		claims       []int64
		began, ended int64
		want         float64
	}{
		{nil, 1000, 4000, 3},
		{[]int64{500, 900, 1500, 1600, 4100}, 1000, 5000, 2.5},
		{[]int64{4100, 1500, 900}, 1000, 9000, 4.9},
	} {
		if got := longestGap(test.claims, test.began, test.ended); got != test.want {
			t.Errorf("%v from %d to %d: %g s, want %g", test.claims, test.began, test.ended, got, test.want)
		}
	}
}
