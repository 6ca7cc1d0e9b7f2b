package live_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/live"
	"github.com/headway-rl/headway/loop"
)

// TestLostEngineRejoins: an engine whose loads fail is lost, announced, tried again after
// growing pauses, and serves again once it can, with the newest version.
func TestLostEngineRejoins(t *testing.T) {
	for name, c := range map[string]struct {
		slots []int
		fails int // loads that fail, from version 2 on
	}{
		"one of two":       {[]int{3, 2}, 12},
		"the only one":     {[]int{5}, 12},
		"lost once":        {[]int{3, 2}, 3},
		"fails, not lost":  {[]int{3, 2}, 2},
		"far beyond a day": {[]int{5}, 900},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := asyncConfig()
				cfg.EngineSlots, cfg.TrainSteps = c.slots, 200
				w := newWorld(cfg)
				failed, times := 0, []time.Duration{}
				var during live.View
				var r *live.Runtime
				began := time.Now()
				w.engines[0].broken = func(v loop.Version) error {
					if v < 2 || failed == c.fails {
						return nil
					}
					if failed++; failed%3 == 1 {
						times = append(times, time.Since(began))
					}
					return errors.New("connection reset")
				}
				w.change = func(o *live.Options) { o.RejoinAfter = time.Second }
				r = w.runtime(t, nil)
				if c.fails == 12 {
					var look func()
					look = func() {
						if v := r.View(); v.Engines[0].Lost > 2 && v.Status.Engines[0].State == "lost" {
							during = v
							return
						}
						time.AfterFunc(100*time.Millisecond, look)
					}
					time.AfterFunc(100*time.Millisecond, look)
				}
				res, err := r.Run(t.Context())
				if err != nil || res.Reason != loop.ReasonSteps || !res.Status.Ledger.Balanced() || failed != c.fails {
					t.Fatalf("ended by %v: %v, after %d failures, ledger %+v", res.Reason, err, failed, res.Status.Ledger)
				}
				for i := 2; i < len(times); i++ {
					pause := times[i] - times[i-1]
					if want := min(time.Second<<min(i-1, 10), time.Minute); pause < want || pause > want+500*time.Millisecond {
						t.Errorf("pause %d was %v, want %v", i, pause, want)
					}
				}
				said := strings.Join(w.logged, "\n")
				if lost := c.fails >= 3; lost != strings.Contains(said, "engine engine-0 is lost") || lost && !strings.Contains(said, "engine engine-0 serves again, with version") {
					t.Errorf("the log says:\n%s", said)
				}
				if c.fails == 12 {
					e := during.Engines[0]
					if e.Name != "engine-0" || e.RejoinNS <= during.AtNS || e.Error != "connection reset" {
						t.Errorf("the view said %+v", e)
					}
				}
				if e := r.View().Engines[0]; e.Lost != 0 || e.Error != "" || e.RejoinNS != loop.NoTick {
					t.Errorf("at the end the view says %+v", e)
				}
				if v := w.engines[0].served; v < 190 {
					t.Errorf("the engine ended at version %d", v)
				}
				replay(t, w)
			})
		})
	}
}

// TestLostEngineLetsGo: what an engine plays when it is lost is stopped at once, and
// played again when there is an engine.
func TestLostEngineLetsGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(asyncConfig())
		w.env.toolNS = func(id live.RolloutID) int64 {
			if id.Attempt == 1 && id.Group == 5 {
				return int64(time.Hour)
			}
			return 1000
		}
		var lost time.Time
		w.engines[0].broken = func(v loop.Version) error {
			if v >= 1 && (lost.IsZero() || time.Since(lost) < time.Millisecond) {
				lost = time.Now()
				return errors.New("gone")
			}
			return nil
		}
		var mu sync.Mutex
		ends := map[live.RolloutID]time.Duration{} // after the loss
		w.change = func(o *live.Options) {
			o.RejoinAfter = time.Second
			o.Environment = contextEnvironment{o.Environment, func(ctx context.Context, id live.RolloutID) {
				if id.Group == 5 {
					context.AfterFunc(ctx, func() {
						mu.Lock()
						defer mu.Unlock()
						ends[id] = time.Since(lost)
					})
				}
			}}
		}
		res, err := w.runtime(t, nil).Run(t.Context())
		if err != nil || res.Reason != loop.ReasonSteps || !res.Status.Ledger.Balanced() {
			t.Fatalf("ended by %v: %v", res.Reason, err)
		}
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		for k := range int32(2) {
			first, there := ends[live.RolloutID{Group: 5, Sample: k, Attempt: 1}]
			again := ends[live.RolloutID{Group: 5, Sample: k, Attempt: 2}]
			if !there || first > 10*time.Millisecond || again < time.Second {
				t.Errorf("sample %d: the first attempt was stopped %v after the loss, the second ended after %v", k, first, again)
			}
		}
	})
}

// contextEnvironment shows every attempt's context.
type contextEnvironment struct {
	live.Environment
	show func(context.Context, live.RolloutID)
}

func (e contextEnvironment) Play(ctx context.Context, task live.Task, s live.Sampler) (live.Sample, error) {
	e.show(ctx, task.ID)
	return e.Environment.Play(ctx, task, s)
}
