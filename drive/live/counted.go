package live

import (
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// Counted knows which attempts the loop has counted as each group's. A trained
// batch goes by this count and not by the payloads in the store. A rollout that
// the loop cut, as superfluous or for its group's end, may have stored its payload
// before the abort reached it. The payload is still there until the rollout's
// event is taken.
//
// A resumed run needs what the processes before it have counted: see Resume.
type Counted struct {
	kept   bool        // trained groups may be trained on again
	last   loop.Ledger // as it was before the next event
	groups map[loop.GroupID][]port.RolloutID
}

// NewCounted returns a Counted of a run under a queue policy, before its first event.
func NewCounted(policy loop.Policy) *Counted {
	return &Counted{kept: policy == loop.PolicyReplay, groups: make(map[loop.GroupID][]port.RolloutID)}
}

// Observe takes every event of the run in turn, with the ledger after it and the
// actions that followed. It reports whether the loop took the event as the score of
// an attempt that counts.
func (c *Counted) Observe(ev loop.Event, after loop.Ledger, actions []loop.Action) bool {
	scored := ev.Kind == loop.RolloutScored && ev.Mark != loop.MarkPruned && counted(c.last, after, actions)
	c.last = after
	if scored {
		c.groups[ev.Group] = append(c.groups[ev.Group], port.RolloutID{Group: ev.Group, Sample: ev.Sample, Attempt: ev.Attempt})
	}
	for i := range actions {
		if a := &actions[i]; a.Kind == loop.GroupEnded || a.Kind == loop.GroupTrained && !c.kept {
			delete(c.groups, a.Group)
		}
	}
	return scored
}

// counted reports whether the loop took a scored rollout as its group's, going by
// the ledger around the event: one more of the attempts in flight before it, and
// admitted by it, has left than were aborted, failed or pruned.
func counted(before, after loop.Ledger, actions []loop.Action) bool {
	left := before.InFlight + after.Admitted - before.Admitted - after.InFlight
	left -= after.Failed + after.Pruned - before.Failed - before.Pruned
	for i := range actions {
		if actions[i].Kind == loop.AbortRollout {
			left--
		}
	}
	return left > 0
}
