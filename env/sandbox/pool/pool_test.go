package pool

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/env/sandbox"
)

// A lease costs nothing until something is to run.
func TestBoxIsMadeAtTheFirstUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newBackend(t)
		p := opened(t, d, Options{})
		l := lease(t, p, "g1-s0-a0")
		time.Sleep(time.Hour)
		if d.begun() != 0 || l.ID() != "" || l.Holder() != "g1-s0-a0" {
			t.Fatalf("a lease that nobody used made %d boxes, has %q", d.begun(), l.ID())
		}
		if _, err := l.Run(t.Context(), program); err != nil {
			t.Fatal(err)
		}
		if d.begun() != 1 || !strings.HasPrefix(string(l.ID()), "run.") {
			t.Errorf("%d boxes were made, the lease has %q", d.begun(), l.ID())
		}
		if l.Waited() != 0 || l.Started() != 10*time.Millisecond {
			t.Errorf("waited %v, started in %v", l.Waited(), l.Started())
		}
		s := p.Status()
		if s.Leased != 1 || s.Created != 1 || s.Hits != 0 || s.Driver != "scripted" || s.Lacks == "" {
			t.Errorf("status %+v", s)
		}
		if got := s.StartS.P50; got < 0.0097 || got > 0.0103 {
			t.Errorf("median start %v s of one that took 10 ms", got)
		}
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if d.there() != 0 {
			t.Error("the box of a closed lease is there")
		}
		if _, err := l.Run(t.Context(), program); sandbox.ClassOf(err) != sandbox.Lost {
			t.Errorf("a lease that was given back runs: %v", err)
		}
		ended(t, p, d)
	})
}

// Whoever asks first is served first, and its wait is not the start's.
func TestWaitersAreServedInTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newBackend(t)
		p := opened(t, d, Options{Max: 1, StartTimeout: time.Minute})
		var order []string
		var wait sync.WaitGroup
		for i := range 5 {
			l := lease(t, p, fmt.Sprint(i))
			wait.Go(func() {
				if err := l.Ready(t.Context()); err != nil {
					t.Error(err)
				}
				order = append(order, l.Holder()) // one at a time has the box
				if want := time.Duration(i) * (10*time.Minute + 10*time.Millisecond); l.Waited() != want || l.Started() != 10*time.Millisecond {
					t.Errorf("%d waited %v and started in %v, want %v and 10ms", i, l.Waited(), l.Started(), want)
				}
				time.Sleep(10 * time.Minute) // far longer than a start may take
				_ = l.Close(t.Context())
			})
			synctest.Wait()
		}
		wait.Wait()
		if !slices.IsSorted(order) {
			t.Errorf("served in the order %v", order)
		}
		ended(t, p, d)
	})
}

// A start that fails is tried again, later each time, and its lease sees nothing of it.
func TestStartsAreTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newBackend(t)
		d.create = func(n int) (time.Duration, error) {
			if n <= 2 {
				return 0, errStart
			}
			return 10 * time.Millisecond, nil
		}
		p := opened(t, d, Options{})
		l := lease(t, p, "a")
		if err := l.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		if want := (50 + 100 + 10) * time.Millisecond; l.Started() != want {
			t.Errorf("up after %v, want %v", l.Started(), want)
		}
		if f := p.Status().Failures[string(sandbox.StartFailed)]; f != 2 {
			t.Errorf("%d failures counted", f)
		}
		ended(t, p, d)
	})
}

// A start that fails as often as it may ends with the driver's own class and words.
func TestStartsFail(t *testing.T) {
	tests := []struct {
		name  string
		err   error
		class sandbox.Class
		calls int
	}{
		{"no class", errStart, sandbox.StartFailed, 3},
		{"never", sandbox.Fail(sandbox.Refused, "create", "", "%w", errStart), sandbox.Refused, 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newBackend(t)
				d.create = func(int) (time.Duration, error) { return 0, test.err }
				p := opened(t, d, Options{})
				_, err := lease(t, p, "a").Run(t.Context(), program)
				if sandbox.ClassOf(err) != test.class || !errors.Is(err, errStart) || d.begun() != test.calls {
					t.Errorf("%d starts, class %s, %v; want %d, %s", d.begun(), sandbox.ClassOf(err), err, test.calls, test.class)
				}
				ended(t, p, d)
			})
		})
	}
}

// A backend without room is asked until there is some, or the lease's time is over. It is not sick.
func TestQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newBackend(t)
		full := time.Now().Add(20 * time.Second)
		d.create = func(int) (time.Duration, error) {
			if time.Now().Before(full) {
				return 0, sandbox.Fail(sandbox.Quota, "create", "", "%w", errStart)
			}
			return 10 * time.Millisecond, nil
		}
		p := opened(t, d, Options{BreakAfter: 3})
		l := lease(t, p, "a")
		if err := l.Ready(t.Context()); err != nil || l.Started() > 26*time.Second {
			t.Errorf("after %v, of which the backend had no room for 20 s: %v", l.Started(), err)
		}
		full = time.Now().Add(time.Hour)
		began := time.Now()
		_, err := lease(t, p, "b").Run(t.Context(), program)
		if sandbox.ClassOf(err) != sandbox.Quota || !errors.Is(err, errStart) || time.Since(began) != 30*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		if s := p.Status(); s.Broken || s.Failures[string(sandbox.BackendDown)] != 0 || d.begun() > 40 {
			t.Errorf("%d starts, status %+v", d.begun(), s)
		}
		ended(t, p, d)
	})
}

// A start that hangs ends in time, whatever else was tried before.
func TestStartsTimeOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newBackend(t)
		d.create = func(n int) (time.Duration, error) {
			if n == 1 {
				return 10 * time.Second, errStart
			}
			return -1, nil
		}
		p := opened(t, d, Options{StartTimeout: 12 * time.Second})
		began := time.Now()
		l := lease(t, p, "a")
		err := l.Ready(t.Context())
		if took := time.Since(began); took != 12*time.Second || sandbox.ClassOf(err) != sandbox.StartTimeout || l.Started() != took {
			t.Errorf("after %v (%v of the start): %v", took, l.Started(), err)
		}
		if !errors.Is(err, errStart) {
			t.Errorf("the error does not say how the last start ended: %v", err)
		}
		ended(t, p, d)
	})
}

// After so many failures in a row nothing is tried for a while; then one is tried alone.
func TestBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newBackend(t)
		sick := true
		d.create = func(int) (time.Duration, error) {
			if sick {
				return time.Millisecond, errStart
			}
			return 10 * time.Millisecond, nil
		}
		p := opened(t, d, Options{Retries: -1, BreakAfter: 4, BreakFor: 5 * time.Second})
		for range 4 {
			if err := lease(t, p, "a").Ready(t.Context()); sandbox.ClassOf(err) != sandbox.StartFailed {
				t.Fatal(err)
			}
		}
		began := time.Now()
		if err := lease(t, p, "b").Ready(t.Context()); sandbox.ClassOf(err) != sandbox.BackendDown || !errors.Is(err, errStart) || time.Since(began) != 0 {
			t.Errorf("a sick backend is tried: after %v: %v", time.Since(began), err)
		}
		if !p.Status().Broken || d.begun() != 4 {
			t.Errorf("%d starts, %+v", d.begun(), p.Status())
		}
		time.Sleep(5 * time.Second)
		sick = false
		var wait sync.WaitGroup
		for range 6 {
			wait.Go(func() {
				if err := lease(t, p, "c").Ready(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if d.begun() != 5 {
			t.Errorf("%d starts at once after the break, want 1", d.begun()-4)
		}
		wait.Wait()
		if p.Status().Broken || d.begun() != 10 {
			t.Errorf("after a start that went well: %d starts, %+v", d.begun(), p.Status())
		}
		ended(t, p, d)
	})
}

// A box that is lost in use is its holder's to know of. It is counted once and not handed out again.
func TestBoxIsLostInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newBackend(t)
		p := opened(t, d, Options{WarmMax: 4, Reuse: Reset})
		l := lease(t, p, "a")
		if err := l.Write(t.Context(), sandbox.Work+"/name", []byte("a"), 0o644); err != nil {
			t.Fatal(err)
		}
		d.kill(l.ID())
		for range 3 {
			if _, err := l.Run(t.Context(), program); sandbox.ClassOf(err) != sandbox.Lost {
				t.Errorf("a lost box answers %v", err)
			}
		}
		lost := l.ID()
		_ = l.Close(t.Context())
		next := lease(t, p, "b")
		if err := next.Ready(t.Context()); err != nil || next.ID() == lost {
			t.Errorf("handed out %s after %s was lost: %v", next.ID(), lost, err)
		}
		if s := p.Status(); s.Failures[string(sandbox.Lost)] != 1 || s.Reused != 0 {
			t.Errorf("status %+v", s)
		}
		ended(t, p, d)
	})
}

// What a program does to itself is counted as a limit, and no reason to throw its box away.
func TestLimitsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newBackend(t)
		d.command = func(*fakeBox, sandbox.Command) (sandbox.Result, error) {
			return sandbox.Result{Exit: 137, Limit: sandbox.OutOfMemory}, nil
		}
		p := opened(t, d, Options{WarmMax: 1, Reuse: Reset})
		for range 2 {
			l := lease(t, p, "a")
			if r, err := l.Run(t.Context(), program); err != nil || r.Limit != sandbox.OutOfMemory {
				t.Fatal(r, err)
			}
			_ = l.Close(t.Context())
			time.Sleep(time.Second)
		}
		if s := p.Status(); limits(p)[sandbox.OutOfMemory] != 2 || s.Reused != 1 || len(s.Failures) != 0 {
			t.Errorf("status %+v", s)
		}
		ended(t, p, d)
	})
}

// A box that is given back is as new for the next one, up to so many uses.
func TestReuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newBackend(t)
		p := opened(t, d, Options{WarmMax: 1, Reuse: Reset, Uses: 3})
		for i := range 7 {
			l := lease(t, p, fmt.Sprint(i))
			if _, err := l.Read(t.Context(), sandbox.Work+"/name", 10); err == nil {
				t.Errorf("the holder %d finds another's file", i)
			}
			if err := l.Write(t.Context(), sandbox.Work+"/name", []byte("x"), 0o644); err != nil {
				t.Fatal(err)
			}
			_ = l.Close(t.Context())
			synctest.Wait()
			time.Sleep(20 * time.Millisecond)
		}
		if s := p.Status(); s.Created != 3 || s.Reused != 4 {
			t.Errorf("7 leases of boxes for 3 uses each: %d created, %d reused", s.Created, s.Reused)
		}
		d.resetErr = func(id sandbox.ID) error { return sandbox.Fail(sandbox.Lost, "reset", id, "gone") }
		l := lease(t, p, "last")
		if err := l.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		_ = l.Close(t.Context())
		time.Sleep(20 * time.Millisecond)
		if s := p.Status(); s.Failures[string(sandbox.Lost)] != 1 {
			t.Errorf("a reset that failed is not counted: %+v", s)
		}
		ended(t, p, d)
	})
}

// One who does not wait any longer leaves nothing behind, whenever that is.
func TestWaitersGiveUp(t *testing.T) {
	for _, after := range []time.Duration{0, 5 * time.Millisecond, 10 * time.Millisecond, 11 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			d := newBackend(t)
			p := opened(t, d, Options{Max: 1, WarmMax: 1})
			first, second := lease(t, p, "a"), lease(t, p, "b")
			ctx, cancel := context.WithTimeout(t.Context(), after)
			defer cancel()
			gaveUp, got := make(chan error, 1), make(chan error, 1)
			go func() { gaveUp <- first.Ready(ctx) }()
			synctest.Wait()
			go func() { got <- second.Ready(t.Context()) }()
			err := <-gaveUp
			if after < 10*time.Millisecond && !errors.Is(err, context.DeadlineExceeded) || after > 10*time.Millisecond && err != nil {
				t.Errorf("giving up after %v of a start of 10ms: %v", after, err)
			}
			_ = first.Close(t.Context())
			if err := <-got; err != nil || d.begun() > 2 {
				t.Errorf("after the first gave up (%v) the second has %d starts: %v", after, d.begun(), err)
			}
			ended(t, p, d)
		})
	}
}

// A box that comes at the moment in which its waiter gives up is the next one's.
func TestBoxComesTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newBackend(t)
		p := opened(t, d, Options{Max: 1, WarmMax: 1})
		w := &waiter{got: make(chan handed, 1), asked: time.Now()}
		p.enqueue(w)
		time.Sleep(time.Second)
		if got := p.abandon(w, context.Canceled); got.member != nil || !errors.Is(got.err, context.Canceled) {
			t.Errorf("gave up, and got %+v", got)
		}
		if s := p.Status(); s.Leased != 0 || s.Warm != 1 {
			t.Errorf("status %+v", s)
		}
		ended(t, p, d)
	})
}

// A lease that is closed while something runs ends that, and it is nobody's fault.
func TestCloseEndsWhatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newBackend(t)
		p := opened(t, d, Options{WarmMax: 1, Reuse: Reset})
		l := lease(t, p, "a")
		if err := l.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		ran := make(chan error)
		go func() {
			_, err := l.Run(t.Context(), program)
			ran <- err
		}()
		synctest.Wait()
		_ = l.Close(t.Context())
		_ = l.Close(t.Context())
		if err := <-ran; sandbox.ClassOf(err) != sandbox.Lost {
			t.Errorf("what ran in a closed lease ended with %v", err)
		}
		waiting := lease(t, p, "b")
		go func() { ran <- waiting.Ready(t.Context()) }()
		synctest.Wait()
		_ = waiting.Close(t.Context())
		if err := <-ran; sandbox.ClassOf(err) != sandbox.Lost {
			t.Errorf("a lease that was closed while it waited ended with %v", err)
		}
		if s := p.Status(); len(s.Failures) != 0 {
			t.Errorf("what was asked for is counted as failures: %v", s.Failures)
		}
		ended(t, p, d)
	})
}

// What a driver's boxes cannot, a lease says.
func TestSnapshotsThatAreNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newBackend(t)
		p := opened(t, d, Options{})
		l := lease(t, p, "a")
		if _, err := l.Snapshot(t.Context()); !errors.Is(err, errors.ErrUnsupported) || sandbox.ClassOf(err) != sandbox.Refused {
			t.Errorf("a snapshot where there is none: %v", err)
		}
		if err := l.Restore(t.Context(), nil); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("restoring where that is not: %v", err)
		}
		if err := l.Reset(t.Context()); err != nil {
			t.Error(err)
		}
		ended(t, p, d)
	})
}

// Closing a pool ends what is leased, what waits and what starts; one whose backend hangs says what is left.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newBackend(t)
		d.create = func(n int) (time.Duration, error) {
			if n == 3 {
				return -1, nil
			}
			return 10 * time.Millisecond, nil
		}
		p := opened(t, d, Options{Max: 3})
		a, b := lease(t, p, "a"), lease(t, p, "b")
		if err := errors.Join(a.Ready(t.Context()), b.Ready(t.Context())); err != nil {
			t.Fatal(err)
		}
		waits := make(chan error, 2)
		for range 2 { // one has a start that hangs, one has no room
			l := lease(t, p, "c")
			go func() { waits <- l.Ready(t.Context()) }()
		}
		synctest.Wait()
		ended(t, p, d)
		for range 2 {
			if err := <-waits; !errors.Is(err, ErrClosed) || sandbox.ClassOf(err) != sandbox.BackendDown {
				t.Errorf("a waiter of a closed pool hears %v", err)
			}
		}
		if _, err := a.Run(t.Context(), program); sandbox.ClassOf(err) != sandbox.Lost {
			t.Errorf("a box of a closed pool: %v", err)
		}
		_ = a.Close(t.Context())
		if _, err := p.Lease(t.Context(), "d"); !errors.Is(err, ErrClosed) {
			t.Errorf("a lease of a closed pool: %v", err)
		}
	})
}

// Who waits for the room of a box that does not end hears of it, and gets that room when the box ends after all.
func TestRoomOfABoxThatDoesNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newBackend(t)
		stubborn := atomic.Bool{}
		stubborn.Store(true)
		d.destroyErr = func(sandbox.ID) error {
			if stubborn.Load() {
				return errStart
			}
			return nil
		}
		p := opened(t, d, Options{Max: 1})
		l := lease(t, p, "a")
		if err := l.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		_ = l.Close(t.Context())
		began := time.Now()
		err := lease(t, p, "b").Ready(t.Context())
		if waited := time.Since(began); sandbox.ClassOf(err) != sandbox.StartTimeout || waited > time.Minute {
			t.Errorf("without room for %v: %v", waited, err)
		} else if !strings.Contains(err.Error(), "boxes that do not end take the room of 1") {
			t.Errorf("the error does not say why there is no room: %v", err)
		}
		stubborn.Store(false)
		if err := lease(t, p, "c").Ready(t.Context()); err != nil {
			t.Errorf("the box has ended, and its room is not used: %v", err)
		}
		ended(t, p, d)
	})
}

// A backend that is stubborn is asked until it gives in, and the box counts as there.
func TestBoxesThatDoNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newBackend(t)
		stubborn := true
		d.destroyErr = func(sandbox.ID) error {
			if stubborn {
				return errStart
			}
			return nil
		}
		p := opened(t, d, Options{Max: 1})
		l := lease(t, p, "a")
		if err := l.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		_ = l.Close(t.Context())
		time.Sleep(time.Minute)
		if s := p.Status(); s.Ending != 1 {
			t.Errorf("a box that does not end is not counted: %+v", s)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := p.Close(ctx); err == nil || !strings.Contains(err.Error(), string(l.ID())) {
			t.Errorf("closing does not say which box is left: %v", err)
		}
		synctest.Wait()
	})
}

func TestOptionsThatCannotBe(t *testing.T) {
	d := newBackend(t)
	tests := []struct {
		o    Options
		want string
	}{
		{Options{Owner: "a"}, "no driver"},
		{Options{Driver: d}, "owner"},
		{Options{Driver: d, Owner: "a.b"}, "owner"},
		{Options{Driver: d, Owner: strings.Repeat("a", 33)}, "owner"},
		{Options{Driver: d, Owner: "a", Max: -1}, "max"},
		{Options{Driver: d, Owner: "a", Max: 2, WarmMin: 3}, "raise max"},
		{Options{Driver: d, Owner: "a", WarmMin: 3, WarmMax: 2}, "no larger"},
		{Options{Driver: d, Owner: "a", Reuse: "often"}, "reuse"},
		{Options{Driver: d, Owner: "a", Starting: -1}, "starting"},
		{Options{Driver: d, Owner: "a", StartTimeout: -1}, "negative"},
	}
	for _, test := range tests {
		if _, err := Open(t.Context(), test.o); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: %v, want something of %q", test.o, err, test.want)
		}
	}
}

// limits are those that commands met, by class.
func limits(p *Pool) map[sandbox.Class]int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.counts.limits)
}
