package live

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/headway-rl/headway/drive/cell"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// elsewhere stands for an engine of a cell in another process.
type elsewhere struct {
	name  string
	slots int
}

// Elsewhere returns what stands in Options.Engines for an engine of a cell in another process.
func Elsewhere(name string, slots int) port.Engine { return &elsewhere{name, slots} }

func (e *elsewhere) Name() string                             { return e.name }
func (e *elsewhere) Slots() int                               { return e.slots }
func (e *elsewhere) Close() error                             { return nil }
func (e *elsewhere) Load(context.Context, loop.Version) error { return e.err() }
func (e *elsewhere) Switch(context.Context, loop.Version, bool) error {
	return e.err()
}
func (e *elsewhere) Generate(context.Context, port.GenerateRequest) (port.Generation, error) {
	return port.Generation{}, e.err()
}

func (e *elsewhere) err() error {
	return fmt.Errorf("live: engine %s is of a cell in another process: this is a defect", e.name)
}

// checkCells reports what cannot be of the cells in other processes.
func (r *Runtime) checkCells() error {
	for i, name := range r.opt.Cells {
		if name == "" || slices.Contains(r.opt.Cells[:i], name) {
			return fmt.Errorf("live: cell %d of other processes is called %q: want names, each once", i+1, name)
		}
	}
	for i, cell := range r.cfg.EngineCells {
		if cell > len(r.opt.Cells) {
			return fmt.Errorf("live: engine %d is of cell %d, and %d have a name", i, cell, len(r.opt.Cells))
		}
	}
	return nil
}

// enginesOf are the engines of a cell, by their index.
func (r *Runtime) enginesOf(number int) (all []int) {
	for i := range r.opt.Engines {
		if int(r.cfg.CellOf(int32(i))) == number {
			all = append(all, i)
		}
	}
	return all
}

// Receive takes an event that a cell in another process has said, from any goroutine. It waits until the run has begun. The
// event counts once, however often it comes. An error is a *cell.Refusal, or says that the run has ended or that its store does not
// answer.
func (r *Runtime) Receive(ev *cell.Event) error {
	select {
	case <-r.hearing:
	case <-r.ctx.Done():
	}
	if r.ctx.Err() != nil {
		return context.Cause(r.ctx)
	}
	number := slices.Index(r.opt.Cells, ev.Origin.Cell) + 1
	if number == 0 {
		return &cell.Refusal{Why: fmt.Sprintf("live: %q is no cell of this run, which has %s: start it under one of these names, or begin a run whose document has it",
			ev.Origin.Cell, strings.Join(r.opt.Cells, ", "))}
	}
	now := r.clock()
	ev.Time = max(now-max(ev.Age, 0), 0)
	taken, err := r.receipts.take(ev.Origin, &ev.Time, func() error {
		if err := r.fits(ev, number); err != nil {
			return err
		}
		return r.refer(ev)
	})
	if taken {
		c := r.completionOf(ev)
		c.hello = ev.Hello
		err = r.take(c)
		switch ev.Kind {
		case loop.WeightsLoaded, loop.WeightsSwitched, loop.SyncFailed, loop.EngineLost, loop.EngineJoined:
			r.outside.wake() // engines wait for what follows
		}
	}
	if refusal, refused := errors.AsType[*cell.Refusal](err); (!refused || refusal.Want > 0) && r.leases.hear(number) {
		r.outside.wake() // the engines of a cell that was lost are tried again, unless a hello has had them join
	}
	return err
}

// fits says, as a refusal, why a cell of a number cannot have said an event.
func (r *Runtime) fits(ev *cell.Event, number int) error {
	refuse := func(format string, args ...any) error { return refusalOf(ev, format, args...) }
	if (ev.Hello != nil) != (ev.Origin.Sequence == 1) {
		return refuse("the first event of a process is its hello, and no other is: this is a defect of the cell")
	}
	if ev.Hello != nil {
		if ev.Kind != loop.EngineJoined {
			return refuse("its hello is of the kind %v: this is a defect of the cell", ev.Kind)
		}
		want, err := r.helloOf(number)
		if err != nil {
			return err
		}
		if why := ev.Hello.Differs(&want); why != "" {
			return refuse("it does not fit: %s", why)
		}
		return nil
	}
	engine := ev.Engine
	switch ev.Kind {
	case loop.WeightsLoaded, loop.WeightsSwitched, loop.SyncFailed, loop.EngineLost:
	case loop.FirstToken, loop.RolloutInterrupted, loop.RolloutScored, loop.RolloutFailed, loop.RolloutAborted:
		if ev.Slot < 0 || int(ev.Slot) >= len(r.started.engineOf) {
			return refuse("slot %d is none of the run's %d", ev.Slot, len(r.started.engineOf))
		}
		engine = r.started.engineOf[ev.Slot]
	default:
		return refuse("no cell says events of the kind %v", ev.Kind)
	}
	switch {
	case engine < 0 || int(engine) >= len(r.opt.Engines):
		return refuse("engine %d is none of the run's %d", engine, len(r.opt.Engines))
	case int(r.cfg.CellOf(engine)) != number:
		return refuse("engine %d is not its own: it has %v", engine, r.enginesOf(number))
	case ev.Fatal:
		return refuse("its store takes no payloads: %s", ev.Error)
	}
	return nil
}

// refer tells the store where a payload is that a cell has put, before the event that names it is logged. What an attempt without one
// has put is removed.
func (r *Runtime) refer(ev *cell.Event) error {
	store, ok := port.As[port.Referred](r.opt.Store)
	if !ok || ev.Payload == "" || ev.Hello != nil {
		return nil
	}
	id := port.RolloutID{Group: ev.Group, Sample: ev.Sample, Attempt: ev.Attempt}
	switch err := store.Refer(ev.Origin.Cell, id, ev.Payload); {
	case errors.Is(err, port.ErrReference):
		return refusalOf(ev, "the payload of %v: %v", id, err)
	case err != nil: // the cell says it again
		return fmt.Errorf("live: the payload of %v: %w", id, err)
	}
	if ev.Kind != loop.RolloutScored {
		return r.opt.Store.Discard(id)
	}
	return nil
}

// refusalOf refuses an event, which the error names.
func refusalOf(ev *cell.Event, format string, args ...any) error {
	return &cell.Refusal{Why: fmt.Sprintf("live: cell %s, incarnation %d, event %d: ", ev.Origin.Cell, ev.Origin.Incarnation, ev.Origin.Sequence) + fmt.Sprintf(format, args...)}
}

// helloOf is what a cell's hello is to say.
func (r *Runtime) helloOf(number int) (cell.Hello, error) {
	header, there := r.opt.Store.Header()
	if !there {
		return cell.Hello{}, errors.New("live: the log has no header: this is a defect of its store")
	}
	var engines []cell.EngineHello
	for _, i := range r.enginesOf(number) {
		engines = append(engines, cell.EngineHello{Engine: int32(i), Name: r.opt.Engines[i].Name(), Slots: r.cfg.EngineSlots[i]})
	}
	return cell.NewHello(header.Program, header, r.cfg, engines), nil
}

// welcome has the engines of a cell join whose process has said hello. What another process of the cell had is lost with
// that. The last line of the answer has the hello's place, so that the hello counts once all of it is in the log. Engines that
// the fleet has, or is bringing back, join when it says so. Where no other is left a Tick has the hello's place.
func (r *Runtime) welcome(c *completion) {
	number := slices.Index(r.opt.Cells, c.origin.Cell) + 1
	engines := r.enginesOf(number)
	r.logf("cell %s says hello, incarnation %d, build %q, with %s", c.origin.Cell, c.origin.Incarnation, c.hello.Build, several(int64(len(engines)), "engine"))
	begins := c.origin
	begins.Sequence = 0
	for _, i := range engines {
		r.engines[i].soon = !r.fleet.returning[i] // it joins with this very hello
	}
	r.loseCell(number, begins, c.event.Time, nil)
	var join []int
	for _, i := range engines {
		if r.fleet.returning[i] {
			continue
		}
		r.engines[i] = quarantine{due: loop.NoTick, planned: r.engines[i].planned}
		if r.l.EngineState(i) == "lost" {
			join = append(join, i)
		}
	}
	for k, i := range join {
		o := begins
		if k == len(join)-1 {
			o = c.origin
		}
		r.deliver(&completion{event: loop.Event{Time: c.event.Time, Kind: loop.EngineJoined, Engine: int32(i)}, origin: o})
	}
	if len(join) == 0 {
		r.deliver(&completion{event: loop.Event{Time: c.event.Time, Kind: loop.Tick}, origin: c.origin})
	}
}

// retained says which payloads a store keeps over a restart. A cell in another process may still say an event that names one,
// of a group that has not ended; its group's end drops those that do not count.
func (r *Runtime) retained() func(id port.RolloutID) bool {
	if len(r.opt.Cells) == 0 {
		return r.counted.Counts
	}
	live := map[loop.GroupID]bool{}
	for _, group := range r.l.LiveGroups() {
		live[group] = true
	}
	return func(id port.RolloutID) bool { return live[id.Group] || r.counted.Counts(id) }
}

// recoverCells has lost engines of cells in other processes tried again after the usual pause. Those of a cell that the log
// has no hello of join with that.
func (r *Runtime) recoverCells() {
	if r.opt.RejoinAfter <= 0 || r.opt.Fleet != nil { // recoverFleet does so
		return
	}
	for i := range r.opt.Engines {
		if n := r.cfg.CellOf(int32(i)); n > 0 && r.cells[r.opt.Cells[n-1]].Sequence > 0 && r.l.Lost(i) {
			r.engines[i] = quarantine{lost: true, tries: 1, pause: r.opt.RejoinAfter, due: r.clock() + r.opt.RejoinAfter.Nanoseconds(), away: r.now}
		}
	}
}
