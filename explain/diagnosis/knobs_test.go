package diagnosis

import (
	"strings"
	"testing"

	"github.com/headway-rl/headway/explain/foreign"
)

// source is where a knob is defined: a path in the repository of its framework, as it stood in August 2026 (TRL's in
// July, PipelineRL's in June).
type source struct{ framework, knob, path string }

const (
	verlAsync      = "verl/experimental/fully_async_policy/config/fully_async_ppo_trainer.yaml"
	verlTrainer    = "verl/trainer/config/ppo_trainer.yaml"
	verlRollout    = "verl/trainer/config/rollout/rollout.yaml"
	verlActor      = "verl/trainer/config/actor/actor.yaml"
	verlData       = "verl/trainer/config/data/legacy_data.yaml"
	primeSource    = "packages/prime-rl-configs/src/prime_rl/configs/orchestrator.py"
	primeLaunch    = "packages/prime-rl-configs/src/prime_rl/configs/rl.py"
	skySource      = "skyrl/train/config/config.py"
	arealSource    = "areal/api/cli_args.py"
	pipelineBase   = "conf/base.yaml"
	pipelineTune   = "conf/finetune/base.yaml"
	slimeSource    = "slime/utils/arguments.py"
	slimeEngines   = "slime/backends/sglang_utils/arguments.py"
	nemoConfig     = "examples/configs/grpo_math_1B.yaml"
	nemoController = "nemo_rl/algorithms/single_controller_utils/config.py"
	nemoSampler    = "nemo_rl/algorithms/async_utils/staleness_sampler.py"
	openSource     = "openrlhf/cli/train_ppo_ray.py"
	rollSource     = "roll/configs/base_config.py"
	rollWorker     = "roll/configs/worker_config.py"
	trlSource      = "trl/experimental/async_grpo/async_grpo_config.py"
	trlInherited   = "(transformers.TrainingArguments) src/transformers/training_args.py"
)

// sources is every knob that a finding may name. A knob that changes in knobs.go changes here too, after a look at
// the file.
var sources = []source{
	{"verl-fa", "async_training.staleness_threshold", verlAsync},
	{"verl-fa", "async_training.concurrent_samples_per_replica", verlAsync},
	{"verl-fa", "async_training.require_batches", verlAsync},
	{"verl-fa", "async_training.trigger_parameter_sync_step", verlAsync},
	{"verl-fa", "actor_rollout_ref.actor.ppo_mini_batch_size", verlActor},
	{"verl-fa", "data.max_response_length", verlData},
	{"verl-fa", "rollout.nnodes", verlAsync},
	{"verl-fa", "trainer.nnodes", verlTrainer},

	{"verl-v1", "trainer.v1.sampler.max_off_policy_threshold", verlTrainer},
	{"verl-v1", "trainer.v1.separate_async.num_warmup_batches", verlTrainer},
	{"verl-v1", "trainer.v1.colocate_async.num_warmup_batches", verlTrainer},
	{"verl-v1", "trainer.v1.separate_async.parameter_sync_step", verlTrainer},
	{"verl-v1", "actor_rollout_ref.actor.ppo_mini_batch_size", verlActor},
	{"verl-v1", "data.train_batch_size", verlData},
	{"verl-v1", "data.max_response_length", verlData},
	{"verl-v1", "actor_rollout_ref.rollout.nnodes", verlRollout},
	{"verl-v1", "trainer.nnodes", verlTrainer},

	{"verl-sync", "data.train_batch_size", verlData},
	{"verl-sync", "data.max_response_length", verlData},

	{"prime-rl", "orchestrator.max_off_policy_steps", primeSource},
	{"prime-rl", "orchestrator.concurrency.max_inflight", primeSource},
	{"prime-rl", "orchestrator.batch_size", primeSource},
	{"prime-rl", "orchestrator.train.sampling.max_completion_tokens", primeSource},
	{"prime-rl", "deployment.num_infer_gpus", primeLaunch},
	{"prime-rl", "deployment.num_train_gpus", primeLaunch},

	{"skyrl", "trainer.fully_async.max_staleness_steps", skySource},
	{"skyrl", "trainer.fully_async.num_parallel_generation_workers", skySource},
	{"skyrl", "trainer.policy_mini_batch_size", skySource},
	{"skyrl", "trainer.train_batch_size", skySource},
	{"skyrl", "generator.sampling_params.max_generate_length", skySource},
	{"skyrl", "generator.inference_engine.num_engines", skySource},
	{"skyrl", "trainer.placement.policy_num_gpus_per_node", skySource},

	{"areal", "rollout.max_head_offpolicyness", arealSource},
	{"areal", "rollout.max_concurrent_rollouts", arealSource},
	{"areal", "train_dataset.batch_size", arealSource},
	{"areal", "gconfig.max_new_tokens", arealSource},
	{"areal", "rollout.backend", arealSource},
	{"areal", "actor.backend", arealSource},

	{"pipelinerl", "preprocess.ring_buffer_size", pipelineBase},
	{"pipelinerl", "max_lag", pipelineBase},
	{"pipelinerl", "actor.llm_max_rollouts", pipelineBase},
	{"pipelinerl", "finetune.train_batch_size", pipelineTune},
	{"pipelinerl", "finetune.gradient_accumulation_passes", pipelineTune},
	{"pipelinerl", "llm.parameters.max_tokens", pipelineBase},
	{"pipelinerl", "finetune.weight_update_interval", pipelineTune},
	{"pipelinerl", "world.actor_fraction", pipelineBase},
	{"pipelinerl", "world.finetune_fraction", pipelineBase},

	{"slime", "--sglang-server-concurrency", slimeEngines},
	{"slime", "--rollout-batch-size", slimeSource},
	{"slime", "--rollout-max-response-len", slimeSource},
	{"slime", "--update-weights-interval", slimeSource},
	{"slime", "--rollout-num-gpus", slimeSource},
	{"slime", "--actor-num-gpus-per-node", slimeSource},

	{"nemo-rl", "grpo.async_grpo.max_trajectory_age_steps", nemoConfig},
	{"nemo-rl", "grpo.num_prompts_per_step", nemoConfig},
	{"nemo-rl", "policy.generation.max_new_tokens", nemoConfig},
	{"nemo-rl", "policy.generation.colocated.resources.num_nodes", nemoConfig},
	{"nemo-rl", "policy.generation.colocated.resources.gpus_per_node", nemoConfig},

	{singleController, "async_rl.max_buffered_rollouts", nemoController},
	{singleController, "async_rl.sampler.max_staleness_versions", nemoSampler},
	{singleController, "async_rl.sampler.max_lookahead_versions", nemoSampler},
	{singleController, "async_rl.max_inflight_prompts", nemoController},
	{singleController, "grpo.num_prompts_per_step", nemoConfig},
	{singleController, "policy.generation.max_new_tokens", nemoConfig},
	{singleController, "policy.generation.colocated.resources.num_nodes", nemoConfig},
	{singleController, "policy.generation.colocated.resources.gpus_per_node", nemoConfig},

	{"openrlhf", "--train.async_queue_size", openSource},
	{"openrlhf", "--rollout.vllm_generate_batch_size", openSource},
	{"openrlhf", "--rollout.batch_size", openSource},
	{"openrlhf", "--rollout.max_new_tokens", openSource},
	{"openrlhf", "--vllm.num_engines", openSource},
	{"openrlhf", "--actor.num_gpus_per_node", openSource},

	{"roll", "async_generation_ratio", rollSource},
	{"roll", "max_running_requests", rollSource},
	{"roll", "rollout_batch_size", rollSource},
	{"roll", "response_length", rollSource},
	{"roll", "actor_infer.device_mapping", rollWorker},
	{"roll", "actor_train.device_mapping", rollWorker},

	{"trl", "queue_maxsize", trlSource},
	{"trl", "max_staleness", trlSource},
	{"trl", "max_inflight_tasks", trlSource},
	{"trl", "per_device_train_batch_size", trlInherited},
	{"trl", "gradient_accumulation_steps", trlInherited},
	{"trl", "max_completion_length", trlSource},
	{"trl", "weight_sync_steps", trlSource},
}

// Every knob was read in its framework's sources, and none that was is left out.
func TestKnobsAreTheFrameworksOwn(t *testing.T) {
	unused := map[source]bool{}
	pathOf := map[[2]string]string{}
	for _, s := range sources {
		unused[s] = true
		pathOf[[2]string{s.framework, s.knob}] = s.path
	}
	for framework, levers := range knobsOf {
		for l, k := range levers {
			for _, name := range k.keys {
				path, known := pathOf[[2]string{framework, name}]
				if !known {
					t.Errorf("%s: %s (%s) has no source: read the framework's, and put it into the table", framework, name, leverWords[l])
				}
				delete(unused, source{framework, name, path})
			}
		}
	}
	for s := range unused {
		t.Errorf("%s: no lever is set by %s of %s", s.framework, s.knob, s.path)
	}
}

// Of every framework there is a knob for every lever, or words on why there is none.
func TestEveryLeverHasAKnobOrWords(t *testing.T) {
	for _, name := range foreign.Names() {
		if _, there := knobsOf[name]; !there {
			t.Errorf("%s has no knobs", name)
		}
	}
	for framework, levers := range knobsOf {
		for l := range leverWords {
			if k, there := levers[l]; !there || len(k.keys) == 0 && k.note == "" {
				t.Errorf("%s: no knob and no words for %s", framework, leverWords[l])
			}
		}
	}
}

// NeMo-RL's loops have different knobs, and its samplers different bounds.
func TestKnobsFollowTheLoopOfTheLog(t *testing.T) {
	ofBudget := func(framework, from string) *facts {
		return &facts{log: &foreign.Log{Framework: framework, Settings: foreign.Settings{StalenessBudget: foreign.Figure{Value: 1, Origin: foreign.Configured, From: from}}}}
	}
	for _, test := range []struct {
		framework, from string
		lever           lever
		want            string
	}{
		{"nemo-rl", "grpo.async_grpo.max_trajectory_age_steps", leverBudget, "grpo.async_grpo.max_trajectory_age_steps (the staleness budget): 2"},
		{"nemo-rl", "grpo.async_grpo.max_trajectory_age_steps", leverQueue, "the queue's capacity (it has no key: its buffer is twice max_trajectory_age_steps batches): 2"},
		{"nemo-rl", "async_rl.sampler.max_lookahead_versions", leverBudget, "async_rl.sampler.max_lookahead_versions (the staleness budget): 2"},
		{"nemo-rl", "async_rl.sampler.max_staleness_versions", leverQueue, "async_rl.max_buffered_rollouts (the queue's capacity; counts groups): 2"},
		{"slime", "", leverBudget, "the staleness budget (it has no key, and no limit): 2"},
		{"a framework unknown here", "", leverBudget, "the staleness budget: 2"},
	} {
		if got := ofBudget(test.framework, test.from).knob(test.lever, "2"); got != test.want {
			t.Errorf("%s by %s: %q, want %q", test.framework, test.from, got, test.want)
		}
	}
	if got := (&facts{}).knob(leverCap, "2"); !strings.HasPrefix(got, "the longest response: ") {
		t.Errorf("of a run of ours %q", got)
	}
}

// A budget in weight syncs, or one that counts the version that trains, is held against staleness in train steps.
func TestTheReachOfABudget(t *testing.T) {
	for _, test := range []struct {
		framework           string
		budget, every, want float64
	}{
		{"prime-rl", 8, 1, 8}, {"verl-v1", 8, 1, 7}, {"verl-v1", 8, 4, 31}, {"trl", 4, 1, 4}, {"trl", 4, 2, 9},
	} {
		log := &foreign.Log{Framework: test.framework, Settings: foreign.Settings{
			StalenessBudget: foreign.Figure{Value: test.budget, Origin: foreign.Configured}, SyncEvery: foreign.Figure{Value: test.every, Origin: foreign.Configured}}}
		if got := budgetReach(log); got != test.want {
			t.Errorf("%s: a budget of %g, %g steps a sync: %g, want %g", test.framework, test.budget, test.every, got, test.want)
		}
	}
}
