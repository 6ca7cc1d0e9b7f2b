package foreign

import (
	"math"
	"strconv"
	"strings"
)

// roll is ROLL: its RLVR pipeline, which puts a domain before what its schedulers measure, and its agentic one.
var roll = &Framework{
	Name: "roll", Title: "ROLL",
	Marks:        []string{"time/step_model_update", "time/step_stop_server", "time/get_batch_cost_train", "scheduler/*", "system/tps"},
	MarkSettings: []string{"async_generation_ratio", "num_return_sequences_in_group"},
	Hints:        []string{"token/response_length/mean", "time/step_train"},
	Queue:        queue("bounded", ""),
	Settings: []SettingRule{
		{Setting: GroupSize, Settings: []string{"num_return_sequences_in_group"}},
		{Setting: GroupSize, Settings: []string{"train_env_manager.group_size"}},
		{Setting: Batch, Settings: []string{"rollout_batch_size", "num_return_sequences_in_group"}, Formula: "rollout_batch_size × num_return_sequences_in_group; of the agentic pipeline rollout_batch_size", Of: rollBatch},
		{Setting: Batch, Keys: []string{rollQueries}, Formula: "scheduler/collect_query_count × S", Of: rollCounted},
		{Setting: Concurrency, Settings: []string{"max_running_requests", "actor_infer.device_mapping", "actor_infer.num_gpus_per_worker"},
			Formula: "max_running_requests × workers of actor_infer, at most (async_generation_ratio + 1) × B", Of: rollConcurrency},
		{Setting: Queue, Settings: []string{"async_generation_ratio"}, Formula: "(async_generation_ratio + 1) × B: no more is started and not yet trained", Of: rollQueue},
		{Setting: Budget, Settings: []string{"async_generation_ratio"}},
		{Setting: SyncEvery, Formula: "1: a model update at the beginning of every step", Of: always(1)},
		{Setting: RolloutGPUs, Settings: []string{"actor_infer.device_mapping"}, Formula: "length of actor_infer.device_mapping", Of: rollDevices("actor_infer.device_mapping")},
		{Setting: TrainGPUs, Settings: []string{"actor_train.device_mapping"}, Formula: "length of actor_train.device_mapping", Of: rollDevices("actor_train.device_mapping")},
	},
	Steps: []StepRule{
		{Notion: Period, Keys: []string{rollTotal}},
		{Notion: Train, Keys: []string{"time/step_train"}},
		{Notion: Sync, Keys: []string{"time/step_model_update"}},
		{Notion: Wait, Keys: []string{"time/step_generate"}},
		{Notion: Wait, Keys: []string{"time/step_rollout"}},
		{Notion: Staleness, Keys: []string{"*scheduler/off_policy_ratio"}, Of: average("*scheduler/off_policy_ratio")},
		{Notion: RolloutMean, Keys: []string{"*/time/generate/mean", "*/time/reward/mean"}, Formula: "scheduler/DOMAIN/time/generate/mean + time/reward/mean", Of: rollLatency},
		{Notion: RolloutTop, Keys: []string{"*/time/generate/max"}, Formula: "scheduler/DOMAIN/time/generate/max, of one domain", Of: single("*/time/generate/max"), Fold: FoldMax},
		{Notion: Trained, Keys: []string{rollQueries}, Formula: "scheduler/collect_query_count × S", Of: times(rollQueries, GroupSize)},
		{Notion: Filtered, Keys: []string{"*scheduler/group_filter_count"}, Formula: "scheduler/group_filter_count × S", Of: times("*scheduler/group_filter_count", GroupSize)},
		{Notion: Reward, Keys: []string{"critic/score/mean"}},
		{Notion: Response, Keys: []string{"token/response_length/mean"}},
		{Notion: Truncated, Keys: []string{"token/total_response_length/clip"}, Formula: "token/total_response_length/clip ÷ B", Of: over("token/total_response_length/clip", Batch)},
		{Notion: Clipped, Keys: []string{"actor/pg_clipfrac"}},
		{Notion: TokensPerS, Keys: []string{"system/tps"}},
	},
	Adjust: rollAdjust,
	Definition: "scheduler/off_policy_ratio is no ratio: it is the mean over rollouts of the step that trains less the step in which the prompt was sent. " +
		"Weights are updated at the beginning of a step, so that is the version that is trained less the one that was served then: ours, from the dispatch.",
	Lacks: map[string]Lack{
		"staleness_mean":       {Why: "the agentic pipeline logs no scheduler/off_policy_ratio; its groups are dropped beyond async_generation_ratio", Get: "log the step less the group's create_step in a custom metric"},
		"concurrency_rollouts": {Why: "max_running_requests is for each worker, and the workers of actor_infer are not in these files", Get: "give it: --set concurrency_rollouts=(max_running_requests × workers)"},
		"pqs":                  {Why: "ROLL logs no version at which a group became ready"},
		"tail_multiplier":      {Why: "scheduler/DOMAIN/time/generate is over all rollouts of the step, not by group"},
	},
	Notes: []string{
		"time/step_total of the RLVR pipeline is that of the step before, 0 in the first: it is put where it belongs, so the last step has none",
		"scheduler's keys stand behind their domain (math_rule/scheduler/…); of several domains the mean is taken",
		"scheduler/off_policy_ratio is a mean difference of steps",
		"max_running_requests bounds each worker, not all",
		"steps count from 0",
	},
}

const (
	rollQueries = "*scheduler/collect_query_count"
	rollTotal   = "time/step_total"
)

func rollBatch(v Values) (float64, bool) {
	prompts, ok := v.Config("rollout_batch_size")
	if _, agentic := v.Config("train_env_manager.group_size"); agentic {
		return prompts, ok
	}
	size, known := v.Config("num_return_sequences_in_group")
	return prompts * size, ok && known
}

func rollCounted(v Values) (float64, bool) {
	groups, ok := v.Mean(rollQueries)
	size, known := v.Setting(GroupSize)
	return groups * size, ok && known
}

func rollQueue(v Values) (float64, bool) {
	ahead, ok := v.Config("async_generation_ratio")
	batch, known := v.Setting(Batch)
	return (ahead + 1) * batch, ok && known
}

func rollConcurrency(v Values) (float64, bool) {
	each, ok := v.Config("max_running_requests")
	devices, there := rollDevices("actor_infer.device_mapping")(v)
	perWorker, known := v.Config("actor_infer.num_gpus_per_worker")
	if !known || perWorker < 1 {
		perWorker = 1
	}
	c := each * math.Floor(devices/perWorker)
	if most, bounded := rollQueue(v); bounded {
		c = math.Min(c, most)
	}
	return c, ok && there
}

// rollDevices counts the devices of a mapping: list(range(a,b)), sums of those, or a list.
func rollDevices(name string) func(Values) (float64, bool) {
	return func(v Values) (float64, bool) {
		count := 0
		for part := range strings.SplitSeq(v.Text(name), "+") {
			part = strings.ReplaceAll(part, " ", "")
			if inside, isRange := strings.CutPrefix(part, "list(range("); isRange {
				n, ok := rollRange(strings.TrimRight(inside, ")"))
				if !ok {
					return 0, false
				}
				count += n
				continue
			}
			if len(part) < 3 || part[0] != '[' {
				return 0, false
			}
			count += strings.Count(part, ",") + 1
		}
		return float64(count), count > 0
	}
}

func rollRange(text string) (int, bool) {
	first, last, two := strings.Cut(text, ",")
	if !two {
		first, last = "0", text
	}
	a, err := strconv.Atoi(first)
	b, err2 := strconv.Atoi(last)
	return b - a, err == nil && err2 == nil && b > a
}

// single is the one key that fits a pattern; where several do there is no such figure.
func single(pattern string) func(Values) (float64, bool) {
	return func(v Values) (float64, bool) {
		count, _ := v.Matched(pattern)
		value, ok := v.Get(pattern)
		return value, ok && count == 1
	}
}

func rollLatency(v Values) (float64, bool) {
	generate, ok := v.Average("*/time/generate/mean")
	reward, _ := v.Average("*/time/reward/mean")
	return generate + reward, ok
}

// rollAdjust puts the RLVR pipeline's step times, which stand in the row after, where they belong. A period by the clock, or a
// given one, is its row's own.
func rollAdjust(v Values, log *Log) {
	if _, rlvr := v.Last("time/step_generate"); !rlvr {
		return
	}
	for i := range log.Series {
		step := &log.Series[i]
		if step.PeriodS.From == rollTotal {
			step.PeriodS = Figure{}
		}
		if i+1 < len(log.Series) && step.PeriodS.Origin != Given {
			if next := log.Series[i+1].PeriodS; next.From == rollTotal && next.Value > 0 {
				step.PeriodS = Figure{next.Value, Inferred, "time/step_total of the row after"}
			}
		}
		if period := step.PeriodS; period.Known() && period.Value > 0 && step.WaitS.Known() && !step.TrainerIdle.Known() {
			step.TrainerIdle = Figure{step.WaitS.Value / period.Value, Inferred, "time/step_generate ÷ the period"}
		}
	}
}
