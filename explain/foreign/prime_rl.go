package foreign

import "strings"

// primeRL is prime-rl. Orchestrator and trainer log for themselves, under keys that they share in part; the first
// knows staleness, the second what a step costs. Both count steps from 1.
var primeRL = &Framework{
	Name: "prime-rl", Title: "prime-rl",
	Marks: []string{"off_policy/mean", "off_policy/in_flight/*", "dispatcher/*", "watcher/policy_version", "time/wait_for_policy",
		"concurrency/max_inflight", "time/wait_for_ckpt"},
	MarkSettings: []string{"orchestrator.max_off_policy_steps", "max_off_policy_steps"},
	Hints:        []string{"time/wait_for_batch", "time/broadcast_weights", "mismatch_kl/*", "perf/throughput_per_gpu", "time/forward_backward"},
	StepKeys:     []string{"step"},
	Part:         primePart,
	Queue:        queue("max", "prime-rl"),
	Settings: []SettingRule{
		{Setting: GroupSize, Settings: []string{"orchestrator.group_size"}},
		{Setting: GroupSize, Settings: []string{"group_size"}},
		{Setting: Batch, Settings: []string{"orchestrator.batch_size"}},
		{Setting: Batch, Settings: []string{"batch_size"}},
		{Setting: Batch, Keys: []string{"progress/rollouts"}, Formula: "mean of progress/rollouts (all that arrived for a batch, those left out among them)",
			Of: mean("progress/rollouts")},
		{Setting: Concurrency, Keys: []string{"concurrency/max_inflight"}, Formula: "mean of concurrency/max_inflight", Of: mean("concurrency/max_inflight")},
		{Setting: Concurrency, Settings: []string{"orchestrator.concurrency.max_inflight"}},
		{Setting: Concurrency, Settings: []string{"concurrency.max_inflight"}},
		{Setting: Budget, Settings: []string{"orchestrator.max_off_policy_steps"}},
		{Setting: Budget, Settings: []string{"max_off_policy_steps"}},
		{Setting: Queue, Formula: "0: what is finished waits without a bound, which the dispatch gate and max_off_policy_steps set", Of: always(0)},
		{Setting: SyncEvery, Formula: "prime-rl broadcasts after every train step", Of: always(1)},
	},
	Steps: []StepRule{
		{Notion: Period, Keys: []string{"trainer:time/step"}},
		{Notion: Period, Keys: []string{"orchestrator:time/step"}},
		{Notion: Train, Keys: []string{"time/forward_backward", "time/load_data"}, Formula: "time/forward_backward + time/load_data", Of: sum("time/forward_backward", "time/load_data")},
		{Notion: Wait, Keys: []string{"time/wait_for_batch"}},
		{Notion: Sync, Keys: []string{"watcher/last_update_weights_time"}},
		{Notion: Sync, Keys: []string{"time/broadcast_weights"}},
		{Notion: Staleness, Keys: []string{"off_policy/mean"}},
		{Notion: StalenessTop, Keys: []string{"off_policy/max"}, Fold: FoldMax},
		{Notion: PreQueue, Keys: []string{"off_policy/in_flight/mean"}, Formula: primeReady, Of: later},
		{Notion: TrainerIdle, Keys: []string{"time/wait_for_batch", "trainer:time/step"}, Formula: "time/wait_for_batch ÷ time/step of the trainer",
			Of: ratio("time/wait_for_batch", "trainer:time/step")},
		{Notion: RolloutMean, Keys: []string{"train/agg/effective/timing/total/mean"}},
		{Notion: RolloutMean, Keys: []string{"train/agg/all/timing/total/mean"}},
		{Notion: RolloutTop, Keys: []string{"train/agg/effective/timing/total/max"}, Fold: FoldMax},
		{Notion: RolloutTop, Keys: []string{"train/agg/all/timing/total/max"}, Fold: FoldMax},
		{Notion: InFlight, Keys: []string{"dispatcher/inflight/train"}},
		{Notion: Trained, Keys: []string{"progress/rollouts"}, Formula: "progress/rollouts (all that arrived for the batch)", Of: key("progress/rollouts")},
		{Notion: Dropped, Keys: []string{"off_policy/dropped"}},
		{Notion: Reward, Keys: []string{"train/agg/effective/reward/mean"}},
		{Notion: Reward, Keys: []string{"train/agg/all/reward/mean"}},
		{Notion: Response, Keys: []string{"train/agg/effective/num_output_tokens/mean"}},
		{Notion: Response, Keys: []string{"train/agg/all/num_output_tokens/mean"}},
		{Notion: Truncated, Keys: []string{"train/agg/effective/is_truncated/mean"}},
		{Notion: Clipped, Keys: []string{"is_masked/all/mean"}},
		{Notion: Clipped, Keys: []string{"is_masked/mean"}},
		{Notion: Divergence, Keys: []string{"mismatch_kl/all/mean"}},
		{Notion: TokensPerS, Keys: []string{"perf/throughput"}},
	},
	Files: []OwnFile{
		{Match: "rollouts/step_*/train/effective/traces.jsonl", What: "episodes trained on", Rollouts: true, Read: readPrimeTraces},
		{Match: "rollouts/step_*/*/*/traces.jsonl", What: "episodes that were not trained on, and evaluations: passed over", Read: passOver},
	},
	Adjust: primeAdjust,
	Definition: "off_policy/mean is (step − 1) − the version when an episode was dispatched: the version that the step starts from less the first. " +
		"It is the mean over episodes; ours is over groups, from the oldest of their first tokens, and is higher where siblings start apart: by how much is taken from the traces, where there are any. " +
		"in_flight ends with the version of an episode's last token, which is an engine's and behind the trainer's, and before its rewards: pqs ends with the trainer's version when a group's last episode was done, looked up by the clock. " +
		"Episodes of frozen models count as 0.",
	Lacks: map[string]Lack{
		"pqs": {Why: "off_policy/in_flight and in_queue are of single rollouts and split at the version of the last token: what siblings wait for each other, their rewards and the engines' lag behind the trainer are in in_queue there",
			Get: "give the run's directory, with rollouts/step_N/train/effective/traces.jsonl"},
		"tail_multiplier": {Why: "timings are of episodes; their groups are only in rollouts/step_N/train/effective/traces.jsonl", Get: "give the run's directory, with its traces"},
		"wait_s":          {Why: "time/wait_for_batch is in the trainer's log, which is not among these files", Get: "give the trainer's log too"},
		"train_s":         {Why: "time/forward_backward is in the trainer's log, which is not among these files", Get: "give the trainer's log too"},
		"staleness_mean":  {Why: "off_policy/mean is in the orchestrator's log, which is not among these files", Get: "give the orchestrator's log too"},
	},
	Notes: []string{
		"off_policy/mean counts from the version at dispatch to step − 1, which is the version that the step trains from",
		"time/step is logged by trainer and orchestrator alike, in one metrics.jsonl: a row with time/wait_for_batch is the trainer's",
		"gauges (dispatcher/*, watcher/*) come beside the steps and belong to the step before them",
		"in_flight and in_queue are of single rollouts, and are split at the last token's version: with traces of some steps, what groups have beyond them is added to the others'",
		"dispatch waits while the step is more than one ahead of the policy, whatever max_off_policy_steps says",
	},
}

// primePart tells the rows of orchestrator and trainer apart.
func primePart(r Row) string {
	if _, trainer := r.Values["time/wait_for_batch"]; trainer {
		return "trainer"
	}
	if _, orchestrator := r.Values["time/wait_for_policy"]; orchestrator {
		return "orchestrator"
	}
	for key := range r.Values {
		if strings.HasPrefix(key, "off_policy/") || strings.HasPrefix(key, "progress/") {
			return "orchestrator"
		}
	}
	return ""
}

// later is a figure that Adjust computes, when everything is known.
func later(Values) (float64, bool) { return 0, false }

// primeAdjust sees to the parts of staleness and to the periods.
func primeAdjust(v Values, log *Log) {
	primeSplit(v, log)
	primeWaits(v, log)
}

// primeWaits drops what a merged export has mixed: a row of both parts has one time/step.
func primeWaits(_ Values, log *Log) {
	for _, step := range log.Series {
		if step.WaitS.Known() && step.PeriodS.Known() && step.PeriodS.From == "orchestrator:time/step" {
			log.Warnings = append(log.Warnings, Warning{Count: 1,
				Text: "time/step is the orchestrator's in some rows, as the trainer's is not there: both are the period in the long run"})
			return
		}
	}
}
