package metrics_test

import (
	"reflect"
	"testing"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/metrics"
)

// controlled is a loop of batches of one group of one rollout, with a goal.
func controlled() loop.Config {
	c := loop.Config{GroupSize: 1, BatchGroups: 1, EngineSlots: []int{2}, QueueGroups: 4, Control: &loop.Control{Mean: 1, Share: 0.9, Within: 2, Tokens: true, Window: 4}}
	c.Control.Ranges[loop.SettingLive] = loop.Range{Least: 1, Most: 6}
	c.Control.Ranges[loop.SettingHold] = loop.Range{Least: 0, Most: 0.3}
	return c
}

// controlSteps are what a recorder is told of a controller: where settings stand, and then four train
// steps, the last two after the window began.
func controlSteps(r *metrics.Recorder) {
	move := func(set loop.Setting, value float64, why loop.Reason, v loop.Version) loop.Action {
		return loop.Action{Kind: loop.SettingChanged, Setting: set, Value: value, Reason: why, Version: v}
	}
	state := func(to loop.ControlState) loop.Action { return loop.Action{Kind: loop.ControlChanged, Control: to} }
	at := int64(0)
	tell := func(ev loop.Event, status *loop.ControlStatus, actions ...loop.Action) {
		ev.Time = at
		r.Observe(ev, metrics.Measured{Control: status}, actions)
	}
	step := func(v loop.Version, status *loop.ControlStatus, after ...loop.Action) {
		g := loop.GroupID(v)
		at += 1e9
		tell(loop.Event{Kind: loop.Tick}, nil, loop.Action{Kind: loop.StartRollout, Group: g, Attempt: 1})
		tell(loop.Event{Kind: loop.RolloutScored, Group: g, Attempt: 1, Tokens: 5, Reward: 1}, nil,
			loop.Action{Kind: loop.GroupQueued, Group: g}, loop.Action{Kind: loop.StartTrainStep, Lease: loop.LeaseID(v), Attempt: 1})
		at += 1e9
		tell(loop.Event{Kind: loop.TrainStepEnded, Lease: loop.LeaseID(v), Attempt: 1, Version: v}, status,
			append([]loop.Action{{Kind: loop.GroupTrained, Group: g, Count: 1, Version: v - 1}}, after...)...)
	}
	tell(loop.Event{Kind: loop.RunStarted}, nil, move(loop.SettingLive, 6, loop.ReasonStart, 0), move(loop.SettingHold, 0, loop.ReasonStart, 0), state(loop.ControlSettling))
	step(1, &loop.ControlStatus{MeasuredMean: -1, MeasuredShare: -1, LastMean: 2, LastShare: 0.8})
	step(2, &loop.ControlStatus{MeasuredMean: 1.5, MeasuredShare: 0.8, LastMean: 1.5, LastShare: 0.7, Steps: 1}, move(loop.SettingLive, 3, loop.ReasonAbove, 2), state(loop.ControlCorrecting))
	step(3, &loop.ControlStatus{MeasuredMean: 0.9, MeasuredShare: 0.95, LastMean: 0.5, LastShare: 1, Steps: 2, HeldSteps: 1, HeldBatches: 1}, move(loop.SettingLive, 4, loop.ReasonRoom, 3), state(loop.ControlKeeping))
	tell(loop.Event{Kind: loop.Tick}, nil, state(loop.ControlSilent))
	step(4, &loop.ControlStatus{MeasuredMean: 1.2, MeasuredShare: 0.95, LastMean: 0.5, LastShare: 1, Steps: 3, HeldSteps: 1, HeldBatches: 2, Nearest: 1.1, Binding: "hold"},
		move(loop.SettingHold, 0.3, loop.ReasonAbove, 4), move(loop.SettingLive, 1, loop.ReasonAbove, 4), state(loop.ControlUnreachable))
}

// What a controller did is reported of the measured window: its moves, where settings began and ended,
// and how often the goal was held, by the window and by single batches.
func TestRecorderFoldsAController(t *testing.T) {
	r := metrics.NewRecorder(controlled())
	r.Warmup = 2
	controlSteps(r)
	got := r.Summary().Control
	want := &metrics.Control{State: "unreachable", TargetMean: 1, TargetShare: 0.9, Within: 2, Of: "tokens", Window: 4, MeasuredMean: 1.2, MeasuredShare: 0.95,
		Steps: 2, HeldSteps: 1, HeldBatches: 2, UnreachableSteps: 1, Silences: 1, Nearest: 1.1, Binding: "hold", Moves: 3,
		Reasons: map[string]int64{"room": 1, "above-target": 2},
		Last: []metrics.Move{{Step: 3, TimeS: 6, Setting: "live_groups", From: 3, To: 4, Reason: "room"},
			{Step: 4, TimeS: 8, Setting: "hold", From: 0, To: 0.3, Reason: "above-target"}, {Step: 4, TimeS: 8, Setting: "live_groups", From: 4, To: 1, Reason: "above-target"}},
		Settings: []metrics.ControlSetting{{Name: "live_groups", Start: 3, Value: 1, Least: 1, Most: 6, Moves: 2, Why: "above-target"},
			{Name: "hold", Start: 0, Value: 0.3, Least: 0, Most: 0.3, Moves: 1, Why: "above-target"}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the summary says\n%+v\nwant\n%+v", got, want)
	}
	var held, batches []bool
	for _, p := range r.Steps {
		held, batches = append(held, p.Control.Held), append(batches, p.Control.BatchHeld)
	}
	if !reflect.DeepEqual(held, []bool{false, false, true, false}) || !reflect.DeepEqual(batches, []bool{false, false, true, true}) {
		t.Errorf("steps were held %v and batches %v", held, batches)
	}
	last := r.Steps[3].Control
	if last.State != loop.ControlUnreachable || last.Settings[loop.SettingLive] != 1 || last.Mean != 1.2 || last.Batch != 0.5 || !last.Judged || r.Steps[0].Control.Judged {
		t.Errorf("the last step's point says %+v", last)
	}
}

// A recorder that goes on from its state says what the one says that observed everything.
func TestControllerOutlivesARestart(t *testing.T) {
	r := metrics.NewRecorder(controlled())
	controlSteps(r)
	again, err := metrics.Restore(controlled(), r.State())
	if err != nil {
		t.Fatal(err)
	}
	if want, got := r.Summary().Control, again.Summary().Control; !reflect.DeepEqual(want, got) {
		t.Errorf("after a restart\n%+v\nwant\n%+v", got, want)
	}
	if !reflect.DeepEqual(r.Steps, again.Steps) {
		t.Errorf("steps after a restart\n%+v\nwant\n%+v", again.Steps, r.Steps)
	}
}

// Without a goal there is nothing to say of one, whatever a log has.
func TestNoGoalNoController(t *testing.T) {
	rules := controlled()
	rules.Control = nil
	r := metrics.NewRecorder(rules)
	controlSteps(r)
	if c := r.Summary().Control; c != nil || r.Steps[3].Control != (metrics.StepControl{}) {
		t.Errorf("a run without a goal has a controller: %+v, %+v", c, r.Steps[3].Control)
	}
}
