package foreign

import "slices"

// verlV1 is verl's v1 trainer: sync, colocate_async or separate_async. A row is a global step: a weight sync, before which
// parameter_sync_step mini-batches are trained on. Each of these is a train step here.
var verlV1 = &Framework{
	Name: "verl-v1", Title: "verl (v1 trainer)", Aliases: []string{"verl-separate-async"},
	Marks:        []string{"training/off_policy/*", "separate_async/*", "training/filter_groups/*", "training/rollout_failure/*"},
	MarkSettings: []string{"trainer.v1.trainer_mode"},
	Hints:        []string{"timing_s/*", "timing_s/update_weights", "actor/pg_clipfrac", "response_length/mean", "critic/score/mean"},
	StepKeys:     []string{"training/global_step"},
	Queue:        verlV1Queue,
	Shared:       verlV1Shared,
	Inner:        syncEvery,
	Settings: []SettingRule{
		{Setting: GroupSize, Settings: []string{"actor_rollout_ref.rollout.n"}},
		{Setting: SyncEvery, Settings: []string{"trainer.v1.separate_async.parameter_sync_step", "trainer.v1.trainer_mode"}, Of: verlV1SyncEvery},
		{Setting: Batch, Settings: []string{"data.train_batch_size", "trainer.v1.separate_async.parameter_sync_step"},
			Formula: "data.train_batch_size ÷ parameter_sync_step × rollout.n", Of: verlV1Batch},
		{Setting: Concurrency, Settings: []string{"trainer.v1.separate_async.num_warmup_batches", "trainer.v1.colocate_async.num_warmup_batches"},
			Formula: "num_warmup_batches × data.train_batch_size × rollout.n (what is outstanding while a step runs, queued groups among it)",
			Of:      verlV1Outstanding},
		{Setting: Queue, Formula: "0: the replay buffer has no capacity of its own, what is started bounds it", Of: always(0)},
		{Setting: Budget, Settings: []string{"trainer.v1.sampler.max_off_policy_threshold"}},
		{Setting: RolloutGPUs, Settings: []string{"actor_rollout_ref.rollout.nnodes", "actor_rollout_ref.rollout.n_gpus_per_node"},
			Formula: "rollout.nnodes × rollout.n_gpus_per_node",
			Of:      configProduct("actor_rollout_ref.rollout.nnodes", "actor_rollout_ref.rollout.n_gpus_per_node")},
		{Setting: TrainGPUs, Settings: []string{"trainer.nnodes", "trainer.n_gpus_per_node"},
			Formula: "trainer.nnodes × trainer.n_gpus_per_node", Of: configProduct("trainer.nnodes", "trainer.n_gpus_per_node")},
	},
	Steps: slices.Concat([]StepRule{
		{Notion: Period, Keys: []string{"timing_s/step", "timing_s/testing"},
			Formula: "(timing_s/step + timing_s/testing) ÷ parameter_sync_step", Of: verlPerStep(sum("timing_s/step", "timing_s/testing"))},
		{Notion: Wait, Keys: []string{"timing_s/gen", "timing_s/switch_wait"},
			Formula: "(timing_s/gen + timing_s/switch_wait) ÷ parameter_sync_step", Of: verlPerStep(sum("timing_s/gen", "timing_s/switch_wait"))},
		{Notion: Sync, Keys: []string{"timing_s/update_weights"}},
		{Notion: Train, Keys: append([]string{"timing_s/step", "timing_s/gen"}, verlV1Beside...),
			Formula: "(timing_s/step − timing_s/gen − timing_s/update_weights − switches and checkpoints) ÷ parameter_sync_step", Of: verlPerStep(verlV1Train)},
		{Notion: Staleness, Keys: []string{"training/off_policy/trajectory_staleness_worst/mean"}, Of: verlV1Single(Values.Get, verlV1Worst+"mean")},
		{Notion: Staleness, Keys: []string{"training/off_policy/trajectory_staleness_worst/mean"},
			Formula: "trajectory_staleness_worst/mean × parameter_sync_step + (parameter_sync_step − 1) ÷ 2",
			Of:      verlV1Several(Values.Get, verlV1Worst+"mean", 0.5)},
		{Notion: StalenessTop, Keys: []string{"training/off_policy/trajectory_staleness_worst/max"}, Of: verlV1Single(Values.Top, verlV1Worst+"max")},
		{Notion: StalenessTop, Keys: []string{"training/off_policy/trajectory_staleness_worst/max"},
			Formula: "trajectory_staleness_worst/max × parameter_sync_step + parameter_sync_step − 1",
			Of:      verlV1Several(Values.Top, verlV1Worst+"max", 1)},
		{Notion: TrainerIdle, Keys: []string{"timing_s/gen", "timing_s/step"}, Formula: "timing_s/gen ÷ timing_s/step", Of: ratio("timing_s/gen", "timing_s/step")},
		{Notion: Dropped, Keys: []string{"training/off_policy/evicted_samples"}, Formula: "training/off_policy/evicted_samples × rollout.n ÷ parameter_sync_step",
			Of: verlPerStep(times("training/off_policy/evicted_samples", GroupSize))},
		{Notion: Filtered, Keys: []string{"training/filter_groups/evicted_samples"}, Formula: "training/filter_groups/evicted_samples × rollout.n ÷ parameter_sync_step",
			Of: verlPerStep(times("training/filter_groups/evicted_samples", GroupSize))},
		{Notion: Failed, Keys: []string{"training/rollout_failure/evicted_samples"}, Formula: "training/rollout_failure/evicted_samples × rollout.n ÷ parameter_sync_step",
			Of: verlPerStep(times("training/rollout_failure/evicted_samples", GroupSize))},
		{Notion: Reward, Keys: []string{"critic/score/mean"}},
	}, verlLearned, []StepRule{verlTokens}),
	Definition: "verl's trajectory_staleness counts from a trajectory's last version; trajectory_staleness_worst counts from its first, and is what is taken here. " +
		"Both count weight syncs: with parameter_sync_step above 1 they are turned into train steps, of which the k-th after a sync adds k − 1. " +
		"Ours is the group's, from the oldest version among its first tokens, so it can be higher by what siblings started apart.",
	Lacks: map[string]Lack{
		"tail_multiplier": {Why: "verl v1 logs no time of a rollout or of a group", Get: "trace the agent loop, or give a length distribution to a prediction"},
		"pqs":             {Why: "trajectory_spans is of single trajectories: what they wait for their siblings is not in it", Get: "take the split from a prediction with the settings found"},
	},
	Notes: []string{
		"trajectory_staleness is by the last version; trajectory_staleness_worst, by the first, is what is taken",
		"a global step is a weight sync of parameter_sync_step mini-batches, and each of these is a train step here",
		"evicted_samples counts groups, as max_off_policy_threshold counts one more than the versions between (a threshold of 8 lets 7 through)",
	},
}

// verlV1Queue is max where groups over the threshold are dropped. The strategy wait, which samples nothing while a
// prompt in flight has reached it, is none of ours.
func verlV1Queue(v Values) (policy, preset string) {
	if v.Text("trainer.v1.sampler.max_off_policy_strategy") == "drop" {
		return "max", ""
	}
	return "", ""
}

// verlV1Mode is the setting that tells verl's v1 trainers apart.
const verlV1Mode = "trainer.v1.trainer_mode"

// verlV1Shared reports colocated engines: by the mode, or by the time that the GPUs take to change hands.
func verlV1Shared(v Values) bool {
	if mode := v.Text(verlV1Mode); mode != "" {
		return mode != "separate_async"
	}
	for _, name := range []string{"timing_s/switch_to_rollout", "timing_s/switch_to_trainer"} {
		if _, there := v.Last(name); there {
			return true
		}
	}
	return false
}

func verlV1SyncEvery(v Values) (float64, bool) {
	if mode := v.Text("trainer.v1.trainer_mode"); mode != "" && mode != "separate_async" {
		return 1, true
	}
	return v.Config("trainer.v1.separate_async.parameter_sync_step")
}

func verlV1Batch(v Values) (float64, bool) {
	prompts, ok := v.Config("data.train_batch_size")
	size, known := v.Setting(GroupSize)
	return prompts / syncEvery(v) * size, ok && known
}

func verlV1Outstanding(v Values) (float64, bool) {
	mode := v.Text("trainer.v1.trainer_mode")
	batches, ok := v.Config("trainer.v1." + mode + ".num_warmup_batches")
	prompts, there := v.Config("data.train_batch_size")
	size, known := v.Setting(GroupSize)
	return batches * prompts * size, ok && there && known && batches > 0
}

// verlV1Beside are the parts of a row's time that neither wait for rollouts nor train.
var verlV1Beside = []string{"timing_s/update_weights", "timing_s/switch_wait", "timing_s/switch_to_rollout", "timing_s/switch_to_trainer", "timing_s/save_checkpoint"}

// verlV1Train is a row's time that trains: what is neither waiting, syncing, switching nor saving.
func verlV1Train(v Values) (float64, bool) {
	step, ok := v.Get("timing_s/step")
	gen, waited := v.Get("timing_s/gen")
	for _, name := range verlV1Beside {
		other, _ := v.Get(name)
		step -= other
	}
	return step - gen, ok && waited
}

const verlV1Worst = "training/off_policy/trajectory_staleness_worst/"

// verlV1Single takes the staleness as it is where a row is one train step.
func verlV1Single(get func(Values, string) (float64, bool), name string) func(Values) (float64, bool) {
	return func(v Values) (float64, bool) {
		if k, known := v.Setting(SyncEvery); !known || k > 1 {
			return 0, false
		}
		return get(v, name)
	}
}

// verlV1Several turns weight syncs into train steps; share is the part of the steps between two syncs that
// is added.
func verlV1Several(get func(Values, string) (float64, bool), name string, share float64) func(Values) (float64, bool) {
	return func(v Values) (float64, bool) {
		worst, ok := get(v, name)
		k := syncEvery(v)
		return worst*k + share*(k-1), ok
	}
}
