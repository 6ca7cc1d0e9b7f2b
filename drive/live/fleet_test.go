package live_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// fakeFleet starts the fake engines of a world. Faults are injected by engine.
type fakeFleet struct {
	t      *testing.T
	w      *world
	starts time.Duration
	// fail, if not nil, refuses an engine's n-th acquisition. hang never answers it, whatever its context says,
	// deaf answers it after so long, whatever its context says.
	fail func(engine, n int) error
	hang func(engine, n int) bool
	deaf func(engine, n int) time.Duration

	mu       sync.Mutex
	there    [8]bool
	stuck    [8]bool // it runs and answers nothing, until it is given back
	asked    [8]int  // acquisitions
	started  [8]int  // those that had to start something
	released [8]int
	calls    [8]int // under way
}

func (f *fakeFleet) enter(engine int) (leave func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calls[engine]++; f.calls[engine] > 1 {
		f.t.Errorf("engine %d is acquired and released at once", engine)
	}
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.calls[engine]--
	}
}

func (f *fakeFleet) Acquire(ctx context.Context, engine int) error {
	defer f.enter(engine)()
	f.mu.Lock()
	f.asked[engine]++
	n, there, stuck := f.asked[engine], f.there[engine], f.stuck[engine]
	f.mu.Unlock()
	if stuck {
		<-ctx.Done()
		return ctx.Err()
	}
	if f.hang != nil && f.hang(engine, n) {
		<-f.t.Context().Done()
		return errors.New("far too late")
	}
	if f.deaf != nil {
		if took := f.deaf(engine, n); took > 0 {
			time.Sleep(took)
			return errors.New("too late")
		}
	}
	if f.fail != nil {
		if err := f.fail(engine, n); err != nil {
			return err
		}
	}
	if there {
		return nil
	}
	select {
	case <-time.After(f.starts):
	case <-ctx.Done():
		return ctx.Err()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.there[engine] = true
	f.started[engine]++
	return nil
}

func (f *fakeFleet) Release(_ context.Context, engine int) error {
	defer f.enter(engine)()
	f.mu.Lock()
	defer f.mu.Unlock()
	if e := f.w.engines[engine]; f.there[engine] {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.active > 0 {
			f.t.Errorf("engine %d was given back while %d responses run on it", engine, e.active)
		}
	}
	f.there[engine], f.stuck[engine] = false, false
	f.released[engine]++
	return nil
}

// die ends an engine behind everybody's back.
func (f *fakeFleet) die(engine int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.there[engine] = false
}

// givenBack is how often an engine was given back.
func (f *fakeFleet) givenBack(engine int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.released[engine]
}

// is reports whether an engine is there.
func (f *fakeFleet) is(engine int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.there[engine]
}

// elasticConfig is a run of one to three engines, which begins with one.
func elasticConfig() loop.Config {
	cfg := asyncConfig()
	cfg.EngineSlots, cfg.EnginesStart, cfg.TrainSteps = []int{4, 4, 4}, 1, 80
	cfg.Control = &loop.Control{}
	cfg.Control.Ranges[loop.SettingEngines] = loop.Range{Least: 1, Most: 3}
	return cfg
}

// elasticWorld is a world whose engines are a fleet's: they answer nothing unless they are there.
func elasticWorld(t *testing.T, cfg loop.Config) (*world, *fakeFleet) {
	w := newWorld(cfg)
	f := &fakeFleet{t: t, w: w, starts: 700 * time.Millisecond}
	w.change = func(o *live.Options) {
		o.RejoinAfter, o.Fleet, o.AcquireWithin, o.ReleaseWithin = 300*time.Millisecond, f, 5*time.Second, time.Second
	}
	f.answers(w.engines)
	return w, f
}

// answers has engines answer nothing unless they are there.
func (f *fakeFleet) answers(engines []*fakeEngine) {
	for i, e := range engines {
		e.broken = func(loop.Version) error {
			if !f.is(i) {
				return fmt.Errorf("connection refused: %w", port.ErrEngineDown)
			}
			return nil
		}
	}
}

// wish asks for a number of engines a while after the run has begun.
func wish(t *testing.T, r *live.Runtime, after time.Duration, engines float64) {
	timer := time.AfterFunc(after, func() { r.Request(loop.SettingEngines, engines) })
	t.Cleanup(func() { timer.Stop() })
}

// finish runs a run to its end, which must be a good one.
func finish(t *testing.T, w *world, r *live.Runtime) live.Result {
	t.Helper()
	res, err := r.Run(t.Context())
	if err != nil || res.Reason != loop.ReasonSteps || !res.Status.Ledger.Balanced() {
		t.Fatalf("ended by %v: %v, ledger %+v\n%s", res.Reason, err, res.Status.Ledger, strings.Join(w.logged, "\n"))
	}
	replay(t, w)
	return res
}

// Engines come and go while rollouts run: none is given back with something on it, nothing is lost,
// and what comes serves what is newest.
func TestEnginesComeAndGo(t *testing.T) {
	for name, change := range map[string]func(*loop.Config){
		"in flight": func(*loop.Config) {},
		"resume":    func(c *loop.Config) { c.ResumeLost = true },
		"restart":   func(c *loop.Config) { c.Sync, c.ResumeLost = loop.SyncRestart, true },
		"drain":     func(c *loop.Config) { c.Sync = loop.SyncDrain },
		"rolling":   func(c *loop.Config) { c.RollingSwitch = true },
		"gang":      func(c *loop.Config) { c.Start = loop.StartGang },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := elasticConfig()
				change(&cfg)
				w, f := elasticWorld(t, cfg)
				r := w.runtime(t, nil)
				var most loop.Version
				var loaded sync.Mutex
				down := w.engines[2].broken
				w.engines[2].broken = func(v loop.Version) error {
					loaded.Lock()
					defer loaded.Unlock()
					most = max(most, v)
					return down(v)
				}
				wish(t, r, time.Second, 3)
				wish(t, r, 4*time.Second, 2)
				wish(t, r, 5*time.Second, 1)
				wish(t, r, 6*time.Second, 2)
				res := finish(t, w, r)
				if f.started != [8]int{1, 2, 1} || f.released[0] != 0 || f.released[1] < 2 || f.released[2] < 2 {
					t.Errorf("started %v, released %v", f.started, f.released)
				}
				if n := res.Status.Ledger.Failed; n != 0 {
					t.Errorf("%d attempts failed", n)
				}
				for i, e := range w.engines {
					if e.most == 0 {
						t.Errorf("engine %d has never generated", i)
					}
				}
				if state := r.View().Status.Engines[2].State; state != "away" {
					t.Errorf("at the end engine 2 is %s", state)
				}
				if most == 0 || w.engines[1].served < most {
					t.Errorf("engine 2 came with version %d, engine 1 serves %d at the end", most, w.engines[1].served)
				}
			})
		})
	}
}

// A fleet that refuses, or never answers, or gives an engine that dies at once, holds up nobody: the
// run goes on with what it has, and asks again.
func TestFleetFaults(t *testing.T) {
	refuse := errors.New("no GPU is free")
	for name, c := range map[string]struct {
		change func(f *fakeFleet)
		// asked is how often engine 1 is asked for at least, came how often it came.
		asked, came int
		says        string
	}{
		"refuses twice": {func(f *fakeFleet) {
			f.fail = func(engine, n int) error {
				if engine == 1 && n <= 2 {
					return refuse
				}
				return nil
			}
		}, 3, 1, "no GPU is free"},
		"refuses always": {func(f *fakeFleet) {
			f.fail = func(engine, _ int) error {
				if engine == 1 {
					return refuse
				}
				return nil
			}
		}, 3, 0, "no GPU is free"},
		"hangs for good": {func(f *fakeFleet) { f.hang = func(engine, n int) bool { return engine == 1 } }, 1, 0, "5s, and its call before has not returned"},
		"too slow":       {func(f *fakeFleet) { f.starts = 6 * time.Second; f.there[0] = true }, 1, 0, "the fleet has not answered in time"},
		"dies at once": {func(f *fakeFleet) {
			first := true
			down := f.w.engines[1].broken
			f.w.engines[1].broken = func(v loop.Version) error {
				if first {
					first = false
					f.die(1)
				}
				return down(v)
			}
		}, 2, 2, "engine engine-1 is lost: "},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := elasticConfig()
				cfg.TrainSteps = 160
				w, f := elasticWorld(t, cfg)
				c.change(f)
				r := w.runtime(t, nil)
				wish(t, r, time.Second, 2)
				finish(t, w, r)
				if f.asked[1] < c.asked || f.started[1] != c.came || f.is(1) != (c.came > 0) {
					t.Errorf("engine 1 was asked for %d times and came %d times; it is there: %v", f.asked[1], f.started[1], f.is(1))
				}
				if said := strings.Join(w.logged, "\n"); !strings.Contains(said, c.says) {
					t.Errorf("the log says:\n%s", said)
				}
				if f.is(1) && w.engines[1].most == 0 {
					t.Error("engine 1 is there and has never generated")
				}
			})
		})
	}
}

// An engine that comes when nobody wants it any more goes at once, and one that is wanted again while
// it comes is not asked for twice.
func TestTheWishChangesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := elasticWorld(t, elasticConfig())
		f.starts = 2 * time.Second
		f.there[0] = true
		r := w.runtime(t, nil)
		wish(t, r, time.Second, 3)
		wish(t, r, 1500*time.Millisecond, 1)
		wish(t, r, 2500*time.Millisecond, 2)
		finish(t, w, r)
		if f.started != [8]int{0, 1, 1} || !f.is(1) || f.is(2) || w.engines[2].most != 0 || w.engines[1].most == 0 {
			t.Errorf("started %v, there %v", f.started, f.there)
		}
	})
}

// A lost engine is brought back by the fleet; one that is given up meanwhile is not waited for.
func TestTheFleetBringsLostEnginesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := elasticConfig()
		cfg.EnginesStart, cfg.ResumeLost = 3, true
		w, f := elasticWorld(t, cfg)
		f.fail = func(engine, n int) error {
			if engine == 1 && n == 2 {
				return errors.New("not now")
			}
			return nil
		}
		r := w.runtime(t, nil)
		lose := func(after time.Duration, engine int) {
			time.AfterFunc(after, func() {
				f.die(engine)
				r.EngineLost(fmt.Sprint("engine-", engine))
			})
		}
		lose(time.Second, 1)
		lose(2*time.Second, 2)
		wish(t, r, 2500*time.Millisecond, 2) // engine 2 is being brought back
		finish(t, w, r)
		if f.started != [8]int{1, 2, 1} || !f.is(1) || f.is(2) {
			t.Errorf("started %v, there %v", f.started, f.there)
		}
		if said := strings.Join(w.logged, "\n"); !strings.Contains(said, "not now") || !strings.Contains(said, "engine engine-1 serves again") {
			t.Errorf("the log says:\n%s", said)
		}
	})
}

// An engine that runs and answers nothing is not waited for again as it is: it is given back, and started anew.
func TestTheFleetStartsAnEngineAnewThatIsStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := elasticConfig()
		cfg.EnginesStart, cfg.TrainSteps = 2, 120
		w, f := elasticWorld(t, cfg)
		r := w.runtime(t, nil)
		time.AfterFunc(time.Second, func() {
			f.mu.Lock()
			f.stuck[1] = true
			f.mu.Unlock()
			r.EngineLost("engine-1")
		})
		finish(t, w, r)
		if f.started[1] != 2 || f.released[1] != 1 || !f.is(1) {
			t.Errorf("started %v, released %v, there %v", f.started, f.released, f.there)
		}
		if said := strings.Join(w.logged, "\n"); !strings.Contains(said, "the fleet has not answered in time") || !strings.Contains(said, "engine engine-1 serves again") {
			t.Errorf("the log says:\n%s", said)
		}
	})
}

// An engine that is given up while it is brought back goes at once, though that takes long, and as soon as
// may be where the fleet does not hear that nobody waits: what gives it back has its time from its turn on.
func TestAnEngineIsGivenBackBehindASlowAcquisition(t *testing.T) {
	for name, c := range map[string]struct {
		slow   func(f *fakeFleet)
		within time.Duration // from the wish
	}{
		"hears": {func(f *fakeFleet) { f.fail = func(_, n int) error { f.starts = 4 * time.Second; return nil } }, 100 * time.Millisecond},
		"deaf":  {func(f *fakeFleet) { f.deaf = func(_, n int) time.Duration { return 4 * time.Second } }, 4 * time.Second},
		"very":  {func(f *fakeFleet) { f.deaf = func(_, n int) time.Duration { return 9 * time.Second } }, 9 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := elasticConfig()
				cfg.EnginesStart, cfg.TrainSteps = 2, 200
				w, f := elasticWorld(t, cfg)
				r := w.runtime(t, nil)
				time.AfterFunc(time.Second, func() {
					c.slow(f)
					f.die(1)
					r.EngineLost("engine-1")
				})
				const wished = 2 * time.Second // it is being brought back
				wish(t, r, wished, 1)
				given := func() int { return f.givenBack(1) }
				early, late := lookAt(wished-time.Millisecond, given), lookAt(wished+c.within+time.Millisecond, given)
				finish(t, w, r)
				before, after := <-early, <-late
				if before != 0 || after != 1 || f.released[1] != 1 || f.asked[1] != 2 {
					t.Errorf("given back %d times when it was wished, %d times %v later, %d times at the end; asked for %d times\n%s",
						before, after, c.within, f.released[1], f.asked[1], strings.Join(w.logged, "\n"))
				}
			})
		})
	}
}

// A run that is killed at any moment goes on with the engines that are there, starts none of them
// twice and has what it had asked for; programs that ended with it are started again.
func TestFleetAfterAKill(t *testing.T) {
	between := 290 * time.Millisecond
	if testing.Short() {
		between *= 4 // long under the race detector; without it, every kill is there
	}
	for _, ended := range []bool{false, true} {
		for after := 100 * time.Millisecond; after < 4*time.Second; after += between {
			synctest.Test(t, func(t *testing.T) {
				cfg := elasticConfig()
				w, f := elasticWorld(t, cfg)
				r := w.runtime(t, nil)
				wish(t, r, time.Second, 3)
				wish(t, r, 3*time.Second, 2)
				ctx, kill := context.WithTimeout(t.Context(), 700*time.Millisecond+after)
				defer kill()
				if _, err := r.Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
					t.Fatalf("it was to be killed: %v", err)
				}
				synctest.Wait()
				began := f.started
				if ended {
					f.there = [8]bool{}
				}
				for _, e := range w.engines {
					e.active = 0
				}
				resume, err := live.Recover(w.store, nil)
				if err != nil {
					t.Fatal(err)
				}
				w.offset = resume.Loop.Status().TimeNS
				wished := map[bool]int{true: 3, false: 2}[resume.Loop.EngineState(2) != "away"]
				if resume.Loop.EngineState(1) == "away" {
					wished = 1
				}
				r = w.runtime(t, resume)
				finish(t, w, r)
				for i := range 3 {
					again := f.started[i] - began[i]
					if f.is(i) != (i < wished) || again > 1 || again == 1 && !ended && began[i] > 0 && i < wished && resume.Loop.EngineState(i) != "starting" {
						t.Errorf("after %v: wished %d, engine %d is there: %v, started %d times before and %d after; ended %v", after, wished, i, f.is(i), began[i], again, ended)
					}
				}
			})
		}
	}
}

// An engine that does not come up at the start is done without, as long as another does; without any the
// run does not begin. Whoever asks to stop is heard while engines start.
func TestFleetAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := elasticConfig()
		cfg.EnginesStart = 2
		w, f := elasticWorld(t, cfg)
		f.there[2] = true // left by an earlier run
		f.fail = func(engine, n int) error {
			if engine == 1 && n == 1 {
				return errors.New("no image")
			}
			return nil
		}
		finish(t, w, w.runtime(t, nil))
		if f.started != [8]int{1, 1} || f.is(2) {
			t.Errorf("started %v, there %v", f.started, f.there)
		}

		w, f = elasticWorld(t, cfg)
		f.fail = func(int, int) error { return errors.New("no image") }
		if _, err := w.runtime(t, nil).Run(t.Context()); err == nil || !strings.Contains(err.Error(), "no image") {
			t.Errorf("no engine at all: %v", err)
		}

		w, f = elasticWorld(t, cfg)
		f.hang = func(int, int) bool { return true }
		r := w.runtime(t, nil)
		began := time.Now()
		time.AfterFunc(time.Second, r.Stop)
		if res, err := r.Run(t.Context()); err != nil || res.Reason != loop.ReasonStopped || time.Since(began) > 2*time.Second {
			t.Errorf("stopped after %v by %v: %v", time.Since(began), res.Reason, err)
		}
	})
}

// Without anybody who starts engines their number cannot move.
func TestEnginesMoveByAFleetAlone(t *testing.T) {
	w, _ := elasticWorld(t, elasticConfig())
	opt := live.Options{Environment: w.env, Trainer: w.trainer, Weights: w.weights, Store: w.store, Clock: func() int64 { return 0 }}
	opt.Header.Loop = w.cfg
	for _, e := range w.engines {
		opt.Engines = append(opt.Engines, e)
	}
	if _, err := live.New(opt); err == nil || !strings.Contains(err.Error(), "Fleet") {
		t.Error(err)
	}
}
