package timeline_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/timeline"
)

// What a controller moved is an instant with its reason and a step of a counter; where settings stand as the run
// begins is no move.
func TestMovesAreDrawn(t *testing.T) {
	rules := loop.Config{GroupSize: 1, BatchGroups: 1, EngineSlots: []int{1}, QueueGroups: 1, Control: &loop.Control{Mean: 1}}
	var file bytes.Buffer
	d := timeline.New(&file, timeline.Options{Rules: rules})
	move := func(value float64, why loop.Reason) loop.Action {
		return loop.Action{Kind: loop.SettingChanged, Setting: loop.SettingHold, Value: value, Reason: why, Version: 3}
	}
	d.Observe(loop.Event{Kind: loop.RunStarted}, 0, []loop.Action{move(0, loop.ReasonStart)})
	d.Observe(loop.Event{Time: 5e9, Kind: loop.Tick}, 0, []loop.Action{move(0.25, loop.ReasonAbove),
		{Kind: loop.ControlChanged, Control: loop.ControlUnreachable, Setting: loop.SettingHold, Value: 1.5, Version: 3}})
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	var read struct {
		TraceEvents []struct {
			Ph, Cat, Name string
			Ts            float64
			Args          map[string]any
		}
	}
	if err := json.Unmarshal(file.Bytes(), &read); err != nil {
		t.Fatalf("%v: %s", err, file.Bytes())
	}
	var moves, states, counters int
	for _, e := range read.TraceEvents {
		switch {
		case e.Ph == "i" && e.Cat == "move":
			moves++
			if e.Ts != 5e6 || e.Name != "hold" || e.Args["to"] != 0.25 || e.Args["reason"] != "above-target" || e.Args["version"] != 3.0 {
				t.Errorf("a move is %+v", e)
			}
		case e.Ph == "i" && e.Cat == "target":
			states++
			if e.Name != "target unreachable" || e.Args["value"] != 1.5 || e.Args["binding"] != "hold" {
				t.Errorf("a state is %+v", e)
			}
		case e.Ph == "C" && e.Name == "setting hold":
			counters++
		}
	}
	if moves != 1 || states != 1 || counters != 2 {
		t.Errorf("%d moves, %d states and %d counters in %s", moves, states, counters, file.Bytes())
	}
}
