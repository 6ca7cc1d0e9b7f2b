package timeline

import (
	"bytes"
	"math"
	"testing"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/looptest"
)

// A restart ends the spans of the engines of its process. Those of other cells go on, and with them a weight sync.
func TestRestartOfOneCell(t *testing.T) {
	cut, goesOn := 0, 0
	for run := range looptest.Restarts(t, 40, 600) {
		if run.Config.HoldAdaptive { // whose moves are on a track without a name
			continue
		}
		var out bytes.Buffer
		d := New(&out, Options{Rules: run.Config})
		syncs := map[int64]bool{}                                   // at each restart, whether a sync of the fleet was under way
		served := make([]loop.Version, len(run.Config.EngineSlots)) // by each, or last
		for i := range served {
			served[i] = run.Status[0].Engines[i].Version
		}
		for i, r := range run.Log {
			d.Observe(r.Event, 0, r.Actions)
			oldest := loop.Version(d.level[trainedVersion])
			for e, st := range run.Status[i].Engines {
				if served[e] = max(served[e], st.Version); served[e] != loop.NoVersion {
					oldest = min(oldest, served[e])
				}
			}
			if got := d.level[servedVersion]; got != int64(oldest) {
				t.Fatalf("step %d: version %d is shown as served, want %d", i, got, oldest)
			}
			if _, again := syncs[r.Event.Time]; r.Event.Kind == loop.Recovered && !again {
				syncs[r.Event.Time] = run.Status[i-1].SyncTarget != loop.NoVersion
			}
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		drawn := map[string]float64{}
		for _, e := range read(t, out.Bytes()) {
			if e.Phase != "X" {
				continue
			}
			if e.PID != trainerProcess {
				drawn[e.Category] += e.Dur * 1000
				continue
			}
			if e.TID == syncTrack && e.Args["end"] == "recovered" {
				cut++
				if at := int64(math.Round((e.TS + e.Dur) * 1000)); syncs[at] {
					t.Errorf("the fleet's sync ends at %d ns with a restart, and the loop goes on with it", at)
				}
			}
		}
		for what, want := range map[string]int64{"rollout": run.Sum(looptest.Taken), "sync": run.Sum(looptest.Syncing)} {
			if math.Abs(drawn[what]-float64(want)) > 1 {
				t.Errorf("%s: spans of %.0f ns are drawn, the loop says %d", what, drawn[what], want)
			}
		}
		for _, goes := range syncs {
			if goes {
				goesOn++
			}
		}
	}
	if cut == 0 || goesOn == 0 {
		t.Errorf("%d syncs ended with a restart and %d went on: too few to say anything", cut, goesOn)
	}
}
