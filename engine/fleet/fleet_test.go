package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/engine/fleet"
	"github.com/headway-rl/headway/loop/port"
)

var _ port.Fleet = (*fleet.Fleet)(nil)

// faulty is a driver whose engines fail as they are told to.
type faulty struct {
	mu                    sync.Mutex
	start, alive, stop    error
	starts, stops, closed int
}

func (d *faulty) Start(context.Context, int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.starts++
	return d.start
}

func (d *faulty) Alive(context.Context, int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.alive
}

func (d *faulty) Stop(context.Context, int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stops++
	return d.stop
}

func (d *faulty) Close() error { d.closed++; return nil }

// An engine is there when it answers itself, however long its driver has said that it runs.
func TestAcquireWaitsForTheEnginesOwnWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		driver, began := &faulty{}, time.Now()
		f := fleet.New(fleet.Options{Driver: driver, Names: []string{"a", "b"}, Probe: func(context.Context, int) error {
			if time.Since(began) < 90*time.Second {
				return errors.New("loading the model")
			}
			return nil
		}})
		if err := f.Acquire(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < 90*time.Second || took > 93*time.Second {
			t.Errorf("it took %v", took)
		}
		s := f.Status()
		if s[1].State != fleet.Running || s[1].Starts != 1 || s[1].StartS < 90 || s[0].State != fleet.Away {
			t.Errorf("%+v", s)
		}
		if err := errors.Join(f.Release(t.Context(), 1), f.Close()); err != nil || f.Status()[1].State != fleet.Away || driver.stops != 1 || driver.closed != 1 {
			t.Errorf("%v, %+v", err, f.Status())
		}
	})
}

// One that ends while it is waited for is not waited for any longer, and who gives up is told what the
// engine said last.
func TestAcquireEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		driver, began := &faulty{}, time.Now()
		f := fleet.New(fleet.Options{Driver: driver, Names: []string{"a"}, Probe: func(context.Context, int) error { return errors.New("connection refused") }})
		time.AfterFunc(10*time.Second, func() {
			driver.mu.Lock()
			defer driver.mu.Unlock()
			driver.alive = errors.New("exit status 1")
		})
		err := f.Acquire(t.Context(), 0)
		if err == nil || !strings.Contains(err.Error(), "engine a did not come up") || !strings.Contains(err.Error(), "exit status 1") || time.Since(began) > 13*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		driver.alive = nil
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err = f.Acquire(ctx, 0)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("given up: %v", err)
		}
		off, callOff := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, callOff)
		before := f.Status()[0].Failures
		if err = f.Acquire(off, 0); !errors.Is(err, context.Canceled) || f.Status()[0].State != fleet.Stopping || f.Status()[0].Failures != before {
			t.Errorf("called off: %v, %+v", err, f.Status())
		}
		unfit := fleet.New(fleet.Options{Driver: driver, Names: []string{"a"}, Probe: func(context.Context, int) error {
			return fmt.Errorf("%w: it returns no log-probs", fleet.ErrUnfit)
		}})
		began = time.Now()
		if err = unfit.Acquire(t.Context(), 0); err == nil || !strings.Contains(err.Error(), "no log-probs") || time.Since(began) > 0 {
			t.Errorf("unfit, after %v: %v", time.Since(began), err)
		}
		driver.start = errors.New("no such program")
		if err = f.Acquire(t.Context(), 0); err == nil || !strings.Contains(err.Error(), "no such program") {
			t.Errorf("cannot start: %v", err)
		}
		if s := f.Status()[0]; s.State != fleet.Failed || s.Starts != 4 || s.Failures != 3 || !strings.Contains(s.Error, "no such program") {
			t.Errorf("%+v", s)
		}
		driver.stop = errors.New("it does not end")
		if err := f.Release(t.Context(), 0); err == nil || f.Status()[0].State != fleet.Failed {
			t.Errorf("cannot stop: %v, %+v", err, f.Status())
		}
		if err := f.Acquire(t.Context(), 7); err == nil {
			t.Error("an engine that there is not was acquired")
		}
	})
}
