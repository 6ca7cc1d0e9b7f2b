package live_test

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// TestRatesAgreeWithTheSummary: over a run that is as long as the window, what enters and leaves per
// second is what the whole window's summary says, and what leaves is what the ledger counts.
func TestRatesAgreeWithTheSummary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := asyncConfig()
		cfg.TrainSteps = 30
		w := newWorld(cfg)
		r := w.runtime(t, nil)
		if got := r.View().Rates; got != (live.Rates{}) {
			t.Errorf("before the run the rates are %+v", got)
		}
		if _, err := r.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		view := r.View()
		rates, sum := view.Rates, view.Summary
		if rates.Steps != 29 || rates.WindowNS <= 0 {
			t.Fatalf("the rates are of %d train periods, want 29", rates.Steps)
		}
		batch := float64(cfg.BatchGroups * cfg.GroupSize)
		if want := batch / rates.PeriodS; math.Abs(rates.ConsumptionWall-want) > 1e-6*want {
			t.Errorf("%g rollouts/s are trained, want a batch a period: %g", rates.ConsumptionWall, want)
		}
		if want := batch / rates.StepS; math.Abs(rates.ConsumptionBusy-want) > 1e-6*want {
			t.Errorf("%g rollouts a second of train step, want %g", rates.ConsumptionBusy, want)
		}
		if rates.Effective > rates.Production || rates.Production < rates.ConsumptionWall*0.8 {
			t.Errorf("%g rollouts/s are made, %g of use, %g trained", rates.Production, rates.Effective, rates.ConsumptionWall)
		}
		// The summary has the first period too, in which the pipeline fills.
		if got, want := rates.Production, sum.Throughput.ProductionRolloutsPerS; math.Abs(got-want) > 0.1*want {
			t.Errorf("production is %g, the summary's %g", got, want)
		}
	})
}

// The usual train period is the trainer's own: neither minutes without a trainer count nor a step that hung for them.
// The watchdog waits for three of it.
func TestUsualPeriod(t *testing.T) {
	for _, steps := range []loop.Version{1, 12} {
		synctest.Test(t, func(t *testing.T) {
			cfg := asyncConfig()
			cfg.TrainerAsks, cfg.TrainSteps = true, steps
			w := newWorld(cfg)
			r := w.runtime(t, nil)
			w.trainer.asks(r, int64(2*time.Minute), int64(time.Millisecond))
			w.trainer.fail = func(b port.Batch) error {
				if b.Version == 5 {
					time.Sleep(2 * time.Minute) // of the fake clock
				}
				return nil
			}
			if got := r.View().PeriodNS; got != 0 {
				t.Errorf("before the run the period is %v", time.Duration(got))
			}
			if _, err := r.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			view := r.View()
			if got := time.Duration(view.PeriodNS); got < time.Duration(w.trainer.work.stepNS) || got > time.Second {
				t.Errorf("after %d steps the usual period is %v, and the mean of the run %g s", steps, got, view.Summary.PeriodS.Mean)
			}
		})
	}
}
