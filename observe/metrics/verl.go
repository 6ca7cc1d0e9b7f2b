package metrics

// Named is a figure under a name of another's.
type Named struct {
	// Name as the other framework spells it.
	Name string `json:"name"`
	// Value in that framework's unit.
	Value float64 `json:"value"`
}

// VerlMetrics returns the figures of a summary under verl's own names (its fully_async_policy
// recipe), in a fixed order, where the notion is the same. Like verl, it calls a group a sample and
// a rollout a trajectory, and counts versions in weight syncs. It judges staleness by the last
// version that made a rollout. Where verl prints one figure a sync or a running total, these are of
// the measured window. The figure rollouter/idle_ratio is the share of time in which no slot held a
// rollout. In verl the rollouter idles like that, paused with nothing left to finish. Headway's own
// rollout_idle_ratio counts empty slots. The count of generated samples has verl's meaning, groups
// completed. The partial figure counts rollouts during which the version served changed. Its span
// is in train steps, which are syncs where every step is published.
func VerlMetrics(s Summary) []Named {
	still := 0.0
	if s.WindowS > 0 {
		still = s.RolloutStillS / s.WindowS
	}
	idlePerStep := 0.0
	if s.Steps > 0 {
		idlePerStep = s.TrainerIdleS / float64(s.Steps)
	}
	return []Named{
		{"trainer/idle_ratio", s.TrainerIdleRatio},
		{"rollouter/idle_ratio", still},
		{"fully_async/trainer/idle_ratio", s.TrainerIdleRatio},
		{"fully_async/rollouter/idle_ratio", still},
		{"fully_async/rollouter/active_time", s.WindowS - s.RolloutStillS},
		{"fully_async/rollouter/version_time", s.WindowS},
		{"fully_async/total_wait_time", s.TrainerIdleS},
		{"fully_async/count/current_param_version", float64(s.Syncs)},
		{"fully_async/count/total_generated_samples", float64(s.GroupsReady)},
		{"fully_async/count/dropped_stale_samples", float64(s.Waste.GroupsEnded.Evicted + s.Waste.GroupsEnded.Discarded)},
		{"fully_async/count/stale_samples_processed", float64(s.Partial.StaleGroups)},
		{"fully_async/count/stale_trajectory_processed", float64(s.Partial.StaleRollouts)},
		{"fully_async/partial/total_partial_num", float64(s.Partial.PartialRollouts)},
		{"fully_async/partial/partial_ratio", s.Partial.PartialRatio},
		{"fully_async/partial/max_partial_span", float64(s.Partial.VersionSpanMax)},
		{"fully_async/processing_time/avg", s.RolloutS.Mean},
		{"fully_async/processing_time/max", s.RolloutS.Max},
		{"timing_s/gen", idlePerStep},
		{"timing_s/step", s.PeriodS.Mean},
	}
}
