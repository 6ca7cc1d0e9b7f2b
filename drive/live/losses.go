package live

import (
	"errors"
	"fmt"
	"slices"

	"github.com/headway-rl/headway/loop"
)

// EngineLoss is a loss of an engine that is planned, to see what becomes of a run that
// loses it. Until it is over the engine is not tried again.
type EngineLoss struct {
	// Engine is its index.
	Engine int
	// AtNS is when it is lost, by the run's clock; DownNS after how long it joins again, 0 never.
	AtNS, DownNS int64
	// AtStep and BackStep, where AtStep is not 0, take the place of times. They are the versions after whose train
	// steps the engine is lost and joins again; BackStep 0 is never.
	AtStep, BackStep loop.Version
}

// errPlanned is the last error of an engine that is gone as planned.
var errPlanned = errors.New("its loss was planned")

// check reports what cannot be of a plan for so many engines.
func (l EngineLoss) check(engines int) error {
	byStep := l.AtStep != 0 || l.BackStep != 0
	switch {
	case l.Engine < 0 || l.Engine >= engines:
		return fmt.Errorf("live: the loss of engine %d is planned, and there are %d", l.Engine, engines)
	case l.AtNS < 0 || l.DownNS < 0 || byStep && (l.AtNS != 0 || l.DownNS != 0):
		return fmt.Errorf("live: engine %d is lost at %d ns for %d ns, or after step %d until step %d: want one of them, from 0 on", l.Engine, l.AtNS, l.DownNS, l.AtStep, l.BackStep)
	case byStep && (l.AtStep < 1 || l.BackStep != 0 && l.BackStep <= l.AtStep):
		return fmt.Errorf("live: engine %d is to be lost after step %d until step %d: want a step from 1 on, and a later one or 0", l.Engine, l.AtStep, l.BackStep)
	}
	return nil
}

// lasts reports whether the engine is gone at a time and a version.
func (l EngineLoss) lasts(now int64, version loop.Version) bool {
	if l.AtStep != 0 {
		return version >= l.AtStep && (l.BackStep == 0 || version < l.BackStep)
	}
	return now >= l.AtNS && (l.DownNS == 0 || now < l.AtNS+l.DownNS)
}

// next is the first time after now at which the loss begins or ends, loop.NoTick for none.
func (l EngineLoss) next(now int64) int64 {
	switch {
	case l.AtStep != 0:
	case now < l.AtNS:
		return l.AtNS
	case l.DownNS != 0 && now < l.AtNS+l.DownNS:
		return l.AtNS + l.DownNS
	}
	return loop.NoTick
}

// planned reports whether an engine is gone as planned.
func (r *Runtime) planned(engine int, now int64) bool {
	return slices.ContainsFunc(r.opt.Losses, func(l EngineLoss) bool { return l.Engine == engine && l.lasts(now, r.l.Version()) })
}

// loseAsPlanned tells the loop of engines whose planned loss has begun, or is over. A run
// that is recovered begins with all its engines, and loses anew those that are gone.
func (r *Runtime) loseAsPlanned() {
	if len(r.opt.Losses) == 0 {
		return
	}
	now := max(r.clock(), r.now)
	r.lossesAt = now
	for i := range r.engines {
		q := &r.engines[i]
		gone := r.planned(i, now)
		switch {
		case r.finished:
			return
		case gone && !q.planned:
			q.planned, q.due = true, loop.NoTick
			if !r.l.Lost(i) {
				r.deliver(&completion{event: loop.Event{Time: now, Kind: loop.EngineLost, Engine: int32(i), Reason: loop.ReasonEngine}, err: errPlanned})
			}
		case !gone && q.planned:
			q.planned = false
			if r.l.EngineState(i) == "lost" { // and not the fleet's
				q.lost, q.due = true, now // rejoin takes it from here
			}
		}
	}
}

// plannedDue is when the next planned loss begins or ends, loop.NoTick for never.
func (r *Runtime) plannedDue() int64 {
	due := loop.NoTick
	for _, l := range r.opt.Losses {
		due = min(due, l.next(r.lossesAt))
	}
	return due
}
