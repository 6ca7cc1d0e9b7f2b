package metrics

import (
	"testing"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/looptest"
)

// The last engine of a cell that rollouts cannot leave takes all of them along: in its slots, in those of an engine that was
// lost before and has not let go of them, and those that stand interrupted.
func TestCellIsLost(t *testing.T) {
	cfg := loop.Config{GroupSize: 1, BatchGroups: 4, QueueGroups: 8, EngineSlots: []int{1, 2, 1}, EngineCells: []int{0, 1, 1},
		MaxAttempts: 3, ResumeLost: true, StaysInCell: true}
	l, err := loop.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	rec := NewRecorder(cfg)
	step := func(ev loop.Event) {
		actions, _ := l.Step(ev)
		rec.Observe(ev, Measured{}, actions)
		if st := l.Status(); int(rec.run.Active) != looptest.Taken(st) || rec.run.Parked.Len() != st.Backlog {
			t.Fatalf("%v: %d slots are taken and %d rollouts interrupted, the loop says %+v", ev, rec.run.Active, rec.run.Parked.Len(), st)
		}
	}
	step(loop.Event{Kind: loop.RunStarted})
	for e := int32(1); e <= 2; e++ {
		step(loop.Event{Kind: loop.EngineJoined, Engine: e})
		step(loop.Event{Kind: loop.WeightsLoaded, Engine: e, Attempt: 1})
		step(loop.Event{Kind: loop.WeightsSwitched, Engine: e, Attempt: 1})
		step(loop.Event{Kind: loop.Tick})
	}
	step(loop.Event{Kind: loop.EngineLost, Engine: 1})
	for slot := range rec.run.Slots { // one of the two says how far it came
		if at := rec.run.Slots[slot]; at.Runs && at.Engine == 1 {
			step(loop.Event{Kind: loop.RolloutInterrupted, Slot: int32(slot), Group: at.Group, Sample: at.Sample, Attempt: at.Number, Tokens: 5})
			break
		}
	}
	if rec.run.Active != 3 || rec.run.Parked.Len() != 1 {
		t.Fatalf("%d slots are taken and %d rollouts interrupted before the loss", rec.run.Active, rec.run.Parked.Len())
	}
	step(loop.Event{Kind: loop.EngineLost, Engine: 2})
	if rec.run.Active != 1 || rec.run.Parked.Len() != 0 || rec.window.failures.Engine != 3 || rec.window.waste.tokens[loop.EndFailed] != 5 {
		t.Errorf("%d slots are taken, %d rollouts interrupted, failures %+v, waste %+v", rec.run.Active, rec.run.Parked.Len(), rec.window.failures, rec.window.waste)
	}
}
