package track_test

import (
	"math/rand/v2"
	"testing"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/track"
)

// TestGroupsAgreeWithMap opens and removes groups as runs do, with some that live for very long, beside a plain map.
func TestGroupsAgreeWithMap(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		cfg := loop.Config{GroupSize: 4, BatchGroups: 2, EngineSlots: []int{8}, QueueGroups: 2}
		groups, want := track.NewGroups[int64](&cfg), map[loop.GroupID]int64{}
		next, late := loop.GroupID(1), 20+rng.IntN(400)
		var open []loop.GroupID
		for range 3000 {
			if len(open) < 1+rng.IntN(late) {
				groups.Open(next)
				value, opened := groups.Put(next)
				if opened {
					t.Fatal("a group was opened twice")
				}
				*value, want[next] = int64(next)*3, int64(next)*3
				open = append(open, next)
				next++
			} else {
				i := rng.IntN(min(len(open), 8)) // mostly the oldest go
				groups.Remove(open[i])
				delete(want, open[i])
				open = append(open[:i], open[i+1:]...)
			}
		}
		seen := 0
		for id, value := range groups.All() {
			if seen++; want[id] != *value {
				t.Fatalf("group %d is %d, want %d", id, *value, want[id])
			}
		}
		for id, value := range want {
			if got := groups.Get(id); got == nil || *got != value {
				t.Fatalf("group %d is not there, or not %d", id, value)
			}
		}
		if seen != len(want) || len(groups.Entries()) != len(want) || groups.Get(next) != nil || groups.Get(0) != nil {
			t.Fatalf("%d groups, want %d", seen, len(want))
		}
	}
}
