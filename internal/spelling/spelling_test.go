package spelling

import (
	"strings"
	"testing"
)

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "abc", 0}, {"abc", "acb", 1}, {"abc", "abd", 1}, {"abc", "ab", 1}, {"kitten", "sitting", 3}, {"remot", "remote", 1}} {
		if got := Distance(c.a, c.b); got != c.want || Distance(c.b, c.a) != c.want {
			t.Errorf("%q to %q: %d and back %d, want %d", c.a, c.b, got, Distance(c.b, c.a), c.want)
		}
	}
}

func TestNearest(t *testing.T) {
	known := []string{"concurrency", "batch", "group_size", "lease_s"}
	for word, want := range map[string]string{
		"concurency": "concurrency", "Batch": "batch", "lease": "lease_s", "group": "group_size", "hcatb": "", "": "", "zzzz": "", strings.Repeat("batch", 30): "",
	} {
		if got := Nearest(word, known); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
}
