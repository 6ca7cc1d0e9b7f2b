package foreign

// skyRL is SkyRL's fully asynchronous trainer. It counts groups; a step is a train step with its weight sync.
var skyRL = &Framework{
	Name: "skyrl", Title: "SkyRL",
	Marks:        []string{"async/staleness_mean", "async/gen_buffer_qsize_at_wait_start", "async/staleness_violation_count", "timing/wait_for_generation_buffer"},
	MarkSettings: []string{"trainer.fully_async.max_staleness_steps"},
	Hints:        []string{"generate/group_completion_time_*", "reward/avg_raw_reward", "timing/sync_weights", "timing/run_training", "generate/avg_num_tokens"},
	StepKeys:     nil, // its own step is the tracker's: the timings of a step come without trainer/global_step
	Queue:        queue("bounded", "skyrl"),
	Settings: []SettingRule{
		{Setting: GroupSize, Settings: []string{"generator.n_samples_per_prompt"}},
		{Setting: SyncEvery, Settings: []string{"trainer.fully_async.enabled"}, Formula: "SkyRL syncs after every train step", Of: always(1)},
		{Setting: Batch, Settings: []string{"trainer.policy_mini_batch_size", "generator.n_samples_per_prompt"},
			Formula: "policy_mini_batch_size × n_samples_per_prompt", Of: skyRollouts("trainer.policy_mini_batch_size", "trainer.train_batch_size")},
		{Setting: Concurrency, Settings: []string{"trainer.fully_async.num_parallel_generation_workers", "generator.n_samples_per_prompt"},
			Formula: "num_parallel_generation_workers × n_samples_per_prompt (less where the staleness manager holds workers back)",
			Of:      skyRollouts("trainer.fully_async.num_parallel_generation_workers")},
		{Setting: Queue, Settings: []string{"trainer.fully_async.max_staleness_steps", "trainer.policy_mini_batch_size"},
			Formula: "policy_mini_batch_size × (max_staleness_steps + 1) × n_samples_per_prompt", Of: skyBuffer},
		{Setting: Budget, Settings: []string{"trainer.fully_async.max_staleness_steps"}},
		{Setting: TrainGPUs, Settings: []string{"trainer.placement.policy_num_nodes", "trainer.placement.policy_num_gpus_per_node"},
			Formula: "policy_num_nodes × policy_num_gpus_per_node",
			Of:      configProduct("trainer.placement.policy_num_nodes", "trainer.placement.policy_num_gpus_per_node")},
		{Setting: RolloutGPUs, Settings: []string{"generator.inference_engine.num_engines", "generator.inference_engine.tensor_parallel_size"},
			Formula: "num_engines × tensor_parallel_size",
			Of:      configProduct("generator.inference_engine.num_engines", "generator.inference_engine.tensor_parallel_size")},
	},
	Steps: []StepRule{
		{Notion: Period, Keys: []string{"timing/step", "timing/eval", "timing/save_checkpoints", "timing/save_hf_model"},
			Formula: "timing/step + timing/eval + timing/save_checkpoints + timing/save_hf_model",
			Of:      sum("timing/step", "timing/eval", "timing/save_checkpoints", "timing/save_hf_model")},
		{Notion: Train, Keys: []string{"timing/run_training", "timing/convert_to_training_input"},
			Formula: "timing/run_training + timing/convert_to_training_input", Of: sum("timing/run_training", "timing/convert_to_training_input")},
		{Notion: Wait, Keys: []string{"timing/wait_for_generation_buffer"}},
		{Notion: Sync, Keys: []string{"timing/sync_weights"}},
		{Notion: Staleness, Keys: []string{"async/staleness_mean"}},
		{Notion: StalenessTop, Keys: []string{"async/staleness_max"}, Fold: FoldMax},
		{Notion: TrainerIdle, Keys: []string{"timing/wait_for_generation_buffer", "timing/step"},
			Formula: "timing/wait_for_generation_buffer ÷ timing/step", Of: ratio("timing/wait_for_generation_buffer", "timing/step")},
		{Notion: GroupMean, Keys: []string{"generate/group_completion_time_mean"}},
		{Notion: RolloutTop, Keys: []string{"generate/group_completion_time_max"}, Fold: FoldMax},
		{Notion: RolloutMean, Keys: skySpread, Formula: "generate/intra_group_completion_time_std_mean ÷ generate/intra_group_completion_time_cv_mean",
			Of: ratio(skySpread[0], skySpread[1])},
		{Notion: Tail, Keys: append([]string{"generate/group_completion_time_mean"}, skySpread...),
			Formula: "group_completion_time_mean × intra_group_completion_time_cv_mean ÷ intra_group_completion_time_std_mean", Of: skyTail},
		{Notion: Queued, Keys: []string{"async/gen_buffer_qsize_at_wait_start"}, Formula: "async/gen_buffer_qsize_at_wait_start × n_samples_per_prompt",
			Of: times("async/gen_buffer_qsize_at_wait_start", GroupSize)},
		{Notion: Filtered, Keys: []string{"async/num_groups_dropped"}, Formula: "async/num_groups_dropped × n_samples_per_prompt",
			Of: times("async/num_groups_dropped", GroupSize)},
		{Notion: Reward, Keys: []string{"reward/avg_raw_reward"}},
		{Notion: Response, Keys: []string{"generate/avg_num_tokens"}},
		{Notion: Clipped, Keys: []string{"policy/ppo_clip_ratio"}},
		{Notion: Divergence, Keys: []string{"policy/policy_kl"}},
	},
	Definition: "SkyRL counts from the trainer's step when a group was dispatched to the step that trains on it: the same as ours, " +
		"except that a group dispatched between the end of a weight sync and the end of that step's evaluation and checkpoint counts one more, " +
		"and so does one whose first token waited over a sync.",
	Lacks: map[string]Lack{
		"pqs":             {Why: "SkyRL logs when a group was dispatched, not the version when it became ready", Get: "infer it from group_completion_time_mean ÷ timing/step, or log the version in the generation buffer"},
		"tail_multiplier": {Why: "group_completion_time is of groups, and the spread within a group is not in these files", Get: "log generate/intra_group_completion_time_{std,cv}_mean (SkyRL from 2026)"},
	},
	Notes: []string{
		"counts are of groups and are multiplied by n_samples_per_prompt",
		"staleness is by the step of dispatch, a group has one",
		"num_groups_dropped counts groups of equal rewards, as sample_full_batch leaves out: filtered, not stale",
	},
}

// skySpread are the spread of the times within a group, absolute and over their mean.
var skySpread = []string{"generate/intra_group_completion_time_std_mean", "generate/intra_group_completion_time_cv_mean"}

// skyRollouts turns the first setting that is there, of groups, into rollouts.
func skyRollouts(names ...string) func(Values) (float64, bool) {
	return func(v Values) (float64, bool) {
		size, known := v.Setting(GroupSize)
		for _, name := range names {
			if groups, ok := v.Config(name); ok {
				return groups * size, known
			}
		}
		return 0, false
	}
}

func skyBuffer(v Values) (float64, bool) {
	batch, ok := v.Setting(Batch)
	budget, known := v.Config("trainer.fully_async.max_staleness_steps")
	return batch * (budget + 1), ok && known
}

// skyTail is a group's time over the mean of its rollouts': spread over relative spread is that mean.
func skyTail(v Values) (float64, bool) {
	group, ok := v.Get("generate/group_completion_time_mean")
	mean, known := ratio(skySpread[0], skySpread[1])(v)
	return group / mean, ok && known && mean > 0
}
