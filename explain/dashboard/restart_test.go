package dashboard

import (
	"testing"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/looptest"
)

// A restart ends the spans of the engines of its process. Those of other cells go on, and with them a weight sync.
func TestRestartOfOneCell(t *testing.T) {
	goesOn := 0
	for run := range looptest.Restarts(t, 40, 600) {
		d := newDrawing(run.Config, nil, 1<<20)
		for i, r := range run.Log {
			d.event(&r.Event, 0)
			if r.Event.Kind == loop.Recovered && run.Status[i-1].SyncTarget != loop.NoVersion {
				if goesOn++; !d.fleet.Runs {
					t.Errorf("step %d: the fleet's sync ends with a restart, and the loop goes on with it", i)
				}
			}
			for k := range r.Actions {
				d.action(&r.Actions[k])
			}
			d.done(&r.Event)
		}
		open, _ := d.open()
		length := func(track int) (ns int64) {
			for _, spans := range [][]span{d.rows.spans[track], open[track]} {
				for _, s := range spans {
					ns += s.to - s.from
				}
			}
			return ns
		}
		rollouts, syncs := int64(0), int64(0)
		for _, track := range d.slotTrack {
			rollouts += length(track)
		}
		for _, track := range d.loadTrack {
			syncs += length(track)
		}
		if want := run.Sum(looptest.Taken); rollouts != want {
			t.Errorf("rollouts of %d ns are drawn, the loop says %d", rollouts, want)
		}
		if want := run.Sum(looptest.Syncing); syncs != want {
			t.Errorf("loads and switches of %d ns are drawn, the loop says %d", syncs, want)
		}
	}
	if goesOn == 0 {
		t.Error("no sync went on through a restart")
	}
}
