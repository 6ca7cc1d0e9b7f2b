package plane

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headway-rl/headway/api"
	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/drive/cell"
	"github.com/headway-rl/headway/drive/cell/link"
	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/observe/report"
)

// hearCells has the run hear its cells in other processes, until stop is called.
func (p *Plane) hearCells(run *live.Runtime) (stop func(), err error) {
	names := p.Cfg.Cells()
	if len(names) == 0 {
		return func() {}, nil
	}
	for _, name := range names {
		var engines []string
		slots := 0
		for _, e := range p.Cfg.Engines {
			if e.Cell == name {
				engines, slots = append(engines, e.Name), slots+e.Slots
			}
		}
		p.cells.add(protocol.Cell{Name: name, Engines: len(engines), Slots: slots})
		starts := fmt.Sprintf("headway cell %s FILE --name %s, with this document,", name, p.name)
		if len(p.Cfg.Fleet.CellCommand) > 0 {
			starts = "the fleet"
		}
		p.logf("cell %s has %s: %s. %s starts the cell", name, report.Counted(len(engines), "engine"), someOf(engines), starts)
	}
	ear := link.NewEar(run.Receive, p.logf)
	ear.Heard = func(ev *cell.Event) { p.cells.heard(ev, p.App.Now()) }
	ear.Deal = p.Deal
	return p.log.HearCells(ear.Take)
}

// cells is what is known of the cells in other processes, for the status. The zero value knows none.
type cells struct {
	mu  sync.Mutex
	all []heardCell
}

// heardCell is a cell, and when it was heard last, the zero time for never.
type heardCell struct {
	protocol.Cell
	at time.Time
}

func (c *cells) add(cell protocol.Cell) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, heardCell{Cell: cell})
}

// heard takes what an event says of its process. Words of an earlier process say nothing.
func (c *cells) heard(ev *cell.Event, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.all, func(known heardCell) bool { return known.Name == ev.Origin.Cell })
	if i < 0 || ev.Origin.Incarnation < c.all[i].Incarnation {
		return
	}
	known := &c.all[i]
	if ev.Origin.Incarnation > known.Incarnation {
		known.Build, known.Bounds = "", nil
	}
	known.Incarnation, known.at = ev.Origin.Incarnation, now
	if ev.Hello != nil {
		known.Build = ev.Hello.Build
	}
	var bounds []protocol.Bound
	if len(ev.Load) > 0 && json.Unmarshal(ev.Load, &bounds) == nil { // another build may say more, or something else
		known.Bounds = bounds
	}
}

// absent says why a cell is not heard now, nil while it is.
func (c *cells) absent(name string, now time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.all, func(known heardCell) bool { return known.Name == name })
	switch {
	case i < 0 || c.all[i].at.IsZero():
		return fmt.Errorf("its cell %s has not been heard yet", name)
	case now.Sub(c.all[i].at) > cell.Lease:
		return fmt.Errorf("its cell %s has said nothing for %v", name, now.Sub(c.all[i].at).Round(time.Second))
	}
	return nil
}

// status are the cells as they are known now.
func (c *cells) status(now time.Time) []protocol.Cell {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []protocol.Cell
	for _, known := range c.all {
		known.SilentS = -1
		if !known.at.IsZero() {
			known.SilentS = now.Sub(known.at).Seconds()
		}
		if known.SilentS < 0 || known.SilentS > cell.Lease.Seconds() { // it is lost: what it had says nothing of now
			known.Bounds = nil
		}
		all = append(all, known.Cell)
	}
	return all
}

// inCells is the workers' side of a control plane without engines of its own, which has no rollout to give.
type inCells struct {
	api.Rollouts
	cells string
}

// Claim implements api.Rollouts.
func (c inCells) Claim(context.Context, protocol.ClaimRequest) (protocol.Claims, error) {
	return protocol.Claims{}, protocol.Refuse(protocol.CodeInvalid, "all engines of this run are in cells (%s), and rollouts are claimed where they play: give the worker the address of a cell", c.cells)
}

// someOf are the first of many names.
func someOf(names []string) string {
	const most = 8
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
