package api

import (
	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/control"
	observed "github.com/headway-rl/headway/observe/metrics"
)

// ControlOf is a run's controller as a status has it, from the loop's state and the
// recorded moves; recorded may be nil. It is nil without a goal.
func ControlOf(rules *loop.Control, status *loop.ControlStatus, recorded *observed.Control) *protocol.Control {
	if rules == nil || status == nil || rules.Mean == 0 && rules.Share == 0 {
		return nil
	}
	c := &protocol.Control{TargetMean: rules.Mean, TargetShare: rules.Share, Within: rules.Within, Window: rules.Window, ControlStatus: *status, LastMoves: []protocol.Move{}}
	if rules.Share > 0 {
		c.Of = shareOf(rules.Tokens)
	}
	if recorded != nil {
		for _, m := range recorded.Last {
			c.LastMoves = append(c.LastMoves, protocol.Move(m))
		}
	}
	c.Says = GoalOf(c).Sentence(status)
	return c
}

// shareOf names the parts that a share counts.
func shareOf(tokens bool) string {
	if tokens {
		return "tokens"
	}
	return "rollouts"
}

// GoalOf is the goal in a status.
func GoalOf(c *protocol.Control) control.Goal {
	return control.Goal{Mean: c.TargetMean, Share: c.TargetShare, Within: c.Within, Of: c.Of, Window: c.Window}
}
