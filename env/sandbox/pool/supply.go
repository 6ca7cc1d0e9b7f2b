package pool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/headway-rl/headway/env/sandbox"
)

// waiter is a lease that wants a box. All but got is guarded by the pool's lock.
type waiter struct {
	got chan handed // takes one value
	// place in the queue: the lower goes first. 0 for one that has not had one.
	place int64
	asked time.Time
	// begun is when its first start began, zero before.
	begun time.Time
	// start is the one that is under way for it, nil for none.
	start *start
	retrying
	// late ends its wait once there was room for it for too long; again wakes it to be tried again.
	late, again *time.Timer
}

// handed is what a waiter gets: a box, which stood ready or did not, or the reason for none.
type handed struct {
	member *member
	hit    bool
	err    error
}

// retrying counts starts that failed in a row, for one who has them tried again.
type retrying struct {
	failed int
	next   time.Time // not to be tried before
	last   error
}

// start is a box that is being made. It is begun for a waiter, but whoever waits longest gets the box:
// the waiter is who is charged if it fails. nil is for stock, or where its waiter is gone.
type start struct {
	id    sandbox.ID
	began time.Time
	by    *waiter
	probe bool
}

// wake lets the supply look again.
func (p *Pool) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.supply()
}

// supply hands out what is there and starts what is missing. It is called with the lock held, whenever
// something has changed.
func (p *Pool) supply() {
	if p.closed {
		return
	}
	now := time.Now()
	for len(p.ready) > 0 && len(p.waiters) > 0 {
		last := len(p.ready) - 1
		m := p.ready[last]
		p.ready = p.ready[:last]
		p.hand(p.waiters[0], m, true)
	}
	if p.breaker.refuses(now) {
		p.counts.failures[sandbox.BackendDown] += int64(len(p.waiters))
		p.refuse(sandbox.Fail(sandbox.BackendDown, "create", "",
			"the last %d starts failed, none is tried before %v have passed; the last: %w", p.breaker.failed, p.o.BreakFor, p.breaker.last))
		return
	}
	p.startForWaiters(now)
	stock := p.wanted(now) - len(p.ready) - p.checking - p.unclaimed()
	for ; stock > 0 && !now.Before(p.spare.next) && p.mayStart(now); stock-- {
		p.begin(nil, now)
	}
}

// startForWaiters sees that as many boxes are on their way as are waited for, as far as they may.
func (p *Pool) startForWaiters(now time.Time) {
	for i, w := range p.waiters {
		if w.late == nil && (p.o.Max == 0 || i < p.o.Max-len(p.out)-p.ending+p.stuck) {
			w.late = time.AfterFunc(p.o.StartTimeout, func() { p.expire(w) })
		}
		if w.start != nil {
			continue
		}
		if s := p.anyUnclaimed(); s != nil {
			s.by, w.start = w, s
			w.begins(now)
		} else if !now.Before(w.next) && p.mayStart(now) {
			p.begin(w, now)
		}
	}
}

func (w *waiter) begins(now time.Time) {
	if w.begun.IsZero() {
		w.begun = now
	}
}

// wanted is how many boxes should stand ready.
func (p *Pool) wanted(now time.Time) int {
	if p.closed || p.o.WarmMax == 0 {
		return 0
	}
	return p.demand.wanted(now, p.o.WarmMin, p.o.WarmMax)
}

// unclaimed counts the starts that nobody waits for.
func (p *Pool) unclaimed() (n int) {
	for _, s := range p.starts {
		if s.by == nil {
			n++
		}
	}
	return n
}

func (p *Pool) anyUnclaimed() *start {
	for _, s := range p.starts {
		if s.by == nil {
			return s
		}
	}
	return nil
}

// mayStart reports whether there is room for another box, and for another start.
func (p *Pool) mayStart(now time.Time) bool {
	all := len(p.starts) + len(p.ready) + p.checking + len(p.out) + p.ending
	return len(p.starts) < p.o.Starting && (p.o.Max == 0 || all < p.o.Max) && p.breaker.allows(now)
}

// begin starts a box, for a waiter or for stock.
func (p *Pool) begin(w *waiter, now time.Time) {
	p.made++
	s := &start{id: sandbox.ID(p.o.Owner + "." + p.epoch + "-" + strconv.FormatInt(p.made, 10)), began: now, by: w, probe: p.breaker.begins()}
	if w != nil {
		w.start = s
		w.begins(now)
	}
	p.starts = append(p.starts, s)
	p.background.Go(func() {
		p.journal.opened(s.id)
		ctx, cancel := context.WithTimeout(p.ctx, p.o.StartTimeout)
		box, err := p.o.Driver.Create(ctx, s.id, p.o.Spec)
		if err == nil && w == nil && !alive(ctx, &member{box: box}) {
			// Asking it also spares its lease what a first answer takes: its program's pages are there then.
			err = sandbox.Fail(sandbox.StartFailed, "create", s.id, "it came up and did not answer")
		}
		cancel()
		p.started(s, box, err)
	})
}

// started takes the box that was started, or the reason for none.
func (p *Pool) started(s *start, box sandbox.Box, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.starts = slices.DeleteFunc(p.starts, func(other *start) bool { return other == s })
	if s.by != nil {
		s.by.start = nil
	}
	m := &member{id: s.id, box: box, since: now, checked: now}
	if err != nil {
		m.box = nil // it may be there in part
	}
	switch {
	case p.closed:
		p.end(m)
		return
	case err == nil:
		p.breaker.ended(now, s.probe, nil)
		p.spare = retrying{}
		p.counts.start.add(now.Sub(s.began))
		p.demand.started(now.Sub(s.began))
		p.offer(m)
	default:
		p.end(m)
		p.startFailed(s, failure(s.id, err), now)
	}
	p.supply()
}

// failure is a start's error with its class.
func failure(id sandbox.ID, err error) *sandbox.Failure {
	if f, ok := errors.AsType[*sandbox.Failure](err); ok {
		return f
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return sandbox.Fail(sandbox.StartTimeout, "create", id, "%w", err)
	}
	return sandbox.Fail(sandbox.StartFailed, "create", id, "%w", err)
}

// startFailed counts a start that failed, and sees that it is tried again or that its waiter hears of it.
func (p *Pool) startFailed(s *start, err *sandbox.Failure, now time.Time) {
	p.counts.failures[err.Class]++
	// A backend that has no room, or that refuses what was asked for, is not sick.
	if sick := err.Class != sandbox.Quota && err.Class != sandbox.Refused; sick {
		if p.breaker.ended(now, s.probe, err) {
			p.o.Logf("sandbox pool: %d starts in a row failed, none is tried for %v: %v", p.breaker.failed, p.o.BreakFor, err)
		}
	} else if s.probe {
		p.breaker.ended(now, true, nil)
	}
	if s.by == nil {
		delay := p.delays(&p.spare, err, now)
		if p.stock != nil {
			p.stock.Stop()
		}
		p.stock = time.AfterFunc(delay, p.wake)
		return
	}
	w := s.by
	delay := p.delays(&w.retrying, err, now)
	// A backend without room is asked until the lease's time is over: others give their boxes back.
	if !err.Class.Kind().Again || err.Class != sandbox.Quota && w.failed > p.o.Retries {
		p.leave(w, handed{err: fmt.Errorf("sandbox pool: no box after %d starts: %w", w.failed, err)})
		return
	}
	w.again = time.AfterFunc(delay, p.wake)
}

// delays notes a failed start and says after how long the next may be tried: a twentieth of a second,
// twice that and so on up to 5 s, each half or one and a half times as long, so that those who failed
// together do not come back together.
func (p *Pool) delays(r *retrying, err error, now time.Time) time.Duration {
	delay := min(50*time.Millisecond<<min(r.failed, 10), 5*time.Second)
	delay = time.Duration(float64(delay) * (0.5 + p.o.Rand()))
	r.failed, r.last, r.next = r.failed+1, err, now.Add(delay)
	return delay
}

// offer gives a box to who waits longest, or puts it by; one too many ends.
func (p *Pool) offer(m *member) {
	switch {
	case len(p.waiters) > 0:
		p.hand(p.waiters[0], m, false)
	case len(p.ready)+p.checking < p.o.WarmMax:
		p.ready = append(p.ready, m)
	default:
		p.end(m)
	}
}

// hand gives a box to a waiter.
func (p *Pool) hand(w *waiter, m *member, hit bool) {
	p.out[m] = struct{}{}
	p.leave(w, handed{member: m, hit: hit})
}

// refuse tells all who wait that they get nothing.
func (p *Pool) refuse(err *sandbox.Failure) {
	for len(p.waiters) > 0 {
		p.leave(p.waiters[0], handed{err: err})
	}
}

// expire ends the wait of one for whom there was room, or would be if boxes ended, and no box in time.
func (p *Pool) expire(w *waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.Contains(p.waiters, w) {
		return
	}
	class, last := sandbox.StartTimeout, w.last
	switch {
	case last == nil && w.start == nil && p.stuck > 0:
		last = fmt.Errorf("boxes that do not end take the room of %d: %w", p.stuck, context.DeadlineExceeded)
	case last == nil:
		last = context.DeadlineExceeded
	case sandbox.ClassOf(last) == sandbox.Quota:
		class = sandbox.Quota
	}
	p.counts.failures[class]++
	p.leave(w, handed{err: sandbox.Fail(class, "create", "", "no box within %v: %w", p.o.StartTimeout, last)})
	p.supply()
}

// leave takes a waiter out of the queue, with what it gets.
func (p *Pool) leave(w *waiter, with handed) {
	p.waiters = slices.DeleteFunc(p.waiters, func(other *waiter) bool { return other == w })
	if w.start != nil {
		w.start.by, w.start = nil, nil
	}
	for _, timer := range []*time.Timer{w.late, w.again} {
		if timer != nil {
			timer.Stop()
		}
	}
	w.late, w.again = nil, nil
	w.got <- with
}
