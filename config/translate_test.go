package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// fullyAsync is a document under the names of verl's fully asynchronous trainer.
const fullyAsync = `async_training:
  staleness_threshold: 0.5
  trigger_parameter_sync_step: 4
  require_batches: 2
  partial_rollout: False
  use_rollout_log_probs: ${oc.select:async_training.missing, True}
  compute_prox_log_prob: false
rollout: {nnodes: 2, n_gpus_per_node: 8, total_rollout_steps: 6400, test_freq: 5, n: 4}
trainer: {nnodes: 1, n_gpus_per_node: 8, total_epochs: 10, project_name: "${oc.env:WANDB}"}
data:
  max_prompt_length: 1024
  max_response_length: 4096
  train_batch_size: 0
  train_files: [a.parquet, b.parquet]
algorithm: {adv_estimator: grpo, norm_adv_by_std_in_grpo: False, gamma: 1.0}
actor_rollout_ref:
  model: {path: /models/qwen, lora_rank: null}
  actor:
    ppo_mini_batch_size: 32
    clip_ratio: 0.2
    clip_ratio_low: ${.clip_ratio}
    clip_ratio_high: 0.28
    grad_clip: 1.0
    optim: {lr: 1e-6, weight_decay: 0.1}
    fsdp_config: {param_offload: false, optimizer_offload: false}
  rollout:
    name: sglang
    n: 16
    temperature: 0.9
    top_p: 1.0
    top_k: -1
    tensor_model_parallel_size: ${actor_rollout_ref.rollout.shards}
    shards: 2
    response_length: ${data.max_response_length}
"odd\nkey": 3
`

// Every value of verl's document is written under Headway's key, in rollouts where verl counts prompts.
func TestTranslateFullyAsynchronous(t *testing.T) {
	made, err := translateVerl("verl.yaml", []byte(fullyAsync))
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := Parse("made", made.Text)
	if err != nil {
		t.Fatalf("%v\n%s", err, made.Text)
	}
	resolved, err := parsed.Resolve()
	if err != nil {
		t.Fatalf("%v\n%s", err, made.Text)
	}
	have := map[string]string{}
	for _, leaf := range resolved.Leaves() {
		have[leaf.Key] = leaf.Value
	}
	for key, want := range map[string]string{
		"preset": "verl-fully-async", "rollout.group_size": "16", "rollout.concurrency": "2048", "train.batch": "1024", "trainer.minibatches": "2",
		"queue.staleness_threshold": "0.5", "sync.every": "4", "sync.mode": "drain", "trainer.steps": "100", "evaluate.every": "20",
		"trainer.correction.kind": "ppo-clip", "trainer.correction.epsilon_low": "0.2", "trainer.correction.epsilon_high": "0.28", "trainer.clip_epsilon": "0.2",
		"trainer.learning_rate": "0.000001", "trainer.gradient_norm": "1", "trainer.normalize_std": "false", "model.path": "/models/qwen",
		"rollout.sampling.temperature": "0.9", "rollout.sampling.top_k": "0", "environment.prompt_tokens_max": "1024", "environment.response_tokens_max": "4096",
		"modelled.length.cap_tokens": "4096", "engines.7.kind": "sglang", "engines.7.url": "http://rollout-8:8000", "engines.7.slots": "256",
	} {
		if have[key] != want && !(key == "trainer.learning_rate" && have[key] == "1e-06") {
			t.Errorf("%s: %q, want %q", key, have[key], want)
		}
	}
	if strings.Contains(string(made.Text), "engines.8") || len(resolved.Engines) != 8 {
		t.Errorf("%d engines, want 8: 16 GPUs, 2 a server", len(resolved.Engines))
	}
}

// No key is dropped in silence: what no line names is listed with why.
func TestTranslateListsWhatItLeavesOut(t *testing.T) {
	made, err := translateVerl("verl.yaml", []byte(fullyAsync))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(strings.ReplaceAll(string(made.Text), "#", " ")), " ")
	h, err := parseHydra("verl.yaml", []byte(fullyAsync))
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range h.keys {
		name := strings.ReplaceAll(key, "\n", `\n`)
		if !strings.Contains(text, name) && !strings.Contains(text, parent(name)+".*") &&
			!isEmpty(h.leaves[key]) && key != "actor_rollout_ref.rollout.shards" { // the value of one that is named
			t.Errorf("%s is nowhere in\n%s", key, made.Text)
		}
	}
	for _, want := range []string{"The loss, the optimizer and how the model is sharded are your trainer's. actor_rollout_ref.actor.optim.weight_decay, actor_rollout_ref.actor.fsdp_config.*",
		"verl's fully asynchronous trainer does not read it. data.train_batch_size", `No key of Headway says this. odd\nkey`, "Prompts are your environment's. data.train_files",
		"actor_rollout_ref.actor.ppo_mini_batch_size (32) × async_training.require_batches (2) × rollout.n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, made.Text)
		}
	}
	if made.Carried+made.Left != h.said() || made.Left < 10 {
		t.Errorf("%d keys carried, %d left out, of %d", made.Carried, made.Left, h.said())
	}
}

// Which of verl's trainers a document is for shows in its sections; values that it leaves to verl are verl's.
func TestTranslateOtherTrainers(t *testing.T) {
	const model = "\nactor_rollout_ref: {model: {path: m}, rollout: {n: 4, max_num_seqs: 8}, actor: {ppo_mini_batch_size: 24}}\n"
	for _, c := range []struct{ document, want string }{
		{"data: {train_batch_size: 64}\ntrainer: {total_training_steps: 7, test_freq: -1}" + model, "synchronous 256 32 3 7 0"},
		{"data: {train_batch_size: 64}\ntrainer: {v1: {trainer_mode: sync}, n_gpus_per_node: 64, test_freq: 3}" + model, "synchronous 256 256 3 600 3"},
		{"rollout: {nnodes: 1, n_gpus_per_node: 4}\ntrainer: {nnodes: 1, n_gpus_per_node: 12}" + model, "one-step-off 4096 16 43 600 25"},
		{"actor_rollout_ref: {model: {path: m}}", "synchronous 1024 1024 4 600 25"},
	} {
		made, err := translateVerl("verl.yaml", []byte(c.document))
		if err != nil {
			t.Errorf("%s: %v", c.document, err)
			continue
		}
		parsed, err := Parse("made", made.Text)
		if err != nil {
			t.Fatal(err)
		}
		r := parsed.WithDefaults()
		have := strings.Join([]string{r.Preset, number(float64(r.Train.Batch)), number(float64(r.Rollout.Concurrency)), number(float64(r.Trainer.Minibatches)),
			number(float64(r.Trainer.Steps)), number(float64(r.Evaluate.Every))}, " ")
		if have != c.want {
			t.Errorf("%s\n%s\nwant %s\n%s", c.document, have, c.want, made.Text)
		}
	}
}

// What cannot be translated is refused at its place in the framework's document.
func TestTranslateRefuses(t *testing.T) {
	const model = "actor_rollout_ref: {model: {path: m}}\n"
	for _, c := range []struct{ document, want string }{
		{"", "verl.yaml: is no document with keys"},
		{"- a.b=1\n", "verl.yaml: is no document with keys"},
		{"engines: []\nseed: 1\n", "verl.yaml: is no document of verl's"},
		{"a: [\n", "not YAML"},
		{"data: {train_batch_size: 8}\n", "actor_rollout_ref.model.path: is not there, and every document names its model"},
		{model + "data: {train_batch_size: ???}\n", ""},
		{model + "data:\n  train_batch_size: ${oc.env:BATCH}\n", `3:21: data.train_batch_size: "${oc.env:BATCH}" is an interpolation that is not resolved here (allowed: a document without interpolations, as --cfg job --resolve prints it)`},
		{model + "data:\n  train_batch_size: ${a.b}\n", `3:21: data.train_batch_size: "${a.b}" is the value of a.b, which the document does not have`},
		{model + "data:\n  train_batch_size: ${.x}\n  x: ${.train_batch_size}\n", "3:21: data.train_batch_size: "},
		{model + "data:\n  train_batch_size: many\n", `3:21: data.train_batch_size: "many" is not what verl has there (allowed: a whole number)`},
		{model + "data:\n  train_batch_size: 0\n", "3:21: data.train_batch_size: 0 is no count"},
		{"data:\n  max_response_length: ${data.most}\n  most: two\n" + model, "2:24: data.max_response_length: \"${data.most}\" is not what verl has there"},
		{model + "trainer:\n  v1:\n    trainer_mode: separate_async\n", "4:19: trainer.v1.trainer_mode: \"separate_async\" is a trainer that no preset has the rules of"},
		{"actor_rollout_ref:\n  model: {path: m}\n  rollout:\n    temperature: 0\n", "4:18: actor_rollout_ref.rollout.temperature: 0 makes rollout.sampling.temperature 0, which takes the likeliest token always"},
		{"actor_rollout_ref:\n  model: {path: m}\n  actor:\n    clip_ratio: 1.5\n", "4:17: actor_rollout_ref.actor.clip_ratio: 1.5 makes trainer.clip_epsilon 1.5, which is not allowed"},
		{model + "async_training: {staleness_threshold: 0.1}\nrollout:\n  total_rollout_steps: 100\n", "4:24: rollout.total_rollout_steps: 100 is less than the 256 groups of one batch"},
	} {
		_, err := translateVerl("verl.yaml", []byte(c.document))
		if said := errorText(err); !strings.Contains(said, c.want) || c.want == "" && err != nil {
			t.Errorf("%s\nis refused with\n%s\nwant\n%s", c.document, said, c.want)
		}
	}
	if _, err := TranslateFile("areal", "x"); err == nil {
		t.Error("documents of a framework that is not known are translated")
	}
}

// A document of verl's is told apart where one of Headway's is expected.
func TestADocumentOfVerlIsNamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "verl.yaml")
	if err := os.WriteFile(path, []byte(fullyAsync), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Load(path)
	if said := errorText(err); !strings.Contains(said, ":1:1: async_training: is of a document of verl's (allowed: what headway config --from verl FILE writes of it)") || strings.Contains(said, "\n") {
		t.Errorf("%s", said)
	}
	made, err := TranslateFile("verl", path)
	if err != nil {
		t.Fatal(err)
	}
	var tree map[string]any
	if err := yaml.Unmarshal(made.Text, &tree); err != nil || len(tree) != 11 {
		t.Errorf("%d sections, %v:\n%s", len(tree), err, made.Text)
	}
}

// Whatever it is given, the translation neither panics nor writes what it would refuse.
func FuzzTranslate(f *testing.F) {
	f.Add(fullyAsync)
	f.Add("actor_rollout_ref: {model: {path: \"m\\nengines: []\"}, rollout: {n: ${a}, name: [x]}}\na: ${oc.select:b,3}\n")
	f.Fuzz(func(t *testing.T, text string) {
		made, err := translateVerl("verl.yaml", []byte(text))
		if err != nil {
			return
		}
		if _, err := Parse("made", made.Text); err != nil {
			t.Errorf("%v\n%s", err, made.Text)
		}
	})
}
