package foreign

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// quirk is a habit of a framework's log that a reader who took keys by their names would trip over.
type quirk struct {
	name, framework, file, text string
	given                       map[string]float64
	// step is the entry of the series that is looked at, notion its figure, want the value; NaN for not known.
	step   int
	notion Notion
	want   float64
}

var quirks = []quirk{
	{"AReaL: steps count from 0, and the console's from 1", "areal", "run.log", "Train step 1/2 done.\n│ timeperf/rollout │ 1.0 │\nTrain step 2/2 done.\n│ timeperf/rollout │ 3.0 │\n", nil, 1, Wait, 3},
	{"AReaL: the largest staleness is a mean of micro-batches, so it is none", "areal", "h.jsonl",
		`{"_step":0,"timeperf/rollout":1,"ppo_actor/update/version_stats/sample_staleness_theta_max":3.5}`, nil, 0, StalenessTop, math.NaN()},
	{"AReaL: theta's staleness counts, proximal's is one less", "areal", "h.jsonl",
		`{"_step":0,"timeperf/rollout":1,"ppo_actor/update/version_stats/sample_staleness_theta_avg":2.5,"ppo_actor/update/version_stats/sample_staleness_proximal_avg":1.5}`, nil, 0, TokenStaleness, 2.5},
	{"AReaL: staleness is of tokens, and none of groups", "areal", "h.jsonl",
		`{"_step":0,"timeperf/rollout":1,"version_stats/sample_staleness_theta_avg":2.5}`, nil, 0, Staleness, math.NaN()},
	{"AReaL: a task in flight is a group", "areal", "run.log", "Train step 1/2 done.\n│ timeperf/rollout │ 1.0 │\nFinish and accept rollout. enqueued: 3, running: 13, accepted: 8, rejected: 0.\n", map[string]float64{"group_size": 6}, 0, InFlight, 78},
	{"AReaL: a prompt is no part of a response", "areal", "h.jsonl", `{"_step":0,"ppo_actor/seq_len/avg":500,"ppo_actor/prompt_len/avg":60}`, nil, 0, Response, 440},

	{"PipelineRL: lag is in samples", "pipelinerl", "h.jsonl", `{"_step":9,"stats/completed_steps":9,"stats/samples":576,"stats/min_actor_version":256,"stats/lag":256}`, nil, 0, StalenessTop, 4},
	{"PipelineRL: lag is the largest, not the mean", "pipelinerl", "h.jsonl", `{"_step":9,"stats/completed_steps":9,"stats/samples":576,"stats/min_actor_version":256,"stats/lag":256}`, nil, 0, Staleness, math.NaN()},
	{"PipelineRL: lag_mean, where it is logged, is the mean", "pipelinerl", "h.jsonl", `{"_step":9,"stats/completed_steps":9,"stats/samples":576,"stats/min_actor_version":256,"stats/lag_mean":96,"stats/lag_max":256}`, nil, 0, Staleness, 1.5},
	{"PipelineRL: the wait adds up over the run", "pipelinerl", "h.jsonl",
		"{\"_step\":1,\"stats/completed_steps\":1,\"stats/samples\":64,\"stats/time_waiting_for_data\":10}\n{\"_step\":2,\"stats/completed_steps\":2,\"stats/samples\":128,\"stats/time_waiting_for_data\":12.5}", nil, 1, Wait, 2.5},
	{"PipelineRL: the console's numbers are quoted and rounded", "pipelinerl", "finetune.log", "Completed steps 4: {'stats/samples': '256.000', 'stats/completed_steps': '4.000', 'stats/time_waiting_for_data': '1.000', 'stats/lag': '128.000'}", nil, 0, StalenessTop, 2},

	{"slime: the step is in the row, not W&B's", "slime", "h.jsonl",
		"{\"_step\":0,\"rollout/step\":0,\"perf/rollout_time\":1}\n{\"_step\":1,\"rollout/step\":0,\"perf/train_wait_time\":2,\"perf/train_time\":4,\"perf/step_time\":6}\n{\"_step\":2,\"rollout/step\":1,\"perf/rollout_time\":1}\n{\"_step\":3,\"rollout/step\":1,\"perf/train_wait_time\":3,\"perf/train_time\":4,\"perf/step_time\":7}", nil, 1, Period, 7},
	{"slime: the wait has the weight update in it", "slime", "h.jsonl", `{"rollout/step":0,"perf/train_wait_time":2.5,"perf/update_weights_time":1.5,"perf/train_time":4}`, nil, 0, Wait, 1},
	{"slime: the queue is only printed, in groups", "slime", "run.log", "fully_async_rollout.py:260 - fully-async rollout 0: done in 2.5s, queue_left=7\nx - perf 0: {'perf/train_wait_time': 1.0, 'perf/train_time': 2.0}", map[string]float64{"group_size": 8}, 0, Queued, 56},
	{"slime: no staleness is logged", "slime", "h.jsonl", `{"rollout/step":0,"perf/train_wait_time":2.5,"perf/train_time":4}`, nil, 0, Staleness, math.NaN()},

	{"NeMo-RL: training_worker_idle_time_ratio looks inverted, so the idle share is from times", "nemo-rl", "h.jsonl",
		`{"_step":1,"timing/train/total_step_time":10,"timing/train/exposed_generation":4,"timing/train/weight_sync":1,"train/training_worker_idle_time_ratio":0}`, nil, 0, TrainerIdle, 0.4},
	{"NeMo-RL: the buffer is in groups", "nemo-rl", "h.jsonl", `{"_step":1,"timing/train/total_step_time":10,"train/buffer_size":5}`, map[string]float64{"group_size": 16}, 0, Queued, 80},
	{"NeMo-RL: the single controller's lag is printed, and is the oldest sample's", "nemo-rl", "run.log", "  • Total step time: 6.50s\ntrain step 1/9  trainer_v=1  lag=2  ", nil, 0, StalenessTop, 2},
	{"NeMo-RL: a lag that is printed is no mean", "nemo-rl", "run.log", "  • Total step time: 6.50s\ntrain step 1/9  trainer_v=1  lag=2  ", nil, 0, Staleness, math.NaN()},
	{"NeMo-RL: a trajectory's time is a group's", "nemo-rl", "h.jsonl", `{"_step":1,"timing/train/total_step_time":10,"train/trajectory_duration_s":9}`, nil, 0, GroupMean, 9},

	{"OpenRLHF: the generation's time runs beside the step", "openrlhf", "h.jsonl",
		`{"train/global_step":1,"train/timing/generation":30,"train/timing/make_experience":1,"train/timing/ppo_train":7,"train/timing/broadcast":2,"train/timing/step_total":12}`, nil, 0, Wait, 2},
	{"OpenRLHF: the step is in the row, not W&B's", "openrlhf", "h.jsonl",
		"{\"_step\":0,\"train/global_step\":1,\"train/timing/ppo_train\":7}\n{\"_step\":3,\"train/global_step\":2,\"train/timing/ppo_train\":8}", nil, 1, Train, 8},
	{"OpenRLHF: the console has no train/", "openrlhf", "run.log", "INFO 11-14 22:13:20 ppo_trainer_async.py:244] Global step 1: {'timing/make_experience': 1.0, 'timing/ppo_train': 7.0, 'timing/broadcast': 2.0, 'timing/step_total': 12.0}", nil, 0, Period, 12},

	{"ROLL: off_policy_ratio is a number of steps", "roll", "h.jsonl", `{"_step":5,"time/step_model_update":1,"scheduler/off_policy_ratio":1.75}`, nil, 0, Staleness, 1.75},
	{"ROLL: the domain stands before the scheduler's keys", "roll", "h.jsonl",
		`{"_step":5,"time/step_model_update":1,"math_rule/scheduler/off_policy_ratio":1.5,"code/scheduler/off_policy_ratio":2.5}`, nil, 0, Staleness, 2},
	{"ROLL: step_total is the step's before", "roll", "h.jsonl",
		"{\"_step\":0,\"time/step_total\":0,\"time/step_generate\":1,\"time/step_model_update\":1}\n{\"_step\":1,\"time/step_total\":21,\"time/step_generate\":1,\"time/step_model_update\":1}\n{\"_step\":2,\"time/step_total\":9,\"time/step_generate\":1,\"time/step_model_update\":1}", nil, 1, Period, 9},
	{"ROLL: the last step has no step_total yet", "roll", "h.jsonl",
		"{\"_step\":0,\"time/step_total\":0,\"time/step_generate\":1,\"time/step_model_update\":1}\n{\"_step\":1,\"time/step_total\":21,\"time/step_generate\":1,\"time/step_model_update\":1}", nil, 1, Period, math.NaN()},
	{"ROLL: a period by the clock is the step's own", "roll", "h.jsonl",
		"{\"_step\":0,\"_timestamp\":1000,\"time/step_generate\":1,\"time/step_model_update\":1}\n{\"_step\":1,\"_timestamp\":1021,\"time/step_generate\":1,\"time/step_model_update\":1}\n{\"_step\":2,\"_timestamp\":1030,\"time/step_generate\":1,\"time/step_model_update\":1}", nil, 2, Period, 9},
	{"ROLL: a period that is given is every step's", "roll", "h.jsonl",
		"{\"_step\":0,\"time/step_total\":0,\"time/step_generate\":1,\"time/step_model_update\":1}\n{\"_step\":1,\"time/step_total\":21,\"time/step_generate\":1,\"time/step_model_update\":1}", map[string]float64{"period_s": 9}, 1, Period, 9},
	{"ROLL: the agentic pipeline's step_total is the step's own", "roll", "h.jsonl",
		"{\"_step\":0,\"time/step_total\":11,\"time/step_rollout\":1,\"time/step_model_update\":1}\n{\"_step\":1,\"time/step_total\":21,\"time/step_rollout\":1,\"time/step_model_update\":1}", nil, 1, Period, 21},
	{"ROLL: a prompt in the log is no metric", "roll", "run.log", "pipeline step 0 start...\n[{\"prompt\": \"{\\\"time/step_train\\\": 99}\"}]\n{\"time/step_model_update\": 1.0, \"time/step_train\": 5.0}\npipeline step 0 finished", nil, 0, Train, 5},
}

func TestStepOfPrimesPath(t *testing.T) {
	for path, want := range map[string]int64{"run/rollouts/step_4/train/traces.jsonl": 4, "/logs/step_9/run/rollouts/step_12/train/effective/traces.jsonl": 12, "step_x/traces.jsonl": -1} {
		if step, numbered := primeStep(path); numbered != (want >= 0) || numbered && step != want {
			t.Errorf("%s: step %d, %t", path, step, numbered)
		}
	}
}

func TestQuirks(t *testing.T) {
	for _, q := range quirks {
		t.Run(q.name, func(t *testing.T) {
			log, err := Read(context.Background(), []string{written(t, q.file, q.text)}, Options{Given: q.given})
			if err != nil {
				t.Fatal(err)
			}
			if log.Framework != q.framework {
				t.Fatalf("the framework is %s, want %s", log.Framework, q.framework)
			}
			if q.step >= len(log.Series) {
				t.Fatalf("%d steps, want more than %d", len(log.Series), q.step)
			}
			got := *q.notion.At(&log.Series[q.step])
			switch {
			case math.IsNaN(q.want):
				if got.Known() {
					t.Errorf("%s = %+v, want it not known", q.notion.Name, got)
				}
			case !got.Known() || math.Abs(got.Value-q.want) > 1e-12:
				t.Errorf("%s = %+v, want %g", q.notion.Name, got, q.want)
			}
		})
	}
}

// configured reads a log whose config W&B's folder has beside it.
func configured(t *testing.T, config, history string) *Log {
	t.Helper()
	dir := filepath.Dir(written(t, "config.yaml", config))
	file := filepath.Join(dir, "history.jsonl")
	if err := os.WriteFile(file, []byte(history), 0o644); err != nil {
		t.Fatal(err)
	}
	log, err := Read(context.Background(), []string{dir}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return log
}

// What a config says of C, B, S, Q and the queue's rule, each framework in its own units.
func TestQuirksOfConfigs(t *testing.T) {
	tests := []struct {
		name, config, history, policy, preset string
		want                                  Settings
	}{
		{"slime's concurrency is of groups with the fully asynchronous rollout", slimeConfig("fully_async_rollout", false), slimeRow, "block", "", Settings{
			ConcurrencyRollouts: Figure{Value: 96}, BatchRollouts: Figure{Value: 64}, GroupSize: Figure{Value: 8}, QueueRollouts: Figure{Value: 96}}},
		{"slime's concurrency is of rollouts without it", slimeConfig("sglang_rollout", true), slimeRow, "block", "slime", Settings{
			ConcurrencyRollouts: Figure{Value: 12}, BatchRollouts: Figure{Value: 64}, GroupSize: Figure{Value: 8}}},
		{"PipelineRL's max_lag and interval are in samples", "attempts:\n  value: 8\nfinetune.max_lag:\n  value: 128\nfinetune.weight_update_interval:\n  value: 100\nactor.llm_max_rollouts:\n  value: 64\n",
			`{"stats/completed_steps":2,"stats/samples":128,"stats/time_waiting_for_data":1}`, "bounded", "", Settings{BatchRollouts: Figure{Value: 64}, GroupSize: Figure{Value: 8}, StalenessBudget: Figure{Value: 2}, SyncEvery: Figure{Value: 2}}},
		{"AReaL's max_concurrent_rollouts is the batch where it is not set", "gconfig:\n  value:\n    n_samples: 4\nrollout:\n  value:\n    max_concurrent_rollouts: null\n    consumer_batch_size: 16\n    max_head_offpolicyness: 2\ntrain_dataset:\n  value:\n    batch_size: 16\n",
			`{"_step":0,"timeperf/rollout":1}`, "bounded", "areal", Settings{ConcurrencyRollouts: Figure{Value: 64}, BatchRollouts: Figure{Value: 64}, GroupSize: Figure{Value: 4}, QueueRollouts: Figure{Value: 192}, StalenessBudget: Figure{Value: 2}}},
		{"ROLL's max_running_requests is of each worker", "max_running_requests:\n  value: 24\nnum_return_sequences_in_group:\n  value: 8\nrollout_batch_size:\n  value: 16\nasync_generation_ratio:\n  value: 1.5\nactor_infer:\n  value:\n    device_mapping: list(range(4,12))\n    num_gpus_per_worker: 2\n",
			`{"_step":0,"time/step_model_update":1}`, "bounded", "", Settings{ConcurrencyRollouts: Figure{Value: 96}, BatchRollouts: Figure{Value: 128}, GroupSize: Figure{Value: 8}, QueueRollouts: Figure{Value: 320}, StalenessBudget: Figure{Value: 1.5}, RolloutGPUs: Figure{Value: 8}}},
		{"OpenRLHF's config is the text of namespaces", "rollout:\n  value: namespace(batch_size=8, n_samples_per_prompt=4, vllm_generate_batch_size=None)\ntrain:\n  value: namespace(async_queue_size=2, batch_size=999)\n",
			`{"train/global_step":1,"train/timing/ppo_train":1}`, "block", "openrlhf", Settings{BatchRollouts: Figure{Value: 32}, GroupSize: Figure{Value: 4}, QueueRollouts: Figure{Value: 64}}},
		{"NeMo-RL's prompts and buffered rollouts are groups", "grpo:\n  value:\n    num_prompts_per_step: 8\n    num_generations_per_prompt: 4\nasync_rl:\n  value:\n    max_inflight_prompts: 20\n    max_buffered_rollouts: 16\n    sampler:\n      name: windowed\n      max_staleness_versions: 2\n",
			`{"_step":1,"timing/train/total_step_time":10}`, "max", "nemo-windowed", Settings{ConcurrencyRollouts: Figure{Value: 80}, BatchRollouts: Figure{Value: 32}, GroupSize: Figure{Value: 4}, QueueRollouts: Figure{Value: 64}, StalenessBudget: Figure{Value: 2}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			log := configured(t, test.config, test.history)
			if log.Settings.Policy != test.policy || log.Settings.Preset != test.preset {
				t.Errorf("policy %q, preset %q, want %q and %q", log.Settings.Policy, log.Settings.Preset, test.policy, test.preset)
			}
			for _, s := range SettingsKnown {
				got, want := *s.At(&log.Settings), s.At(&test.want).Value
				if want != 0 && (!got.Known() || got.Value != want) {
					t.Errorf("%s = %+v, want %g", s.Name, got, want)
				}
			}
		})
	}
}

const slimeRow = `{"rollout/step":0,"perf/train_wait_time":2,"perf/train_time":4}`

func slimeConfig(function string, partial bool) string {
	var b strings.Builder
	for _, setting := range []string{"rollout_batch_size: 8", "n_samples_per_prompt: 8", "sglang_server_concurrency: 6", "rollout_num_gpus: 4", "rollout_num_gpus_per_engine: 2", "update_weights_interval: 1",
		"rollout_function_path: slime.rollout." + function + ".generate", fmt.Sprintf("partial_rollout: %v", partial)} {
		key, value, _ := strings.Cut(setting, ": ")
		fmt.Fprintf(&b, "%s:\n  value: %s\n", key, value)
	}
	return b.String()
}
