package diagnosis

import "strings"

// noSettings say of each kind of finding why no setting is named where none is. A kind whose change is always there has no
// entry.
var noSettings = map[string]string{
	"ledger_unbalanced":    "a defect of the program: report it with the trace",
	"little_mismatch":      "a defect of the program: report it with the trace",
	"version_skew":         "look at why an engine lags: reloads, losses, or syncs that fail",
	"trainer_absent":       "look at what the trainer did meanwhile: no setting brings its time back",
	"train_steps_long":     "look at what the trainer did in these steps: no setting shortens them",
	"train_steps_failed":   "look at the trainer's error: no setting keeps a step from failing",
	"weights_late":         "look at the engines that load late: no setting makes them load",
	"rollouts_stood":       "look at what the machine, the engines and the workers did then: no setting wakes them",
	"engines_lost":         "look at why the engine went: no setting keeps one up",
	"engine_slow":          "look at the engine's machine; fewer slots for it alone are not priced",
	"broken_tasks":         "mend the tasks, or leave them out: no setting of the loop has them scored",
	"environment_failures": "look at the environment's own errors: no setting of the loop mends them",
	"forward_pass":         "mend the trainer's forward pass: no setting makes up for it",
	"log_ratio":            "find out which side computes otherwise; what lowers the staleness lowers a lag alone",
	"clip_fraction":        "what lowers the staleness lowers this; how much of it is not priced",
	"budget_cannot_bind":   "the budget costs nothing as it stands",
	"waste":                "no change was found that wastes less and surely costs no time",
	"truncated":            "a longer cap costs time and staleness, and what it teaches is not priced",
	"resumed_rollouts":     "which difference is the policy's age, and which the task's, is not known: nothing is priced",
	"drift":                "the work itself moves: no setting holds it",
	"target_unreachable":   "no target was found that these limits can hold",
	"target_missed":        "no window was found that surely holds it more often",
	"target_oscillating":   "no window and no limit was found that surely calms it",
	"target_silent":        "nothing can be steered while no train step ends",
	"target_binds":         "no other target was found that surely buys time",

	"dominant_source":         "no change was found that surely lowers the staleness",
	"queue_factor_one":        "no shorter queue surely lowers the staleness",
	"newest_and_hold":         "no order and no hold surely lower the staleness",
	"tail":                    "no cap was found that surely lowers the staleness",
	"concurrency":             "no number of slots surely lowers the staleness",
	"batch_against_staleness": "the gain of another batch could not be priced",
	"staleness_budget":        "the gain of another bound could not be priced",
	"inner_steps":             "the gain of a sync every step could not be priced",
	"sync_time":               "another way to sync surely buys neither staleness nor time here: a faster link, or fewer bytes, would",
	"environment_time":        "no setting makes the environment faster: its own code does",
	"move_to_trainer":         "no change was found that surely shortens the period",
	"move_to_rollout":         "no change was found that surely shortens the period",
	"starved":                 "no queue was found that surely shortens the period",
	"phase_locked":            "no change was found that surely breaks the rhythm",
}

// noSetting says why a finding names no setting.
func (f *facts) noSetting(found *Finding) string {
	code := found.Code
	if strings.HasPrefix(code, "drift_") {
		code = "drift"
	}
	if strings.HasPrefix(code, "move_to_") && f.log != nil {
		return "the log does not say the split of the GPUs, so that no move is priced"
	}
	return noSettings[code]
}
