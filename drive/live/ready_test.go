package live_test

import (
	"context"
	"errors"
	"math"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// ready lists the groups that a runtime says can be trained.
func ready(t *testing.T, r *live.Runtime) (ids []loop.GroupID) {
	t.Helper()
	groups, places, _ := r.ReadyAfter(0, math.MaxInt)
	for i, g := range groups {
		ids = append(ids, g.ID)
		if rest, _, _ := r.ReadyAfter(places[i], 1); i+1 < len(groups) && (len(rest) != 1 || rest[0].ID != groups[i+1].ID) {
			t.Errorf("behind group %d comes %v, want %d", g.ID, rest, groups[i+1].ID)
		}
	}
	return ids
}

// A group can be read from the time at which it is ready until it has been trained, as the batch has it. A resumed run has the same groups.
func TestReadyGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(loop.Config{GroupSize: 2, BatchGroups: 2, EngineSlots: []int{8}, QueueGroups: 6, TrainSteps: 5})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var run *live.Runtime
		most, trained := 0, []loop.GroupID(nil)
		w.change = func(o *live.Options) {
			o.OnBatch = func(b port.Batch) {
				synctest.Wait()
				ids := ready(t, run)
				most = max(most, len(ids))
				for _, g := range b.Groups {
					found, err := run.ReadyGroup(g.ID)
					if err != nil || !reflect.DeepEqual(found, g) || !slices.Contains(ids, g.ID) {
						t.Errorf("group %d of the batch is read as %+v, %v; ready are %v", g.ID, found, err, ids)
					}
					trained = append(trained, g.ID)
				}
				for _, id := range trained[:len(trained)-len(b.Groups)] {
					if _, err := run.ReadyGroup(id); !errors.Is(err, port.ErrNotReady) || slices.Contains(ids, id) {
						t.Errorf("group %d was trained, and reading it says %v; ready are %v", id, err, ids)
					}
				}
				if b.Lease == 3 {
					cancel()
				}
			}
		}
		run = w.runtime(t, nil)
		if _, err := run.Run(ctx); err == nil {
			t.Fatal("it was to be stopped in its third step")
		}
		if most < 4 {
			t.Fatalf("at most %d groups were ready at once: want some that wait", most)
		}
		before := ready(t, run)
		trained = trained[:len(trained)-2]
		resume := w.resume(t)
		run = w.runtime(t, resume)
		if after := ready(t, run); !slices.Equal(after, before) {
			t.Errorf("after a resume %v are ready, before %v", after, before)
		}
		w.change = nil
		if res, err := run.Run(t.Context()); err != nil || res.Reason != loop.ReasonSteps {
			t.Errorf("ended by %v, %v", res.Reason, err)
		}
	})
}
