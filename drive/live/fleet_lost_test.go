package live_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/metrics"
)

// TestGiveBackWhileIdle: an engine that the fleet could not take back is given back again though nothing happens in the run.
func TestGiveBackWhileIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := elasticConfig()
		cfg.EnginesStart, cfg.TrainerAsks, cfg.Policy = 3, true, loop.PolicyBlock // and no trainer asks
		w, f := elasticWorld(t, cfg)
		change := w.change
		w.change = func(o *live.Options) {
			change(o)
			o.Fleet = &keeping{fakeFleet: f, fails: 1}
		}
		r := w.runtime(t, nil)
		wish(t, r, 10*time.Second, 2)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if _, err := r.Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if f.is(2) {
			t.Errorf("engine 2 is there an hour after it was given back, %v", w.logged)
		}
	})
}

// TestLostInTheTurnOfAStart: an engine is given back that is lost in the very turn in which it is given a rollout.
func TestLostInTheTurnOfAStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := elasticConfig()
		cfg.EnginesStart = 3
		w, f := elasticWorld(t, cfg)
		change := w.change
		var r *live.Runtime
		done := false
		w.change = func(o *live.Options) {
			change(o)
			o.Observe = func(ev *loop.Event, _ *metrics.Measured, actions []loop.Action) {
				if done || ev.Time < 1e9 || ev.Kind != loop.RolloutScored {
					return
				}
				for _, a := range actions {
					if a.Kind == loop.StartRollout && a.Engine == 2 {
						done = true
						f.die(2)
						r.Request(loop.SettingEngines, 2)
						r.EngineLost("engine-2")
						return
					}
				}
			}
		}
		r = w.runtime(t, nil)
		finish(t, w, r)
	})
}

// TestLostWantedAndLostAgain: an engine that was lost, was to leave and is wanted again is tried until it serves.
func TestLostWantedAndLostAgain(t *testing.T) {
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
		w.engines[2].loadNS = 50e6
		var again atomic.Bool
		failing(w.engines[2], &again)
		r := w.runtime(t, nil)
		time.AfterFunc(time.Second, func() { again.Store(true); f.die(2); r.EngineLost("engine-2") })
		wish(t, r, time.Second+5*time.Millisecond, 2)
		wish(t, r, time.Second+10*time.Millisecond, 3)
		res := finish(t, w, r)
		if state := res.Status.Engines[2].State; state != "serving" {
			t.Errorf("engine 2 is %s at the end, asked %d\n%s", state, f.asked[2], strings.Join(w.logged, "\n"))
		}
	})
}
