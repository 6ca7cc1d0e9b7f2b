package main

import (
	"fmt"

	"github.com/headway-rl/headway/cmd/lab/bench/paired"
)

// compareCommits measures the simulator of a commit and that of the working tree in turn, with the same seeds.
func compareCommits(commit string, rounds int) error {
	sides, remove, err := paired.Build(commit)
	if err != nil {
		return err
	}
	defer remove()
	fmt.Printf("old is %s, new is %s; events per second of processor time on one core, new/old, above 1 is faster\n", sides.Old.Name, sides.New.Name)
	for _, s := range sizes {
		counts := map[string]int64{} // events of the last round's seed
		ratios, err := paired.Compare(sides.Old, sides.New, rounds, func(side paired.Side, round int) ([]float64, error) {
			m, err := headway(side.Program, side.Source, s, round+1)
			counts[side.Program] = m.events
			return []float64{m.perCPU()}, err
		})
		if err != nil {
			return err
		}
		fmt.Printf("C = B = %-6d %v\n", s.concurrency, ratios[0])
		if older, newer := counts[sides.Old.Program], counts[sides.New.Program]; older != newer {
			fmt.Printf("  the same seed is %d events of old and %d of new: the loop or the example changed, so that this compares unlike work\n", older, newer)
		}
	}
	return nil
}
