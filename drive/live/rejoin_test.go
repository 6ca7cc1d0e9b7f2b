package live_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
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
				} else if lost && (strings.Count(said, "is lost: connection reset; its rollouts") != 1 || strings.Contains(said, "still lost") || strings.Count(said, "tries") != min(c.fails/3-1, 1)) {
					t.Errorf("the loss is one line, and its end one, but the log says:\n%s", said)
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

// TestLossIsSaidOnceByEachCause: tries that fail as before are no lines of the log, another cause is one, and a
// line has the engine's name and the address once.
func TestLossIsSaidOnceByEachCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := asyncConfig()
		cfg.EngineSlots, cfg.TrainSteps = []int{5}, 60
		w := newWorld(cfg)
		failed := 0
		w.engines[0].broken = func(v loop.Version) error {
			if v < 2 || failed == 9 {
				return nil
			}
			if failed++; failed == 9 {
				return fmt.Errorf("%w: engine engine-0: it has no weights", port.ErrEngineDown)
			}
			return fmt.Errorf("%w: engine engine-0: Get http://10.0.0.%d:80: connection refused", port.ErrEngineDown, failed)
		}
		w.change = func(o *live.Options) { o.RejoinAfter = time.Second }
		if res, err := w.runtime(t, nil).Run(t.Context()); err != nil || res.Reason != loop.ReasonSteps {
			t.Fatalf("ended by %v: %v", res.Reason, err)
		}
		said := slices.DeleteFunc(slices.Clone(w.logged), func(line string) bool { return !strings.Contains(line, "engine-0") })
		want := []string{"engine engine-0 is lost: Get http://10.0.0.1:80: connection refused; its rollouts", "engine engine-0 is still lost, now by: it has no weights", "engine engine-0 serves again, with version "}
		if len(said) != len(want) || strings.Contains(strings.Join(said, ""), "engine is down") {
			t.Fatalf("the log says:\n%s", strings.Join(said, "\n"))
		}
		for i := range want {
			if !strings.HasPrefix(said[i], want[i]) || strings.Count(said[i], "engine-0") != 1 {
				t.Errorf("line %d is %q, want %q", i+1, said[i], want[i])
			}
		}
	})
}

// TestLostEngineLetsGo: what an engine plays when it is lost is stopped at once, and
// played again when there is an engine.
func TestLostEngineLetsGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(asyncConfig())
		w.env.toolNS = func(id port.RolloutID) int64 {
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
		ends := map[port.RolloutID]time.Duration{} // after the loss
		w.change = func(o *live.Options) {
			o.RejoinAfter = time.Second
			o.Environment = contextEnvironment{o.Environment, func(ctx context.Context, id port.RolloutID) {
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
			first, there := ends[port.RolloutID{Group: 5, Sample: k, Attempt: 1}]
			again := ends[port.RolloutID{Group: 5, Sample: k, Attempt: 2}]
			if !there || first > 10*time.Millisecond || again < time.Second {
				t.Errorf("sample %d: the first attempt was stopped %v after the loss, the second ended after %v", k, first, again)
			}
		}
	})
}

// contextEnvironment shows every attempt's context.
type contextEnvironment struct {
	port.Environment
	show func(context.Context, port.RolloutID)
}

func (e contextEnvironment) Play(ctx context.Context, task port.RolloutRequest, s port.Sampler) (port.Sample, error) {
	e.show(ctx, task.ID)
	return e.Environment.Play(ctx, task, s)
}
