package metrics_test

import (
	"math"
	"testing"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/metrics"
)

// script feeds a recorder by hand, times in seconds.
type script struct{ r *metrics.Recorder }

func (s script) at(seconds float64, ev loop.Event, actions ...loop.Action) {
	ev.Time = int64(seconds * 1e9)
	s.r.Observe(ev, metrics.Measured{}, actions)
}

func begins(g loop.GroupID, slot int32) loop.Action {
	return loop.Action{Kind: loop.StartRollout, Group: g, Slot: slot, Attempt: 1}
}

func ends(kind loop.EventKind, g loop.GroupID, slot, tokens int32) loop.Event {
	return loop.Event{Kind: kind, Group: g, Slot: slot, Attempt: 1, Tokens: tokens}
}

func resumes(g loop.GroupID, slot int32, v loop.Version) loop.Action {
	return loop.Action{Kind: loop.ResumeRollout, Group: g, Slot: slot, Attempt: 1, Version: v}
}

// Both sides' idle time adds up over any number of pauses, whatever began and ended
// them: a counter that remembers the last pause alone reports next to nothing.
func TestIdleOfBothSidesOverSeveralPauses(t *testing.T) {
	s := script{metrics.NewRecorder(loop.Config{GroupSize: 1, BatchGroups: 1, EngineSlots: []int{2}, QueueGroups: 1})}
	train := func(id loop.LeaseID) loop.Action {
		return loop.Action{Kind: loop.StartTrainStep, Lease: id, Attempt: 1}
	}
	trained := func(g loop.GroupID, v loop.Version) loop.Action {
		return loop.Action{Kind: loop.GroupTrained, Group: g, Count: 1, Version: v}
	}
	s.at(3, loop.Event{Kind: loop.RunStarted}, begins(1, 0))         // nothing runs 0–3; slot 1 waits on
	s.at(5, ends(loop.RolloutScored, 1, 0, 10), train(1))            // trainer idle 0–5; slot 0 ran 3–5
	s.at(6, loop.Event{Kind: loop.Tick}, begins(2, 0), begins(3, 1)) // second still pause 5–6
	s.at(8, ends(loop.RolloutFailed, 2, 0, 0))                       // slot 0 ran 6–8
	s.at(9, ends(loop.RolloutInterrupted, 3, 1, 7))                  // slot 1 ran 6–9: third still pause from 9
	s.at(11, loop.Event{Kind: loop.TrainStepEnded, Lease: 1, Attempt: 1, Version: 1}, trained(1, 0),
		loop.Action{Kind: loop.LoadWeights, Attempt: 1, Version: 1}, loop.Action{Kind: loop.SwitchWeights, Attempt: 1, Version: 1}) // trainer busy 5–11
	s.at(12, loop.Event{Kind: loop.WeightsSwitched, Attempt: 1, Version: 1}, resumes(3, 0, 1))                      // still 9–12
	s.at(14, ends(loop.RolloutScored, 3, 0, 20), loop.Action{Kind: loop.GroupQueued, Group: 3, Count: 1}, train(2)) // trainer idle 11–14; slot 0 ran 12–14
	s.at(15, loop.Event{Kind: loop.TrainStepEnded, Lease: 2, Attempt: 1, Version: 2}, trained(3, 1))                // trainer busy 14–15; fourth still pause from 14
	s.at(20, loop.Event{Kind: loop.Tick}, begins(4, 1))                                                             // trainer idle from 15
	s.at(25, loop.Event{Kind: loop.EngineLost})                                                                     // slot 1 ran 20–25
	s.at(26, loop.Event{Kind: loop.Tick})                                                                           // fifth still pause 25–26
	got := s.r.Summary()
	for _, test := range []struct {
		what      string
		got, want float64
	}{
		{"trainer idle, s", got.TrainerIdleS, 5 + 3 + 11}, {"trainer idle ratio", got.TrainerIdleRatio, 19.0 / 26},
		{"no rollout anywhere, s", got.RolloutStillS, 3 + 1 + 3 + 6 + 1},
		{"slot idle, s", got.SlotIdleS, 26 - (2+2+3+2+5)/2.0}, {"rollout idle ratio", got.RolloutIdleRatio, 1 - 14.0/52},
		{"backlog, mean", got.Partial.BacklogMean, 3.0 / 26}, {"time of the resumed rollout in slots", got.RolloutS.Max, 5},
		{"spans, most", float64(got.Partial.SpansMax), 2}, {"version span", float64(got.Partial.VersionSpanMax), 1},
		{"trained tokens", float64(got.Waste.TrainedTokens), 30},
	} {
		if math.Abs(test.got-test.want) > 1e-9 {
			t.Errorf("%s: %g, want %g", test.what, test.got, test.want)
		}
	}
	verl := map[string]float64{}
	for _, m := range metrics.VerlMetrics(got) {
		if _, twice := verl[m.Name]; twice {
			t.Errorf("%s is there twice", m.Name)
		}
		verl[m.Name] = m.Value
	}
	for name, want := range map[string]float64{
		"trainer/idle_ratio": 19.0 / 26, "rollouter/idle_ratio": 14.0 / 26, "fully_async/total_wait_time": 19,
		"fully_async/partial/total_partial_num": 1, "fully_async/partial/partial_ratio": 0.5, "fully_async/partial/max_partial_span": 1,
		"fully_async/count/stale_samples_processed": 0, "fully_async/count/stale_trajectory_processed": 0, "timing_s/step": 13,
	} {
		if v, ok := verl[name]; !ok || math.Abs(v-want) > 1e-9 {
			t.Errorf("%s is %g (there: %v), want %g", name, v, ok, want)
		}
	}
}

// What the driver says of spans, the environment's state and rewards is summed up.
func TestWhatTheDriverMeasured(t *testing.T) {
	r := metrics.NewRecorder(loop.Config{GroupSize: 2, BatchGroups: 1, EngineSlots: []int{2}, QueueGroups: 1})
	first, second := begins(1, 0), begins(1, 1)
	second.Sample = 1
	r.Observe(loop.Event{Kind: loop.RunStarted}, metrics.Measured{}, []loop.Action{first, second})
	r.Observe(ends(loop.RolloutInterrupted, 1, 0, 5), metrics.Measured{}, []loop.Action{resumes(1, 0, 3)})
	scored := ends(loop.RolloutScored, 1, 0, 9)
	scored.Reward = 0.25
	r.Observe(scored, metrics.Measured{Spans: 3, Resumed: true, StateLag: 4}, nil)
	fresh := ends(loop.RolloutScored, 1, 1, 9)
	fresh.Sample, fresh.Reward, fresh.Mark = 1, 1, loop.MarkSolved
	r.Observe(fresh, metrics.Measured{Spans: 1}, []loop.Action{{Kind: loop.GroupQueued, Group: 1, Count: 2}})
	p := r.Summary().Partial
	if p.VersionSpansMean != 2 || p.VersionSpansMax != 3 || p.StateLagMean != 4 || p.StateLagMax != 4 || p.RewardResumed != 0.25 || p.RewardFresh != 1 || p.ResumedRatio != 0.5 {
		t.Errorf("%+v", p)
	}
	if s := r.Summary().Signal; s.SolveRate != 0.5 || s.AllSolvedShare != 0 || s.NoneSolvedShare != 0 {
		t.Errorf("%+v", s)
	}
}

// A queue that gives a group back, or holds it again, does not make it ready twice.
func TestReadyOnce(t *testing.T) {
	s := script{metrics.NewRecorder(loop.Config{GroupSize: 1, BatchGroups: 1, EngineSlots: []int{1}, QueueGroups: 1, Policy: loop.PolicyBlock})}
	s.at(0, loop.Event{Kind: loop.RunStarted}, begins(1, 0))
	s.at(1, ends(loop.RolloutScored, 1, 0, 10), loop.Action{Kind: loop.GroupQueued, Group: 1})
	s.at(2, loop.Event{Kind: loop.LeaseReturned}, loop.Action{Kind: loop.GroupHeld, Group: 1})
	s.at(3, loop.Event{Kind: loop.Tick}, loop.Action{Kind: loop.GroupQueued, Group: 1})
	if got := s.r.Summary(); got.GroupsReady != 1 || got.Acceptance != 1 {
		t.Errorf("%d groups ready, acceptance %g, want 1 and 1", got.GroupsReady, got.Acceptance)
	}
}

// Interruptions do not allocate once the backlog has its room.
func TestBacklogDoesNotAllocate(t *testing.T) {
	s := script{metrics.NewRecorder(loop.Config{GroupSize: 4, BatchGroups: 1, EngineSlots: []int{4}, QueueGroups: 1})}
	var starts []loop.Action
	for k := range int32(4) {
		a := begins(1, k)
		a.Sample = k
		starts = append(starts, a)
	}
	s.at(0, loop.Event{Kind: loop.RunStarted}, starts...)
	one := make([]loop.Action, 1)
	turn := func() {
		for k := range int32(4) {
			ev := ends(loop.RolloutInterrupted, 1, k, 3)
			ev.Sample = k
			s.r.Observe(ev, metrics.Measured{}, nil)
		}
		for _, k := range []int32{2, 0, 3, 1} {
			one[0] = resumes(1, k, 0)
			one[0].Sample = k
			s.r.Observe(loop.Event{Kind: loop.Tick}, metrics.Measured{}, one)
		}
	}
	turn()
	if n := testing.AllocsPerRun(1000, turn); n != 0 {
		t.Errorf("%v allocations a turn, want none", n)
	}
	if p := s.r.Summary().Partial; p.BacklogMax != 4 || p.BacklogEnd != 0 || p.Interruptions != p.Resumed || p.Interruptions < 4000 {
		t.Errorf("%+v", p)
	}
}
