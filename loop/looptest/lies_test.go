package looptest

import (
	"strings"
	"testing"

	"github.com/headway-rl/headway/loop"
)

// TestCheckerRejectsLiesOfRules feeds the checker decisions against the rules of
// admission, of interrupted rollouts and of what a group is made of.
func TestCheckerRejectsLiesOfRules(t *testing.T) {
	start := func(g loop.GroupID, slot int32) loop.Action {
		return loop.Action{Kind: loop.StartRollout, Slot: slot, Group: g, Attempt: 1}
	}
	resume := func(g loop.GroupID, slot int32) loop.Action {
		a := start(g, slot)
		a.Kind = loop.ResumeRollout
		return a
	}
	about := func(kind loop.EventKind, g loop.GroupID, slot int32) loop.Event {
		return loop.Event{Kind: kind, Slot: slot, Group: g, Attempt: 1, Reward: 1, Tokens: 1}
	}
	queued := func(g loop.GroupID) loop.Action { return loop.Action{Kind: loop.GroupQueued, Group: g, Count: 1} }
	lease := []loop.Action{
		{Kind: loop.GroupLeased, Group: 1, Count: 1, Lease: 1, Attempt: 1},
		{Kind: loop.StartTrainStep, Lease: 1, Attempt: 1, Count: 1},
	}
	with := func(change func(*loop.Config)) loop.Config {
		c := loop.Config{GroupSize: 1, BatchGroups: 1, QueueGroups: 2, EngineSlots: []int{2}}
		change(&c)
		return c
	}
	began := Record{loop.Event{Kind: loop.RunStarted}, []loop.Action{start(1, 0), start(2, 1)}, loop.NoTick}
	plain := with(func(*loop.Config) {})
	interrupts := with(func(c *loop.Config) { c.InterruptAtBatch = true })
	first := Record{about(loop.RolloutScored, 1, 0), append([]loop.Action{queued(1)}, append(lease, start(3, 0))...), loop.NoTick}
	ask := loop.Action{Kind: loop.InterruptRollout, Slot: 0, Group: 3, Attempt: 1}
	cases := []struct {
		name    string
		cfg     loop.Config
		records []Record
		want    string
	}{
		{"more groups than the bound", with(func(c *loop.Config) { c.Policy = loop.PolicyBounded }), []Record{began}, "the bound on staleness permits 1"},
		{"more groups than the threshold", with(func(c *loop.Config) { c.Policy = loop.PolicyThreshold }), []Record{began}, "the threshold permits 1"},
		{"fewer groups than the bound", with(func(c *loop.Config) { c.Policy, c.Eta = loop.PolicyBounded, 1 }),
			[]Record{{began.Event, began.Actions[:1], loop.NoTick}}, "a group may be opened"},
		{"gang without room for the redundant", with(func(c *loop.Config) { c.Start, c.Redundancy, c.EngineSlots = loop.StartGang, 1, []int{3} }),
			[]Record{{began.Event, []loop.Action{start(1, 0), {Kind: loop.StartRollout, Slot: 1, Group: 1, Sample: 1, Attempt: 1}, start(2, 2)}, loop.NoTick}}, "slots are free for a group of 2"},
		{"resuming what runs", plain, []Record{{began.Event, []loop.Action{resume(1, 0)}, loop.NoTick}}, "nothing stands interrupted"},
		{"forgetting what was interrupted", plain, []Record{began, {about(loop.RolloutInterrupted, 1, 0), nil, loop.NoTick}}, "wait to be resumed"},
		{"a new group before what was interrupted", plain, []Record{began, {about(loop.RolloutInterrupted, 1, 0), []loop.Action{start(3, 0)}, loop.NoTick}}, "waits to be resumed"},
		{"resuming another", plain, []Record{began, {about(loop.RolloutInterrupted, 1, 0), []loop.Action{resume(2, 0)}, loop.NoTick}}, "g1/0 waits to be resumed"},
		{"resuming rightly", plain, []Record{began, {about(loop.RolloutInterrupted, 1, 0), []loop.Action{resume(1, 0)}, loop.NoTick}}, ""},
		{"resuming beyond the spans", with(func(c *loop.Config) { c.MaxSpans = 1 }),
			[]Record{began, {about(loop.RolloutInterrupted, 1, 0), []loop.Action{resume(1, 0)}, loop.NoTick}}, "missing action"},
		{"starting while a batch waits", interrupts, []Record{began, first, {about(loop.RolloutScored, 2, 1), []loop.Action{queued(2), ask, start(4, 1)}, loop.NoTick}}, "a whole batch is ready"},
		{"not interrupting while a batch waits", interrupts, []Record{began, first, {about(loop.RolloutScored, 2, 1), []loop.Action{queued(2)}, loop.NoTick}}, "missing action"},
		{"interrupting rightly", interrupts, []Record{began, first, {about(loop.RolloutScored, 2, 1), []loop.Action{queued(2), ask}, loop.NoTick}}, ""},
		{"interrupting out of nothing", plain, []Record{began, {loop.Event{Kind: loop.Tick}, []loop.Action{{Kind: loop.InterruptRollout, Group: 1, Attempt: 1}}, loop.NoTick}}, "unexpected action"},
		{"another prompt", with(func(c *loop.Config) { c.Prompts = 5 }), []Record{began}, "want 3, 0"},
		{"no level", with(func(c *loop.Config) { c.Levels, c.SolveHigh = 1, 1 }), []Record{began}, "want 0, 1"},
		{"trying a pruned rollout again", with(func(c *loop.Config) { c.EngineSlots = []int{1} }), []Record{
			{began.Event, []loop.Action{start(1, 0)}, loop.NoTick},
			{asPruned(about(loop.RolloutScored, 1, 0)), []loop.Action{{Kind: loop.StartRollout, Group: 1, Attempt: 2}}, loop.NoTick}}, "missing action"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			err := check(c.cfg, c.records)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("the checker says %v, want %q", err, c.want)
			}
		})
	}
}

// asPruned returns the event with the verdict that prunes its rollout.
func asPruned(ev loop.Event) loop.Event {
	ev.Mark = loop.MarkPruned
	return ev
}
