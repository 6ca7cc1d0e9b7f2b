package pool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/env/sandbox"
)

// ErrClosed is wrapped by what leases of a closed pool answer.
var ErrClosed = errors.New("the pool of sandboxes is closed")

// errClosed is what a closed pool answers: there will be no box, and no rollout is to blame.
func errClosed() *sandbox.Failure {
	return sandbox.Fail(sandbox.BackendDown, "create", "", "%w", ErrClosed)
}

// Orphan is a box that an earlier process left behind, and the holder of its lease, empty for none.
type Orphan struct {
	Box    sandbox.ID
	Holder string
}

// Pool hands out the boxes of a driver. It is safe for concurrent use.
//
// A box is in one of five places: it starts, stands ready, is being checked, is out with a lease, or ends. In the last
// it may be reset, and stand ready again. All five count against Options.Max.
type Pool struct {
	o        Options
	boundary sandbox.Boundary
	journal  *journal
	epoch    string // of this process, in the names of its boxes
	lost     []Orphan

	ctx        context.Context // of starts, until Close
	cancel     context.CancelFunc
	endCtx     context.Context // of what ends boxes, until Close gives up
	cancelEnd  context.CancelFunc
	ends       chan struct{} // held by those that end or reset a box
	background sync.WaitGroup
	closing    sync.Once
	stock      *time.Timer // wakes the supply for a start that nobody waits for, nil before the first failed

	mu       sync.Mutex
	closed   bool
	made     int64 // names given
	ready    []*member
	checking int
	out      map[*member]struct{}
	ending   int
	stuck    int       // of those that end, so many have refused to for several tries
	starts   []*start  // under way
	waiters  []*waiter // by their place
	places   int64
	breaker  breaker
	demand   demand
	spare    retrying // of starts that nobody waits for
	counts   counts
}

// member is a box of the pool.
type member struct {
	id  sandbox.ID
	box sandbox.Box // nil for one that did not start and may be there in part
	// uses is how often it has been handed out.
	uses int
	// limited: a command in it met a limit, which may have taken the box with it.
	limited bool
	// since it stands ready, and when it was last seen alive.
	since, checked time.Time
}

// counts are what has happened, guarded by the pool's lock.
type counts struct {
	created, reused, hits, orphans int64
	failures, limits               map[sandbox.Class]int64
	start, wait                    times
}

// Open makes a pool, once it has removed what an earlier process of the same owner left behind.
func Open(ctx context.Context, o Options) (*Pool, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	boundary, err := o.Driver.Check(ctx)
	if err != nil {
		return nil, fmt.Errorf("sandbox pool: no boxes of %s can be made here: %w", o.Driver.Name(), err)
	}
	lost, late, err := removeOrphans(ctx, o)
	if err != nil {
		return nil, err
	}
	journal, err := newJournal(o.File, o.Logf)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	p := &Pool{o: o, boundary: boundary, journal: journal, lost: lost, epoch: strconv.FormatInt(now.UnixMilli(), 36),
		ends: make(chan struct{}, o.Starting), out: map[*member]struct{}{},
		breaker: breaker{after: o.BreakAfter, pause: o.BreakFor}, demand: demand{began: now, at: now},
		counts: counts{orphans: int64(len(lost)), failures: map[sandbox.Class]int64{}, limits: map[sandbox.Class]int64{}}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.endCtx, p.cancelEnd = context.WithCancel(context.Background())
	if o.WarmMax > 0 {
		p.background.Go(p.tend)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range late { // as often as it takes
		p.journal.opened(id)
		p.end(&member{id: id})
	}
	p.supply()
	return p, nil
}

// Lost are the boxes that an earlier process had open, with their holders: the contents of these boxes are gone.
func (p *Pool) Lost() []Orphan { return slices.Clone(p.lost) }

// Lease promises a box to a holder, which is the name of a rollout's attempt. It costs nothing and
// waits for nothing: the box is made or waited for at its first use.
func (p *Pool) Lease(ctx context.Context, holder string) (*Lease, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errClosed()
	}
	return &Lease{pool: p, holder: holder, done: make(chan struct{})}, nil
}

// Close ends all boxes, those that are leased too, and refuses further leases. It waits until they are
// gone or ctx ends; then an error names those that may still be there. They stay in the file.
func (p *Pool) Close(ctx context.Context) error {
	p.closing.Do(p.shut)
	done := make(chan struct{})
	go func() {
		p.background.Wait()
		close(done)
	}()
	defer p.cancelEnd()
	select {
	case <-done:
		p.journal.close()
		return nil
	case <-ctx.Done():
		left := p.journal.left()
		return fmt.Errorf("sandbox pool: %d boxes may be left, the next process with owner %s removes them: %v: %w", len(left), p.o.Owner, left, ctx.Err())
	}
}

// shut refuses what waits and begins to end what is there.
func (p *Pool) shut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.cancel()
	if p.stock != nil {
		p.stock.Stop()
	}
	p.refuse(errClosed())
	for _, m := range p.ready {
		p.end(m)
	}
	p.ready = nil
	for m := range p.out {
		delete(p.out, m)
		p.end(m)
	}
}

// Status says how the pool is. Its quantiles are within 3 %.
func (p *Pool) Status() *protocol.Sandboxes {
	p.mu.Lock()
	defer p.mu.Unlock()
	return &protocol.Sandboxes{Driver: p.o.Driver.Name(), Secure: p.boundary.Secure(), Lacks: p.boundary.Why,
		Leased: len(p.out), Warm: len(p.ready) + p.checking, Starting: len(p.starts), Ending: p.ending, Waiting: len(p.waiters),
		WarmWanted: p.wanted(time.Now()), Created: p.counts.created, Reused: p.counts.reused, Hits: p.counts.hits,
		Failures: named(p.counts.failures), Orphans: p.counts.orphans,
		Broken: p.breaker.broken(), StartS: p.counts.start.quantiles(), WaitS: p.counts.wait.quantiles()}
}

// named has counts under the names of their classes.
func named(counts map[sandbox.Class]int64) map[string]int64 {
	out := make(map[string]int64, len(counts))
	for class, n := range counts {
		out[string(class)] = n
	}
	return out
}
