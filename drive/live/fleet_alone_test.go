package live_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/drive/cell"
	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// fleetEngine answers nothing unless it is there. An interruption takes late.
type fleetEngine struct {
	*fakeEngine
	i    int
	f    *fakeFleet
	late time.Duration
}

func (e *fleetEngine) Generate(ctx context.Context, req port.GenerateRequest) (port.Generation, error) {
	if !e.f.is(e.i) {
		return port.Generation{}, errors.New("connection refused")
	}
	if asked := req.Interrupt; e.late > 0 {
		stop, over := make(chan struct{}), make(chan struct{})
		defer close(over)
		go func() {
			select {
			case <-asked:
				time.Sleep(e.late)
				close(stop)
			case <-over:
			}
		}()
		req.Interrupt = stop
	}
	return e.fakeEngine.Generate(ctx, req)
}

// Held-out prompts are played by engines that are there alone: those that the fleet has not given yet, or has taken back, are
// dealt none.
func TestEvaluationsOfAFleet(t *testing.T) {
	for name, start := range map[string]int{"not given yet": 1, "taken back": 3} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := elasticConfig()
				cfg.EnginesStart = start
				w, f := elasticWorld(t, cfg)
				env := fakeEnvironment{reward: func(port.RolloutID) float32 { return 1 }}
				w.env = env
				opt := cell.EvaluatorOptions{ShareOptions: cell.ShareOptions{Slots: []int{2, 2, 2}, Environment: env}, Attempts: 1, Logf: t.Logf,
					Clock: func() int64 { return time.Now().UnixNano() }}
				for i, e := range w.engines {
					e.slots += 2
					opt.Engines = append(opt.Engines, &fleetEngine{fakeEngine: e, i: i, f: f})
				}
				e, err := cell.NewEvaluator(t.Context(), opt)
				if err != nil {
					t.Fatal(err)
				}
				evaluated := make(chan cell.Evaluation, 1)
				change := w.change
				w.change = func(o *live.Options) {
					change(o)
					o.Engines = e.Engines()
					o.OnStep = func(d live.StepDone) {
						if v := d.Point.Step; v == 60 {
							go func() {
								got, err := e.Evaluate(t.Context(), v, 12)
								if err != nil {
									t.Error(err)
								}
								evaluated <- got
							}()
						}
					}
				}
				r := w.runtime(t, nil)
				wish(t, r, time.Second, 1)
				finish(t, w, r)
				if got := <-evaluated; got.Scored != 12 || got.Infra != 0 {
					t.Errorf("evaluated %+v, want 12 that are scored", got)
				}
			})
		})
	}
}

// An engine that is lost while it leaves, and then is to stay, is brought back.
func TestAnEngineThatIsLostAsItLeavesAndStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := elasticConfig()
		cfg.EnginesStart, cfg.ResumeLost = 3, true
		w, f := elasticWorld(t, cfg)
		change := w.change
		w.change = func(o *live.Options) {
			change(o)
			o.Engines = nil
			for i, e := range w.engines {
				o.Engines = append(o.Engines, &fleetEngine{fakeEngine: e, i: i, f: f, late: 50 * time.Millisecond})
			}
		}
		r := w.runtime(t, nil)
		wish(t, r, time.Second, 2)
		time.AfterFunc(time.Second+5*time.Millisecond, func() { f.die(2); r.EngineLost("engine-2") })
		wish(t, r, time.Second+10*time.Millisecond, 3)
		res := finish(t, w, r)
		if state := res.Status.Engines[2].State; state != "serving" {
			t.Errorf("engine 2 is %s at the end\n%s", state, strings.Join(w.logged, "\n"))
		}
	})
}

// Where no engine is left, the fleet is asked anew for one that it could not give. No train step comes after which it would be.
func TestARefusedEngineIsAskedForWhenNoOtherIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := elasticWorld(t, elasticConfig())
		broken := false // no machine is free for engine 0 any more
		f.fail = func(engine, n int) error {
			if engine == 1 && n == 1 || engine == 0 && broken {
				return errors.New("no GPU is free")
			}
			return nil
		}
		r := w.runtime(t, nil)
		wish(t, r, time.Second, 2)
		time.AfterFunc(1200*time.Millisecond, func() {
			f.mu.Lock()
			broken = true
			f.mu.Unlock()
			f.die(0)
			r.EngineLost("engine-0")
		})
		res := finish(t, w, r)
		if state := res.Status.Engines[1].State; state != "serving" || f.asked[1] != 2 {
			t.Errorf("engine 1 is %s at the end, and was asked for %d times\n%s", state, f.asked[1], strings.Join(w.logged, "\n"))
		}
	})
}

// keeping is a fleet that fails to take an engine back a few times.
type keeping struct {
	*fakeFleet
	fails int
}

func (f *keeping) Release(ctx context.Context, engine int) error {
	f.mu.Lock()
	if engine == 2 && f.there[2] {
		if f.fails--; f.fails >= 0 {
			f.mu.Unlock()
			return errors.New("the API server is away")
		}
	}
	f.mu.Unlock()
	return f.fakeFleet.Release(ctx, engine)
}

// An engine that its fleet fails to take back is given back again later.
func TestGivingBackIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := elasticConfig()
		cfg.EnginesStart = 3
		w, f := elasticWorld(t, cfg)
		change := w.change
		w.change = func(o *live.Options) {
			change(o)
			o.Fleet = &keeping{fakeFleet: f, fails: 3}
		}
		r := w.runtime(t, nil)
		wish(t, r, time.Second, 2)
		finish(t, w, r)
		if f.is(2) || f.givenBack(2) != 1 {
			t.Errorf("engine 2 was given back %d times, and is there: %t\n%s", f.givenBack(2), f.is(2), strings.Join(w.logged, "\n"))
		}
	})
}

// failing has four loads of an engine fail from a time on. It counts those since.
func failing(e *fakeEngine, since *atomic.Bool) *atomic.Int64 {
	var loads atomic.Int64
	down := e.broken
	e.broken = func(v loop.Version) error {
		if err := down(v); err != nil {
			return err
		}
		if since.Load() && loads.Add(1) <= 4 {
			return errors.New("out of memory")
		}
		return nil
	}
	return &loads
}

// An engine that the fleet has brought back, and that is lost again before it serves, is brought back again.
func TestAnEngineThatIsLostAsItReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := elasticWorld(t, elasticConfig())
		var died atomic.Bool
		fails := failing(w.engines[0], &died)
		r := w.runtime(t, nil)
		time.AfterFunc(time.Second, func() {
			died.Store(true)
			f.die(0)
			r.EngineLost("engine-0")
		})
		finish(t, w, r)
		if fails.Load() <= 4 {
			t.Errorf("it was lost %d times as it returned", fails.Load())
		}
	})
}
