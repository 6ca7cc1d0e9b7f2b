package pool

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"sync"
	"time"

	"github.com/headway-rl/headway/env/sandbox"
)

// Lease is a box for one holder, which is there from its first use on. It is a sandbox.Box, a
// sandbox.Resetter and a sandbox.Snapshotter; where the driver's boxes are none of the last two, an error
// wraps errors.ErrUnsupported. A box that is lost in use is not replaced: its content is gone, and its
// holder has to know.
type Lease struct {
	pool   *Pool
	holder string
	done   chan struct{} // closed by Close
	using  sync.Mutex    // held by a use of the box from its beginning to its end

	mu      sync.Mutex
	member  *member // nil before there is a box
	closed  bool
	busy    bool // something runs in the box
	tainted bool // the box is not to be handed out again
	lost    bool // it was counted as lost
	waited  time.Duration
	started time.Duration
}

// Holder whose lease it is.
func (l *Lease) Holder() string { return l.holder }

// ID of the box, empty while there is none.
func (l *Lease) ID() sandbox.ID {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.member == nil {
		return ""
	}
	return l.member.id
}

// Waited is how long the lease waited because no box might start; 0 before it asked for one.
func (l *Lease) Waited() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waited
}

// Started is how long its box took from then on, whether it came up or not: a box that stood ready
// takes only its check.
func (l *Lease) Started() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.started
}

// Ready gets the box now, which the first use does otherwise. Once there is one, it does nothing. After
// an error it may be called again.
func (l *Lease) Ready(ctx context.Context) error {
	l.using.Lock()
	defer l.using.Unlock()
	return l.ready(ctx)
}

func (l *Lease) ready(ctx context.Context) error {
	l.mu.Lock()
	has, closed := l.member != nil, l.closed
	l.mu.Unlock()
	switch {
	case closed:
		return sandbox.Fail(sandbox.Lost, "run", l.ID(), "the lease has been given back")
	case has:
		return nil
	}
	m, w, err := l.pool.get(ctx, l)
	now := time.Now()
	if w.begun.IsZero() {
		w.begun = now
	}
	l.mu.Lock()
	l.waited, l.started = w.begun.Sub(w.asked), now.Sub(w.begun)
	if closed = l.closed; !closed {
		l.member = m
	}
	l.mu.Unlock()
	if m != nil && closed {
		l.pool.giveBack(m, false)
		return sandbox.Fail(sandbox.Lost, "create", m.id, "the lease has been given back")
	}
	return err
}

// get waits for a box for a lease: one that is alive.
func (p *Pool) get(ctx context.Context, l *Lease) (*member, *waiter, error) {
	w := &waiter{got: make(chan handed, 1), asked: time.Now()}
	for {
		got := p.wait(ctx, l, w)
		if got.err != nil {
			return nil, w, got.err
		}
		w.begins(time.Now())
		// Before the check, so that a crash from here on finds the holder.
		p.journal.leased(got.member.id, l.holder)
		if got.hit && !alive(ctx, got.member) && ctx.Err() == nil {
			p.discard(got.member)
			continue
		}
		p.handedOut(got, time.Since(w.asked))
		return got.member, w, nil
	}
}

// wait queues until there is a box: at the end, or at its old place if what it got was dead.
func (p *Pool) wait(ctx context.Context, l *Lease, w *waiter) handed {
	p.enqueue(w)
	select {
	case got := <-w.got:
		return got
	case <-l.done:
		return p.abandon(w, sandbox.Fail(sandbox.Lost, "create", "", "the lease has been given back"))
	case <-ctx.Done():
		return p.abandon(w, ctx.Err())
	}
}

func (p *Pool) enqueue(w *waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		w.got <- handed{err: errClosed()}
		return
	}
	if w.place == 0 {
		p.places++
		w.place = p.places
		p.demand.asked(w.asked)
	}
	at, _ := slices.BinarySearchFunc(p.waiters, w, func(a, b *waiter) int { return int(a.place - b.place) })
	p.waiters = slices.Insert(p.waiters, at, w)
	p.supply()
}

// abandon takes a waiter out that does not wait any longer. A box that it got meanwhile goes back.
func (p *Pool) abandon(w *waiter, err error) handed {
	p.mu.Lock()
	defer p.mu.Unlock()
	if slices.Contains(p.waiters, w) {
		p.leave(w, handed{err: err})
		p.supply()
	}
	got := <-w.got
	if m := got.member; m != nil {
		if _, ok := p.out[m]; ok {
			delete(p.out, m)
			p.offer(m)
			p.supply()
		}
		return handed{err: err}
	}
	return handed{err: err}
}

// discard ends a box that was handed out and turned out dead.
func (p *Pool) discard(m *member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.out[m]; ok {
		delete(p.out, m)
		p.died(m)
	}
}

// handedOut counts a box that has reached its lease.
func (p *Pool) handedOut(got handed, waited time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if got.member.uses++; got.member.uses > 1 {
		p.counts.reused++
	} else {
		p.counts.created++
	}
	if got.hit {
		p.counts.hits++
	}
	p.counts.wait.add(waited)
}

// Run implements sandbox.Box.
func (l *Lease) Run(ctx context.Context, command sandbox.Command) (result sandbox.Result, err error) {
	err = l.use(ctx, func(box sandbox.Box) (err error) {
		result, err = box.Run(ctx, command)
		return err
	})
	if result.Limit != "" {
		l.limited(result.Limit)
	}
	return result, err
}

// Read implements sandbox.Box.
func (l *Lease) Read(ctx context.Context, path string, limit int64) (content []byte, err error) {
	err = l.use(ctx, func(box sandbox.Box) (err error) {
		content, err = box.Read(ctx, path, limit)
		return err
	})
	return content, err
}

// Write implements sandbox.Box.
func (l *Lease) Write(ctx context.Context, path string, content []byte, mode fs.FileMode) error {
	return l.use(ctx, func(box sandbox.Box) error { return box.Write(ctx, path, content, mode) })
}

// Reset implements sandbox.Resetter.
func (l *Lease) Reset(ctx context.Context) error {
	return l.use(ctx, func(box sandbox.Box) error {
		if box, ok := box.(sandbox.Resetter); ok {
			return box.Reset(ctx)
		}
		return l.unsupported("reset", box)
	})
}

// Snapshot implements sandbox.Snapshotter.
func (l *Lease) Snapshot(ctx context.Context) (snapshot []byte, err error) {
	err = l.use(ctx, func(box sandbox.Box) (err error) {
		if box, ok := box.(sandbox.Snapshotter); ok {
			snapshot, err = box.Snapshot(ctx)
			return err
		}
		return l.unsupported("snapshot", box)
	})
	return snapshot, err
}

// Restore implements sandbox.Snapshotter.
func (l *Lease) Restore(ctx context.Context, snapshot []byte) error {
	return l.use(ctx, func(box sandbox.Box) error {
		if box, ok := box.(sandbox.Snapshotter); ok {
			return box.Restore(ctx, snapshot)
		}
		return l.unsupported("restore", box)
	})
}

func (l *Lease) unsupported(op string, box sandbox.Box) error {
	return sandbox.Fail(sandbox.Refused, op, box.ID(), "boxes of %s cannot: %w", l.pool.o.Driver.Name(), errors.ErrUnsupported)
}

// use does something with the box, and judges how that ended.
func (l *Lease) use(ctx context.Context, do func(sandbox.Box) error) error {
	l.using.Lock()
	defer l.using.Unlock()
	if err := l.ready(ctx); err != nil {
		return err
	}
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return sandbox.Fail(sandbox.Lost, "run", "", "the lease has been given back")
	}
	l.busy = true
	m := l.member
	l.mu.Unlock()

	err := do(m.box)

	l.mu.Lock()
	defer l.mu.Unlock()
	l.busy = false
	l.tainted = l.tainted || err != nil && !harmless(err)
	class := sandbox.ClassOf(err)
	if class == "" || l.closed || ctx.Err() != nil || class == sandbox.Lost && l.lost {
		return err // no failure, or one that is asked for, or known
	}
	l.lost = class == sandbox.Lost
	l.pool.failed(class)
	return err
}

// limited counts a limit that a command met.
func (l *Lease) limited(limit sandbox.Class) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pool.failed(limit)
	l.pool.mu.Lock()
	defer l.pool.mu.Unlock()
	l.member.limited = true
}

// failed counts what befell a box, or a limit that something met.
func (p *Pool) failed(class sandbox.Class) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if class.Kind().Limit {
		p.counts.limits[class]++
	} else {
		p.counts.failures[class]++
	}
}

// Close gives the box back and returns at once: it is reset or ends in the background. A command that
// runs in it ends with a Failure of class Lost. It never fails, and may be called again.
func (l *Lease) Close(context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	close(l.done)
	if l.member != nil {
		l.pool.giveBack(l.member, !l.tainted && !l.busy)
	}
	return nil
}
