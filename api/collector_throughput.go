package api

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/headway-rl/headway/api/protocol"
)

// throughputFigures are queue health: what enters, what leaves, what both sides wait.
var throughputFigures = []figure{
	{"headway_rollouts_per_second", "Rollouts over the last train steps: produced, effective (not filtered), dropped, consumed while a step runs, and consumed over all time.", gauge, []string{"stage"},
		func(s protocol.Status, emit func(float64, ...string)) {
			t := s.Throughput
			emit(t.ProductionRolloutsPerS, "produced")
			emit(t.EffectiveRolloutsPerS, "effective")
			emit(t.DroppedRolloutsPerS, "dropped")
			emit(t.ConsumptionRolloutsPerS, "consumed_busy")
			emit(t.ConsumptionRolloutsPerWallS, "consumed")
		}},
	one("headway_tokens_per_second", "Tokens of scored responses over the last train steps.", gauge, func(s protocol.Status) float64 { return s.Throughput.TokensPerS }),
	one("headway_train_period_seconds", "Mean time between two policy updates over the last train steps.", gauge, func(s protocol.Status) float64 { return s.Throughput.PeriodS }),
	one("headway_train_step_seconds", "Mean time of a train step alone over the last train steps.", gauge, func(s protocol.Status) float64 { return s.Throughput.StepS }),
	one("headway_rollout_idle_ratio", "Share of slot time in which no rollout was in it.", gauge, func(s protocol.Status) float64 { return s.Throughput.RolloutIdleRatio }),
	one("headway_queue_trend_groups", "Groups that the queue grew by a train step.", gauge, func(s protocol.Status) float64 { return s.Throughput.QueueTrendGroupsPerStep }),
}

// verlFigures are verl's own names, with a slash as an underscore, where the notion is the same.
var verlFigures = func() []figure {
	var out []figure
	for _, v := range []struct{ name, help string }{
		{"rollouter_idle_ratio", "verl's rollouter/idle_ratio: the share of time in which no slot held a rollout."},
		{"fully_async_trainer_idle_ratio", "verl's fully_async/trainer/idle_ratio."},
		{"fully_async_rollouter_idle_ratio", "verl's fully_async/rollouter/idle_ratio."},
		{"fully_async_rollouter_active_time", "verl's fully_async/rollouter/active_time, in seconds, of the measured window."},
		{"fully_async_rollouter_version_time", "verl's fully_async/rollouter/version_time, in seconds, of the measured window."},
		{"fully_async_total_wait_time", "verl's fully_async/total_wait_time, in seconds, of the measured window."},
		{"fully_async_count_current_param_version", "verl's fully_async/count/current_param_version: weight syncs."},
		{"fully_async_count_total_generated_samples", "verl's fully_async/count/total_generated_samples: groups completed."},
		{"fully_async_count_dropped_stale_samples", "verl's fully_async/count/dropped_stale_samples: groups evicted or discarded."},
		{"fully_async_count_stale_samples_processed", "verl's fully_async/count/stale_samples_processed: groups trained after a sync that followed their end."},
		{"fully_async_count_stale_trajectory_processed", "verl's fully_async/count/stale_trajectory_processed: the same in rollouts."},
		{"fully_async_partial_total_partial_num", "verl's fully_async/partial/total_partial_num: trained rollouts that several versions made."},
		{"fully_async_partial_partial_ratio", "verl's fully_async/partial/partial_ratio."},
		{"fully_async_partial_max_partial_span", "verl's fully_async/partial/max_partial_span, in versions."},
		{"fully_async_processing_time_avg", "verl's fully_async/processing_time/avg: seconds of a rollout in slots."},
		{"fully_async_processing_time_max", "verl's fully_async/processing_time/max."},
		{"timing_s_gen", "verl's timing_s/gen: seconds that the trainer waits for a batch, a step."},
		{"timing_s_step", "verl's timing_s/step: seconds between two updates."},
	} {
		out = append(out, figure{v.name, v.help, prometheus.GaugeValue, nil, func(s protocol.Status, emit func(float64, ...string)) {
			if value, known := s.Verl[v.name]; known {
				emit(value)
			}
		}})
	}
	return out
}()
