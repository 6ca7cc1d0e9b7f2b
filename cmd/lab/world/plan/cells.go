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

// Homes are where workers claim, each at one of them in turn: at cells, by their names, and at the planes, by none. There are
// no homes where cells have all engines, and players of their own.
func (p Plan) Homes() (all []string) {
	if slices.ContainsFunc(p.Engines, func(e Engine) bool { return e.Cell == 0 }) {
		all = append(all, "")
	}
	if p.Chat != nil && p.Chat.Players > 0 {
		return all
	}
	for _, number := range p.Cells() {
		all = append(all, CellName(number))
	}
	return all
}

// checkCells says as an error why no cell could play.
func (p Plan) checkCells() error {
	if len(p.Cells()) == 0 {
		return nil
	}
	if p.Embedded {
		return errors.New("it has cells, which need a broker of their own")
	}
	if homes := len(p.Homes()); p.Workers < homes {
		return fmt.Errorf("it has %d workers, and %d places where rollouts are claimed", p.Workers, homes)
	}
	for i, e := range p.Engines {
		if e.Cell < 0 || e.Cell > 0 && i < p.Receivers {
			return fmt.Errorf("engine%d is of cell %d, want one from 1 on, or an engine without a receiver", i, e.Cell)
		}
	}
	return nil
}

// cells gives engines to one or two cells, where planes and cells can play, and draws the faults that come over these.
func (d drawer) cells(p *Plan) {
	long := p.Store.Prompt > 0 || p.Trainer.Window > 0 // prompts, which agents that chat do not have
	if !d.chance(2) || p.Embedded || p.Receivers == len(p.Engines) || long || p.dropsLong() {
		return
	}
	many := d.of(1, 1, 2)
	for i := p.Receivers; i < len(p.Engines); i++ {
		p.Engines[i].Cell = d.between(0, many)
	}
	if len(p.Cells()) == 0 {
		p.Engines[len(p.Engines)-1].Cell = 1
	}
	if d.chance(2) { // else workers claim at each of them
		if p.Chat == nil {
			p.Chat = &Chat{Turns: 1, Choices: 1, WaitMS: d.of(500, 1000, 3000)}
		}
		if p.Chat.Players == 0 {
			p.Chat.Players = d.between(1, 4)
		}
	}
	p.Workers = max(p.Workers, len(p.Homes()))
	p.Faults = slices.DeleteFunc(p.Faults, func(f Fault) bool { return f.Kind == Deaf }) // the next process could not know what an engine computed before
	for range d.between(2, 6) {
		f := d.deal(p, cellBlows[d.IntN(len(cellBlows))])
		f.AtMS, f.Both = d.when(p), f.Both || f.Kind == Twin && d.chance(2)
		switch {
		case d.chance(6): // longer than a cell may be silent
			f.ForMS = 17_000
		case d.chance(2):
			f.ForMS = int64(d.of(1000, 3000, 6000))
		}
		if d.chance(2) {
			f.Await = d.word(p, f.Host)
		}
		p.Faults = append(p.Faults, f)
	}
	if d.chance(3) {
		d.twins(p)
	}
	if d.chance(2) {
		d.replaced(p)
	}
	if d.chance(2) {
		d.named(p)
	}
	if d.chance(2) {
		d.unheard(p)
	}
}

// unheard has nothing of a writer reach its brokers, while it hears the words of cells that follow the next one.
func (d drawer) unheard(p *Plan) {
	hosts := p.hosts()
	if len(hosts["plane"]) < 2 {
		return
	}
	for _, plane := range hosts["plane"] { // one of them writes
		at := d.when(p)
		for _, broker := range hosts["broker"] {
			p.Faults = append(p.Faults, Fault{Kind: Cut, Host: plane, Other: broker, AtMS: at, ForMS: int64(p.Rules.WriterMS + d.of(3000, 6000, 9000))})
		}
	}
}

// named ends a plane as a cell sends a payload, or the word that names it.
func (d drawer) named(p *Plan) {
	if slices.ContainsFunc(p.Faults, func(f Fault) bool { return f.ForMS > 20_000 }) {
		return // planes are to be let alone for long
	}
	for range d.between(1, 3) {
		event := Await{By: "cell", Sends: []string{"headway.world.payload", "headway.world.cell"}[d.IntN(2)], N: uint64(d.of(1, 2, 5)), LaterMS: int64(d.of(0, 0, 1, 2))}
		at := d.soon(p)
		for _, plane := range p.hosts()["plane"] { // one of them writes
			p.Faults = append(p.Faults, Fault{Kind: Kill, Host: plane, AtMS: at, ForMS: int64(d.of(50, 300)), N: 1, Await: event})
		}
	}
}

// twins has another process take the place of one that stands still, or is not heard, and that goes on later.
func (d drawer) twins(p *Plan) {
	f := Fault{Kind: []string{Freeze, Cut, Slow}[d.IntN(3)], Host: d.one(p.hosts(), "cell"), AtMS: d.when(p), ForMS: int64(d.of(1000, 3000, 6000)), N: 1000, Both: true}
	twin := Fault{Kind: Twin, Host: f.Host, AtMS: f.AtMS + int64(d.of(0, 300)), ForMS: f.ForMS + int64(d.of(-700, 300, 3000)), Both: d.chance(2)}
	if d.chance(2) {
		f.Await = d.word(p, f.Host)
		twin.Await = f.Await
	}
	p.Faults = append(p.Faults, f, twin)
}

// replaced cuts a cell off from the broker alone. Its callers go to another process that takes its place, and come back when that
// ends, before the first can know of it.
func (d drawer) replaced(p *Plan) {
	hosts := p.hosts()
	cell, at, lasts := d.one(hosts, "cell"), d.when(p), int64(d.of(3000, 5000, 9000))
	var event Await
	if d.chance(2) {
		event = d.word(p, cell)
	}
	for _, broker := range hosts["broker"] {
		p.Faults = append(p.Faults, Fault{Kind: Cut, Host: cell, Other: broker, Both: true, AtMS: at, ForMS: lasts, Await: event})
	}
	p.Faults = append(p.Faults, Fault{Kind: Twin, Host: cell, AtMS: at, ForMS: lasts - int64(d.of(500, 1000, 2000)), Both: true, Await: event})
	for _, worker := range hosts["worker"] {
		p.Faults = append(p.Faults, Fault{Kind: Reset, Host: cell, Other: worker, AtMS: at + 50, Await: event})
	}
}

// word is an event of a cell, or one of a plane that it answers.
func (d drawer) word(p *Plan, cell string) Await {
	e := []Await{
		{By: cell, Sends: "headway.world.cell"},
		{By: cell, Sends: "headway.world.payload"},
		{By: cell, Sends: "$KV.headway_world"},
		{By: cell, Sends: "POST /v1/completions"},
		{By: "plane", Sends: "headway.world.log"},
		{By: "trainer", Hears: "weights"},
	}[d.IntN(6)]
	e.N, e.LaterMS = uint64(d.of(1, 1, 2, 5, 20)), int64(d.of(0, 0, 1, 20, 300))
	return e
}

// cellBlows are the faults that come over cells.
var cellBlows = func() (all []blow) {
	for _, kind := range []string{Kill, Freeze, Cut, Reset, Slow, Clock, Drag, Full, Power, Stop, Drop, Lag, Twin} {
		all = append(all, blow{kind, "cell"})
	}
	return all
}()
