package live

import (
	"fmt"
	"time"

	"github.com/headway-rl/headway/loop"
)

// rejoinMost bounds the pause between two tries with a lost engine, in times the first.
const rejoinMost = 60

// quarantine is what the runtime knows of an engine that the loop counts as lost.
type quarantine struct {
	// lost: the loop counts it as lost.
	lost bool
	// planned: it is gone because Options.Losses says so.
	planned bool
	// tries counts the times it was lost since it served last.
	tries int
	// pause until it is tried again, and when that is; loop.NoTick for never.
	pause time.Duration
	due   int64
	err   error // of the last load or switch
	// soon: it is tried without a pause once it is lost, for nobody knows whether it is there.
	soon bool
}

// watchEngine looks, after an event about an engine, whether the loop has lost it or
// has it serve again.
func (r *Runtime) watchEngine(c *completion) {
	ev := &c.event
	if ev.Kind < loop.WeightsLoaded || ev.Kind > loop.EngineJoined || ev.Engine < 0 || int(ev.Engine) >= len(r.engines) {
		return
	}
	q := &r.engines[ev.Engine]
	if c.err != nil {
		q.err = c.err
	}
	switch lost := r.l.Lost(int(ev.Engine)); {
	case lost && r.l.EngineState(int(ev.Engine)) != "lost": // it was to leave, or has left
		r.letGo(int(ev.Engine))
	case lost && !q.lost:
		r.quarantine(int(ev.Engine))
	case !lost && ev.Kind == loop.WeightsSwitched:
		if q.tries > 0 {
			r.logf("live: engine %s serves again, with version %d", r.opt.Engines[ev.Engine].Name(), ev.Version)
		}
		*q = quarantine{due: loop.NoTick, planned: q.planned}
	}
}

// quarantine announces a lost engine, stops what it still plays and decides when it is
// tried again.
func (r *Runtime) quarantine(engine int) {
	q := &r.engines[engine]
	q.lost, q.due = true, loop.NoTick
	if q.soon {
		q.soon, q.due = false, r.clock()
		r.letGo(engine)
		return
	}
	q.tries++
	again := "it stays out"
	if first := r.opt.RejoinAfter; q.planned {
		again = "it is back when its loss is over"
	} else if first > 0 {
		q.pause = first
		for range min(q.tries-1, 10) {
			q.pause = min(2*q.pause, rejoinMost*first)
		}
		q.due = r.clock() + q.pause.Nanoseconds()
		again = fmt.Sprintf("it is tried again in %v", q.pause)
	}
	theirs := ""
	switch {
	case q.tries > 1: // it had none
	case r.cfg.ResumeLost:
		theirs = "its rollouts go on elsewhere with the tokens they have; "
	default:
		theirs = "its rollouts are tried again elsewhere; "
	}
	r.logf("live: engine %s is lost, for the %s time since it served last; %s%s; last error: %v",
		r.opt.Engines[engine].Name(), ordinal(q.tries), theirs, again, q.err)
	r.letGo(engine)
}

// letGo stops what a lost engine still plays.
func (r *Runtime) letGo(engine int) {
	if r.cfg.ResumeLost {
		return // the loop has them interrupted, and what they have goes on elsewhere
	}
	for _, g := range r.groups {
		for _, p := range g {
			if slot, _, runs := p.outstanding(); runs && r.engineOf[slot] == int32(engine) {
				p.abort()
			}
		}
	}
}

// ordinal renders a small number for a sentence.
func ordinal(n int) string {
	switch {
	case n%10 == 1 && n%100 != 11:
		return fmt.Sprintf("%dst", n)
	case n%10 == 2 && n%100 != 12:
		return fmt.Sprintf("%dnd", n)
	case n%10 == 3 && n%100 != 13:
		return fmt.Sprintf("%drd", n)
	}
	return fmt.Sprintf("%dth", n)
}

// rejoin tells the loop of lost engines whose pause is over: it has them load the
// newest version in full. Where there is a fleet, that brings them back first.
func (r *Runtime) rejoin() {
	for i := range r.engines {
		q := &r.engines[i]
		now := r.clock()
		switch {
		case !q.lost || q.due > now:
		case r.opt.Fleet != nil && !r.finished:
			q.due = loop.NoTick
			r.bringBack(i)
		default:
			q.lost, q.due = false, loop.NoTick
			r.deliver(&completion{event: loop.Event{Time: now, Kind: loop.EngineJoined, Engine: int32(i)}})
		}
	}
}

// rejoinDue is when the next lost engine is to be tried again, loop.NoTick for never.
func (r *Runtime) rejoinDue() int64 {
	due := loop.NoTick
	for i := range r.engines {
		if q := &r.engines[i]; q.lost {
			due = min(due, q.due)
		}
	}
	return due
}
