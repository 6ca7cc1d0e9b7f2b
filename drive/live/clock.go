package live

import "sync/atomic"

// runClock is the run's time: that of Options.Clock since the loop began, as it
// never falls. A clock that is set back stands still until it has caught up; one that
// jumps ahead takes the run along, and what was due in between is due at once.
type runClock struct {
	zero, newest atomic.Int64
}

// clock returns the run's time in nanoseconds, from any goroutine.
func (r *Runtime) clock() int64 {
	now := r.opt.Clock() - r.time.zero.Load()
	for {
		newest := r.time.newest.Load()
		if now <= newest {
			return newest
		}
		if r.time.newest.CompareAndSwap(newest, now) {
			return now
		}
	}
}

// NowNS is the run's time in nanoseconds, as its events have it: for what is recorded beside them. It
// may be called from any goroutine; before the run has begun it means nothing.
func (r *Runtime) NowNS() int64 { return r.clock() }

// startClock makes this instant the beginning of the run: what came before, the
// wait for version 0 above all, is no part of it.
func (r *Runtime) startClock() {
	r.time.zero.Store(r.opt.Clock())
	r.time.newest.Store(0)
}
