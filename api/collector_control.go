package api

import (
	"github.com/headway-rl/headway/api/protocol"
)

// controlStates are the states of a controller.
var controlStates = []string{"settling", "keeping", "correcting", "unreachable", "silent"}

// controlFigures say how a goal is kept; a run without one has none of them.
var controlFigures = []figure{
	of(controlOf, "headway_control_state", "1 for what the controller does: settling, keeping, correcting, unreachable or silent; a run without a target has no such series.", gauge, []string{"state"},
		func(c *protocol.Control, emit func(float64, ...string)) {
			oneOf(controlStates, func(w string) bool { return w == c.State }, emit)
		}),
	of(controlOf, "headway_control_target", "The target: mean is the largest mean staleness in versions, share the least share of what is trained within the target's versions.", gauge, []string{"of"},
		func(c *protocol.Control, emit func(float64, ...string)) {
			ofGoal(c, c.TargetMean, c.TargetShare, emit)
		}),
	of(controlOf, "headway_control_measured", "What the target was measured to be over its window of train steps, -1 while unknown.", gauge, []string{"of"},
		func(c *protocol.Control, emit func(float64, ...string)) {
			ofGoal(c, c.MeasuredMean, c.MeasuredShare, emit)
		}),
	single(controlOf, "headway_control_steps_total", "Train steps that were judged by the target.", counter, func(c *protocol.Control) float64 { return float64(c.Steps) }),
	single(controlOf, "headway_control_held_steps_total", "Train steps with the target held over the window that ended with them.", counter, func(c *protocol.Control) float64 { return float64(c.HeldSteps) }),
	single(controlOf, "headway_control_held_batches_total", "Train steps whose own batch met the target, which is stricter.", counter, func(c *protocol.Control) float64 { return float64(c.HeldBatches) }),
	single(controlOf, "headway_control_moves_total", "Changes of settings that the controller made.", counter, func(c *protocol.Control) float64 { return float64(c.Moves) }),
	of(controlOf, "headway_control_setting", "Where a setting stands that the controller may move: value, and least and most as its limits.", gauge, []string{"setting", "bound"},
		func(c *protocol.Control, emit func(float64, ...string)) {
			for _, s := range c.Settings {
				emit(s.Value, s.Name, "value")
				emit(s.Least, s.Name, "least")
				emit(s.Most, s.Name, "most")
			}
		}),
}

func controlOf(s protocol.Status) *protocol.Control { return s.Control }

// ofGoal emits the kinds that a goal has.
func ofGoal(c *protocol.Control, mean, share float64, emit func(float64, ...string)) {
	if c.TargetMean > 0 {
		emit(mean, "mean")
	}
	if c.TargetShare > 0 {
		emit(share, "share")
	}
}
