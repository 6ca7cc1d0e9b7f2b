package track

import (
	"iter"

	"github.com/headway-rl/headway/loop"
)

// Phase is where an engine is in a weight sync.
type Phase uint8

// Phases. An engine is Apart from any sync; it loads, has loaded, gives up its rollouts for the switch (loop.SyncRestart),
// and switches.
const (
	Apart Phase = iota
	Loading
	Loaded
	Emptying
	Switching
)

// Engine is a rollout engine.
type Engine struct {
	// Slots are from slot First on; Active of them are taken.
	First, Slots, Active int32
	// Attempt is that of its newest load, of version Loading. It has been in its phase since SinceNS.
	Attempt int32
	Loading loop.Version
	SinceNS int64
	// Served is the version it serves, or did when it was lost.
	Served loop.Version
	Phase  Phase
	// Gone: it is lost, or came back and serves nothing yet. Failing: its load or switch failed in this step. Away: it is
	// the pool's that starts and stops engines, and no capacity.
	Gone, Failing, Away bool
}

// Reports returns the engine whose load or switch under way an event ends, nil for a late event and any other.
func (r *Run) Reports(ev *loop.Event) *Engine {
	if uint(ev.Engine) >= uint(len(r.Engines)) {
		return nil
	}
	e := &r.Engines[ev.Engine]
	switch {
	case e.Attempt != ev.Attempt || e.Loading != ev.Version:
	case ev.Kind == loop.WeightsLoaded && e.Phase == Loading,
		ev.Kind == loop.WeightsSwitched && e.Phase == Switching,
		ev.Kind == loop.SyncFailed && (e.Phase == Loading || e.Phase == Switching):
		return e
	}
	return nil
}

// On returns the slots of an engine, and the number of the first.
func (r *Run) On(e *Engine) (slots []Attempt, first int32) {
	return r.Slots[e.First : e.First+e.Slots], e.First
}

// MinServed is the lowest version that an engine serves, loop.NoVersion if none does.
func (r *Run) MinServed() loop.Version {
	lowest := loop.NoVersion
	for i := range r.Engines {
		if e := &r.Engines[i]; !e.Gone && (lowest == loop.NoVersion || e.Served < lowest) {
			lowest = e.Served
		}
	}
	return lowest
}

// engine takes an event of an engine.
func (r *Run) engine(ev *loop.Event) {
	if ev.Kind == loop.EngineLost {
		if !r.hasEngine(ev.Engine) || r.isLost(ev.Engine) { // it is late
			return
		}
		stand := r.Stand(ev)
		for i, goOn := range r.Loses(ev) {
			if stand {
				r.parkAll(&r.Engines[i])
				r.vacateAll(&r.Engines[i])
			}
			r.lose(i, goOn)
		}
		if !stand && r.endsCell(ev.Engine) {
			r.dropped = r.Parked.drop(r.cfg.CellOf(ev.Engine), r.dropped)
		}
		return
	}
	e := r.Reports(ev)
	switch {
	case e == nil:
	case ev.Kind == loop.SyncFailed:
		e.Failing = true
	case ev.Kind == loop.WeightsLoaded:
		r.enter(e, Loaded)
		if !e.Gone {
			r.empty()
		}
	case e.Gone && ev.Version < max(r.MinServed(), r.Synced): // the others have gone on, and it loads again
	default:
		e.Served, e.Gone = ev.Version, false
		r.enter(e, Apart)
	}
}

// told takes what an engine is told to load or to switch to.
func (r *Run) told(a *loop.Action) {
	e := &r.Engines[a.Engine]
	if a.Kind == loop.SwitchWeights {
		r.enter(e, Switching)
		return
	}
	r.leaves(e, false)                                   // one that the pool has given loads at once
	e.Gone = e.Gone || e.Failing && e.Phase == Switching // what it holds is unknown
	e.Attempt, e.Loading, e.Failing = a.Attempt, a.Version, false
	r.enter(e, Loading)
	if !r.Sync.Runs && !e.Gone {
		r.Sync = Sync{true, a.Version, r.NowNS}
	}
}

// enter has an engine begin a phase.
func (r *Run) enter(e *Engine, p Phase) {
	if e.Phase == Switching {
		r.Switching--
	}
	if p == Switching {
		r.Switching++
	}
	e.Phase, e.SinceNS = p, r.NowNS
}

// empty has engines that have loaded give up their rollouts for the switch (loop.SyncRestart): each for itself, or all of
// them once the last has loaded.
func (r *Run) empty() {
	if r.cfg.Sync != loop.SyncRestart {
		return
	}
	for i := range r.Engines {
		if e := &r.Engines[i]; !e.Gone && e.Phase == Loading && !r.cfg.RollingSwitch {
			return
		}
	}
	for i := range r.Engines {
		if e := &r.Engines[i]; !e.Gone && e.Phase == Loaded {
			r.enter(e, Emptying)
		}
	}
}

// Loses are the engines that an event ends: one that is lost, and at a restart those of the process that was restarted.
// GoOn says that rollouts of it say themselves that they were interrupted (loop.Config.ResumeLost). Those that stay in their
// cell (loop.Config.StaysInCell) cannot where its last engine is lost: such a loss is one of all engines of the cell.
func (r *Run) Loses(ev *loop.Event) iter.Seq2[int32, bool] {
	return func(yield func(engine int32, goOn bool) bool) {
		lost := ev.Kind == loop.EngineLost
		ends := lost && r.endsCell(ev.Engine)
		for i := range int32(len(r.Engines)) {
			switch {
			case lost && ev.Engine == i:
			case ends && r.cfg.CellOf(i) == r.cfg.CellOf(ev.Engine):
			case ev.Kind == loop.Recovered && r.cfg.Owns(i):
			default:
				continue
			}
			if !yield(i, lost && !ends && r.cfg.ResumeLost && !r.Stand(ev)) {
				return
			}
		}
	}
}

// endsCell reports whether an engine is the last of a cell that its rollouts cannot leave.
func (r *Run) endsCell(engine int32) bool {
	if !r.cfg.StaysInCell || !r.hasEngine(engine) || r.cfg.Owns(engine) {
		return false
	}
	for i := range r.Engines {
		if int32(i) != engine && r.cfg.CellOf(int32(i)) == r.cfg.CellOf(engine) && !r.isLost(int32(i)) {
			return false
		}
	}
	return true
}

// lose has an engine serve nothing any more. Its rollouts fail with it, or go on by events of their own.
func (r *Run) lose(i int32, goOn bool) {
	e := &r.Engines[i]
	e.Gone, e.Failing = true, false
	r.enter(e, Apart)
	r.empty()
	if !goOn {
		r.vacateAll(e)
	}
}

// release has an engine be the pool's. What stands interrupted in its cell, or is to, ends where no engine is left there.
func (r *Run) release(i int32) {
	e := &r.Engines[i]
	ends := !r.isLost(i) && r.endsCell(i)
	r.lose(i, r.cfg.ResumeLost)
	r.leaves(e, true)
	left := false
	for k := range r.Engines {
		if other := &r.Engines[k]; r.cfg.CellOf(int32(k)) == r.cfg.CellOf(i) {
			left = left || !other.Away
			if ends {
				r.vacateAll(other)
			}
		}
	}
	if ends || r.cfg.StaysInCell && !left {
		r.dropped = r.Parked.drop(r.cfg.CellOf(i), r.dropped)
	}
}

// Stand reports whether attempts at the engines that an event ends stand interrupted from then on, as another process takes
// the place of theirs (loop.Config.ResumeRestart).
func (r *Run) Stand(ev *loop.Event) bool {
	return r.cfg.ResumeRestart && (ev.Kind == loop.Recovered || ev.Kind == loop.EngineLost && ev.Reason == loop.ReasonRestart && r.hasEngine(ev.Engine) && !r.cfg.Owns(ev.Engine))
}

func (r *Run) hasEngine(engine int32) bool { return uint(engine) < uint(len(r.Engines)) }

// isLost reports whether an engine is lost. One without a load is.
func (r *Run) isLost(engine int32) bool {
	return r.Engines[engine].Gone && r.Engines[engine].Phase == Apart
}

func (r *Run) vacateAll(e *Engine) {
	slots, first := r.On(e)
	for i := range slots {
		if slots[i].Runs {
			r.vacate(first+int32(i), &slots[i])
		}
	}
}

// leaves has an engine be the pool's, or come from there.
func (r *Run) leaves(e *Engine, away bool) {
	if e.Away == away {
		return
	}
	e.Away = away
	if away {
		r.AwaySlots += int64(e.Slots)
	} else {
		r.AwaySlots -= int64(e.Slots)
	}
}

// SyncStops reports whether an engine starts nothing for the sync that it takes part in.
func (r *Run) SyncStops(e *Engine) bool {
	switch r.cfg.Sync {
	case loop.SyncPause:
		return e.Phase == Switching
	case loop.SyncDrain:
		return e.Phase != Apart
	case loop.SyncRestart:
		return e.Phase == Emptying || e.Phase == Switching
	}
	return false
}

// SyncHolds reports whether the weight sync under way keeps an idle trainer waiting. The rules have it
// wait for the sync, nothing generates, or half of the engines that serve start nothing for it.
func (r *Run) SyncHolds() bool {
	if !r.Sync.Runs {
		return false
	}
	if r.cfg.TrainerBlocked || r.Active == 0 {
		return true
	}
	serving, stopped := 0, 0
	for i := range r.Engines {
		if e := &r.Engines[i]; !e.Gone {
			serving++
			if r.SyncStops(e) {
				stopped++
			}
		}
	}
	return 2*stopped >= serving
}
