package live

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"
)

// ErrNoSpace is wrapped by the errors of stores that have no room left: the disk is
// full, or a limit is reached. Nothing of what was to be kept has been kept; the same
// may be tried again. It does not end a run, which waits for room.
var ErrNoSpace = errors.New("no space left in the store")

// noSpace reports whether an error says that there is no room.
func noSpace(err error) bool { return errors.Is(err, ErrNoSpace) || errors.Is(err, syscall.ENOSPC) }

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

// diskFull counts one more, or one less, that waits for room, and tells of the first
// and the last.
func (r *Runtime) diskFull(full bool) {
	d := &r.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	before := d.waiting
	if full {
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
		r.opt.OnDiskFull(full)
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

// withRoom tries to write until there is room for it, or the context ends.
func (r *Runtime) withRoom(ctx context.Context, write func() error) error {
	err := write()
	if !noSpace(err) {
		return err
	}
	r.diskFull(true)
	defer r.diskFull(false)
	for pause := noSpaceFirst; noSpace(err); pause = min(2*pause, noSpaceMost) {
		if !r.sleep(ctx, pause) {
			return fmt.Errorf("%w; stopped waiting for room: %w", err, context.Cause(ctx))
		}
		err = write()
	}
	return err
}
