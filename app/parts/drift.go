package parts

import (
	"fmt"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/env"
)

// refuseDrift refuses what of rollout.drift a run of embedded engines on a task cannot do.
func refuseDrift(cfg config.Config, task env.Task) error {
	d := cfg.Rollout.Drift
	_, grows := task.(env.Grower)
	moves := func(factor float64) bool { return factor != 0 && factor != 1 }
	switch {
	case moves(d.ToolCallsFactor):
		return cfg.Refuse("rollout.drift.tool_calls_factor", "is of simulations alone: a run of embedded engines calls no tools", "environment_factor, which has the environment take longer, or leave it out")
	case moves(d.LengthFactor) && !grows:
		return cfg.Refuse("rollout.drift.length_factor", fmt.Sprintf("is not possible in a run: %s cannot ask for answers of another length", task.Name()), "a task that can, such as reverse or sort, or leave it out")
	case moves(d.StepFactor) && cfg.Trainer.StepS == 0:
		return cfg.Refuse("rollout.drift.step_factor", "has no effect in a run: it multiplies trainer.step_s, which is 0", "trainer.step_s above 0, or leave it out")
	}
	return nil
}

// refuseRehearsal refuses what has engines of others, and what they are asked, go wrong
// or change on purpose.
func refuseRehearsal(cfg config.Config) error {
	switch {
	case cfg.Rollout.Drift != config.Drift{}:
		return cfg.Refuse("rollout.drift", "is of simulations and runs of embedded engines: answers of servers drift by themselves", "leave it out, as with --set rollout.drift=null")
	case len(cfg.Failures.EnginePlan) > 0:
		return cfg.Refuse("failures.engine_plan", "loses engines on purpose, in simulations and runs of embedded engines alone", "leave it out, as with --set failures.engine_plan=null")
	}
	return nil
}
