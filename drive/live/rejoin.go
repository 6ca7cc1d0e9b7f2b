package live

import (
	"fmt"
	"strings"
	"time"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
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
	// said is by what it was said to be lost, empty before; away is since when it has not served.
	said string
	away int64
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
		r.letGo(ev.Engine)
	case lost && !q.lost:
		r.quarantine(int(ev.Engine))
	case !lost && ev.Kind == loop.WeightsSwitched:
		if q.tries > 0 {
			tries := "1 try"
			if q.tries > 1 {
				tries = fmt.Sprintf("%d tries", q.tries)
			}
			r.logf("engine %s serves again, with version %d, after %v and %s", r.opt.Engines[ev.Engine].Name(), ev.Version, time.Duration(r.now-q.away).Round(time.Second), tries)
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
		r.letGo(int32(engine))
		return
	}
	if q.tries++; q.tries == 1 {
		q.away = r.now
	}
	again := "it stays out"
	if first := r.opt.RejoinAfter; q.planned {
		again = "it is back when its loss is over"
	} else if first > 0 {
		q.pause = first
		for range min(q.tries-1, 10) {
			q.pause = min(2*q.pause, rejoinMost*first)
		}
		q.due = r.clock() + q.pause.Nanoseconds()
		again = fmt.Sprintf("it is tried again in %v, then ever less often, up to every %v", q.pause, rejoinMost*first)
		if r.opt.Fleet == nil && r.leases.lost(r.cfg.CellOf(int32(engine))) {
			again = "it is tried again when its cell is heard"
		}
	}
	r.sayLost(engine, again)
	r.letGo(int32(engine))
}

// sayLost says that an engine is lost, by what, and what becomes of its rollouts: when that begins, and when
// a try fails by something else. Tries that fail alike are counted by the status, and when it serves again.
func (r *Runtime) sayLost(engine int, again string) {
	q, name := &r.engines[engine], r.opt.Engines[engine].Name()
	cause := strings.ReplaceAll(fmt.Sprint(q.err), "engine "+name+": ", "")
	cause = strings.ReplaceAll(cause, port.ErrEngineDown.Error()+": ", "")
	way := sameWay(cause)
	if way == q.said {
		return
	}
	q.said = way
	switch theirs := "its rollouts are tried again elsewhere"; {
	case q.tries > 1: // it had none
		r.logf("engine %s is still lost, now by: %s", name, cause)
	default:
		if r.cfg.ResumeLost && !r.leases.lost(r.cfg.CellOf(int32(engine))) {
			theirs = "its rollouts go on elsewhere with the tokens they have"
		}
		r.logf("engine %s is lost: %s; %s; %s", name, cause, theirs, again)
	}
}

// letGo takes what a lost engine still plays as not wanted, as its cell does.
func (r *Runtime) letGo(engine int32) {
	if r.cfg.ResumeLost {
		return // the loop has them interrupted, and what they have goes on elsewhere
	}
	for e, h := range r.started.running() {
		if e == engine {
			h.runs = false
		}
	}
}

// rejoin tells the loop of lost engines whose pause is over: it has them load the
// newest version in full. Where there is a fleet, that brings them back first.
func (r *Runtime) rejoin() {
	r.tendFleet()
	for i := range r.engines {
		q := &r.engines[i]
		now := r.clock()
		switch {
		case !q.lost || q.due > now:
		case r.opt.Fleet != nil && !r.finished: // which may start its cell as well
			q.due = loop.NoTick
			r.bringBack(i)
		case r.leases.lost(r.cfg.CellOf(int32(i))):
		default:
			q.lost, q.due = false, loop.NoTick
			r.deliver(&completion{event: loop.Event{Time: now, Kind: loop.EngineJoined, Engine: int32(i)}})
		}
	}
}

// rejoinDue is when the next lost engine is to be tried again, loop.NoTick for never.
func (r *Runtime) rejoinDue() int64 {
	due := r.fleet.again
	for i := range r.engines {
		if q := &r.engines[i]; q.lost && (r.opt.Fleet != nil || !r.leases.lost(r.cfg.CellOf(int32(i)))) {
			due = min(due, q.due)
		}
		if kept := r.fleet.kept[i].Load(); kept > 0 && r.l.EngineState(i) == "away" {
			due = min(due, kept)
		}
	}
	return due
}
