package process

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// cell is the program of a cell, which has engines as long as they are started.
type cell struct {
	engines map[int]bool
	runs    *program
}

// cellAgain is the pause before a cell is started again that has ended by itself.
const cellAgain = time.Second

// startCell has the cell of an engine run, where this driver starts cells; d.mu must be held.
func (d *Driver) startCell(engine int) error {
	name := d.o.Cells[engine]
	if name == "" || len(d.o.CellCommand) == 0 {
		return nil
	}
	c := d.cells[name]
	if c == nil {
		c = &cell{engines: map[int]bool{}}
		d.cells[name] = c
	}
	c.engines[engine] = true
	return d.runCell(name, c)
}

// runCell starts a cell unless it runs, and again when it has ended while it has engines: its rollouts then go on. d.mu must
// be held.
func (d *Driver) runCell(name string, c *cell) error {
	if c.runs != nil && c.runs.ended() == nil {
		return nil
	}
	words := strings.NewReplacer("{cell}", name, "{index}", strconv.Itoa(d.numberOf(name)))
	p, err := d.start(cellLog(name), d.o.CellCommand, words.Replace)
	if err != nil {
		return fmt.Errorf("cell %s: %w", name, err)
	}
	c.runs = p
	go func() {
		<-p.done
		time.AfterFunc(cellAgain, func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			if d.cells[name] != c || c.runs != p {
				return
			}
			if err := d.runCell(name, c); err != nil {
				d.o.Logf("%v", err)
			}
		})
	}()
	return nil
}

// cellLog is the name of a cell's log, which no engine has: names of cells have no dot.
func cellLog(name string) string { return "cell." + name }

// numberOf is the place of a cell among the cells of all engines.
func (d *Driver) numberOf(name string) int {
	var names []string
	for _, other := range d.o.Cells {
		if other != "" && !slices.Contains(names, other) {
			names = append(names, other)
		}
	}
	return slices.Index(names, name)
}

// cellAlive says how the cell of an engine has ended, nil while it runs or is started by others; d.mu must be held.
func (d *Driver) cellAlive(engine int) error {
	name := d.o.Cells[engine]
	c := d.cells[name]
	if c == nil || c.runs == nil {
		return nil
	}
	if err := c.runs.ended(); err != nil {
		return fmt.Errorf("the program of its cell %s ended: %w%s", name, err, lastWords(d.logOf(cellLog(name))))
	}
	return nil
}

// leaveCell returns the program of an engine's cell if it was the last of its engines, else nil; d.mu must be held.
func (d *Driver) leaveCell(engine int) (last *program) {
	name := d.o.Cells[engine]
	c := d.cells[name]
	if c == nil {
		return nil
	}
	if delete(c.engines, engine); len(c.engines) > 0 {
		return nil
	}
	delete(d.cells, name)
	d.ending[name] = c.runs
	return c.runs
}

// awaitCell waits for the end of a process of an engine's cell that was given back: one process at a time is a cell.
func (d *Driver) awaitCell(ctx context.Context, engine int) error {
	d.mu.Lock()
	p := d.ending[d.o.Cells[engine]]
	d.mu.Unlock()
	if p == nil {
		return nil
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
