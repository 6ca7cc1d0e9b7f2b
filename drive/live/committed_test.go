package live_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// awayTrainer cannot be brought to version 5 a number of times.
type awayTrainer struct {
	*fakeTrainer
	fails int
}

func (a *awayTrainer) Restore(ctx context.Context, v loop.Version, out loop.LeaseID) error {
	if v == 5 && a.fails > 0 {
		a.fails--
		return errors.New("the service is away")
	}
	return a.fakeTrainer.Restore(ctx, v, out)
}

// TestCommittedAndNotRestored: a step whose version is published is not made again, though the trainer cannot be brought there at once.
func TestCommittedAndNotRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(asyncConfig())
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		died := false
		w.trainer.fail = func(b port.Batch) error {
			if b.Version != 4 || died {
				return nil
			}
			died = true
			cancel()
			return errors.Join(w.weights.Publish(t.Context(), port.Publication{Version: 5, Lease: b.Lease}), ctx.Err())
		}
		weights := listedWeights{&asideWeights{fakeWeights: w.weights}}
		tr := &awayTrainer{fakeTrainer: w.trainer}
		w.change = func(o *live.Options) { o.Weights = weights; o.Trainer = tr }
		if _, err := w.runtime(t, nil).Run(ctx); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		tr.fails = 3
		if _, err := w.runtime(t, w.resume(t)).Run(t.Context()); err == nil {
			t.Error("the trainer was away, and the run went on")
		}
		tr.fails = 0
		if _, err := w.runtime(t, w.resume(t)).Run(t.Context()); err != nil {
			t.Error(err)
		}
		if len(weights.aside) > 0 {
			t.Error("a committed version was set aside, and its step made again")
		}
	})
}

// TestCommittedAndFailed: nor is it where Train fails behind its publication, as the run is being stopped.
func TestCommittedAndFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(asyncConfig())
		var r *live.Runtime
		died := false
		w.trainer.fail = func(b port.Batch) error {
			if b.Version != 4 || died {
				return nil
			}
			died = true
			r.Stop()
			synctest.Wait()
			// as Store.Publish whose last SyncDir fails: the version is in place
			return errors.Join(w.weights.Publish(t.Context(), port.Publication{Version: 5, Lease: b.Lease}), errors.New("fsync: input/output error"))
		}
		weights := listedWeights{&asideWeights{fakeWeights: w.weights}}
		w.change = func(o *live.Options) { o.Weights = weights }
		r = w.runtime(t, nil)
		if _, err := r.Run(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := w.runtime(t, w.resume(t)).Run(t.Context()); err != nil {
			t.Error(err)
		}
		if len(weights.aside) > 0 {
			t.Error("a committed version was set aside, and its step made again")
		}
	})
}
