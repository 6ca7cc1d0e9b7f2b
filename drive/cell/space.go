package cell

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/headway-rl/headway/loop/port"
)

// NoSpace reports whether an error is of a disk, a quota or a store that is full.
func NoSpace(err error) bool {
	return errors.Is(err, port.ErrNoSpace) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// Pauses between two tries to write where there is no room, each twice the one before.
const (
	noSpaceFirst = 100 * time.Millisecond
	noSpaceMost  = 5 * time.Second
)

// NewTimer is time.NewTimer in the form of Space.Timer.
func NewTimer(d time.Duration) (fired <-chan time.Time, stop func() bool) {
	t := time.NewTimer(d)
	return t.C, t.Stop
}

// Space is where writes wait that find no room. All of its methods are safe for concurrent use.
type Space struct {
	// Clock is the run's time in nanoseconds. Timer starts a timer that sends once after d, and returns what stops it.
	Clock func() int64
	Timer func(d time.Duration) (fired <-chan time.Time, stop func() bool)
	// Changed, if not nil, is called with the error of a first write that begins to wait, and with nil when none waits any
	// more. It is called by any goroutine, one at a time, and must not block.
	Changed func(cause error)

	mu      sync.Mutex
	waiting int
	since   int64
}

// wait counts one more that waits for room, by what it failed by, or, with nil, one
// less, and tells of the first and the last.
func (s *Space) wait(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.waiting
	if cause != nil {
		s.waiting++
	} else {
		s.waiting--
	}
	if before > 0 && s.waiting > 0 {
		return
	}
	s.since = s.Clock()
	if s.Changed != nil {
		s.Changed(cause)
	}
}

// Full reports whether a write waits for room, and since when; 0 where none does.
func (s *Space) Full() (since int64, full bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting == 0 {
		return 0, false
	}
	return s.since, true
}

// ErrStopped is wrapped by the error of a write that was given up while it waited for room, because its stop was closed.
var ErrStopped = errors.New("the run was to stop")

// Write tries to write until there is room for it, or the context ends. With a stop,
// which may be nil, a write that waits when it closes is tried once more and given up.
func (s *Space) Write(ctx context.Context, stop <-chan struct{}, write func() error) error {
	err := write()
	if !NoSpace(err) {
		return err
	}
	s.wait(err)
	defer s.wait(nil)
	for pause := noSpaceFirst; NoSpace(err); pause = min(2*pause, noSpaceMost) {
		why := s.pause(ctx, stop, pause)
		if ctx.Err() == nil {
			err = write()
		}
		if why != nil && NoSpace(err) {
			return fmt.Errorf("%w; stopped waiting for room: %w", err, why)
		}
	}
	return err
}

// pause waits, and returns why it did not wait to its end.
func (s *Space) pause(ctx context.Context, stop <-chan struct{}, d time.Duration) error {
	fired, disarm := s.Timer(d)
	defer disarm()
	select {
	case <-fired:
		return nil
	case <-stop:
		return ErrStopped
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
