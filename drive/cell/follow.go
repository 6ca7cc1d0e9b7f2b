package cell

import (
	"fmt"
	"slices"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/loop/trace"
)

// Entry is an event of the log, with what the log has of it beside.
type Entry struct {
	// Seq is the event's number, one more than that of the event before.
	Seq   int64
	Event loop.Event
	// Discarded: the score does not count, by a note behind it (trace.NoteDiscarded).
	Discarded bool
	// Origin is that of an event that a cell of another process than the writer's has said.
	Origin trace.Origin
	// Actions follow from the event.
	Actions []loop.Action
}

// Follow executes what an entry of the log says of the cell's engines, of attempts that play on them, and of groups. It
// passes over the rest, and over an entry that was executed before. An error says that the log goes on elsewhere, or with
// an entry of a kind that the cell does not know. Nothing of such an entry is executed.
//
// One goroutine calls it, in the order of the log. It keeps nothing of the entry, and does not block.
func (c *Cell) Follow(e *Entry) error {
	if err := c.join(e); err != nil {
		return err
	}
	switch {
	case e.Seq <= c.followed:
		return nil
	case e.Seq > c.followed+1:
		return fmt.Errorf("cell: the log goes on with event %d, and the cell has followed it to event %d: the events between are missing", e.Seq, c.followed)
	case !e.Event.Kind.Known():
		return fmt.Errorf("cell: event %d of the log is of the kind %v, unknown to this build: cell and control plane need the same one", e.Seq, e.Event.Kind)
	}
	for i := range e.Actions {
		if k := e.Actions[i].Kind; !k.Known() {
			return fmt.Errorf("cell: event %d of the log has an action of the kind %v, unknown to this build: cell and control plane need the same one", e.Seq, k)
		}
	}
	c.followed = e.Seq
	if e.Origin.Cell != "" {
		c.outbox.logged(e.Origin)
	}
	lost := c.hear(e)
	for i := range e.Actions {
		if a := &e.Actions[i]; !c.leaves(e, a) {
			c.execute(a)
		}
	}
	c.takeUp(e)
	if lost >= 0 {
		c.letGo(lost, e.Event.Reason)
	}
	return nil
}

// join has a cell that is a process of its own follow the log from the answer to its hello on. What was decided before is
// for another process. An error says that one has taken the cell's place.
func (c *Cell) join(e *Entry) error {
	o := &e.Origin
	if c.opt.Name == "" || o.Cell != c.opt.Name {
		if !c.joined {
			if c.followed = e.Seq; e.Event.Kind == loop.Recovered {
				c.outbox.repeat()
			}
		}
		return nil
	}
	switch {
	case o.Incarnation > c.opt.Incarnation:
		return &Refusal{Why: Replaced(o.Cell, c.opt.Incarnation, o.Incarnation)}
	case c.joined:
	case o.Incarnation == c.opt.Incarnation:
		c.joined, c.joining, c.followed = true, true, e.Seq-1
		c.opt.Logf("cell %s: the run has it join, from event %d of its log on", c.opt.Name, e.Seq)
	default:
		c.followed = e.Seq
	}
	return nil
}

// leaves reports whether an action begins something on an engine that is lost by an entry behind its own. As a process comes, the
// engines of the one before are lost one after the other, and the loop has what played on the first go on at the next. The entry
// that loses that has it interrupted.
func (c *Cell) leaves(e *Entry, a *loop.Action) bool {
	return c.joining && e.Event.Kind == loop.EngineLost && (a.Kind == loop.StartRollout || a.Kind == loop.ResumeRollout) && c.owns(a.Engine)
}

// hear takes the event of an entry. It returns the engine of the cell that the loop has lost by it, -1 for none.
func (c *Cell) hear(e *Entry) (lost int32) {
	switch ev := &e.Event; ev.Kind {
	case loop.RolloutScored, loop.RolloutFailed, loop.RolloutAborted:
		counted := ev.Kind == loop.RolloutScored && ev.Mark != loop.MarkPruned && !e.Discarded
		id := port.RolloutID{Group: ev.Group, Sample: ev.Sample, Attempt: ev.Attempt}
		c.logged(id, counted)
		if e.Discarded && c.opt.Name == "" && e.Origin.Cell != "" {
			c.discard(id) // another process has put it, and this one's store has it
		}
		if p := c.groups[id.Group][id.Sample]; ev.Reason == loop.ReasonRestart && p != nil && p.task.ID == id {
			p.abort() // the writer said so in the cell's place, which it took for lost
		}
	case loop.Recovered: // by a writer that goes on behind what the log shows
		c.outbox.repeat()
	case loop.TrainStepEnded, loop.TrainStepFailed, loop.LeaseReturned:
		c.trainerBusy(false)
	case loop.EngineLost:
		if c.owns(ev.Engine) {
			return ev.Engine
		}
	case loop.EngineJoined:
		if c.owns(ev.Engine) {
			c.gone[ev.Engine] = false
		}
	case loop.WeightsLoaded, loop.WeightsSwitched, loop.SyncFailed:
		if !c.owns(ev.Engine) || !c.syncs[ev.Engine].answers(ev) {
			break
		}
		c.syncs[ev.Engine] = underWay{}
		if ev.Kind == loop.SyncFailed && !slices.ContainsFunc(e.Actions, func(a loop.Action) bool { return a.Kind == loop.LoadWeights && a.Engine == ev.Engine }) {
			return ev.Engine // which is not to try again
		}
	}
	return -1
}

// execute takes an action.
func (c *Cell) execute(a *loop.Action) {
	switch a.Kind {
	case loop.StartRollout:
		c.start(a)
	case loop.ResumeRollout:
		c.resume(a)
	case loop.InterruptRollout:
		if p := c.attempt(a); p != nil && a.Slot >= 0 {
			p.interrupt()
		}
	case loop.AbortRollout:
		if p := c.attempt(a); p != nil {
			p.abort()
		}
	case loop.LoadWeights, loop.SwitchWeights:
		if c.owns(a.Engine) {
			c.sync(a)
		}
	case loop.ReleaseEngine:
		if c.owns(a.Engine) {
			if e, ok := port.As[port.Returned](c.opt.Engines[a.Engine]); ok {
				e.Returned()
			}
			c.gone[a.Engine] = true
			c.leave(a.Engine)
		}
	case loop.StartTrainStep:
		c.trainerBusy(true)
	case loop.GroupTrained:
		if c.opt.Rules.Policy != loop.PolicyReplay { // there its payloads may be trained on again
			c.endGroup(a.Group)
		}
	case loop.GroupEnded:
		c.endGroup(a.Group)
	}
}

// owns reports whether an engine is one of the cell's.
func (c *Cell) owns(engine int32) bool {
	return engine >= 0 && int(engine) < len(c.opt.Engines) && c.opt.Engines[engine] != nil
}

// leave has an engine play no held-out prompts until it joins.
func (c *Cell) leave(engine int32) {
	if shared, ok := port.As[*sharedEngine](c.opt.Engines[engine]); ok {
		shared.leave()
	}
}

// letGo aborts what plays on an engine that is lost, unless the loop has it interrupted. With its last engine all ends that stays
// in the cell, unless that is for a restart of its process.
func (c *Cell) letGo(engine int32, why loop.Reason) {
	c.syncs[engine], c.gone[engine] = underWay{}, true
	c.leave(engine)
	ends := c.opt.Name != "" && c.opt.Rules.StaysInCell && why != loop.ReasonRestart && !c.hasEngine()
	if c.opt.Rules.ResumeLost && !ends {
		return
	}
	for _, group := range c.groups {
		for _, p := range group {
			if ends || p.playsOn(engine) {
				p.abort()
			}
		}
	}
}

// hasEngine reports whether the loop has an engine of the cell that is not lost.
func (c *Cell) hasEngine() bool {
	for i, gone := range c.gone {
		if !gone && c.owns(int32(i)) {
			return true
		}
	}
	return false
}
