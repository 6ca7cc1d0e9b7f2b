package foreign

import (
	"math"
	"slices"
)

// verlFullyAsync is verl's fully_async_policy. A row is one weight sync: figures of the
// trigger_parameter_sync_step train steps before it, times summed, counts the last, the rest mean
// or largest. A "sample" is a prompt with all its rollouts: a group.
var verlFullyAsync = &Framework{
	Name: "verl-fa", Title: "verl (fully async)", Aliases: []string{"verl-fully-async"},
	Marks:        []string{"fully_async/*", "rollouter/idle_ratio", "dynamic_resource/*"},
	MarkSettings: []string{"async_training.staleness_threshold"},
	Hints:        []string{"timing_s/*", "actor/pg_clipfrac", "response_length/mean", "critic/score/mean"},
	Queue:        queue("threshold", "verl-fully-async"),
	Inner:        syncEvery,
	Settings: []SettingRule{
		{Setting: GroupSize, Settings: []string{"actor_rollout_ref.rollout.n"}},
		{Setting: SyncEvery, Settings: []string{"async_training.trigger_parameter_sync_step"}},
		{Setting: SyncEvery, Keys: []string{"fully_async/static/max_required_samples", "fully_async/static/required_samples", "fully_async/static/staleness_threshold"},
			Formula: "static/max_required_samples ÷ (static/required_samples × (1 + static/staleness_threshold))", Of: verlLoggedTrigger},
		{Setting: Batch, Keys: []string{"fully_async/static/required_samples"},
			Formula: "fully_async/static/required_samples × rollout.n",
			Of:      verlGroups(Values.Last, "fully_async/static/required_samples")},
		{Setting: Batch, Settings: []string{"actor_rollout_ref.actor.ppo_mini_batch_size", "async_training.require_batches"},
			Formula: "ppo_mini_batch_size × require_batches × rollout.n", Of: verlConfiguredBatch},
		{Setting: Concurrency, Keys: []string{"fully_async/static/max_concurrent_samples"},
			Formula: "fully_async/static/max_concurrent_samples × rollout.n",
			Of:      verlGroups(Values.Last, "fully_async/static/max_concurrent_samples")},
		{Setting: Queue, Keys: []string{"fully_async/static/max_queue_size"},
			Formula: "fully_async/static/max_queue_size × rollout.n",
			Of:      verlGroups(Values.Last, "fully_async/static/max_queue_size")},
		{Setting: Budget, Keys: []string{"fully_async/static/staleness_threshold"}},
		{Setting: Budget, Settings: []string{"async_training.staleness_threshold"}},
		{Setting: RolloutGPUs, Settings: []string{"rollout.nnodes", "rollout.n_gpus_per_node"},
			Formula: "rollout.nnodes × rollout.n_gpus_per_node", Of: configProduct("rollout.nnodes", "rollout.n_gpus_per_node")},
		{Setting: TrainGPUs, Settings: []string{"trainer.nnodes", "trainer.n_gpus_per_node"},
			Formula: "trainer.nnodes × trainer.n_gpus_per_node", Of: configProduct("trainer.nnodes", "trainer.n_gpus_per_node")},
	},
	Steps: slices.Concat([]StepRule{
		{Notion: Period, Keys: []string{"timing_s/step", "timing_s/timing_s/param_sync"},
			Formula: "timing_s/step ÷ trigger_parameter_sync_step", Of: verlPerStep(with("timing_s/timing_s/param_sync", key("timing_s/step")))},
		{Notion: Period, Keys: []string{"timing_s/step", "timing_s/param_sync", "timing_s/wait_last_valid"},
			Formula: "(timing_s/step + timing_s/param_sync + timing_s/wait_last_valid) ÷ trigger_parameter_sync_step", Of: verlPeriod},
		{Notion: Train, Keys: []string{"timing_s/step", "timing_s/gen", "timing_s/timing_s/param_sync"},
			Formula: "(timing_s/step − timing_s/gen − timing_s/timing_s/param_sync) ÷ trigger_parameter_sync_step",
			Of:      verlPerStep(difference("timing_s/step", "timing_s/gen", "timing_s/timing_s/param_sync"))},
		{Notion: Train, Keys: []string{"timing_s/step", "timing_s/gen"},
			Formula: "(timing_s/step − timing_s/gen) ÷ trigger_parameter_sync_step",
			Of:      verlPerStep(difference("timing_s/step", "timing_s/gen"))},
		{Notion: Wait, Keys: []string{"timing_s/gen"}, Formula: "timing_s/gen ÷ trigger_parameter_sync_step", Of: verlPerStep(key("timing_s/gen"))},
		{Notion: Sync, Keys: []string{"timing_s/timing_s/param_sync"}},
		{Notion: Sync, Keys: []string{"timing_s/param_sync"}},
		{Notion: Staleness, Keys: []string{"fully_async/monitor/active_tasks_size", "fully_async/monitor/queue/mq_queue_size"},
			Formula: "(monitor/active_tasks_size + monitor/queue/mq_queue_size) ÷ required_samples + (trigger_parameter_sync_step − 1) ÷ 2 (Little)",
			Of:      verlLittle},
		{Notion: TrainerIdle, Keys: []string{"fully_async/trainer/idle_ratio"}},
		{Notion: TrainerIdle, Keys: []string{"trainer/idle_ratio"}},
		{Notion: RolloutIdle, Keys: []string{"fully_async/rollouter/idle_ratio"}},
		{Notion: RolloutIdle, Keys: []string{"rollouter/idle_ratio"}},
		{Notion: RolloutMean, Keys: []string{"fully_async/processing_time/avg"}},
		{Notion: RolloutP95, Keys: []string{"fully_async/processing_time/tp95"}},
		{Notion: RolloutTop, Keys: []string{"fully_async/processing_time/max"}, Fold: FoldMax},
		{Notion: Tail, Keys: []string{"fully_async/processing_time/tp50", "fully_async/processing_time/tp95"},
			Formula: "longest of rollout.n over the mean of a lognormal with processing_time's tp50 and tp95", Of: verlTail},
		{Notion: InFlight, Keys: []string{"fully_async/monitor/active_tasks_size"},
			Formula: "monitor/active_tasks_size × rollout.n", Of: verlGroups(Values.Get, "fully_async/monitor/active_tasks_size")},
		{Notion: Queued, Keys: []string{"fully_async/monitor/queue/mq_queue_size"},
			Formula: "monitor/queue/mq_queue_size × rollout.n", Of: verlGroups(Values.Get, "fully_async/monitor/queue/mq_queue_size")},
		{Notion: Dropped, Keys: []string{"fully_async/count/dropped_stale_samples"},
			Formula: "rise of count/dropped_stale_samples × rollout.n ÷ trigger_parameter_sync_step",
			Of:      verlPerStep(verlGroups(Values.Rise, "fully_async/count/dropped_stale_samples"))},
		{Notion: Reward, Keys: []string{"critic/score/mean"}},
		{Notion: Reward, Keys: []string{"critic/rewards/mean"}},
	}, verlLearned, []StepRule{
		{Notion: TokensPerS, Keys: []string{"perf/throughput"}, Formula: "perf/throughput × GPUs", Of: verlThroughput},
	}),
	Adjust: verlIdle,
	Definition: "verl counts a trajectory stale by the version of its last token, in weight syncs, and logs only how many were. " +
		"Ours counts train steps from the group's first token. It is inferred by Little's law from the groups in flight and in the queue over the groups of a batch, " +
		"plus half of the steps between two syncs, by which the engines lag. The monitor figures are taken when the first group of the batch was finished, " +
		"not averaged over the step: with an empty queue at that moment the inferred staleness is low by up to half a version.",
	Lacks: map[string]Lack{
		"pqs":             {Why: "verl logs no version at which a group became ready", Get: "take the split from a prediction with the settings found, or log per-sample versions"},
		"tail_multiplier": {Why: "processing_time is of single generations, and its quantiles or rollout.n are missing", Get: "keep fully_async/processing_time/* among the logged metrics and give --set group_size=…"},
		"staleness_mean":  {Why: "verl logs how many trajectories were stale, not by how much, and the monitor figures are missing", Get: "keep fully_async/monitor/* and static/* among the logged metrics"},
	},
	Notes: []string{
		"a sample is a group: counts are multiplied by rollout.n",
		"a row stands for trigger_parameter_sync_step train steps: times are summed there and are divided here",
		"fully_async/monitor/* is a snapshot of when the first group of the batch was finished",
		"rollouter/idle_ratio knows only the last pause before a sync: with several pauses it is too low",
		"the step of a row is the count of weight syncs",
		"the weight sync is part of timing_s/step where its key is timing_s/timing_s/param_sync, and comes after it where it is timing_s/param_sync",
	},
}

// syncEvery is how many train steps a row stands for.
func syncEvery(v Values) float64 {
	if k, ok := v.Setting(SyncEvery); ok && k >= 1 {
		return k
	}
	return 1
}

// verlLoggedTrigger takes the train steps of a sync out of the samples that verl lets one have, which are rounded down.
func verlLoggedTrigger(v Values) (float64, bool) {
	most, ok := v.Last("fully_async/static/max_required_samples")
	required, there := v.Last("fully_async/static/required_samples")
	threshold, known := v.Last("fully_async/static/staleness_threshold")
	if !ok || !there || !known || required <= 0 || threshold < 0 {
		return 0, false
	}
	return math.Max(1, math.Round(most/(required*(1+threshold)))), true
}

// verlGroups turns a count of verl's samples into rollouts.
func verlGroups(get func(Values, string) (float64, bool), name string) func(Values) (float64, bool) {
	return func(v Values) (float64, bool) {
		groups, ok := get(v, name)
		size, known := v.Setting(GroupSize)
		return groups * size, ok && known
	}
}

func verlConfiguredBatch(v Values) (float64, bool) {
	groups, ok := v.Config("actor_rollout_ref.actor.ppo_mini_batch_size")
	size, known := v.Setting(GroupSize)
	batches, there := v.Config("async_training.require_batches")
	if !there {
		batches = 1
	}
	return groups * batches * size, ok && known
}

// verlPerStep divides a row's sum by its train steps.
func verlPerStep(of func(Values) (float64, bool)) func(Values) (float64, bool) {
	return func(v Values) (float64, bool) {
		sum, ok := of(v)
		return sum / syncEvery(v), ok
	}
}

func verlPeriod(v Values) (float64, bool) {
	step, ok := v.Get("timing_s/step")
	sync, synced := v.Get("timing_s/param_sync")
	validation, _ := v.Get("timing_s/wait_last_valid")
	return (step + sync + validation) / syncEvery(v), ok && synced
}

func verlLittle(v Values) (float64, bool) {
	active, ok := v.Get("fully_async/monitor/active_tasks_size")
	queued, there := v.Get("fully_async/monitor/queue/mq_queue_size")
	required, known := v.Last("fully_async/static/required_samples")
	if !known || required <= 0 {
		batch, _ := v.Setting(Batch)
		size, _ := v.Setting(GroupSize)
		if batch <= 0 || size <= 0 {
			return 0, false
		}
		required = batch / size
	}
	return (active+queued)/required + (syncEvery(v)-1)/2, ok && there
}

// verlThroughput is over all GPUs: verl logs it a GPU.
func verlThroughput(v Values) (float64, bool) {
	perGPU, ok := v.Get("perf/throughput")
	rollout, a := v.Setting(RolloutGPUs)
	train, b := v.Setting(TrainGPUs)
	return perGPU * (rollout + train), ok && a && b
}

// verlTail is the tail of a lognormal with the logged quantiles: verl logs times of rollouts, not of groups.
func verlTail(v Values) (float64, bool) {
	median, ok := v.Get("fully_async/processing_time/tp50")
	p95, there := v.Get("fully_async/processing_time/tp95")
	size, known := v.Setting(GroupSize)
	if !ok || !there || !known || median <= 0 || p95 < median || size < 1 {
		return 0, false
	}
	return lognormalTail(math.Log(p95/median)/normalP95, size), true
}

// verlIdle says what the engines' idle ratio is worth: each pause overwrites when the idling began.
func verlIdle(_ Values, log *Log) {
	if mean, steps := log.Mean(RolloutIdle); steps > 0 {
		log.Warnings = append(log.Warnings, Warning{Count: 1,
			Text: mean.From + " counts only the last pause before a weight sync (verl issue 6693): where rollouts pause more than once it is too low"})
	}
}

// verlLearned are what all trainers of verl log of what was sampled and learned.
var verlLearned = []StepRule{
	{Notion: Response, Keys: []string{"response_length/mean"}},
	{Notion: Truncated, Keys: []string{"response_length/clip_ratio"}},
	{Notion: Clipped, Keys: []string{"actor/pg_clipfrac"}},
	{Notion: Divergence, Keys: []string{"actor/ppo_kl"}},
	{Notion: EffectiveSize, Keys: []string{"rollout_corr/rollout_is_eff_sample_size"}},
}

// verlTokens is the speed as verl's synchronous and v1 trainers log it.
var verlTokens = StepRule{Notion: TokensPerS, Keys: []string{"perf/total_num_tokens", "perf/time_per_step"}, Formula: "perf/total_num_tokens ÷ perf/time_per_step",
	Of: ratio("perf/total_num_tokens", "perf/time_per_step")}
