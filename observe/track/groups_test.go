package track

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/headway-rl/headway/loop"
)

// A few groups that never end do not make the table as large as the distance to the
// newest; many do, and every live group is found all the while.
func TestTableOfStragglers(t *testing.T) {
	for _, stragglers := range []int{0, 1, asideMax, asideMax + 5} {
		table := NewGroups[int64](&loop.Config{GroupSize: 1, EngineSlots: []int{1}})
		small := len(table.places)
		rng := rand.New(rand.NewPCG(uint64(stragglers), 1))
		live := map[loop.GroupID]int64{}
		var passing []loop.GroupID
		for id := loop.GroupID(1); id <= 100_000; id++ {
			table.Open(id)
			table.Open(id)
			tokens := rng.Int64()
			*table.Get(id) = tokens
			live[id] = tokens
			if int(id) <= stragglers {
				continue
			}
			passing = append(passing, id)
			if len(passing) > 30 {
				i := rng.IntN(8)
				table.Remove(passing[i])
				delete(live, passing[i])
				passing = slices.Delete(passing, i, i+1)
			}
			if id%1000 == 0 {
				for id, tokens := range live {
					if g := table.Get(id); g == nil || *g != tokens {
						t.Fatalf("%d stragglers: group %d is lost", stragglers, id)
					}
				}
				if table.Get(id+1) != nil || table.Get(0) != nil {
					t.Fatal("found a group that is not there")
				}
			}
		}
		if n := len(table.places); stragglers <= asideMax/2 && n > 2*small {
			t.Errorf("%d stragglers: %d places for %d groups", stragglers, n, len(live))
		}
		if n := len(table.Entries()); n != len(live) {
			t.Errorf("%d stragglers: %d entries of %d groups", stragglers, n, len(live))
		}
		for id := range live {
			table.Remove(id)
			if table.Get(id) != nil {
				t.Fatalf("group %d is still there", id)
			}
		}
	}
}
