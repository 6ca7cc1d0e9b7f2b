package foreign

import (
	"math"
	"slices"
)

// verlSync is verl's synchronous trainer: PPO and GRPO as its examples run them, and the v1 trainer in its mode sync. A
// row is one step. Its timing_s/gen is the generation of the step's batch, on the GPUs that then train on it.
var verlSync = &Framework{
	Name: "verl-sync", Title: "verl (synchronous trainer)", Aliases: []string{"verl-ppo"},
	StepKeys: []string{"training/global_step"},
	Queue:    queue("synchronous", "synchronous"),
	Shared:   func(Values) bool { return true },
	Settings: []SettingRule{
		{Setting: GroupSize, Settings: []string{"actor_rollout_ref.rollout.n"}},
		{Setting: SyncEvery, Formula: "1: the weights go to the engines after every step", Of: always(1)},
		{Setting: Batch, Settings: []string{"data.train_batch_size"}, Formula: "data.train_batch_size × rollout.n", Of: configTimes("data.train_batch_size", GroupSize)},
		{Setting: TrainGPUs, Settings: []string{"trainer.nnodes", "trainer.n_gpus_per_node"},
			Formula: "trainer.nnodes × trainer.n_gpus_per_node", Of: configProduct("trainer.nnodes", "trainer.n_gpus_per_node")},
	},
	Steps: slices.Concat([]StepRule{
		{Notion: Period, Keys: []string{"timing_s/step"}},
		{Notion: Generate, Keys: []string{"timing_s/gen"}},
		{Notion: Wait, Keys: []string{"timing_s/gen"}},
		{Notion: LogProbs, Keys: []string{"timing_s/old_log_prob"}},
		{Notion: Sync, Keys: []string{"timing_s/update_weights"}},
		{Notion: Train, Keys: []string{"timing_s/update_actor", "timing_s/update_critic", "timing_s/ref", "timing_s/values"},
			Formula: "timing_s/update_actor + timing_s/update_critic + timing_s/ref + timing_s/values",
			Of:      sum("timing_s/update_actor", "timing_s/update_critic", "timing_s/ref", "timing_s/values")},
		{Notion: Busy, Keys: []string{"response_length/mean", "response_length/max", "timing_s/agent_loop/generate_sequences/mean", "timing_s/gen"},
			Formula: "response_length/mean ÷ response_length/max, or agent_loop/generate_sequences/mean ÷ gen where that is less", Of: verlBusy},
		{Notion: Staleness, Keys: []string{"timing_s/gen"}, Formula: "0: a step generates what it trains on", Of: with("timing_s/gen", always(0))},
		{Notion: TrainerIdle, Keys: []string{"timing_s/gen", "timing_s/step"}, Formula: "timing_s/gen ÷ timing_s/step", Of: ratio("timing_s/gen", "timing_s/step")},
		{Notion: RolloutMean, Keys: []string{"timing_s/agent_loop/generate_sequences/mean"}},
		{Notion: RolloutTop, Keys: []string{"timing_s/agent_loop/generate_sequences/max"}, Fold: FoldMax},
		{Notion: Reward, Keys: []string{"critic/score/mean"}},
	}, verlLearned, []StepRule{verlTokens}),
	Definition: "Engines and trainer take turns on the same GPUs: a step trains on what it has generated, so that its staleness is 0 in train steps. " +
		"The mini-batches inside one step (ppo_mini_batch_size, ppo_epochs) are not counted.",
	Notes: []string{
		"it is known by its steps, which generate (timing_s/gen), without a key that an asynchronous trainer of verl always logs",
		"timing_s/gen is generation, and no wait for engines of their own",
		"validation and checkpoints are outside of timing_s/step",
	},
}

// verlBusy is how much of a batch still generates, on average over its generation, where all of it starts at once: a
// rollout ends at a share of the time that its length is of the longest.
func verlBusy(v Values) (float64, bool) {
	busy := math.Inf(1)
	for _, over := range []struct{ mean, longest string }{
		{"response_length/mean", "response_length/max"},
		{"timing_s/agent_loop/generate_sequences/mean", "timing_s/gen"},
	} {
		if share, ok := ratio(over.mean, over.longest)(v); ok && share > 0 {
			busy = min(busy, share)
		}
	}
	return busy, busy <= 1
}

// synchronousVerl reports whether what counts as a log of one of verl's asynchronous trainers is of the synchronous one:
// its steps generate, and no key is there that either asynchronous trainer always logs, or the mode says so.
func (e *evidence) synchronousVerl(f *Framework) bool {
	if f == verlV1 && e.mode == "sync" {
		return true
	}
	if f != verlV1 && f != verlFullyAsync || !e.seen["timing_s/gen"] {
		return false
	}
	for key := range e.seen {
		if slices.ContainsFunc(slices.Concat(verlV1.Marks, verlFullyAsync.Marks), func(mark string) bool { return fits(mark, key) }) {
			return false
		}
	}
	return true
}
