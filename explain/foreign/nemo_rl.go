package foreign

// nemoRL is NeMo-RL: the legacy asynchronous GRPO (grpo.async_grpo) and the single controller (async_rl). Counts of
// prompts, trajectories and buffered rollouts are groups.
var nemoRL = &Framework{
	Name: "nemo-rl", Title: "NeMo-RL", Aliases: []string{"nemo"},
	Marks:        []string{"timing/train/*", "train/avg_trajectory_age", "train/buffer_size", "train/evicted_stale_prompt_groups", "efficiency/*", "avg_trajectory_age", "exposed_generation", "trainer_v"},
	MarkSettings: []string{"grpo.num_prompts_per_step", "async_rl.sampler.name"},
	Queue:        nemoRule,
	Settings: []SettingRule{
		{Setting: GroupSize, Settings: []string{"grpo.num_generations_per_prompt"}},
		{Setting: Batch, Settings: []string{"grpo.num_prompts_per_step", "grpo.num_generations_per_prompt"},
			Formula: "grpo.num_prompts_per_step × grpo.num_generations_per_prompt", Of: configProduct("grpo.num_prompts_per_step", "grpo.num_generations_per_prompt")},
		{Setting: Concurrency, Settings: []string{"async_rl.max_inflight_prompts"}, Formula: "async_rl.max_inflight_prompts × num_generations_per_prompt", Of: configTimes("async_rl.max_inflight_prompts", GroupSize)},
		{Setting: Queue, Settings: []string{"async_rl.max_buffered_rollouts"}, Formula: "async_rl.max_buffered_rollouts × num_generations_per_prompt", Of: configTimes("async_rl.max_buffered_rollouts", GroupSize)},
		{Setting: Queue, Settings: []string{"grpo.async_grpo.max_trajectory_age_steps"}, Formula: "B × max_trajectory_age_steps × 2: the legacy buffer", Of: nemoLegacyQueue},
		{Setting: Budget, Settings: []string{"async_rl.sampler.max_staleness_versions"}},
		{Setting: Budget, Settings: []string{"async_rl.sampler.max_lookahead_versions"}},
		{Setting: Budget, Settings: []string{"grpo.async_grpo.max_trajectory_age_steps"}},
		{Setting: SyncEvery, Formula: "1: a refit after every train step", Of: always(1)},
		{Setting: RolloutGPUs, Settings: []string{"policy.generation.colocated.resources.num_nodes", "policy.generation.colocated.resources.gpus_per_node"},
			Formula: "num_nodes × gpus_per_node of policy.generation.colocated.resources", Of: configProduct("policy.generation.colocated.resources.num_nodes", "policy.generation.colocated.resources.gpus_per_node")},
		{Setting: TrainGPUs, Settings: []string{"cluster.num_nodes", "cluster.gpus_per_node"}, Formula: "num_nodes × gpus_per_node of cluster, less those of generation", Of: nemoTrainGPUs},
	},
	Steps: []StepRule{
		{Notion: Period, Keys: []string{"timing/train/total_step_time"}},
		{Notion: Period, Keys: []string{"total_step_time"}},
		{Notion: Wait, Keys: []string{"timing/train/exposed_generation"}},
		{Notion: Wait, Keys: []string{"exposed_generation"}},
		{Notion: Sync, Keys: []string{"timing/train/weight_sync"}},
		{Notion: Sync, Keys: []string{"weight_sync"}},
		{Notion: Train, Keys: []string{"timing/train/total_step_time", "timing/train/exposed_generation", "timing/train/weight_sync"},
			Formula: "total_step_time − exposed_generation − weight_sync", Of: nemoTrain},
		{Notion: TrainerIdle, Keys: []string{"timing/train/exposed_generation", "timing/train/total_step_time"}, Formula: "exposed_generation ÷ total_step_time", Of: share(Wait, Period)},
		{Notion: Staleness, Keys: []string{"train/avg_trajectory_age"}},
		{Notion: Staleness, Keys: []string{"avg_trajectory_age"}},
		{Notion: StalenessTop, Keys: []string{"lag"}, Fold: FoldMax},
		{Notion: GroupMean, Keys: []string{"train/trajectory_duration_s"}},
		{Notion: InFlight, Keys: []string{"rollout/inflight"}, Formula: "rollout/inflight × num_generations_per_prompt", Of: times("rollout/inflight", GroupSize)},
		{Notion: Queued, Keys: []string{"train/buffer_size"}, Formula: "train/buffer_size × num_generations_per_prompt", Of: times("train/buffer_size", GroupSize)},
		{Notion: Queued, Keys: []string{"buffer_size"}, Formula: "buffer size × num_generations_per_prompt", Of: times("buffer_size", GroupSize)},
		{Notion: Dropped, Keys: []string{"train/evicted_stale_prompt_groups", "train/aborted_stale_inflight_groups"},
			Formula: "(evicted_stale_prompt_groups + aborted_stale_inflight_groups) × num_generations_per_prompt", Of: nemoDropped},
		{Notion: Failed, Keys: []string{"train/dropped_prompt_groups"}, Formula: "dropped_prompt_groups × num_generations_per_prompt", Of: times("train/dropped_prompt_groups", GroupSize)},
		{Notion: Reward, Keys: []string{"train/reward"}},
		{Notion: Reward, Keys: []string{"avg_reward"}},
		{Notion: Response, Keys: []string{"train/mean_gen_tokens_per_sample"}},
		{Notion: Divergence, Keys: []string{"train/gen_kl_error"}},
		{Notion: TokensPerS, Keys: []string{"train/global_valid_toks"}, Formula: "train/global_valid_toks ÷ total_step_time", Of: ratio("train/global_valid_toks", "timing/train/total_step_time")},
	},
	Definition: "The legacy loop logs avg_trajectory_age: the version that is trained less the one that the group was generated with, as a mean over groups: that is ours, from the group's dispatch. " +
		"The single controller logs no age. It prints lag, the age of the oldest sample, which is taken as the step's largest staleness where its console output is given.",
	Lacks: map[string]Lack{
		"staleness_mean":       {Why: "the single controller logs no age; it prints the oldest sample's lag alone", Get: "give its console output with the log for the largest; its issue 3758 asks for the mean"},
		"concurrency_rollouts": {Why: "the legacy collector's rollouts in flight are logged as a picture of a timeline (generation_metrics/inflight_batch_sizes), not as a figure", Get: "give it: --set concurrency_rollouts=…"},
		"tail_multiplier":      {Why: "trajectory_duration_s is of whole groups, so the longest rollout is not set against the mean one"},
		"pqs":                  {Why: "NeMo-RL logs no version at which a group became ready"},
	},
	Notes: []string{
		"steps count from 1; total_step_time has wait, training and refit in it",
		"training_worker_idle_time_ratio is left out: it is 0 where generation was exposed, which looks inverted; the idle share is exposed_generation ÷ total_step_time",
		"trajectory_duration_s is of a group, and its p95 is by nearest rank",
		"buffer_size is taken when the step has ended",
		"what the console prints is rounded to two decimals",
	},
}

// nemoRule goes by the single controller's sampler. The legacy buffer gives a step the groups that were started for
// it: loop.md has no such rule.
func nemoRule(v Values) (policy, preset string) {
	switch v.Text("async_rl.sampler.name") {
	case "windowed":
		return "max", "nemo-windowed"
	case "ready_first", "weight_fifo":
		return "block", ""
	}
	return "", ""
}

func nemoLegacyQueue(v Values) (float64, bool) {
	age, ok := v.Config("grpo.async_grpo.max_trajectory_age_steps")
	batch, known := v.Setting(Batch)
	return batch * age * 2, ok && known
}

func nemoTrainGPUs(v Values) (float64, bool) {
	all, ok := configProduct("cluster.num_nodes", "cluster.gpus_per_node")(v)
	generation, known := v.Setting(RolloutGPUs)
	return all - generation, ok && known && all > generation
}

func nemoTrain(v Values) (float64, bool) {
	total, ok := v.Step(Period)
	wait, waited := v.Step(Wait)
	sync, synced := v.Step(Sync)
	return total - wait - sync, ok && waited && synced
}

func nemoDropped(v Values) (float64, bool) {
	evicted, ok := v.Get("train/evicted_stale_prompt_groups")
	aborted, _ := v.Get("train/aborted_stale_inflight_groups")
	size, known := v.Setting(GroupSize)
	return (evicted + aborted) * size, ok && known
}
