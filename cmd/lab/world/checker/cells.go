package checker

import (
	"math"
	"slices"
	"strings"
)

// cells are what the log says of cells in other processes, and of their engines.
type cells struct {
	// names are those of the cells, by their numbers, as far as one has spoken.
	names map[int]string
	// newest are the last events of the cells, by name.
	newest map[string]origin
	// engines are those of the cells, by their index.
	engines map[int64]*cellEngine
	// begun are the newest processes of the cells, each with the event by which its first engine joined, by name.
	begun map[string]origin
	// silent are the losses of engines whose cell was silent, as the writer says.
	silent []silence
}

// origin says which of a cell's events one is: the process of it, and the place among its events.
type origin struct{ process, place int64 }

// cellEngine is an engine of a cell.
type cellEngine struct {
	// joined is the event by which it joined, 0 while it is lost.
	joined int64
	// serves is the version that it has, and goal the one that it is to switch to; -1 for none.
	serves, goal int64
	// attempt is that of the load or switch that it was told last.
	attempt int64
}

// silence is an event by which a writer took a cell for lost, and the one by which it had joined.
type silence struct {
	n, joined int64
	cell      int
}

// cellOf is the number of an engine's cell, 0 for the planes' own.
func (r *rules) cellOf(engine int64) int {
	if engine < 0 || engine >= int64(len(r.EngineCells)) {
		return 0
	}
	return r.EngineCells[engine]
}

// engineOf is the engine that an entry is about, -1 for none.
func (l *ledger) engineOf(e *entry) int64 {
	switch e.kind {
	case "weights-loaded", "weights-switched", "sync-failed", "engine-lost", "engine-joined", "load-weights", "switch-weights":
		return e.engine
	case "first-token", "rollout-scored", "rollout-failed", "rollout-aborted", "rollout-interrupted":
		first := int64(0)
		for engine, n := range l.rules.EngineSlots {
			if first += int64(n); e.slot < first {
				return int64(engine)
			}
		}
	}
	return -1
}

// cellEvent checks an event as far as it is about an engine of a cell.
func (l *ledger) cellEvent(e *entry) {
	engine := l.engineOf(e)
	cell := l.rules.cellOf(engine)
	if e.cell != "" {
		l.inTurn(e, cell)
	}
	if cell == 0 {
		return
	}
	x := l.cells.engine(engine)
	switch e.kind {
	case "engine-joined":
		if x.joined > 0 {
			l.fail(RuleCell, e, "engine %d joins, and was not lost since it joined", engine)
		}
		*x = cellEngine{joined: e.n, serves: -1, goal: -1}
		if e.process > l.cells.begun[e.cell].process {
			l.cells.begun[e.cell] = origin{e.process, e.n}
		}
	case "engine-lost":
		if e.cell == "" && x.joined > 0 {
			l.cells.silent = append(l.cells.silent, silence{e.n, x.joined, cell})
		}
	case "weights-switched":
		x.serves = x.goal
	case "sync-failed":
		x.serves = -1
	case "rollout-failed", "rollout-aborted": // the writer says so in the place of a cell that is lost
		l.inSlot(e)
		return
	}
	if e.cell == "" && !strings.HasPrefix(e.kind, "engine-") {
		l.fail(RuleCell, e, "engine %d is of cell %d, and its event is of no cell", engine, cell)
	}
}

// inTurn checks that an event of a cell is the next one of the cell's newest process.
func (l *ledger) inTurn(e *entry, cell int) {
	at, was := origin{e.process, e.place}, l.cells.newest[e.cell]
	if cell == 0 {
		l.fail(RuleCell, e, "it is of %s, which has no such engine", e.cell)
		return
	}
	if name, known := l.cells.names[cell]; known && name != e.cell {
		l.fail(RuleCell, e, "it is of %s, and its engine is of %s", e.cell, name)
	}
	l.cells.names[cell] = e.cell
	begins := e.kind == "engine-lost" || e.kind == "engine-joined"
	switch {
	case at.process < was.process:
		l.fail(RuleCell, e, "it is of process %d of %s, which process %d had replaced", at.process, e.cell, was.process)
	case at.process > was.process && !(begins && at.place <= 1), at.process == was.process && at.place != was.place+1 && !(begins && at.place == 0 && was.place == 0):
		l.fail(RuleCell, e, "it is event %d of process %d of %s, and event %d of process %d came before", at.place, at.process, e.cell, was.place, was.process)
	}
	l.cells.newest[e.cell] = at
}

// inSlot checks that a process of a cell ends an attempt in a slot only if it was told to play there. It knows nothing of what the
// process before it was told.
func (l *ledger) inSlot(e *entry) {
	a, begun := l.attempts[e.attemptID()], l.cells.begun[e.cell].place
	if e.cell == "" || e.slot < 0 || a == nil || a.given >= begun {
		return
	}
	if n := len(l.recovered); n == 0 || l.recovered[n-1] < begun { // else the line that told it may be lost
		l.fail(RuleCell, e, "process %d of %s joined by event %d, and ends %v in slot %d, where it was not told to play since", e.process, e.cell, begun, a.id, e.slot)
	}
}

func (c *cells) engine(i int64) *cellEngine {
	if c.engines[i] == nil {
		c.engines[i] = &cellEngine{serves: -1, goal: -1}
	}
	return c.engines[i]
}

// cellAction checks a load or a switch of an engine of a cell. One that serves a version is not told to load it again.
func (l *ledger) cellAction(e *entry) {
	engine := l.engineOf(e)
	if engine < 0 || l.rules.cellOf(engine) == 0 {
		return
	}
	x := l.cells.engine(engine)
	x.attempt = e.attempt
	switch {
	case e.kind == "switch-weights":
		x.goal = e.version
	case x.joined > 0 && x.serves >= e.version:
		l.fail(RuleCell, e, "engine %d loads version %d, and serves version %d", engine, e.version, x.serves)
	}
}

// gaveUp takes that an engine is lost whose load or switch has failed, unless an action that follows has it try again. The
// actions are those of the event, and of later ones behind them, by their places among the entries.
func (l *ledger) gaveUp(e *entry, actions []int32) {
	if l.rules.cellOf(e.engine) == 0 || l.cells.engine(e.engine).attempt != e.attempt {
		return
	}
	for _, i := range actions {
		if a := &l.entries[i]; a.n > e.n {
			break
		} else if a.kind == "load-weights" && a.engine == e.engine {
			return
		}
	}
	l.loseEngine(e)
}

// loseEngine takes the loss of an engine. A cell without any is at its end, and so is what it has of rollouts that stay in it.
func (l *ledger) loseEngine(e *entry) {
	cell := l.rules.cellOf(e.engine)
	if cell > 0 {
		x := l.cells.engine(e.engine)
		if x.joined == 0 {
			return // it was lost before
		}
		*x = cellEngine{serves: -1, goal: -1}
	}
	ends := cell > 0 && l.rules.StaysInCell
	for engine, x := range l.cells.engines {
		ends = ends && !(x.joined > 0 && l.rules.cellOf(engine) == cell)
	}
	stands := e.kind == "engine-lost" && e.reason == "restart" && cell > 0 && l.rules.ResumeRestart // another process goes on with them
	if l.rules.ResumeLost && !ends && !stands {
		return
	}
	gone := func(engine int64) bool { return engine == e.engine || ends && l.rules.cellOf(engine) == cell }
	for slot, a := range l.slots {
		if gone(a.engine) {
			delete(l.slots, slot)
			switch {
			case a.state != running:
			case stands:
				a.state = parked
			default:
				l.ends(a, e, failed, "engine")
			}
		}
	}
	for _, a := range l.newest {
		if ends && !stands && a.state == parked && gone(a.engine) {
			l.ends(a, e, failed, "engine")
		}
	}
}

// checkSilent reports cells that were lost for their silence though nothing kept them from being heard. A cell says a word
// every five seconds.
func (c *check) checkSilent(clocks clocks) {
	for _, s := range c.log.cells.silent {
		name := c.log.cells.names[s.cell]
		from, known := c.log.earliest(clocks, s.n)
		to, known2 := c.log.latest(clocks, s.n)
		joined, known3 := c.log.latest(clocks, s.joined)
		if !known || !known2 || !known3 || name == "" || c.started(name, joined, to) { // one that begins has not said hello yet
			continue
		}
		twin := slices.ContainsFunc(c.outages, func(o outage) bool { // it was the twin that joined, and has ended
			return o.kind == "twin" && o.host == name && o.from <= to && o.to+second >= joined
		})
		if !twin && !c.cutOff(name, from, to) {
			c.fail(RuleCell, -1, "event %d takes %s for lost, which nothing kept from being heard", s.n, name)
		}
	}
}

// cutOff says whether a fault between two times may have kept a cell from hearing the writer, or the writer from hearing it.
func (c *check) cutOff(cell string, from, to int64) bool {
	return slices.ContainsFunc(c.outages, func(o outage) bool {
		return o.from <= to && o.to+settles >= from && (o.host == cell || o.other == cell || strings.HasPrefix(o.host, "broker") || strings.HasPrefix(o.other, "broker"))
	})
}

// twin says whether a cell had a second process beside the first, which answers and has nothing to say any more.
func (c *check) twin(cell string) bool {
	return c.twinBetween(cell, math.MinInt64, math.MaxInt64)
}

// twinBetween says whether a cell had a second process at some time between two.
func (c *check) twinBetween(cell string, from, to int64) bool {
	return slices.ContainsFunc(c.outages, func(o outage) bool { return o.kind == "twin" && o.host == cell && o.from <= to && o.to >= from })
}

// lags says whether a cell gave out a claim whose attempt had ended by the log, and may not have heard of that.
func (c *check) lags(k *claim) bool {
	a := c.log.attempts[k.id]
	if a == nil || a.inFlight() || !ofCell(k.to) {
		return false
	}
	ended, _ := c.log.earliest(c.clocks(), a.ended) // 0 where it is not known
	return ended <= k.at && c.cutOff(k.to, ended, k.at)
}
