package plan

import (
	"errors"
	"fmt"
	"slices"
)

// CellName is the name of a cell, and of its host.
func CellName(number int) string { return fmt.Sprint("cell", number-1) }

// Cells are the numbers of the cells that have engines, in their order.
func (p Plan) Cells() (all []int) {
	for _, e := range p.Engines {
		if e.Cell > 0 {
			all = append(all, e.Cell)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// checkCells says as an error why no cell could play.
func (p Plan) checkCells() error {
	if len(p.Cells()) == 0 {
		return nil
	}
	if p.Embedded || p.Rows || p.Chat == nil || p.Chat.Players == 0 {
		return errors.New("it has cells, which need a broker of their own, players, and no rows")
	}
	for i, e := range p.Engines {
		if e.Cell < 0 || e.Cell > 0 && i < p.Receivers {
			return fmt.Errorf("engine%d is of cell %d, want one from 1 on, or an engine without a receiver", i, e.Cell)
		}
	}
	return nil
}
