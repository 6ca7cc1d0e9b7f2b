package diagnosis

import (
	"strings"
	"testing"
)

// A change that makes groups staler says by how much more, and so does its interval.
func TestBoughtIsMoreOrLess(t *testing.T) {
	for gain, want := range map[float64]string{0.5: "50.0 % less (95 %: 40.0 % to 60.0 %)", -0.5: "50.0 % more (95 %: 40.0 % to 60.0 %)"} {
		if got := boughtText(&Change{Gain: gain, GainLow: gain - 0.1, GainHigh: gain + 0.1, Method: "resimulation"}); !strings.Contains(got, want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
