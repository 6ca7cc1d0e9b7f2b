package diagnosis

import (
	"fmt"

	"github.com/headway-rl/headway/report"
)

// lever is a notion that can be set.
type lever uint8

// Levers.
const (
	leverQueue lever = iota
	leverBudget
	leverConcurrency
	leverBatch
	leverCap
	leverSyncEvery
	leverSplit
)

// words of a lever where a framework has no knob for it, or none that is known.
var leverWords = map[lever]string{
	leverQueue: "the queue's capacity", leverBudget: "the staleness budget", leverConcurrency: "the rollouts in flight",
	leverBatch: "the batch of a train step", leverCap: "the longest response", leverSyncEvery: "the train steps a weight sync", leverSplit: "the split of the GPUs",
}

// knobs are the frameworks' own names for levers, as of package foreign's names.
var knobs = map[string]map[lever]string{
	"verl-fa": {leverQueue: "async_training.staleness_threshold", leverBudget: "async_training.staleness_threshold", leverConcurrency: "async_training.concurrent_samples_per_replica",
		leverBatch: "async_training.require_batches", leverCap: "data.max_response_length", leverSyncEvery: "async_training.trigger_parameter_sync_step",
		leverSplit: "rollout.nnodes and trainer.nnodes"},
	"verl-v1": {leverBudget: "trainer.v1.sampler.max_off_policy_threshold", leverBatch: "data.train_batch_size", leverCap: "data.max_response_length",
		leverSyncEvery: "trainer.v1.separate_async.parameter_sync_step", leverSplit: "rollout.nnodes and trainer.nnodes"},
	"prime-rl": {leverBudget: "orchestrator.max_off_policy_steps", leverConcurrency: "orchestrator.concurrency.max_inflight", leverBatch: "orchestrator.batch_size",
		leverCap: "orchestrator.sampling.max_tokens", leverSplit: "inference_gpu_ids and trainer_gpu_ids"},
	"skyrl": {leverBudget: "trainer.fully_async.max_staleness_steps", leverConcurrency: "trainer.fully_async.num_parallel_generation_workers",
		leverBatch: "trainer.train_batch_size", leverCap: "generator.sampling_params.max_generate_length"},
	"areal": {leverQueue: "rollout.queue_size", leverBudget: "rollout.max_head_offpolicyness", leverConcurrency: "rollout.max_concurrent_rollouts",
		leverBatch: "train_dataset.batch_size", leverCap: "gconfig.max_new_tokens", leverSplit: "allocation_mode"},
	"pipelinerl": {leverQueue: "preprocess.ring_buffer_size", leverBudget: "max_lag", leverConcurrency: "actor.llm_max_rollouts", leverSyncEvery: "finetune.weight_update_interval",
		leverCap: "llm.parameters.max_tokens", leverSplit: "world.actor_fraction and world.finetune_fraction"},
	"slime": {leverConcurrency: "--sglang-server-concurrency", leverBatch: "--rollout-batch-size", leverCap: "--rollout-max-response-len",
		leverSyncEvery: "--update-weights-interval", leverSplit: "--rollout-num-gpus and --actor-num-gpus-per-node"},
	"nemo-rl": {leverQueue: "async_rl.max_buffered_rollouts", leverBudget: "grpo.async_grpo.max_trajectory_age_steps", leverConcurrency: "async_rl.max_inflight_prompts",
		leverBatch: "grpo.num_prompts_per_step", leverCap: "policy.generation.max_new_tokens", leverSplit: "policy.generation.colocated.resources"},
	"openrlhf": {leverQueue: "--train.async_queue_size", leverConcurrency: "--rollout.vllm_generate_batch_size", leverBatch: "--rollout.batch_size", leverCap: "--generate_max_len"},
	"roll": {leverBudget: "async_generation_ratio", leverConcurrency: "max_running_requests", leverBatch: "rollout_batch_size", leverCap: "response_length",
		leverSplit: "device_mapping of actor_train and actor_infer"},
	"trl": {leverQueue: "queue_maxsize", leverBudget: "max_staleness", leverConcurrency: "max_inflight_tasks", leverBatch: "per_device_train_batch_size", leverCap: "max_completion_length"},
}

// knob says how a lever is set in the framework of the log.
func (f *facts) knob(l lever, to string) string {
	name := leverWords[l]
	if f.log != nil {
		if own, ok := knobs[f.log.Framework][l]; ok {
			name = fmt.Sprintf("%s (%s)", own, leverWords[l])
		}
	}
	return name + ": " + to
}

// count prints a number of things.
func count(v float64) string { return report.Count(int64(v + 0.5)) }
