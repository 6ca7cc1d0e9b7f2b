package pool

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/internal/pause"
)

const (
	// checkTime is the longest that a box may take to show that it is alive.
	checkTime = 2 * time.Second
	// endTime is the longest that ending or resetting a box may take before it is tried otherwise.
	endTime = 30 * time.Second
	// tendEvery is how often the boxes that stand ready are looked after, and checkEvery how often one of
	// them is checked.
	tendEvery, checkEvery = time.Second, 10 * time.Second
	// stuckAfter so many tries a box counts as one that does not end.
	stuckAfter = 4
)

// giveBack takes a box from its lease. In the background it ends, or is reset and stands ready.
func (p *Pool) giveBack(m *member, clean bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.out[m]; !ok {
		return // the pool was closed, and has taken it
	}
	delete(p.out, m)
	useful := len(p.waiters) > 0 || len(p.ready)+p.checking < p.o.WarmMax
	if !clean || !useful || p.o.Reuse != Reset || m.uses >= p.o.Uses {
		p.end(m)
		return
	}
	p.ending++
	p.background.Go(func() { p.reset(m) })
}

// reset makes a box as if it were new, or ends it.
func (p *Pool) reset(m *member) {
	p.ends <- struct{}{}
	err := errors.ErrUnsupported
	if box, ok := m.box.(sandbox.Resetter); ok {
		ctx, cancel := context.WithTimeout(p.endCtx, endTime)
		err = box.Reset(ctx)
		cancel()
	}
	<-p.ends
	if err == nil {
		p.journal.opened(m.id)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ending--
	if class := sandbox.ClassOf(err); class != "" && !m.limited {
		p.counts.failures[class]++
	}
	if err != nil || p.closed {
		p.end(m)
		return
	}
	m.since = time.Now()
	m.checked = m.since
	p.offer(m)
	p.supply()
}

// end ends a box in the background. Until it is gone it counts against what there may be. It is called
// with the lock held.
func (p *Pool) end(m *member) {
	p.ending++
	p.background.Go(func() {
		gone := p.destroy(m)
		if gone {
			p.journal.gone(m.id)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.ending--
		p.supply()
	})
}

// destroy ends a box: by itself, else by its name, as often as that takes. It reports whether it is
// gone, which it is unless the pool gave up at its own end.
func (p *Pool) destroy(m *member) bool {
	for try := 0; ; try++ {
		p.ends <- struct{}{}
		err := p.destroyOnce(m, try)
		<-p.ends
		if err == nil {
			return true
		}
		if try == stuckAfter-1 {
			p.o.Logf("sandbox pool: the box %s does not end, it is tried again until it does: %v", m.id, err)
			p.sticks(1)
			defer p.sticks(-1)
		}
		if pause.For(p.endCtx, min(100*time.Millisecond<<min(try, 10), 30*time.Second)) != nil {
			return false
		}
	}
}

// sticks counts a box that does not end, or that has ended after all. Who waits for its room does so for as long as for a
// start: nobody knows when it ends.
func (p *Pool) sticks(boxes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stuck += boxes
	p.supply()
}

func (p *Pool) destroyOnce(m *member, try int) error {
	ctx, cancel := context.WithTimeout(p.endCtx, endTime)
	defer cancel()
	if m.box != nil && try == 0 {
		if err := m.box.Close(ctx); err == nil {
			return nil
		}
	}
	return p.o.Driver.Destroy(ctx, m.id)
}

// alive reports whether a box answers. It is asked for a file that nobody has: that costs a message and
// its answer, and no program.
func alive(ctx context.Context, m *member) bool {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	_, err := m.box.Read(ctx, sandbox.Work+"/.headway-alive", 1)
	return err == nil || harmless(err)
}

// harmless reports whether an error is an answer of a box that is well.
func harmless(err error) bool {
	class := sandbox.ClassOf(err)
	return class == sandbox.Refused || class.Kind().Limit || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrInvalid) || errors.Is(err, fs.ErrPermission) ||
		errors.Is(err, sandbox.ErrTooLarge) || errors.Is(err, errors.ErrUnsupported)
}

// died counts a box that was gone before anybody used it, and ends what is left of it. It is called
// with the lock held.
func (p *Pool) died(m *member) {
	p.counts.failures[sandbox.Lost]++
	p.o.Logf("sandbox pool: the box %s was gone while it stood ready", m.id)
	p.end(m)
}

// tend looks after the boxes that stand ready until the pool closes.
func (p *Pool) tend() {
	tick := time.NewTicker(tendEvery)
	defer tick.Stop()
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-tick.C:
			p.trim()
			p.check()
			p.wake()
		}
	}
}

// trim ends the box that has stood longest, and those like it, if more stand than are wanted.
func (p *Pool) trim() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	wanted := p.wanted(now)
	for len(p.ready) > wanted && now.Sub(p.ready[0].since) > standing {
		m := p.ready[0]
		p.ready = p.ready[1:]
		p.end(m)
	}
}

// check sees whether boxes that nobody has heard of for a while are alive. One that is being checked
// is taken out meanwhile, so that it is not handed out.
func (p *Pool) check() {
	for {
		m := p.unheard()
		if m == nil {
			return
		}
		ok := alive(p.ctx, m)
		p.mu.Lock()
		p.checking--
		switch {
		case p.closed:
			p.end(m)
		case !ok:
			p.died(m)
		case len(p.waiters) > 0:
			p.hand(p.waiters[0], m, true)
		default:
			m.checked = time.Now()
			p.putBack(m)
		}
		p.mu.Unlock()
	}
}

// unheard takes a box out that is to be checked, nil for none.
func (p *Pool) unheard() *member {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for i, m := range p.ready {
		if now.Sub(m.checked) >= checkEvery {
			p.ready = append(p.ready[:i], p.ready[i+1:]...)
			p.checking++
			return m
		}
	}
	return nil
}

// putBack puts a box among those that stand ready, by how long it has stood.
func (p *Pool) putBack(m *member) {
	at := 0
	for at < len(p.ready) && p.ready[at].since.Before(m.since) {
		at++
	}
	p.ready = append(p.ready, nil)
	copy(p.ready[at+1:], p.ready[at:])
	p.ready[at] = m
}
