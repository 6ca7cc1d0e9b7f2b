package pool

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/env/sandbox"
)

// Whatever happens in whatever order, the laws of a pool hold: never more boxes than there may be, no
// box handed to two, nobody's files seen by another, nobody waiting for ever, a sick backend left
// alone, and nothing left at the end.
func TestLawsOfAPool(t *testing.T) {
	seeds := uint64(150)
	if testing.Short() {
		seeds = 60 // long under the race detector
	}
	for seed := range seeds {
		if !t.Run(fmt.Sprint(seed), func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) { randomPool(t, seed, filepath.Join(dir, "boxes.jsonl")) })
		}) {
			return
		}
	}
}

// trial is a pool under random use.
type trial struct {
	t    *testing.T
	d    *backend
	p    *Pool
	o    Options
	mu   sync.Mutex
	draw *rand.Rand
	has  map[sandbox.ID]string // who was handed a box and has not given it back
}

func (r *trial) float() float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.draw.Float64()
}

func (r *trial) below(n int) int { return int(r.float() * float64(n)) }

// sleep lets up to a time pass.
func (r *trial) sleep(most time.Duration) { time.Sleep(time.Duration(r.float() * float64(most))) }

func randomPool(t *testing.T, seed uint64, file string) {
	r := &trial{t: t, d: newBackend(t), draw: rand.New(rand.NewPCG(seed, 1)), has: map[sandbox.ID]string{}}
	r.o = Options{Max: r.below(7), Starting: 1 + r.below(4), Retries: r.below(4) - 1, BreakAfter: 1 + r.below(5),
		StartTimeout: time.Duration(1+r.below(20)) * time.Second, BreakFor: time.Duration(1+r.below(5)) * time.Second,
		Uses: 1 + r.below(5), File: file, Rand: r.float}
	if r.below(2) == 0 {
		r.o.Reuse = Reset
	}
	r.o.WarmMax = r.below(4)
	if r.o.Max > 0 {
		r.o.WarmMax = min(r.o.WarmMax, r.o.Max)
	}
	r.o.WarmMin = min(r.below(3), r.o.WarmMax)
	r.faults(r.float()*r.float(), r.float()*r.float())
	r.d.mostStarts = r.o.Starting
	r.p = opened(t, r.d, r.o)

	stop := make(chan struct{})
	var wait, around sync.WaitGroup
	around.Go(func() { r.killer(stop) })
	around.Go(func() { r.watcher(stop) })
	for i := range 12 {
		wait.Go(func() {
			for n := range 8 {
				r.rollout(fmt.Sprintf("g%d-a%d", i, n))
			}
		})
	}
	closesEarly := r.below(4) == 0
	if closesEarly {
		r.sleep(20 * time.Second)
		ended(t, r.p, r.d)
	}
	wait.Wait()
	close(stop)
	around.Wait()
	ended(t, r.p, r.d)
	if open, err := readJournal(file, t.Logf); err != nil || len(open) != 0 {
		t.Errorf("the file has %v: %v", open, err)
	}
	leftAlone(t, r.d.log, r.o)
}

// faults makes starts, resets and ends fail, at these shares.
func (r *trial) faults(starts, others float64) {
	r.d.ending = time.Duration(r.below(30)) * time.Millisecond
	r.d.create = func(int) (time.Duration, error) {
		took := time.Duration(r.float() * float64(500*time.Millisecond))
		switch p := r.float(); {
		case p < starts/8:
			return -1, nil
		case p < starts/4:
			return took, sandbox.Fail(sandbox.StartTimeout, "create", "", "scripted")
		case p < starts:
			return took, errStart
		}
		return took, nil
	}
	other := func(sandbox.ID) error {
		if r.float() < others {
			return sandbox.Fail(sandbox.BackendDown, "close", "", "scripted")
		}
		return nil
	}
	r.d.resetErr, r.d.destroyErr = other, other
}

// killer ends boxes now and then, whosever they are.
func (r *trial) killer(stop chan struct{}) {
	for {
		timer := time.NewTimer(time.Duration(r.float() * float64(5*time.Second)))
		select {
		case <-stop:
			timer.Stop()
			return
		case <-timer.C:
		}
		ids, _ := r.d.List(r.t.Context(), "run")
		if len(ids) > 0 {
			r.d.kill(ids[r.below(len(ids))])
		}
	}
}

// watcher asks for the status at odd times.
func (r *trial) watcher(stop chan struct{}) {
	tick := time.NewTicker(37 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		s := r.p.Status()
		all := s.Leased + s.Warm + s.Starting + s.Ending
		if r.o.Max > 0 && all > r.o.Max || s.Warm > r.o.WarmMax || s.Starting > r.o.Starting || s.WarmWanted > r.o.WarmMax {
			r.t.Errorf("%+v of %+v", s, r.o)
		}
		if there := r.d.there(); there > all+s.Starting {
			r.t.Errorf("%d boxes are there, the pool says %+v", there, s)
		}
	}
}

// rollout takes a box, uses it and gives it back, sometimes early, sometimes twice.
func (r *trial) rollout(holder string) {
	r.sleep(2 * time.Second)
	ctx, cancel := context.WithCancel(r.t.Context())
	if r.below(3) == 0 {
		ctx, cancel = context.WithTimeout(ctx, time.Duration(r.float()*float64(3*time.Second)))
	}
	defer cancel()
	l, err := r.p.Lease(ctx, holder)
	if err != nil {
		return // closed, or given up
	}
	asked := time.Now()
	err = l.Ready(ctx)
	if took := time.Since(asked); l.Waited()+l.Started() != took {
		r.t.Errorf("%s: waited %v and started %v of %v", holder, l.Waited(), l.Started(), took)
	}
	switch {
	case err == nil:
		r.holds(ctx, l)
	case ctx.Err() == nil && sandbox.ClassOf(err) == "":
		r.t.Errorf("%s: an error without a class: %v", holder, err)
	}
	r.mu.Lock()
	delete(r.has, l.ID())
	r.mu.Unlock()
	for range 1 + r.below(2) {
		if err := l.Close(ctx); err != nil {
			r.t.Error(err)
		}
	}
}

// holds has a box to itself: whatever it wrote is there, and nothing else.
func (r *trial) holds(ctx context.Context, l *Lease) {
	r.mu.Lock()
	if other, ok := r.has[l.ID()]; ok {
		r.t.Errorf("%s has the box %s, which %s has", l.Holder(), l.ID(), other)
	}
	r.has[l.ID()] = l.Holder()
	r.mu.Unlock()
	want := ""
	for range r.below(6) {
		content, err := l.Read(ctx, sandbox.Work+"/name", 100)
		switch {
		case err == nil && string(content) != want:
			r.t.Errorf("%s reads %q, want %q", l.Holder(), content, want)
		case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), sandbox.ClassOf(err) == sandbox.Lost:
			return
		case err != nil && want != "":
			r.t.Errorf("%s: its file is gone: %v", l.Holder(), err)
		}
		if l.Write(ctx, sandbox.Work+"/name", []byte(l.Holder()), 0o644) != nil {
			return
		}
		want = l.Holder()
		r.sleep(time.Second)
	}
}

// leftAlone checks the breaker's law on what the backend saw: once so many starts in a row have failed,
// none begins within the break, and from then on one at a time until one goes well.
func leftAlone(t *testing.T, log []event, o Options) {
	o = o.withDefaults()
	failed, open := 0, time.Time{} // starts that failed in a row; since when none may begin
	probing := map[int]bool{}      // starts begun since the breaker opened
	tied := false                  // what ended at one instant went well and failed: the pool may have heard either first
	for i, e := range log {
		if !e.begin {
			tied = e.err != nil && tied || bothAt(log, i)
		}
		switch {
		case e.begin && tied:
		case e.begin && failed >= o.BreakAfter && e.at.After(open):
			if e.at.Sub(open) < o.BreakFor {
				t.Errorf("the start %d begins %v after the breaker opened, want %v", e.n, e.at.Sub(open), o.BreakFor)
			}
			if len(probing) > 0 {
				t.Errorf("the start %d begins beside %v while the breaker is open", e.n, probing)
			}
			probing[e.n] = true
		case !e.begin && e.err == nil:
			failed = 0
			clear(probing)
		case !e.begin && !errors.Is(e.err, context.Canceled): // not of the pool's end
			failed++
			if failed == o.BreakAfter || probing[e.n] {
				open = e.at
			}
			delete(probing, e.n)
		}
	}
}

// bothAt reports whether starts that ended at the instant of event i went both ways.
func bothAt(log []event, i int) bool {
	well, failed := false, false
	for _, e := range log {
		if !e.begin && e.at.Equal(log[i].at) {
			well, failed = well || e.err == nil, failed || e.err != nil
		}
	}
	return well && failed
}

// Where a tenth of the starts fail and a tenth of the boxes are lost in use, as many rollouts a second
// are played as the work allows that has to be done again, and every one of them is played.
func TestFailuresCostTheirRetries(t *testing.T) {
	const rollouts, start, play = 1000, 30 * time.Millisecond, 120 * time.Millisecond
	measure := func(t *testing.T, share float64) (took time.Duration, starts, plays int) {
		synctest.Test(t, func(t *testing.T) {
			draw := &trial{draw: rand.New(rand.NewPCG(5, 5))}
			d := newBackend(t)
			d.create = func(int) (time.Duration, error) {
				if draw.float() < share {
					return start, errStart
				}
				return start, nil
			}
			p := opened(t, d, Options{Max: 16, Starting: 16})
			began, work := time.Now(), make(chan int)
			var wait sync.WaitGroup
			for range 32 {
				wait.Go(func() {
					for i := range work {
						for again := true; again; {
							l := lease(t, p, fmt.Sprint(i))
							again = l.Ready(t.Context()) != nil
							if !again {
								draw.mu.Lock()
								plays++
								draw.mu.Unlock()
								time.Sleep(play)
								if again = draw.float() < share; again {
									d.kill(l.ID())
								}
								_, err := l.Run(t.Context(), program)
								if again != (sandbox.ClassOf(err) == sandbox.Lost) {
									t.Errorf("lost %v: %v", again, err)
								}
							}
							_ = l.Close(t.Context())
						}
					}
				})
			}
			for i := range rollouts {
				work <- i
			}
			close(work)
			wait.Wait()
			took, starts = time.Since(began), d.begun()
			ended(t, p, d)
		})
		return took, starts, plays
	}
	well, _, _ := measure(t, 0)
	ill, starts, plays := measure(t, 0.1)
	allowed := time.Duration(float64(well) * float64(starts*int(start)+plays*int(play)) / float64(rollouts*(start+play)))
	if plays < rollouts*105/100 || starts < plays*105/100 {
		t.Errorf("%d starts and %d plays of %d rollouts: are there any failures?", starts, plays, rollouts)
	}
	if ill > allowed*104/100 {
		t.Errorf("%d rollouts take %v where a tenth fails, %v where nothing does: the retries cost %v", rollouts, ill, well, allowed-well)
	}
	t.Logf("%v without failures, %v with, of allowed %v; %d starts, %d plays", well, ill, allowed, starts, plays)
}
