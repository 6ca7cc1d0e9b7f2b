package live_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// presence is when an engine was lost and joined again, by the run's clock and its version.
type presence struct {
	kind    loop.EventKind
	at      int64
	version loop.Version
}

// presences reads them off the log.
func (w *world) presences(t *testing.T, engine int32) (all []presence) {
	t.Helper()
	version := loop.Version(0)
	for _, rec := range w.records(t) {
		ev := rec.Event
		if ev == nil {
			continue
		}
		switch ev.Kind {
		case loop.TrainStepEnded:
			version = ev.Version
		case loop.EngineLost, loop.EngineJoined:
			if ev.Engine == engine {
				all = append(all, presence{ev.Kind, ev.Time, version})
			}
		}
	}
	return all
}

// TestPlannedLosses: an engine is lost and joins again when its plan says so, by time and by
// train step, whatever RejoinAfter would do, and serves until the run ends.
func TestPlannedLosses(t *testing.T) {
	for name, c := range map[string]struct {
		loss   live.EngineLoss
		rejoin time.Duration
		wants  []presence // a time or a version of -1 is any
	}{
		"by time":         {live.EngineLoss{Engine: 1, AtNS: 900e6, DownNS: 700e6}, 0, []presence{{loop.EngineLost, 900e6, -1}, {loop.EngineJoined, 1600e6, -1}}},
		"not tried again": {live.EngineLoss{Engine: 1, AtNS: 900e6, DownNS: 700e6}, 20 * time.Millisecond, []presence{{loop.EngineLost, 900e6, -1}, {loop.EngineJoined, 1600e6, -1}}},
		"by step":         {live.EngineLoss{Engine: 1, AtStep: 7, BackStep: 15}, 0, []presence{{loop.EngineLost, -1, 7}, {loop.EngineJoined, -1, 15}}},
		"for good":        {live.EngineLoss{Engine: 1, AtNS: 1, DownNS: 0}, time.Millisecond, []presence{{loop.EngineLost, 1, 0}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := asyncConfig()
				cfg.EngineSlots = []int{3, 3}
				w := newWorld(cfg)
				w.change = func(o *live.Options) { o.Losses, o.RejoinAfter = []live.EngineLoss{c.loss}, c.rejoin }
				res, err := w.runtime(t, nil).Run(t.Context())
				if err != nil || res.Reason != loop.ReasonSteps || !res.Status.Ledger.Balanced() {
					t.Fatalf("ended by %v: %v\n%s", res.Reason, err, w.logged)
				}
				got := w.presences(t, int32(c.loss.Engine))
				if len(got) != len(c.wants) {
					t.Fatalf("%v, want %v", got, c.wants)
				}
				for i, want := range c.wants {
					if got[i].kind != want.kind || want.at >= 0 && got[i].at != want.at || want.version >= 0 && got[i].version != want.version {
						t.Errorf("%v, want %v", got[i], want)
					}
				}
				if state := res.Status.Engines[1].State; (state == "serving") != (len(c.wants) == 2) {
					t.Errorf("it ends %s", state)
				}
			})
		})
	}
}

// TestPlannedLossOutlivesTheProcess: a run that is resumed while an engine is gone as planned
// loses it again at once, and has it back at its step.
func TestPlannedLossOutlivesTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := asyncConfig()
		cfg.EngineSlots = []int{3, 3}
		w := newWorld(cfg)
		w.change = func(o *live.Options) { o.Losses = []live.EngineLoss{{Engine: 0, AtStep: 5, BackStep: 30}} }
		ctx, kill := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer kill()
		if _, err := w.runtime(t, nil).Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("it was not stopped: %v", err)
		}
		resume := w.resume(t)
		if v := resume.Loop.Version(); v < 6 || v > 25 {
			t.Fatalf("stopped at version %d, want it while the engine is gone", v)
		}
		res, err := w.runtime(t, resume).Run(t.Context())
		if err != nil || res.Reason != loop.ReasonSteps || res.Status.Engines[0].State != "serving" {
			t.Fatalf("ended by %v with engine 0 %s: %v", res.Reason, res.Status.Engines[0].State, err)
		}
		var versions []loop.Version
		for _, p := range w.presences(t, 0) {
			versions = append(versions, p.version)
		}
		if len(versions) != 3 || versions[0] != 5 || versions[1] != resume.Loop.Version() && versions[1] > 25 || versions[2] != 30 {
			t.Errorf("it was lost and back at %v, want 5, the version of the resume, 30", versions)
		}
	})
}

func TestPlannedLossesAreRefused(t *testing.T) {
	for want, loss := range map[string]live.EngineLoss{
		"there are 1": {Engine: 1}, "one of them": {AtStep: 3, AtNS: 5}, "a later one": {AtStep: 3, BackStep: 3}, "from 1 on": {BackStep: 3}, "from 0 on": {AtNS: -1},
	} {
		w := newWorld(asyncConfig())
		opt := live.Options{Environment: w.env, Trainer: w.trainer, Weights: w.weights, Store: w.store, Clock: func() int64 { return 0 },
			Engines: []port.Engine{w.engines[0]}, Losses: []live.EngineLoss{loss}}
		opt.Header.Loop = w.cfg
		if _, err := live.New(opt); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v gives %v, want %q in it", loss, err, want)
		}
	}
}
