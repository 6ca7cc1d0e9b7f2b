package live

import (
	"context"
	"errors"
	"fmt"
	"github.com/headway-rl/headway/loop/port"
	"sync"
	"syscall"
	"time"
)

// noSpace reports whether an error says that there is no room.
func noSpace(err error) bool {
	return errors.Is(err, port.ErrNoSpace) || errors.Is(err, syscall.ENOSPC)
}

// Pauses between two tries to write where there is no room, each twice the one before.
const (
	noSpaceFirst = 100 * time.Millisecond
	noSpaceMost  = 5 * time.Second
)

// disk counts those that wait for room.
type disk struct {
	mu      sync.Mutex
	waiting int
	since   int64
}

// diskFull counts one more that waits for room, by what it failed by, or, with nil, one
// less, and tells of the first and the last.
func (r *Runtime) diskFull(cause error) {
	d := &r.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	before := d.waiting
	if cause != nil {
		d.waiting++
	} else {
		d.waiting--
	}
	if before > 0 && d.waiting > 0 {
		return
	}
	d.since = r.clock()
	r.outside.wake() // so that it is seen
	if r.opt.OnDiskFull != nil {
		r.opt.OnDiskFull(cause)
	}
}

// fullSince returns whether somebody waits for room, and since when.
func (d *disk) fullSince() (since int64, full bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.waiting == 0 {
		return 0, false
	}
	return d.since, true
}

// errStopped is why a write is given up that waits for room when the run is to stop.
var errStopped = errors.New("the run was to stop")

// withRoom tries to write until there is room for it, or the context ends. With a stop,
// which may be nil, a write that waits when it closes is tried once more and given up.
func (r *Runtime) withRoom(ctx context.Context, stop <-chan struct{}, write func() error) error {
	err := write()
	if !noSpace(err) {
		return err
	}
	r.diskFull(err)
	defer r.diskFull(nil)
	for pause := noSpaceFirst; noSpace(err); pause = min(2*pause, noSpaceMost) {
		why := r.pause(ctx, stop, pause)
		if ctx.Err() == nil {
			err = write()
		}
		if why != nil && noSpace(err) {
			return fmt.Errorf("%w; stopped waiting for room: %w", err, why)
		}
	}
	return err
}

// pause waits, and returns why it did not wait to its end.
func (r *Runtime) pause(ctx context.Context, stop <-chan struct{}, d time.Duration) error {
	fired, disarm := r.opt.Timer(d)
	defer disarm()
	select {
	case <-fired:
		return nil
	case <-stop:
		return errStopped
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
