package dashboard

import (
	"testing"
	"time"
)

// A few followers are told four times a second, many less often, so that all of them together are told no more
// than a few hundred times a second; nobody less than every two seconds.
func TestManyFollowersAreToldLessOften(t *testing.T) {
	for followers, want := range map[int64]time.Duration{0: 250 * time.Millisecond, 1: 250 * time.Millisecond, 127: 250 * time.Millisecond, 256: time.Second, 1000: 2 * time.Second, 1e6: 2 * time.Second} {
		if got := paceOf(followers); got != want {
			t.Errorf("%d followers are told every %v, want %v", followers, got, want)
		}
	}
	for followers := int64(1); followers <= 1000; followers++ {
		if perS := float64(followers) / paceOf(followers).Seconds(); perS > 520 {
			t.Fatalf("%d followers are told %v times a second in all", followers, perS)
		}
	}
}
