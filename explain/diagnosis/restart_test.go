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

// An engine of another cell is not there until it joins, and apart from no other until it serves.
func TestFleetOfCells(t *testing.T) {
	f := newFleet(&loop.Config{EngineSlots: []int{1, 1}, EngineCells: []int{0, 1}})
	f.to(100)
	f.switched(0, 5)
	f.joined(1)
	f.to(150)
	if share, skew := f.figures(); share != 0 || skew != 0 || f.losses != 0 || f.goneNS != 100 {
		t.Errorf("share %g, skew %g, %+v", share, skew, f)
	}
	f.switched(1, 4)
	f.to(200) // 50 of 1 version apart
	if share, skew := f.figures(); share != 50.0/200 || skew != 1 || f.skewMax != 1 {
		t.Errorf("share %g, skew %g, %+v", share, skew, f)
	}
}
