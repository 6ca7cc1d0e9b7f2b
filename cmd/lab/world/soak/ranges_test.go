package soak

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]string{"7": "7", "1-100": "1-100", "20-30, 1-10": "1-10,20-30", "1-5,6-9": "1-9", "3-8,1-4,8-12": "1-12", "0-0": "0"} {
		if got, err := Parse(text); err != nil || got.String() != want {
			t.Errorf("Parse(%q) = %v, %v; want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "x", "5-1", "1-", "-3", "1--3", "1,,2", "18446744073709551615"} {
		if got, err := Parse(text); err == nil {
			t.Errorf("Parse(%q) = %v, want an error", text, got)
		}
	}
}

// Ranges hold the seeds that a plain set holds, in whatever order these are added.
func TestRanges(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var done Ranges
		set := map[uint64]bool{}
		for range 60 {
			seed := random.Uint64N(100)
			done.Add(seed)
			set[seed] = true
		}
		for i, p := range done {
			if p[0] > p[1] || i > 0 && done[i-1][1]+1 >= p[0] {
				t.Fatalf("%v is not in order, or has ranges that touch", done)
			}
		}
		wanted := Ranges{{10, 40}, {60, 120}}
		left := slices.Collect(wanted.Without(done))
		n := int64(0)
		for seed := range uint64(150) {
			if done.Has(seed) != set[seed] {
				t.Fatalf("%v has %d: %v, want %v", done, seed, done.Has(seed), set[seed])
			}
			if wants := wanted.Has(seed) && !set[seed]; wants != slices.Contains(left, seed) {
				t.Fatalf("%v without %v is %v, which is wrong about %d", wanted, done, left, seed)
			} else if wants {
				n++
			}
		}
		if done.Len() != int64(len(set)) || wanted.Left(done) != n || !slices.IsSorted(left) {
			t.Fatalf("%v has %d seeds and leaves %d, want %d and %d", done, done.Len(), wanted.Left(done), len(set), n)
		}
	}
}
