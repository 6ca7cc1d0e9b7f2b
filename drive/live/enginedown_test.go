package live_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// crashingEngine is gone for a while, with the connections to it, once and again.
type crashingEngine struct {
	*fakeEngine
	began        time.Time
	every, lasts time.Duration
	crashes      int
}

// outage returns when the engine goes next, and whether it is gone now.
func (e *crashingEngine) outage() (until time.Duration, gone bool) {
	at := time.Since(e.began)
	n := int(at / e.every)
	if n > 0 && n <= e.crashes && at%e.every < e.lasts {
		return 0, true
	}
	if n >= e.crashes {
		return 1 << 60, false
	}
	return time.Duration(n+1)*e.every - at, false
}

func (e *crashingEngine) down() error {
	return fmt.Errorf("connection refused: %w", port.ErrEngineDown)
}

func (e *crashingEngine) Generate(ctx context.Context, req port.GenerateRequest) (port.Generation, error) {
	until, gone := e.outage()
	if gone {
		return port.Generation{}, e.down()
	}
	asked, stop := req.Interrupt, make(chan struct{})
	crashed, over := false, make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-asked:
		case <-time.After(until):
			crashed = true
		case <-over:
			return
		}
		close(stop)
	}()
	req.Interrupt = stop
	g, err := e.fakeEngine.Generate(ctx, req)
	close(over)
	<-watched
	if crashed && g.Interrupted {
		g.Interrupted = false
		return g, e.down()
	}
	return g, err
}

func (e *crashingEngine) Load(ctx context.Context, v loop.Version) error {
	if _, gone := e.outage(); gone {
		return e.down()
	}
	return e.fakeEngine.Load(ctx, v)
}

func (e *crashingEngine) Switch(ctx context.Context, v loop.Version, hold bool) error {
	if _, gone := e.outage(); gone {
		return e.down()
	}
	return e.fakeEngine.Switch(ctx, v, hold)
}

// TestRolloutsOutliveTheirEngine: what an engine plays when it goes goes on elsewhere as
// the same attempt, with the tokens it has, and the engine comes back.
func TestRolloutsOutliveTheirEngine(t *testing.T) {
	for name, change := range map[string]func(*loop.Config){
		"in flight": func(*loop.Config) {},
		"restart":   func(c *loop.Config) { c.Sync = loop.SyncRestart },
		"drain":     func(c *loop.Config) { c.Sync = loop.SyncDrain },
		"rolling":   func(c *loop.Config) { c.RollingSwitch = true },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := asyncConfig()
				cfg.EngineSlots, cfg.TrainSteps, cfg.ResumeLost, cfg.MaxAttempts = []int{4, 4}, 60, true, 20
				change(&cfg)
				w := newWorld(cfg)
				first := &crashingEngine{fakeEngine: w.engines[0], began: time.Now(), every: 437 * time.Millisecond, lasts: 120 * time.Millisecond, crashes: 6}
				second := &crashingEngine{fakeEngine: w.engines[1], began: time.Now(), every: 700 * time.Millisecond, lasts: 90 * time.Millisecond, crashes: 3}
				w.change = func(o *live.Options) {
					o.RejoinAfter = 50 * time.Millisecond
					o.Engines = []port.Engine{first, second}
				}
				res, err := w.runtime(t, nil).Run(t.Context())
				if err != nil || res.Reason != loop.ReasonSteps || !res.Status.Ledger.Balanced() {
					t.Fatalf("ended by %v: %v, ledger %+v\n%s", res.Reason, err, res.Status.Ledger, w.logged)
				}
				if n := res.Status.Ledger.Failed; n != 0 {
					t.Errorf("%d attempts failed: want all of them to have gone on", n)
				}
				resumed, longer := 0, 0
				for _, b := range w.trainer.batches {
					for _, g := range b.Groups {
						for _, s := range g.Samples {
							resumed += min(len(s.Resumes), 1)
							longer += min(max(len(s.Tokens)-3, 0), 1)
						}
					}
				}
				if resumed == 0 || longer == 0 {
					t.Errorf("%d trained samples were resumed, %d with tokens from before", resumed, longer)
				}
				replay(t, w)
			})
		})
	}
}

// TestEngineThatFailsAtStart: a run begins without an engine whose first loads fail as often as the loop would
// try them, says so, and has it join when it can; it does not begin where every one fails, or none is tried again.
func TestEngineThatFailsAtStart(t *testing.T) {
	for name, c := range map[string]struct {
		failing int // engines, the last ones
		again   time.Duration
		begins  bool
	}{
		"one of two":                  {1, 50 * time.Millisecond, true},
		"both":                        {2, 50 * time.Millisecond, false},
		"one that is not tried again": {1, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := asyncConfig()
				cfg.EngineSlots, cfg.ResumeLost = []int{4, 4}, true
				w := newWorld(cfg)
				for _, e := range w.engines[2-c.failing:] {
					fails := 5
					e.broken = func(loop.Version) error {
						if fails--; fails >= 0 {
							return errors.New("it computes otherwise than before")
						}
						return nil
					}
				}
				w.change = func(o *live.Options) { o.RejoinAfter = c.again }
				res, err := w.runtime(t, nil).Run(t.Context())
				if !c.begins {
					if err == nil || !strings.Contains(err.Error(), "computes otherwise") {
						t.Errorf("ended by %v: %v, want the failure", res.Reason, err)
					}
					return
				}
				said := strings.Join(w.logged, "\n")
				if err != nil || res.Reason != loop.ReasonSteps || !res.Status.Ledger.Balanced() || w.engines[1].served < 30 {
					t.Errorf("ended by %v: %v, ledger %+v; the engine that failed serves version %d", res.Reason, err, res.Status.Ledger, w.engines[1].served)
				}
				if !strings.Contains(said, "computes otherwise than before: the run begins without it") || !strings.Contains(said, "engine engine-1 is lost") {
					t.Errorf("the log says\n%s", said)
				}
				replay(t, w)
			})
		})
	}
}

// TestEngineDownAtStart: a run begins without an engine that is down, which joins later;
// without any it does not begin.
func TestEngineDownAtStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := asyncConfig()
		cfg.EngineSlots, cfg.ResumeLost = []int{4, 4}, true
		w := newWorld(cfg)
		late := &crashingEngine{fakeEngine: w.engines[1], began: time.Now().Add(-time.Second), every: time.Second, lasts: 300 * time.Millisecond, crashes: 1}
		w.change = func(o *live.Options) {
			o.RejoinAfter = 50 * time.Millisecond
			o.Engines = []port.Engine{o.Engines[0], late}
		}
		res, err := w.runtime(t, nil).Run(t.Context())
		if err != nil || res.Reason != loop.ReasonSteps || !res.Status.Ledger.Balanced() || late.served < 30 {
			t.Errorf("ended by %v: %v, ledger %+v; the engine that came late serves version %d", res.Reason, err, res.Status.Ledger, late.served)
		}
		replay(t, w)

		w = newWorld(cfg)
		w.change = func(o *live.Options) {
			o.RejoinAfter = 50 * time.Millisecond
			for i, e := range o.Engines {
				o.Engines[i] = &crashingEngine{fakeEngine: e.(*fakeEngine), began: time.Now().Add(-time.Second), every: time.Second, lasts: 300 * time.Millisecond, crashes: 1}
			}
		}
		if _, err := w.runtime(t, nil).Run(t.Context()); err == nil {
			t.Error("a run without any engine has begun")
		}
	})
}
