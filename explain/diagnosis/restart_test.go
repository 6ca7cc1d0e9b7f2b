package diagnosis

import (
	"testing"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/looptest"
	"github.com/headway-rl/headway/loop/trace"
)

// Nobody waits for an engine that is lost or loads its first weights. A restart makes those of its process so, and no other.
func TestDeliveriesThroughRestart(t *testing.T) {
	goesOn := 0
	for run := range looptest.Restarts(t, 40, 600) {
		d, again := newDeliveries(&run.Config), map[int]bool{} // one that has to load again is waited for until it serves
		for i, r := range run.Log {
			d.observe(&trace.Event{Event: r.Event}, r.Actions, func() counts { return counts{} })
			for e, st := range run.Status[i].Engines {
				fails := (r.Event.Kind == loop.SyncFailed || r.Event.Kind == loop.WeightsSwitched) && int(r.Event.Engine) == e
				if again[e] = (again[e] || fails) && st.State != "serving"; again[e] {
					continue
				}
				part := map[string]int{"loading": partLoading, "switching": partSwitching}[st.State]
				joins := st.State == "lost" || st.State == "joining"
				if got := &d.engines[e]; got.joins != joins || !joins && got.part != part {
					t.Fatalf("step %d, %v: engine %d joins %v and is in part %d, the loop says %s", i, r.Event, e, got.joins, got.part, st.State)
				}
				if r.Event.Kind == loop.Recovered && part != partNone {
					goesOn++
				}
			}
		}
	}
	if goesOn == 0 {
		t.Error("no load went on through a restart")
	}
}
