package live_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// distantTrainer is a trainer in another process: it asks for its batches, and may go
// back to an earlier state in the middle of one.
type distantTrainer struct {
	*fakeTrainer
	r *live.Runtime
	// restore says whether it goes back instead of training a batch, racing says that it
	// goes back right after it.
	restore, racing func(port.Batch) bool
	// first is closed when version 0 may be published; nil for at once.
	first    chan struct{}
	restores int
	restored []loop.Version
}

func (t *distantTrainer) Initialize(ctx context.Context) error {
	if t.first != nil {
		select {
		case <-t.first:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	t.r.TrainerReady()
	return t.fakeTrainer.Initialize(ctx)
}

// Restore does nothing: the trainer's state is its own.
func (t *distantTrainer) Restore(context.Context, loop.Version, loop.LeaseID) error { return nil }

// goBack publishes an earlier state as the version after at.
func (t *distantTrainer) goBack(ctx context.Context, at loop.Version) error {
	t.at = at + 1
	t.restores++
	err := t.weights.Publish(ctx, port.Publication{Version: t.at})
	t.r.TrainerRestored(t.at)
	t.restored = append(t.restored, t.at)
	return err
}

func (t *distantTrainer) Train(ctx context.Context, b port.Batch) (port.StepReport, error) {
	r := t.r
	defer time.AfterFunc(5*time.Millisecond, func() {
		for range 3 {
			r.TrainerReady()
		}
	})
	if b.Version < t.at {
		return port.StepReport{}, fmt.Errorf("the trainer is at version %d: %w", t.at, port.ErrLeaseReturned)
	}
	if t.restore != nil && t.restore(b) {
		if err := t.goBack(ctx, b.Version); err != nil {
			return port.StepReport{}, err
		}
		return port.StepReport{}, fmt.Errorf("went back: %w", port.ErrLeaseReturned)
	}
	report, err := t.fakeTrainer.Train(ctx, b)
	if err == nil && t.racing != nil && t.racing(b) {
		err = t.goBack(ctx, t.at) // its word may be heard before that of the step
	}
	return report, err
}

func distantWorld(change func(*loop.Config)) (*world, *distantTrainer) {
	cfg := asyncConfig()
	cfg.TrainerAsks = true
	if change != nil {
		change(&cfg)
	}
	w := newWorld(cfg)
	d := &distantTrainer{fakeTrainer: w.trainer}
	w.change = func(o *live.Options) { o.Trainer = d }
	return w, d
}

// TestDistantTrainer: a trainer that asks gets a batch a time, and one that goes back
// to an earlier state, with a batch in its hands or right after one, loses nothing.
func TestDistantTrainer(t *testing.T) {
	for name, change := range map[string]func(*loop.Config){
		"drop":      func(*loop.Config) {},
		"max":       func(c *loop.Config) { c.Policy, c.MaxStaleness, c.Abort = loop.PolicyMax, 2, true },
		"bounded":   func(c *loop.Config) { c.Policy, c.Eta = loop.PolicyBounded, 1 },
		"threshold": func(c *loop.Config) { c.Policy, c.StalenessThreshold, c.QueueGroups = loop.PolicyThreshold, 0.5, 3 },
		"replay":    func(c *loop.Config) { c.Policy, c.MaxUses, c.QueueGroups = loop.PolicyReplay, 2, 6 },
		"block":     func(c *loop.Config) { c.Policy = loop.PolicyBlock },
		"synchronous": func(c *loop.Config) {
			c.Policy, c.QueueGroups = loop.PolicySynchronous, 2
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, d := distantWorld(change)
				d.restore = func(b port.Batch) bool { return b.Version%7 == 3 }
				d.racing = func(b port.Batch) bool { return b.Version%7 == 5 }
				r := w.runtime(t, nil)
				d.r = r
				res, err := r.Run(t.Context())
				if err != nil || res.Reason != loop.ReasonSteps || res.Status.Version != w.cfg.TrainSteps {
					t.Fatalf("ended by %v at version %d: %v", res.Reason, res.Status.Version, err)
				}
				if !res.Status.Ledger.Balanced() || d.restores < 8 {
					t.Errorf("ledger %+v after %d restores", res.Status.Ledger, d.restores)
				}
				l, _ := replay(t, w)
				if l.Ledger() != res.Status.Ledger {
					t.Errorf("replayed ledger %+v, live %+v", l.Ledger(), res.Status.Ledger)
				}
				var heard []loop.Version
				asked := false
				for _, rec := range w.records(t) {
					switch {
					case rec.Event != nil && rec.Event.Kind == loop.TrainerReady:
						if asked {
							t.Error("the log has the same word twice")
						}
						asked = true
					case rec.Action != nil && rec.Action.Kind == loop.StartTrainStep:
						asked = false
					}
					if rec.Event != nil && rec.Event.Kind == loop.TrainerRestored {
						heard = append(heard, rec.Event.Version)
					}
				}
				if !slices.Equal(heard, d.restored) {
					t.Errorf("the log has the restored versions %v, want %v", heard, d.restored)
				}
				r.TrainerReady() // nobody is there any more, and nobody waits
				r.TrainerRestored(99)
			})
		})
	}
}

// TestRestoredRightBeforeTheEnd: a version that was published right before the process
// ended, and is not in the log, is found by the next one.
func TestRestoredRightBeforeTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, d := distantWorld(nil)
		ctx, cancel := context.WithCancel(t.Context())
		d.restore = func(b port.Batch) bool {
			if b.Version == 4 && d.restores == 0 {
				cancel()
				d.at, d.restores = 6, 2
				for v := loop.Version(5); v <= 6; v++ { // twice
					if err := w.weights.Publish(ctx, port.Publication{Version: v}); err != nil {
						t.Error(err)
					}
				}
				<-ctx.Done()
				return false
			}
			return false
		}
		d.fail = func(b port.Batch) error {
			if b.Version == 4 {
				return ctx.Err()
			}
			return nil
		}
		d.r = w.runtime(t, nil)
		if _, err := d.r.Run(ctx); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		resume := w.resume(t)
		if resume.Loop.Version() != 4 {
			t.Fatalf("the log is at version %d, want 4", resume.Loop.Version())
		}
		w.trainer.at = 6
		d.r = w.runtime(t, resume)
		d.r.TrainerReady()
		res, err := d.r.Run(t.Context())
		if err != nil || res.Reason != loop.ReasonSteps || !res.Status.Ledger.Balanced() {
			t.Fatalf("ended by %v: %v, ledger %+v", res.Reason, err, res.Status.Ledger)
		}
		for v, lease := range w.weights.leases {
			if (lease == 0) != (v == 0 || v == 5 || v == 6) {
				t.Errorf("version %d was made by lease %d", v, lease)
			}
		}
	})
}

// asideWeights can take versions out of a run.
type asideWeights struct {
	*fakeWeights
	aside []loop.Version
}

func (w *asideWeights) SetAside(v loop.Version) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.leases, v)
	w.aside = append(w.aside, v)
	return nil
}

// TestForeignVersions: a run that is recovered takes the version of the batch at its
// trainer, and none that its log cannot come to; without that, publishing under the number
// of such a version would be refused for ever.
func TestForeignVersions(t *testing.T) {
	for _, c := range []struct {
		name  string
		wrong loop.LeaseID // added to the lease at the trainer
		aside []loop.Version
	}{{"of the batch at the trainer", 0, nil}, {"of an earlier batch", -1, []loop.Version{6, 5}}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, d := distantWorld(nil)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				died := false
				d.fail = func(b port.Batch) error {
					if b.Version != 4 || died {
						return nil
					}
					died = true
					cancel()
					// Published behind the log, which does not come to know of it.
					err := w.weights.Publish(t.Context(), port.Publication{Version: 5, Lease: b.Lease + c.wrong})
					if c.wrong != 0 {
						err = errors.Join(err, w.weights.Publish(t.Context(), port.Publication{Version: 6}))
					}
					return errors.Join(err, ctx.Err())
				}
				d.r = w.runtime(t, nil)
				if _, err := d.r.Run(ctx); !errors.Is(err, context.Canceled) {
					t.Fatal(err)
				}
				resume := w.resume(t)
				weights := &asideWeights{fakeWeights: w.weights}
				if w.trainer.at = 4; c.wrong == 0 {
					w.trainer.at = 5
				}
				before := w.change
				w.change = func(o *live.Options) {
					before(o)
					o.Weights = weights
				}
				d.r = w.runtime(t, resume)
				d.r.TrainerReady()
				res, err := d.r.Run(t.Context())
				if err != nil || res.Reason != loop.ReasonSteps || !res.Status.Ledger.Balanced() {
					t.Fatalf("ended by %v: %v, ledger %+v", res.Reason, err, res.Status.Ledger)
				}
				if !slices.Equal(weights.aside, c.aside) {
					t.Errorf("versions %v were set aside, want %v", weights.aside, c.aside)
				}
			})
		})
	}
}

// listedWeights list their versions.
type listedWeights struct{ *asideWeights }

func (w listedWeights) Versions() ([]loop.Version, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.leases)), nil
}

// TestLostEndOfTheLog: a log that ends before what has been published stops the start with an error that says so, and
// nothing is changed: no version is set aside, none is made anew. Moved out of the way, they are given up.
func TestLostEndOfTheLog(t *testing.T) {
	for name, published := range map[string]map[loop.Version]loop.LeaseID{
		"of leases to come":                     {5: 1000},
		"after one of the batch at the trainer": {5: 0, 6: 1000},
		"the versions between are pruned":       {38: 39, 39: 40},
		"no batch made it, and none before it":  {7: 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { checkLostEnd(t, published) })
		})
	}
}

func checkLostEnd(t *testing.T, published map[loop.Version]loop.LeaseID) {
	w, d := distantWorld(nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	d.fail = func(b port.Batch) error {
		if b.Version == 4 {
			cancel()
			return ctx.Err()
		}
		return nil
	}
	d.r = w.runtime(t, nil)
	if _, err := d.r.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	maps.Copy(w.weights.leases, published)
	weights := listedWeights{&asideWeights{fakeWeights: w.weights}}
	before, log, payloads := w.change, w.store.log.Len(), len(w.store.samples)
	w.change = func(o *live.Options) {
		before(o)
		o.Weights = weights
	}
	d.r = w.runtime(t, w.resume(t))
	if _, err := d.r.Run(t.Context()); !errors.Is(err, live.ErrLogLost) || !strings.Contains(err.Error(), "it ends at version 4") {
		t.Fatalf("ended by %v", err)
	}
	if len(weights.aside) > 0 || len(w.weights.leases) != 5+len(published) || len(w.store.samples) != payloads || w.store.log.Len() != log {
		t.Errorf("versions %v were set aside, %v are there, %d payloads of %d, a log of %d bytes of %d",
			weights.aside, w.weights.leases, len(w.store.samples), payloads, w.store.log.Len(), log)
	}
	for v := range published {
		delete(w.weights.leases, v)
	}
	w.trainer.at, d.fail = 4, nil
	d.r = w.runtime(t, w.resume(t))
	d.r.TrainerReady()
	if res, err := d.r.Run(t.Context()); err != nil || res.Reason != loop.ReasonSteps {
		t.Errorf("without them it ended by %v: %v", res.Reason, err)
	}
}

// TestWaitForVersionZero: until somebody has published version 0 the loop has not
// begun; the run can be looked at, and stopped in either way. The wait is not part of
// the run's time.
func TestWaitForVersionZero(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(r *live.Runtime, cancel func(), d *distantTrainer)
		want func(live.Result, error) bool
	}{
		"stop": {func(r *live.Runtime, _ func(), _ *distantTrainer) { r.Stop() },
			func(res live.Result, err error) bool { return err == nil && res.Reason == loop.ReasonStopped }},
		"cancel": {func(_ *live.Runtime, cancel func(), _ *distantTrainer) { cancel() },
			func(_ live.Result, err error) bool { return errors.Is(err, context.Canceled) }},
		"published": {func(_ *live.Runtime, _ func(), d *distantTrainer) { close(d.first) },
			func(res live.Result, err error) bool {
				return err == nil && res.Reason == loop.ReasonSteps && time.Duration(res.Status.TimeNS) < time.Minute
			}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, d := distantWorld(nil)
				d.first = make(chan struct{})
				d.r = w.runtime(t, nil)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				time.AfterFunc(10*time.Minute, func() {
					if v := d.r.View(); v.Began || v.Status.Version != 0 || len(v.Engines) != 1 {
						t.Errorf("before the beginning the view is %+v", v)
					}
					c.end(d.r, cancel, d)
				})
				res, err := d.r.Run(ctx)
				if !c.want(res, err) {
					t.Errorf("ended by %v at %v, %v", res.Reason, time.Duration(res.Status.TimeNS), err)
				}
			})
		})
	}
}

// TestAbsentTrainer: a run whose trainer has not come, or has left, waits for it for as
// long as it takes, and may be stopped meanwhile.
func TestAbsentTrainer(t *testing.T) {
	for name, change := range map[string]func(*loop.Config){
		"nothing under way": func(c *loop.Config) { c.Policy, c.QueueGroups = loop.PolicySynchronous, 2 },
		"rollouts go on":    func(*loop.Config) {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, d := distantWorld(change)
				d.restore = func(b port.Batch) bool { return false }
				r := w.runtime(t, nil)
				d.r = w.runtime(t, nil) // it speaks to another run
				var late live.View
				time.AfterFunc(9*time.Minute, func() {
					late = r.View()
					r.Stop()
				})
				res, err := r.Run(t.Context())
				if err != nil || res.Reason != loop.ReasonStopped {
					t.Fatalf("ended by %v: %v", res.Reason, err)
				}
				if late.Offered || late.Status.Asked || late.Status.QueueGroups < 2 || late.Last.TrainStepNS != -1 || !late.Began {
					t.Errorf("the view was %+v", late)
				}
				replay(t, w)
			})
		})
	}
}

// TestStopWhileEnginesWait: an engine may wait for weights for as long as it takes; the run may be stopped meanwhile, and goes
// on when it is started again, however often.
func TestStopWhileEnginesWait(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(r *live.Runtime, cancel func())
		want func(live.Result, error) bool
	}{
		"stop":   {func(r *live.Runtime, _ func()) { r.Stop() }, func(res live.Result, err error) bool { return err == nil && res.Reason == loop.ReasonStopped }},
		"cancel": {func(_ *live.Runtime, cancel func()) { cancel() }, func(_ live.Result, err error) bool { return errors.Is(err, context.Canceled) }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(asyncConfig())
				w.engines[0].awaits = true
				r := w.runtime(t, nil)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				began := time.Now()
				time.AfterFunc(time.Hour, func() { c.end(r, cancel) })
				if res, err := r.Run(ctx); !c.want(res, err) || time.Since(began) > time.Hour+time.Second {
					t.Errorf("after %v ended by %v, %v", time.Since(began), res.Reason, err)
				}
				w.engines[0].awaits = false
				if res, err := w.runtime(t, w.resume(t)).Run(t.Context()); err != nil || res.Reason != loop.ReasonSteps {
					t.Fatalf("it goes on, and ended by %v, %v", res.Reason, err)
				}
				w.resume(t)
				clear(w.store.snapshots)
				w.resume(t) // from the whole log, which has an end before its first event
				replay(t, w)
			})
		})
	}
}
