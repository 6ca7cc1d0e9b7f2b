package metrics

import (
	"testing"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/looptest"
)

// A sync that goes on through a restart, in other cells, keeps an idle trainer waiting as before.
func TestSyncThroughRestart(t *testing.T) {
	through := 0
	for run := range looptest.Restarts(t, 40, 600) {
		rec := NewRecorder(run.Config)
		for i, r := range run.Log {
			rec.Observe(r.Event, Measured{}, r.Actions)
			if r.Event.Kind == loop.Recovered && holds(&run.Config, run.Status[i]) > 0 {
				through++
			}
		}
		rec.settle()
		want := run.Sum(func(st loop.Status) int { return holds(&run.Config, st) })
		if got := rec.window.syncIdleNS; got != want {
			t.Errorf("the trainer waits %d ns for syncs, by the loop %d", got, want)
		}
	}
	if through < 20 {
		t.Errorf("%d syncs kept a trainer waiting after a restart: too few to say anything", through)
	}
}

// holds is 1 where a sync keeps an idle trainer waiting, by the loop's word, else 0.
func holds(cfg *loop.Config, st loop.Status) int {
	if st.SyncTarget == loop.NoVersion || st.Lease != 0 || cfg.TrainerAsks && !st.Asked {
		return 0
	}
	serving, stopped := 0, 0
	for _, e := range st.Engines {
		if e.Version == loop.NoVersion {
			continue
		}
		serving++
		switch e.State {
		case "loading", "loaded":
			if cfg.Sync == loop.SyncDrain {
				stopped++
			}
		case "emptying":
			stopped++
		case "switching":
			if cfg.Sync != loop.SyncInFlight {
				stopped++
			}
		}
	}
	if cfg.TrainerBlocked || looptest.Taken(st) == 0 || 2*stopped >= serving {
		return 1
	}
	return 0
}
