package diagnosis

import (
	"slices"
	"strings"

	"github.com/headway-rl/headway/explain/foreign"
	"github.com/headway-rl/headway/observe/report"
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

// words of a lever, beside a framework's knob for it or in its place.
var leverWords = map[lever]string{
	leverQueue: "the queue's capacity", leverBudget: "the staleness budget", leverConcurrency: "the rollouts in flight",
	leverBatch: "the batch of a train step", leverCap: "the longest response", leverSyncEvery: "the train steps a weight sync", leverSplit: "the split of the GPUs",
}

// knob is how a framework sets a lever. The keys are the framework's own, read in its sources: the test beside
// this file says where. Without keys it has no setting for it.
type knob struct {
	keys []string
	// either: one of the keys applies, depending on the run; otherwise they are set together.
	either bool
	// note says in which unit the keys count where that is not ours (rollouts, versions, tokens), or what
	// stands in for a setting that there is not.
	note string
}

// key is a knob of one key.
func key(name, note string) knob { return knob{keys: []string{name}, note: note} }

// both is a knob of keys that are set together.
func both(note string, names ...string) knob { return knob{keys: names, note: note} }

// oneOf is a knob of keys of which a run has one.
func oneOf(note string, names ...string) knob { return knob{keys: names, either: true, note: note} }

// none says why there is no knob.
func none(note string) knob { return knob{note: note} }

// singleController is NeMo-RL's second loop, which has knobs of its own: see variant.
const singleController = "nemo-rl, single controller"

// knobsOf are the frameworks' knobs, by package foreign's names. Every framework has an entry for every lever.
var knobsOf = map[string]map[lever]knob{
	"verl-fa": {
		leverQueue:  none("it has no key: async_training.staleness_threshold sets it with the budget"),
		leverBudget: key("async_training.staleness_threshold", "a share of the samples between two weight syncs"),
		leverConcurrency: key("async_training.concurrent_samples_per_replica",
			"counts groups, for each replica; staleness_threshold bounds them too"),
		leverBatch:     both("their product, in groups", "actor_rollout_ref.actor.ppo_mini_batch_size", "async_training.require_batches"),
		leverCap:       key("data.max_response_length", ""),
		leverSyncEvery: key("async_training.trigger_parameter_sync_step", ""),
		leverSplit:     both("nodes; n_gpus_per_node of either for less than one", "rollout.nnodes", "trainer.nnodes"),
	},
	"verl-v1": {
		leverQueue:  none("the replay buffer has no capacity: num_warmup_batches bounds what is outstanding"),
		leverBudget: key("trainer.v1.sampler.max_off_policy_threshold", "counts weight syncs, the one that trains among them"),
		leverConcurrency: oneOf("counts batches of data.train_batch_size that are outstanding",
			"trainer.v1.separate_async.num_warmup_batches", "trainer.v1.colocate_async.num_warmup_batches"),
		leverBatch: both("counts groups; with separate_async train_batch_size must be parameter_sync_step times the other",
			"actor_rollout_ref.actor.ppo_mini_batch_size", "data.train_batch_size"),
		leverCap:       key("data.max_response_length", ""),
		leverSyncEvery: key("trainer.v1.separate_async.parameter_sync_step", ""),
		leverSplit:     both("nodes; n_gpus_per_node of either for less than one", "actor_rollout_ref.rollout.nnodes", "trainer.nnodes"),
	},
	"verl-sync": {
		leverQueue:       none("it has no key: nothing queues"),
		leverBudget:      none("it has no key: nothing is stale"),
		leverConcurrency: none("it has no key: a step starts its whole batch"),
		leverBatch:       key("data.train_batch_size", "counts groups"),
		leverCap:         key("data.max_response_length", ""),
		leverSyncEvery:   none("it has no key: weights are synced after every step"),
		leverSplit:       none("it has no key: engines and trainer share the GPUs"),
	},
	"prime-rl": {
		leverQueue:       none("it has no key: what is finished waits without a bound"),
		leverBudget:      key("orchestrator.max_off_policy_steps", ""),
		leverConcurrency: key("orchestrator.concurrency.max_inflight", "the upper end of what it adapts: set min_inflight to the same to pin it"),
		leverBatch:       key("orchestrator.batch_size", ""),
		leverCap:         key("orchestrator.train.sampling.max_completion_tokens", "of a turn"),
		leverSyncEvery:   none("it has no key: weights go out after every train step"),
		leverSplit:       both("num_infer_nodes and num_train_nodes on several nodes", "deployment.num_infer_gpus", "deployment.num_train_gpus"),
	},
	"skyrl": {
		leverQueue:       none("it has no key: its buffer is max_staleness_steps + 1 batches"),
		leverBudget:      key("trainer.fully_async.max_staleness_steps", ""),
		leverConcurrency: key("trainer.fully_async.num_parallel_generation_workers", "counts groups, between a batch and max_staleness_steps + 1 of them"),
		leverBatch:       both("count groups, both the same", "trainer.policy_mini_batch_size", "trainer.train_batch_size"),
		leverCap:         key("generator.sampling_params.max_generate_length", ""),
		leverSyncEvery:   none("it has no key: weights are synced after every train step"),
		leverSplit: both("engines, and GPUs of a node: times their tensor_parallel_size and policy_num_nodes",
			"generator.inference_engine.num_engines", "trainer.placement.policy_num_gpus_per_node"),
	},
	"areal": {
		leverQueue:       none("rollout.max_head_offpolicyness bounds what waits; rollout.queue_size is none that can be lowered: a full one ends the run"),
		leverBudget:      key("rollout.max_head_offpolicyness", ""),
		leverConcurrency: key("rollout.max_concurrent_rollouts", "counts groups"),
		leverBatch:       key("train_dataset.batch_size", "counts groups"),
		leverCap:         key("gconfig.max_new_tokens", ""),
		leverSyncEvery:   none("it has no key: weights are updated after every train step"),
		leverSplit:       both("an allocation each, as sglang:d4t1 and fsdp:d4", "rollout.backend", "actor.backend"),
	},
	"pipelinerl": {
		leverQueue:       key("preprocess.ring_buffer_size", ""),
		leverBudget:      key("max_lag", "counts rollouts: versions times the batch"),
		leverConcurrency: key("actor.llm_max_rollouts", "for each inference server"),
		leverBatch:       both("their product", "finetune.train_batch_size", "finetune.gradient_accumulation_passes"),
		leverCap:         key("llm.parameters.max_tokens", ""),
		leverSyncEvery:   key("finetune.weight_update_interval", "counts rollouts: train steps times the batch"),
		leverSplit:       both("shares of the GPUs", "world.actor_fraction", "world.finetune_fraction"),
	},
	"slime": {
		leverQueue:       none("it has no key: --sglang-server-concurrency gates what starts"),
		leverBudget:      none("it has no key, and no limit"),
		leverConcurrency: key("--sglang-server-concurrency", "for each engine; groups with the fully asynchronous rollout function"),
		leverBatch:       key("--rollout-batch-size", "counts groups"),
		leverCap:         key("--rollout-max-response-len", ""),
		leverSyncEvery:   key("--update-weights-interval", ""),
		leverSplit:       both("of a node: times --actor-num-nodes", "--rollout-num-gpus", "--actor-num-gpus-per-node"),
	},
	"nemo-rl": {
		leverQueue:       none("it has no key: its buffer is twice max_trajectory_age_steps batches"),
		leverBudget:      key("grpo.async_grpo.max_trajectory_age_steps", ""),
		leverConcurrency: none("it has no key: a batch of prompts is started for each step that max_trajectory_age_steps lets be ahead"),
		leverBatch:       key("grpo.num_prompts_per_step", "counts groups"),
		leverCap:         key("policy.generation.max_new_tokens", ""),
		leverSyncEvery:   none("it has no key: a refit follows every train step"),
		leverSplit: both("the engines' part of cluster", "policy.generation.colocated.resources.num_nodes",
			"policy.generation.colocated.resources.gpus_per_node"),
	},
	singleController: {
		leverQueue: key("async_rl.max_buffered_rollouts", "counts groups"),
		leverBudget: oneOf("the second with the sampler in_order", "async_rl.sampler.max_staleness_versions",
			"async_rl.sampler.max_lookahead_versions"),
		leverConcurrency: key("async_rl.max_inflight_prompts", "counts groups"),
		leverBatch:       key("grpo.num_prompts_per_step", "counts groups"),
		leverCap:         key("policy.generation.max_new_tokens", ""),
		leverSyncEvery:   none("it has no key: a refit follows every train step"),
		leverSplit: both("the engines' part of cluster", "policy.generation.colocated.resources.num_nodes",
			"policy.generation.colocated.resources.gpus_per_node"),
	},
	"openrlhf": {
		leverQueue:       key("--train.async_queue_size", "counts batches"),
		leverBudget:      none("it has no key: --train.async_queue_size bounds what is ahead"),
		leverConcurrency: key("--rollout.vllm_generate_batch_size", "counts groups"),
		leverBatch:       key("--rollout.batch_size", "counts groups"),
		leverCap:         key("--rollout.max_new_tokens", ""),
		leverSyncEvery:   none("it has no key: a broadcast follows every train step"),
		leverSplit:       both("times --vllm.tensor_parallel_size and --actor.num_nodes", "--vllm.num_engines", "--actor.num_gpus_per_node"),
	},
	"roll": {
		leverQueue:       none("it has no key: async_generation_ratio + 1 batches are started and not yet trained"),
		leverBudget:      key("async_generation_ratio", ""),
		leverConcurrency: key("max_running_requests", "for each worker of actor_infer"),
		leverBatch:       key("rollout_batch_size", "counts groups; rollouts in the agentic pipeline"),
		leverCap:         key("response_length", "where sequence_length is set, that less prompt_length"),
		leverSyncEvery:   none("it has no key: every step begins with a model update"),
		leverSplit:       both("lists of GPUs", "actor_infer.device_mapping", "actor_train.device_mapping"),
	},
	"trl": {
		leverQueue:       key("queue_maxsize", ""),
		leverBudget:      key("max_staleness", "counts weight syncs"),
		leverConcurrency: key("max_inflight_tasks", ""),
		leverBatch:       both("their product times the processes", "per_device_train_batch_size", "gradient_accumulation_steps"),
		leverCap:         key("max_completion_length", ""),
		leverSyncEvery:   key("weight_sync_steps", ""),
		leverSplit:       none("it has no key: the GPUs of the vLLM server and the trainer's processes are started apart"),
	},
}

// variant is the name of a log's knobs: its framework's, but NeMo-RL's two loops are set apart by which of their
// keys the settings came from.
func variant(log *foreign.Log) string {
	s := log.Settings
	if log.Framework != "nemo-rl" {
		return log.Framework
	}
	for _, figure := range []foreign.Figure{s.StalenessBudget, s.QueueRollouts, s.ConcurrencyRollouts} {
		if strings.Contains(figure.From, "async_rl.") {
			return singleController
		}
	}
	return log.Framework
}

// name is a knob as it is written in a finding. Of keys of which a run has one, it is that which is set where the
// setting's figure names it.
func (k knob) name(l lever, from string) string {
	about := leverWords[l]
	if len(k.keys) == 0 {
		if k.note != "" {
			about += " (" + k.note + ")"
		}
		return about
	}
	keys, note := strings.Join(k.keys, " and "), k.note
	if k.either {
		keys = strings.Join(k.keys, " or ")
		if slices.Contains(k.keys, from) {
			keys, note = from, ""
		}
	}
	if note != "" {
		about += "; " + note
	}
	return keys + " (" + about + ")"
}

// knobName is a lever's name in the framework of the log, or in words.
func (f *facts) knobName(l lever) string {
	if f.log == nil {
		return leverWords[l]
	}
	from := ""
	if l == leverBudget {
		from = f.log.Settings.StalenessBudget.From
	}
	return knobsOf[variant(f.log)][l].name(l, from)
}

// knob says how a lever is set in the framework of the log.
func (f *facts) knob(l lever, to string) string { return f.knobName(l) + ": " + to }

// count prints a number of things.
func count(v float64) string { return report.Count(int64(v + 0.5)) }
