package config

import (
	"fmt"
	"slices"
	"strings"
)

// cellLetters are those of names of cells.
const cellLetters = "abcdefghijklmnopqrstuvwxyz0123456789-"

// Cells are the names of the cells that have engines, in the order in which the document names them first. The control plane's
// own is not among them.
func (c Config) Cells() (names []string) {
	for _, e := range c.Engines {
		if e.Cell != "" && !slices.Contains(names, e.Cell) {
			names = append(names, e.Cell)
		}
	}
	return names
}

// engineCells has the number of each engine's cell, from 1 on in the order of Cells, 0 for the control plane's own. It is nil
// where all are its own.
func (c Config) engineCells() []int {
	names := c.Cells()
	if len(names) == 0 {
		return nil
	}
	numbers := make([]int, len(c.Engines))
	for i, e := range c.Engines {
		numbers[i] = slices.Index(names, e.Cell) + 1
	}
	return numbers
}

// cells checks what is said of cells.
func (v *validator) cells() {
	c := v.config
	const own = "leave it out, for an engine of the control plane's own"
	for i, e := range c.Engines {
		key := fmt.Sprintf("engines.%d.cell", i)
		switch {
		case e.Cell == "":
		case strings.Trim(e.Cell, cellLetters) != "" || strings.Trim(e.Cell, "-") != e.Cell:
			v.fail(key, e.Cell, "is no name of a cell", "lower-case letters, digits, and dashes between them")
		case !e.External():
			v.fail(key, e.Cell, "is said of an embedded engine, which is in the control plane's process", own)
		case e.Kind == kindTinker:
			v.fail(key, e.Cell, "is said of a service that trains as well, and stands alone", own)
		case e.Weights == "distributed":
			v.fail(key, e.Cell, "is said of an engine that takes its weights in a collective with the control plane", own+", or engines."+fmt.Sprint(i)+".weights disk")
		case c.Store.NATS.URL == "" && c.Store.NATS.Listen == "":
			v.fail(key, e.Cell, "cannot be reached: the control plane's NATS server is in its process, and opens no port", "store.nats.listen, for that server to take cells in, store.nats.url, of servers that both reach, or leave it out")
		case e.Stages > 0:
			v.fail(key, e.Cell, "is said of an engine with stages, whose receivers know the control plane alone", own+fmt.Sprintf(", or leave out engines.%d.stages", i))
		}
	}
	if len(c.Cells()) > 0 && c.Environment.Tasks.SettledAfter > 0 {
		v.fail("environment.tasks.settled_after", c.Environment.Tasks.SettledAfter, "chooses tasks by what this process has counted, and each cell counts for itself", "0, or no engines.*.cell")
	}
}
