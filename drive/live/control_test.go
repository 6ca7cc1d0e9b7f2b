package live_test

import (
	"context"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/looptest"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/observe/metrics"
)

// controlledConfig is a loop with a goal and settings to move.
func controlledConfig(mean float64) loop.Config {
	cfg := asyncConfig()
	cfg.EngineSlots, cfg.QueueGroups, cfg.TrainSteps = []int{6, 6}, 4, 160
	cfg.Control = &loop.Control{Mean: mean, Window: 16}
	cfg.Control.Ranges[loop.SettingSlots] = loop.Range{Least: 2, Most: 12}
	cfg.Control.Ranges[loop.SettingLive] = loop.Range{Least: 2, Most: 16}
	return cfg
}

// stoppingTrainer makes no step from one version for a while.
type stoppingTrainer struct {
	port.Trainer
	from   loop.Version
	stands time.Duration
}

func (t *stoppingTrainer) Train(ctx context.Context, b port.Batch) (port.StepReport, error) {
	if b.Version == t.from {
		time.Sleep(t.stands)
	}
	return t.Trainer.Train(ctx, b)
}

// TestControllerIsSilentWhenTheTrainerStops: without the end of a step there is nothing to go by. The
// controller says so in the status, holds its settings, and goes on when steps end again.
func TestControllerIsSilentWhenTheTrainerStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(controlledConfig(2))
		var before *loop.ControlStatus
		w.change = func(o *live.Options) {
			o.Trainer = &stoppingTrainer{Trainer: o.Trainer, from: 60, stands: time.Minute}
			o.OnStep = func(d live.StepDone) {
				if d.Point.Step == 60 {
					before = d.Status.Control
				}
			}
		}
		r := w.runtime(t, nil)
		seen := lookAt(30*time.Second, func() *loop.ControlStatus { return r.View().Status.Control })
		res, err := r.Run(t.Context())
		if err != nil || res.Reason != loop.ReasonSteps {
			t.Fatalf("ended by %v: %v\n%s", res.Reason, err, w.logged)
		}
		during := <-seen
		if before == nil || during == nil || during.State != loop.ControlSilent.String() {
			t.Fatalf("while the trainer stands the controller is %+v, want it silent", during)
		}
		if !reflect.DeepEqual(during.Settings, before.Settings) {
			t.Errorf("settings %+v, want them as they were: %+v", during.Settings, before.Settings)
		}
		if state := res.Status.Control.State; state == loop.ControlSilent.String() {
			t.Errorf("at the end it is still %s", state)
		}
	})
}

// TestGoalOutOfReachLive: a live run with a goal that nothing can keep goes on, and says what
// binds and how near it can come.
func TestGoalOutOfReachLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := controlledConfig(0.05)
		cfg.Control.Ranges[loop.SettingLive].Least = 4
		cfg.Control.Ranges[loop.SettingSlots] = loop.Range{}
		w := newWorld(cfg)
		res, err := w.runtime(t, nil).Run(t.Context())
		if err != nil || res.Reason != loop.ReasonSteps {
			t.Fatalf("ended by %v: %v\n%s", res.Reason, err, w.logged)
		}
		c := res.Status.Control
		if c.State != loop.ControlUnreachable.String() || c.Binding != loop.SettingLive.String() || !(c.Nearest > 0.05) {
			t.Errorf("the controller is %+v, want it unreachable, bound by live groups", c)
		}
	})
}

// A run whose goal counts tokens tells the loop which version made which, and writes it down: the loop counts what was
// measured, and what replays the trace counts the same.
func TestGoalOfTokensLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := controlledConfig(0)
		cfg.Control.Share, cfg.Control.Tokens = 0.5, true
		w := newWorld(cfg)
		shares, batches, mixed := looptest.TokenShares{}, 0, 0
		w.change = func(o *live.Options) {
			o.Observe = func(ev *loop.Event, m *metrics.Measured, actions []loop.Action) {
				share, trained := shares.Observe(ev, m.ByVersion, actions)
				if !trained {
					return
				}
				if got := m.Control.LastShare; got != share {
					t.Errorf("at %v the loop counts a share of %g of no lag, want %g", ev, got, share)
				}
				if batches++; share > 0 && share < 1 {
					mixed++
				}
			}
		}
		res, err := w.runtime(t, nil).Run(t.Context())
		if err != nil || res.Reason != loop.ReasonSteps {
			t.Fatalf("ended by %v: %v\n%s", res.Reason, err, w.logged)
		}
		if batches != int(cfg.TrainSteps) || mixed == 0 {
			t.Errorf("%d batches, %d of several ages", batches, mixed)
		}
		replay(t, w)
	})
}
