package pool

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/internal/pause"
)

// backend is a driver whose faults are scripted. It keeps what it saw, and complains of what must not be.
type backend struct {
	t testing.TB
	// create says how long the n-th start takes and how it ends; nil is 10 ms and well. A negative time
	// is for ever.
	create func(n int) (time.Duration, error)
	// command runs in a box, after its time.
	command func(b *fakeBox, c sandbox.Command) (sandbox.Result, error)
	// resetErr and destroyErr say how those end; nil is well.
	resetErr   func(id sandbox.ID) error
	destroyErr func(id sandbox.ID) error
	ending     time.Duration // of a box
	most       int           // boxes there may be, 0 for no limit
	mostStarts int           // at once, 0 for no limit

	mu         sync.Mutex
	boxes      map[sandbox.ID]*fakeBox
	calls      int
	starting   int
	destroying int
	log        []event
}

// event is the beginning or the end of a start.
type event struct {
	at    time.Time
	begin bool
	n     int
	err   error
}

// fakeBox holds one file, which its user writes and reads.
type fakeBox struct {
	d       *backend
	id      sandbox.ID
	n       int // of its start
	dead    chan struct{}
	inUse   bool
	content []byte
	resets  int
}

func newBackend(t testing.TB) *backend { return &backend{t: t, boxes: map[sandbox.ID]*fakeBox{}} }

func (d *backend) Name() string { return "scripted" }

func (d *backend) Check(context.Context) (sandbox.Boundary, error) {
	return sandbox.Boundary{Why: "there is nothing inside"}, nil
}

func (d *backend) Create(ctx context.Context, id sandbox.ID, _ sandbox.Spec) (sandbox.Box, error) {
	b := &fakeBox{d: d, id: id, dead: make(chan struct{})}
	d.mu.Lock()
	d.calls++
	n := d.calls
	b.n = n
	d.starting++
	if d.boxes[id] != nil {
		d.t.Errorf("the name %s is given twice", id)
	}
	d.boxes[id] = b
	if d.most > 0 && len(d.boxes) > d.most {
		d.t.Errorf("%d boxes at once, of at most %d", len(d.boxes), d.most)
	}
	if d.mostStarts > 0 && d.starting > d.mostStarts {
		d.t.Errorf("%d starts at once, of at most %d", d.starting, d.mostStarts)
	}
	d.log = append(d.log, event{time.Now(), true, n, nil})
	d.mu.Unlock()

	took, err := 10*time.Millisecond, error(nil)
	if d.create != nil {
		took, err = d.create(n)
	}
	if took < 0 {
		<-ctx.Done()
		err = ctx.Err()
	} else if cut := pause.For(ctx, took); cut != nil {
		err = cut
	}

	d.mu.Lock()
	defer d.mu.Unlock()
	d.starting--
	d.log = append(d.log, event{time.Now(), false, n, err})
	if err != nil {
		return nil, err // what is there in part stays until it is destroyed
	}
	return b, nil
}

// stillStarts takes the end of a start out of the log if it was at this instant: its box is asked at
// once, as those are that are made for stock, and only its answer ends the start.
func (d *backend) stillStarts(n int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, e := range d.log {
		if e.n == n && !e.begin && e.err == nil && e.at.Equal(time.Now()) {
			d.log = slices.Delete(d.log, i, i+1)
			return true
		}
	}
	return false
}

// answered notes the end of a start whose box was asked.
func (d *backend) answered(n int, err error) {
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.log = append(d.log, event{time.Now(), false, n, err})
}

func (d *backend) List(_ context.Context, owner string) ([]sandbox.ID, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var ids []sandbox.ID
	for id := range d.boxes {
		if strings.HasPrefix(string(id), owner+".") {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

func (d *backend) Destroy(ctx context.Context, id sandbox.ID) error {
	d.mu.Lock()
	d.destroying++
	d.mu.Unlock()
	err := pause.For(ctx, d.ending)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.destroying--
	if err == nil && d.destroyErr != nil {
		err = d.destroyErr(id)
	}
	if b := d.boxes[id]; b != nil && err == nil {
		delete(d.boxes, id)
		b.die()
	}
	return err
}

// kill ends a box from outside, as a fault of its host does: what is left of it has to be destroyed.
func (d *backend) kill(id sandbox.ID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if b := d.boxes[id]; b != nil {
		b.die()
	}
}

// die is called with the lock held.
func (b *fakeBox) die() {
	select {
	case <-b.dead:
	default:
		close(b.dead)
	}
}

// there are as many boxes.
func (d *backend) there() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.boxes)
}

// begun is how many starts there were.
func (d *backend) begun() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.calls
}

func (b *fakeBox) ID() sandbox.ID { return b.id }

// use does something that takes a millisecond, alone.
func (b *fakeBox) use(ctx context.Context, op string, do func() error) error {
	b.d.mu.Lock()
	if b.inUse {
		b.d.t.Errorf("the box %s is used by two at once: %s", b.id, op)
	}
	b.inUse = true
	b.d.mu.Unlock()
	timer := time.NewTimer(time.Millisecond)
	defer timer.Stop()
	var err error
	select {
	case <-timer.C:
	case <-b.dead:
	case <-ctx.Done():
		err = ctx.Err()
	}
	b.d.mu.Lock()
	b.inUse = false
	b.d.mu.Unlock()
	select {
	case <-b.dead:
		return sandbox.Fail(sandbox.Lost, op, b.id, "it is dead")
	default:
	}
	if err != nil {
		return err
	}
	return do()
}

// Run writes the last argument into the box, or does what is scripted.
func (b *fakeBox) Run(ctx context.Context, c sandbox.Command) (r sandbox.Result, err error) {
	err = b.use(ctx, "run", func() (err error) {
		if b.d.command != nil {
			r, err = b.d.command(b, c)
		}
		return err
	})
	return r, err
}

func (b *fakeBox) Read(ctx context.Context, path string, _ int64) (content []byte, err error) {
	if strings.HasSuffix(path, "/.headway-alive") && b.d.stillStarts(b.n) {
		defer func() { b.d.answered(b.n, err) }()
	}
	err = b.use(ctx, "read", func() error {
		if path != sandbox.Work+"/name" || b.content == nil {
			return fmt.Errorf("%s: %w", path, fs.ErrNotExist)
		}
		content = b.content
		return nil
	})
	return content, err
}

func (b *fakeBox) Write(ctx context.Context, _ string, content []byte, _ fs.FileMode) error {
	return b.use(ctx, "write", func() error {
		b.content = content
		return nil
	})
}

func (b *fakeBox) Reset(ctx context.Context) error {
	return b.use(ctx, "reset", func() error {
		if b.d.resetErr != nil {
			if err := b.d.resetErr(b.id); err != nil {
				return err
			}
		}
		b.content = nil
		b.resets++
		return nil
	})
}

func (b *fakeBox) Close(ctx context.Context) error { return b.d.Destroy(ctx, b.id) }

// errStart is what scripted starts fail with.
var errStart = errors.New("no luck today")

// opened is a pool of the backend whose jitter is none: waits between tries are 50 ms, 100 ms and so on.
func opened(t *testing.T, d *backend, o Options) *Pool {
	t.Helper()
	o.Driver, o.Owner = d, "run"
	if o.Rand == nil {
		o.Rand = func() float64 { return 0.5 }
	}
	d.most = o.Max
	p, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// ended closes a pool, after which nothing may be left.
func ended(t *testing.T, p *Pool, d *backend) {
	t.Helper()
	if err := p.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if n := d.there(); n != 0 {
		t.Errorf("%d boxes are left of a closed pool", n)
	}
	if s := p.Status(); s.Leased+s.Warm+s.Starting+s.Ending+s.Waiting != 0 {
		t.Errorf("a closed pool says that there is something: %+v", s)
	}
}

// lease is a new lease of a holder.
func lease(t *testing.T, p *Pool, holder string) *Lease {
	t.Helper()
	l, err := p.Lease(t.Context(), holder)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// program is any command.
var program = sandbox.Command{Argv: []string{"true"}}
