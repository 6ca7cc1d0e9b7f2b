package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/headway-rl/headway/internal/pause"
)

// Between two looks at an engine that does not answer yet: at first, and at most.
const (
	lookFirst = 50 * time.Millisecond
	lookMost  = 2 * time.Second
)

// ErrUnfit is wrapped by the error of a probe whose engine answers and cannot be used as it was started.
var ErrUnfit = errors.New("it was started otherwise than this run needs it")

// Fleet implements port.Fleet. It is safe for concurrent use.
type Fleet struct {
	o Options

	mu  sync.Mutex
	has []Status
}

// New returns a fleet of which nothing is known.
func New(o Options) *Fleet {
	f := &Fleet{o: o, has: make([]Status, len(o.Names))}
	if f.o.Logf == nil {
		f.o.Logf = func(string, ...any) {}
	}
	for i, name := range o.Names {
		f.has[i] = Status{Name: name, State: Away, Since: time.Now()}
	}
	return f
}

// Acquire has an engine run and returns once it answers; at once where it does already.
func (f *Fleet) Acquire(ctx context.Context, engine int) error {
	if err := f.check(engine); err != nil {
		return err
	}
	began := time.Now()
	f.set(engine, func(s *Status) { s.State, s.Starts = Starting, s.Starts+1 })
	err := f.o.Driver.Start(ctx, engine)
	if err == nil {
		err = f.await(ctx, engine)
	}
	took := time.Since(began).Seconds()
	f.set(engine, func(s *Status) {
		switch {
		case err == nil:
			s.State, s.Error, s.StartS = Running, "", took
		case errors.Is(ctx.Err(), context.Canceled): // called off, which is nobody's failure
			s.State, s.Error = Stopping, ""
		default:
			s.State, s.Error, s.Failures = Failed, err.Error(), s.Failures+1
		}
	})
	if err != nil {
		return fmt.Errorf("engine %s did not come up in %.1f s: %w", f.o.Names[engine], took, err)
	}
	f.o.Logf("engine %s is there, %.1f s after it was asked for", f.o.Names[engine], took)
	return nil
}

// await asks an engine that was started until it answers, or cannot any more.
func (f *Fleet) await(ctx context.Context, engine int) error {
	for wait := lookFirst; ; wait = min(2*wait, lookMost) {
		err := f.probe(ctx, engine)
		if err == nil || errors.Is(err, ErrUnfit) {
			return err
		}
		if dead := f.o.Driver.Alive(ctx, engine); dead != nil && ctx.Err() == nil {
			return dead
		}
		if pause.For(ctx, wait) != nil {
			return fmt.Errorf("it runs and does not answer: %w; it was given up: %w", err, context.Cause(ctx))
		}
	}
}

func (f *Fleet) probe(ctx context.Context, engine int) error {
	if f.o.Probe == nil {
		return nil
	}
	return f.o.Probe(ctx, engine)
}

// Release has an engine run no more.
func (f *Fleet) Release(ctx context.Context, engine int) error {
	if err := f.check(engine); err != nil {
		return err
	}
	f.set(engine, func(s *Status) { s.State = Stopping })
	err := f.o.Driver.Stop(ctx, engine)
	f.set(engine, func(s *Status) {
		s.State, s.Error = Away, ""
		if err != nil {
			s.State, s.Error, s.Failures = Failed, err.Error(), s.Failures+1
		}
	})
	if err != nil {
		return fmt.Errorf("engine %s cannot be stopped: %w", f.o.Names[engine], err)
	}
	return nil
}

// Status returns the engines in their order.
func (f *Fleet) Status() []Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.has)
}

// Close closes the driver.
func (f *Fleet) Close() error { return f.o.Driver.Close() }

var errNoEngine = errors.New("the fleet has no such engine")

func (f *Fleet) check(engine int) error {
	if engine < 0 || engine >= len(f.o.Names) {
		return fmt.Errorf("%w: %d of %d", errNoEngine, engine, len(f.o.Names))
	}
	return nil
}

func (f *Fleet) set(engine int, change func(*Status)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := &f.has[engine]
	before := s.State
	if change(s); s.State != before {
		s.Since = time.Now()
	}
}
