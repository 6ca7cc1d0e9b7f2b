package dashboard

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/metrics"
)

// controlledModel is a model of a run with a goal whose controller has moved a setting so many times.
func controlledModel(t *testing.T, moved int) *Model {
	t.Helper()
	rules := loop.Config{GroupSize: 1, BatchGroups: 1, EngineSlots: []int{1}, QueueGroups: 2, Control: &loop.Control{Mean: 1.5, Window: 8}}
	rules.Control.Ranges[loop.SettingLive] = loop.Range{Least: 0, Most: 1e6}
	m := New(Options{Rules: rules})
	observe := func(ev loop.Event, status *loop.ControlStatus, actions ...loop.Action) {
		m.Observe(&ev, &metrics.Measured{Control: status}, actions)
	}
	live := func(value float64, why loop.Reason, v loop.Version) loop.Action {
		return loop.Action{Kind: loop.SettingChanged, Setting: loop.SettingLive, Value: value, Reason: why, Version: v}
	}
	observe(loop.Event{Kind: loop.RunStarted}, nil, live(0, loop.ReasonStart, 0), loop.Action{Kind: loop.ControlChanged, Control: loop.ControlSettling})
	observe(loop.Event{Time: 1e9, Kind: loop.Tick}, nil, loop.Action{Kind: loop.StartRollout, Group: 1, Attempt: 1})
	observe(loop.Event{Time: 2e9, Kind: loop.RolloutScored, Group: 1, Attempt: 1, Tokens: 3}, nil, loop.Action{Kind: loop.GroupQueued, Group: 1},
		loop.Action{Kind: loop.GroupLeased, Group: 1, Lease: 1}, loop.Action{Kind: loop.StartTrainStep, Lease: 1, Attempt: 1})
	actions := []loop.Action{{Kind: loop.GroupTrained, Group: 1, Count: 1, Lease: 1}, {Kind: loop.ControlChanged, Control: loop.ControlKeeping}}
	for i := range moved {
		actions = append(actions, live(float64(i+1), loop.ReasonRoom, 1))
	}
	observe(loop.Event{Time: 3e9, Kind: loop.TrainStepEnded, Lease: 1, Attempt: 1, Version: 1},
		&loop.ControlStatus{State: "keeping", MeasuredMean: 1.25, MeasuredShare: -1, Steps: 4, HeldSteps: 3, HeldBatches: 2}, actions...)
	return m
}

// The pages are given a run's goal, what was measured of it, and every move with its time and reason.
func TestModelOfAController(t *testing.T) {
	m := controlledModel(t, 2)
	c := m.Summary().Control
	if c == nil || c.State != "keeping" || c.TargetMean != 1.5 || c.MeasuredMean != 1.25 || c.MovesInAll != 2 || c.HeldInAll != 3 || c.BatchesInAll != 2 || c.StepsInAll != 4 {
		t.Fatalf("the summary says %+v", c)
	}
	reply := httptest.NewRecorder()
	m.Data().ServeHTTP(reply, httptest.NewRequest("GET", "/api/v1/view/moves", nil))
	var got Moves
	if err := json.Unmarshal(reply.Body.Bytes(), &got); err != nil || len(got.Moves) != 2 || got.Earlier != 0 {
		t.Fatalf("%v: %s", err, reply.Body)
	}
	if first := got.Moves[0]; first.AtNS != 3e9 || first.Step != 1 || first.Setting != "live_groups" || first.From == nil || *first.From != 0 || first.To != 1 || first.Reason != "room" {
		t.Errorf("the first move is %s", reply.Body)
	}
	series := m.Series(0, 0, 0)
	for column, want := range map[string]float64{"control_mean": 1.25, "setting_live_groups": 2} {
		if values := series.Columns[column]; len(values) != 1 || values[0] == nil || *values[0] != want {
			t.Errorf("column %s is %v, want %g", column, values, want)
		}
	}
	for column := range series.Columns {
		if strings.HasPrefix(column, "setting_") && column != "setting_live_groups" || column == "control_share" {
			t.Errorf("a column %s, of what does not move", column)
		}
	}
}

// However long a run, a bounded number of moves is kept: the newest.
func TestMovesAreBounded(t *testing.T) {
	got := controlledModel(t, movesMax+5).Moves()
	if len(got.Moves) != movesMax || got.Earlier != 5 || got.Moves[0].To != 6 || got.Moves[movesMax-1].To != movesMax+5 {
		t.Errorf("%d moves kept and %d not, from %+v to %+v", len(got.Moves), got.Earlier, got.Moves[0], got.Moves[len(got.Moves)-1])
	}
}

// A run without a goal has no controller to show.
func TestModelWithoutAController(t *testing.T) {
	m := New(Options{Rules: loop.Config{GroupSize: 1, BatchGroups: 1, EngineSlots: []int{1}, QueueGroups: 2}})
	m.Observe(&loop.Event{Kind: loop.RunStarted}, &metrics.Measured{}, nil)
	if c := m.Summary().Control; c != nil {
		t.Errorf("%+v", c)
	}
	if moves := m.Moves(); len(moves.Moves) != 0 {
		t.Errorf("%+v", moves)
	}
}
