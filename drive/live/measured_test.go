package live

import (
	"testing"

	"github.com/headway-rl/headway/loop"
)

// TestCounted holds the counted attempts against a loop's events one by one.
func TestCounted(t *testing.T) {
	for policy, kept := range map[loop.Policy]bool{loop.PolicyDrop: false, loop.PolicyReplay: true} {
		c := NewCounted(policy)
		ledger := loop.Ledger{Admitted: 3, InFlight: 3}
		observe := func(ev loop.Event, actions ...loop.Action) bool {
			ev.Group, ev.Attempt = 1, 1
			return c.Observe(ev, ledger, actions)
		}
		observe(loop.Event{Kind: loop.RunStarted})
		ledger.InFlight, ledger.Pruned = 2, 1
		if observe(loop.Event{Kind: loop.RolloutScored, Mark: loop.MarkPruned}) {
			t.Error("a pruned rollout counts")
		}
		ledger.InFlight, ledger.Cancelled, ledger.Queued = 0, 1, 1 // the group is full, the third is aborted
		if !observe(loop.Event{Kind: loop.RolloutScored, Sample: 1}, loop.Action{Kind: loop.AbortRollout, Group: 1, Sample: 2}) {
			t.Error("a score that fills its group does not count")
		}
		if observe(loop.Event{Kind: loop.RolloutScored, Sample: 2}) {
			t.Error("a score after the abort counts")
		}
		if n := len(c.groups[1]); n != 1 {
			t.Errorf("%d rollouts count, want 1", n)
		}
		observe(loop.Event{Kind: loop.TrainStepEnded}, loop.Action{Kind: loop.GroupTrained, Group: 1})
		if n := len(c.groups[1]); (n == 1) != kept {
			t.Errorf("%v: %d rollouts count after the step", policy, n)
		}
		observe(loop.Event{Kind: loop.TrainStepEnded}, loop.Action{Kind: loop.GroupEnded, Group: 1})
		if n := len(c.groups[1]); n != 0 {
			t.Errorf("%v: %d rollouts count after the group's end", policy, n)
		}
	}
}
