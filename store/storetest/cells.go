package storetest

import (
	"context"
	"slices"
	"sync"
	"testing"
)

// Incarnations holds what gives processes of cells their incarnations: none is given twice, and each is above all that were
// given to the cell before. Process starts a process of a cell.
func Incarnations(t *testing.T, process func(t *testing.T, cell string) (incarnate func(context.Context) (int64, error))) {
	t.Helper()
	var mu sync.Mutex
	given := map[string][]int64{}
	for round := range 3 {
		before := map[string]int64{}
		for cell, all := range given {
			before[cell] = slices.Max(all)
		}
		var wg sync.WaitGroup
		for _, cell := range []string{"b", "rack.1-b", "b", "rack.1-b", "b"} {
			incarnate := process(t, cell)
			wg.Go(func() {
				for range 5 {
					n, err := incarnate(t.Context())
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					if n <= before[cell] || n < 1 || slices.Contains(given[cell], n) {
						t.Errorf("round %d: cell %s is given %d after %v", round, cell, n, given[cell])
					}
					given[cell] = append(given[cell], n)
					mu.Unlock()
				}
			})
		}
		wg.Wait()
	}
}
