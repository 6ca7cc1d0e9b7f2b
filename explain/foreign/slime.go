package foreign

import (
	"math"
	"strings"
)

// slime is slime. Its rows carry the rollout's number, from 0; wandb's own step counts calls of two processes.
var slime = &Framework{
	Name: "slime", Title: "slime",
	Marks:        []string{"perf/train_wait_time", "perf/wait_time_ratio", "perf/actor_train_time", "perf/rollout_time", "perf/longest_sample_tokens_per_sec", "train/train_rollout_logprob_abs_diff"},
	MarkSettings: []string{"sglang_server_concurrency", "num_steps_per_rollout", "update_weights_interval"},
	StepKeys:     []string{"rollout/step"},
	Micro:        slimeMicro,
	Queue:        slimeRule,
	Settings: []SettingRule{
		{Setting: GroupSize, Settings: []string{"n_samples_per_prompt"}},
		{Setting: Batch, Settings: []string{"rollout_batch_size", "n_samples_per_prompt"}, Formula: "rollout_batch_size × n_samples_per_prompt", Of: configProduct("rollout_batch_size", "n_samples_per_prompt")},
		{Setting: RolloutGPUs, Settings: []string{"rollout_num_gpus"}},
		{Setting: TrainGPUs, Settings: []string{"actor_num_nodes", "actor_num_gpus_per_node"}, Formula: "actor_num_nodes × actor_num_gpus_per_node", Of: configProduct("actor_num_nodes", "actor_num_gpus_per_node")},
		{Setting: Concurrency, Settings: []string{"sglang_server_concurrency", "rollout_num_gpus", "rollout_num_gpus_per_engine"},
			Formula: "sglang_server_concurrency × engines, of groups with a fully asynchronous rollout function, else of rollouts", Of: slimeConcurrency},
		{Setting: Queue, Settings: []string{"sglang_server_concurrency"}, Formula: "as the concurrency: its queue has no bound, and nothing is started while as many groups wait", Of: slimeQueue},
		{Setting: SyncEvery, Settings: []string{"update_weights_interval"}},
	},
	Steps: []StepRule{
		{Notion: Period, Keys: []string{"perf/step_time"}},
		{Notion: Train, Keys: []string{"perf/train_time"}},
		{Notion: Sync, Keys: []string{"perf/update_weights_time"}},
		{Notion: Wait, Keys: []string{"perf/train_wait_time", "perf/update_weights_time"}, Formula: "perf/train_wait_time − perf/update_weights_time: the wait is all that is no training",
			Of: less("perf/train_wait_time", "perf/update_weights_time")},
		{Notion: TrainerIdle, Keys: []string{"perf/wait_time_ratio"}},
		{Notion: RolloutMean, Keys: []string{"perf/request/e2e_latency/mean"}},
		{Notion: RolloutTop, Keys: []string{"perf/request/e2e_latency/max"}, Fold: FoldMax},
		{Notion: Queued, Keys: []string{"queue_left"}, Formula: "queue_left × n_samples_per_prompt", Of: times("queue_left", GroupSize)},
		{Notion: Filtered, Keys: []string{"rollout/dynamic_filter/drop_*"}, Formula: "sum of rollout/dynamic_filter/drop_* × n_samples_per_prompt", Of: times("rollout/dynamic_filter/drop_*", GroupSize)},
		{Notion: Reward, Keys: []string{"rollout/raw_reward"}},
		{Notion: Response, Keys: []string{"rollout/response_len/mean"}},
		{Notion: Truncated, Keys: []string{"rollout/truncated_ratio"}},
		{Notion: Clipped, Keys: []string{"train/pg_clipfrac"}},
		{Notion: Divergence, Keys: []string{"train/ppo_kl"}},
	},
	Definition: "slime logs no staleness: Sample.weight_versions has the versions, and no metric reads them. It has no limit on staleness either.",
	Lacks: map[string]Lack{
		"staleness_mean":  {Why: "slime aggregates no versions: they stand in Sample.weight_versions alone", Get: "log the trained step less min(weight_versions) in --custom-rollout-log-function-path"},
		"pqs":             {Why: "slime logs no versions"},
		"tail_multiplier": {Why: "perf/request/e2e_latency is of single requests, and the longest of a group is not logged"},
	},
	Notes: []string{
		"wandb.log is called without a step, by the rollout's process and by the trainer's: the step is rollout/step, or train/step ÷ num_steps_per_rollout",
		"a step here is a rollout (rollout_batch_size prompts): figures of its num_steps_per_rollout train steps are averaged",
		"perf/train_wait_time has the weight update in it: it is taken off",
		"queue_warm= and queue_left= stand only in the console's text, in groups",
		"with the fully asynchronous rollout function sglang_server_concurrency counts groups, else rollouts",
	},
}

// slimeMicro numbers the trainer's rows, which count train steps. With wandb_always_use_train_step rollout/step counts them,
// too, and none is divided.
func slimeMicro(r Row, v Values) (number int64, each float64, is bool) {
	number = r.Step
	if at, there := r.Values["train/step"]; there && finite(at) {
		number = int64(at)
	} else if !r.HasStep || !holdsPrefix(r.Values, "train/") {
		return 0, 0, false
	}
	if always, _ := v.Config("wandb_always_use_train_step"); always != 0 {
		return number, 0, true
	}
	if each, known := v.Config("num_steps_per_rollout"); known {
		return number, each, true
	}
	made, ok := configProduct("rollout_batch_size", "n_samples_per_prompt")(v)
	if taken, known := v.Config("global_batch_size"); ok && known && taken > 0 {
		each = math.Floor(made / taken)
	}
	return number, each, true
}

func holdsPrefix(values map[string]float64, prefix string) bool {
	for key := range values {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}

// slimeRule: nothing is started while enough is ready. Our preset is slime's partial rollout.
func slimeRule(v Values) (policy, preset string) {
	if partial, _ := v.Config("partial_rollout"); partial != 0 {
		return "block", "slime"
	}
	return "block", ""
}

func slimeEngines(v Values) (float64, bool) {
	gpus, ok := v.Config("rollout_num_gpus")
	each, there := v.Config("rollout_num_gpus_per_engine")
	return gpus / each, ok && there && each > 0
}

func slimeConcurrency(v Values) (float64, bool) {
	each, ok := v.Config("sglang_server_concurrency")
	engines, there := slimeEngines(v)
	if !ok || !there {
		return 0, false
	}
	if !strings.Contains(v.Text("rollout_function_path"), "fully_async") {
		return each * engines, true
	}
	size, known := v.Setting(GroupSize)
	return each * engines * size, known
}

func slimeQueue(v Values) (float64, bool) {
	if !strings.Contains(v.Text("rollout_function_path"), "fully_async") {
		return 0, false
	}
	return v.Setting(Concurrency)
}
