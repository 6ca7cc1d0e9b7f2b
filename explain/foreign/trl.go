package foreign

// trl is TRL's asynchronous GRPO trainer. It counts samples: rollouts, or parts of one where a conversation forks. Keys
// are with and without train/, as the trackers have them and as trainer_state.json has.
var trl = &Framework{
	Name: "trl", Title: "TRL (async GRPO)",
	Marks: []string{"*sample/time_in_queue_s", "*sample/rollout_queue_size", "*rollout/backpressure_s", "*sample/staleness_mean", "*wait_scoring_ms",
		"*buffer_qsize", "*weight_sync_time_s"},
	MarkSettings: []string{"max_inflight_tasks"},
	Hints:        []string{"*completions/mean_length", "*completions/clipped_ratio", "*clip_ratio/region_mean", "*queue_wait_time_s", "*training_tok/s"},
	StepKeys:     []string{"train/global_step"},
	Queue:        queue("max", ""),
	Settings: []SettingRule{
		{Setting: GroupSize, Settings: []string{"num_generations"}},
		{Setting: SyncEvery, Settings: []string{"weight_sync_steps"}},
		{Setting: Batch, Keys: trlKeys("batch/samples_per_step"), Formula: "mean of batch/samples_per_step", Of: trlBatch},
		{Setting: Batch, Settings: []string{"per_device_train_batch_size", "gradient_accumulation_steps", "world_size"},
			Formula: "per_device_train_batch_size × gradient_accumulation_steps × world_size",
			Of:      configProduct("per_device_train_batch_size", "gradient_accumulation_steps", "world_size")},
		{Setting: Budget, Settings: []string{"max_staleness"}},
		{Setting: Concurrency, Settings: []string{"max_inflight_tasks"}, Of: atLeast(1, "max_inflight_tasks")},
		{Setting: Concurrency, Settings: []string{"max_inflight_tasks", "max_staleness"}, Formula: "max_staleness × batch (max_inflight_tasks is -1: automatic)", Of: trlInflight},
		{Setting: Queue, Settings: []string{"queue_maxsize"}},
	},
	Steps: append(trlRules(
		trlRule{notion: Period, key: "perf/step_s"},
		trlRule{notion: Train, key: "perf/fwd_bwd_s"},
		trlRule{notion: Wait, key: "perf/rollout_wait_s"},
		trlRule{notion: Sync, key: "perf/weight_sync_s"},
		trlRule{notion: Sync, key: "weight_sync_time_s"},
		trlRule{notion: Queued, key: "sample/rollout_queue_size"},
		trlRule{notion: Queued, key: "buffer_qsize"},
		trlRule{notion: Reward, key: "reward"},
		trlRule{notion: Response, key: "completions/mean_length"},
		trlRule{notion: Truncated, key: "completions/clipped_ratio"},
		trlRule{notion: Clipped, key: "clip_ratio/region_mean"},
		trlRule{notion: Divergence, key: "kl"},
		trlRule{notion: TokensPerS, key: "training_tok/s"},
	),
		StepRule{Notion: Staleness, Keys: trlKeys("sample/staleness_mean"), Formula: "sample/staleness_mean × weight_sync_steps + (weight_sync_steps − 1) ÷ 2", Of: trlStaleness},
		StepRule{Notion: StalenessTop, Keys: trlKeys("sample/staleness_max"), Formula: "sample/staleness_max × weight_sync_steps + weight_sync_steps − 1", Of: trlStalenessTop, Fold: FoldMax},
		StepRule{Notion: InQueue, Keys: append(trlKeys("sample/time_in_queue_s"), trlKeys("perf/step_s")...), Formula: "sample/time_in_queue_s ÷ period (to within half a version)", Of: trlInQueue},
		StepRule{Notion: Dropped, Keys: trlKeys("sample/dropped_stale_total"), Formula: "rise of sample/dropped_stale_total", Of: trlDropped},
		StepRule{Notion: TrainerIdle, Keys: append(trlKeys("perf/rollout_wait_s"), trlKeys("perf/step_s")...), Formula: "perf/rollout_wait_s ÷ perf/step_s", Of: trlIdle},
	),
	Files: []OwnFile{{Match: "trainer_state.json", What: "the log_history of a checkpoint", Read: readTrainerState}},
	Definition: "TRL counts weight syncs from the version when a group's first rollout was started to the version when the trainer takes the sample from the queue. " +
		"It collects samples for the next step while one runs, so a sample may be taken a version before the step that trains on it starts. " +
		"Without sample/staleness_mean (TRL before August 2026) only the time in the queue is known, which is turned into versions by the period.",
	Lacks: map[string]Lack{
		"batch_rollouts": {Why: "batch/samples_per_step is logged from August 2026 on, and the number of processes is no setting",
			Get: "--set batch_rollouts=(per_device_train_batch_size × gradient_accumulation_steps × processes)"},
		"staleness_mean":  {Why: "TRL logs sample/staleness_mean from August 2026 on", Get: "update TRL, or log model_version of each sample"},
		"pqs":             {Why: "TRL logs no time or version of a rollout's start", Get: "subtract the in-queue staleness from sample/staleness_mean"},
		"tail_multiplier": {Why: "TRL logs no time of a rollout or of a group", Get: "give a length distribution to a prediction"},
		"train_s":         {Why: "TRL logs perf/fwd_bwd_s from August 2026 on; forward_time_s is one micro-batch's forward pass alone", Get: "update TRL"},
	},
	Notes: []string{
		"a sample is a row of training: a conversation that forks has several",
		"queue_wait_time_s was capped at one poll before July 2026; perf/rollout_wait_s, a step's sum, replaces it",
		"a group's version is that when its first rollout was started",
	},
}

// trlKeys are a key's two forms.
func trlKeys(name string) []string { return []string{"train/" + name, name} }

// trlGet takes a key in either form.
func trlGet(v Values, name string) (float64, bool) {
	if value, ok := v.Get("train/" + name); ok {
		return value, true
	}
	return v.Get(name)
}

// trlRule is a figure that is one key.
type trlRule struct {
	notion Notion
	key    string
	fold   Fold
}

// trlRules are the rules for both forms of each key.
func trlRules(rules ...trlRule) []StepRule {
	var out []StepRule
	for _, r := range rules {
		for _, name := range trlKeys(r.key) {
			out = append(out, StepRule{Notion: r.notion, Keys: []string{name}, Fold: r.fold})
		}
	}
	return out
}

func trlBatch(v Values) (float64, bool) {
	for _, name := range trlKeys("batch/samples_per_step") {
		if mean, ok := v.Mean(name); ok {
			return mean, true
		}
	}
	return 0, false
}

func trlInflight(v Values) (float64, bool) {
	budget, ok := v.Config("max_staleness")
	batch, known := v.Setting(Batch)
	return budget * batch, ok && known
}

// trlStaleness turns weight syncs into train steps.
func trlStaleness(v Values) (float64, bool) {
	syncs, ok := trlGet(v, "sample/staleness_mean")
	k := syncEvery(v)
	return syncs*k + (k-1)/2, ok
}

// trlStalenessTop is the largest: of the last train step before a sync.
func trlStalenessTop(v Values) (float64, bool) {
	k := syncEvery(v)
	for _, name := range trlKeys("sample/staleness_max") {
		if syncs, ok := v.Top(name); ok {
			return syncs*k + k - 1, true
		}
	}
	return 0, false
}

func trlInQueue(v Values) (float64, bool) {
	waited, ok := trlGet(v, "sample/time_in_queue_s")
	period, known := v.Step(Period)
	return waited / period, ok && known && period > 0
}

func trlDropped(v Values) (float64, bool) {
	if rise, ok := v.Rise("train/sample/dropped_stale_total"); ok {
		return rise, true
	}
	return v.Rise("sample/dropped_stale_total")
}

func trlIdle(v Values) (float64, bool) {
	waited, ok := trlGet(v, "perf/rollout_wait_s")
	step, known := v.Step(Period)
	return waited / step, ok && known && step > 0
}
