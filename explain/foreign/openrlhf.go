package foreign

import "strings"

// openRLHF is OpenRLHF's asynchronous PPO. W&B's config has its nested arguments as the text of Python namespaces.
var openRLHF = &Framework{
	Name: "openrlhf", Title: "OpenRLHF",
	Marks:        []string{"train/timing/*", "timing/ppo_train", "timing/make_experience", "train/vllm_kl", "train/rollout/num_samples"},
	MarkSettings: []string{"rollout.n_samples_per_prompt", "train.async_queue_size"},
	Hints:        []string{"train/ppo_clip_ratio", "train/ppo_kl"},
	StepKeys:     []string{"train/global_step"},
	Queue:        queue("block", "openrlhf"),
	Settings: []SettingRule{
		{Setting: GroupSize, Settings: []string{"rollout.n_samples_per_prompt"}, Of: namespaced("rollout.n_samples_per_prompt")},
		{Setting: Batch, Settings: []string{"rollout.batch_size", "rollout.n_samples_per_prompt"}, Formula: "rollout.batch_size × rollout.n_samples_per_prompt",
			Of: namespacedProduct("rollout.batch_size", "rollout.n_samples_per_prompt")},
		{Setting: Batch, Keys: []string{"train/rollout/num_samples"}},
		{Setting: Batch, Keys: []string{"rollout/num_samples"}},
		{Setting: Queue, Settings: []string{"train.async_queue_size"}, Formula: "train.async_queue_size × B: its queue holds batches", Of: openRLHFQueue},
		{Setting: Queue, Settings: []string{"queue_size"}, Formula: "printed queue_size × B: its queue holds batches", Of: configTimes("queue_size", Batch)},
		{Setting: SyncEvery, Formula: "1: a broadcast after every train step", Of: always(1)},
		{Setting: RolloutGPUs, Settings: []string{"vllm.num_engines", "vllm.tensor_parallel_size"}, Formula: "vllm.num_engines × vllm.tensor_parallel_size",
			Of: namespacedProduct("vllm.num_engines", "vllm.tensor_parallel_size")},
		{Setting: TrainGPUs, Settings: []string{"actor.num_nodes", "actor.num_gpus_per_node"}, Formula: "actor.num_nodes × actor.num_gpus_per_node",
			Of: namespacedProduct("actor.num_nodes", "actor.num_gpus_per_node")},
	},
	Steps: bothWays(
		StepRule{Notion: Period, Keys: []string{"timing/step_total"}},
		StepRule{Notion: Train, Keys: []string{"timing/ppo_train", "timing/make_experience"}, Formula: "timing/ppo_train + timing/make_experience"},
		StepRule{Notion: Sync, Keys: []string{"timing/broadcast"}},
		StepRule{Notion: Reward, Keys: []string{"rollout/reward_mean"}},
		StepRule{Notion: Reward, Keys: []string{"reward"}},
		StepRule{Notion: Response, Keys: []string{"rollout/response_length_mean"}},
		StepRule{Notion: Response, Keys: []string{"response_length"}},
		StepRule{Notion: Truncated, Keys: []string{"rollout/truncated_rate"}},
		StepRule{Notion: Trained, Keys: []string{"rollout/num_samples"}},
		StepRule{Notion: Clipped, Keys: []string{"ppo_clip_ratio"}},
		StepRule{Notion: Divergence, Keys: []string{"ppo_kl"}},
	),
	Definition: "OpenRLHF stamps no versions and logs no staleness. Its generator makes a batch at a time, at most train.async_queue_size ahead of the trainer.",
	Lacks: map[string]Lack{
		"staleness_mean":       {Why: "OpenRLHF stamps no version on what it generates", Get: "take it from a prediction with the settings found; a queue of one batch without partial rollout keeps it near 1"},
		"pqs":                  {Why: "OpenRLHF stamps no version on what it generates"},
		"concurrency_rollouts": {Why: "OpenRLHF hands vLLM a whole batch of prompts and logs no number of rollouts in flight", Get: "give it: --set concurrency_rollouts=(rollout.vllm_generate_batch_size × n_samples_per_prompt, or what vLLM reports as running)"},
		"tail_multiplier":      {Why: "timing/generation is of a whole batch"},
	},
	Notes: []string{
		"timing/step_total is the wall time of an iteration, the queue's wait and the broadcast in it; timing/generation runs beside it and is no part of it",
		"timing/broadcast has in it the wait for vLLM's lock, which is held while a batch is generated",
		"wandb.log is called without a step: it is train/global_step",
		"W&B's config has the text of Python namespaces where arguments are nested: they are read",
		"the console has the same keys without train/",
	},
}

// bothWays makes the rules for keys as trackers have them, with train/ before them, and as the console does.
func bothWays(rules ...StepRule) []StepRule {
	var out []StepRule
	for _, prefix := range []string{"train/", ""} {
		for _, rule := range rules {
			var keys []string
			for _, key := range rule.Keys {
				keys = append(keys, prefix+key)
			}
			rule.Keys = keys
			if rule.Formula != "" {
				rule.Of = sum(keys[0], keys[1:]...)
			}
			out = append(out, rule)
		}
		out = append(out, StepRule{Notion: Wait, Keys: []string{prefix + "timing/step_total", prefix + "timing/ppo_train", prefix + "timing/make_experience", prefix + "timing/broadcast"},
			Formula: "timing/step_total − ppo_train − make_experience − broadcast", Of: less(prefix+"timing/step_total", prefix+"timing/ppo_train", prefix+"timing/make_experience", prefix+"timing/broadcast")})
	}
	return append(out, StepRule{Notion: TrainerIdle, Formula: "wait ÷ timing/step_total", Of: share(Wait, Period)})
}

func openRLHFQueue(v Values) (float64, bool) {
	batches, ok := namespaced("train.async_queue_size")(v)
	batch, known := v.Setting(Batch)
	return batches * batch, ok && known
}

// namespaced takes a setting that stands by itself or within the text of a Python namespace under its first part.
func namespaced(name string) func(Values) (float64, bool) {
	return func(v Values) (float64, bool) {
		if value, ok := v.Config(name); ok {
			return value, true
		}
		outer, inner, _ := strings.Cut(name, ".")
		return number(pythonField(v.Text(outer), inner))
	}
}

func namespacedProduct(names ...string) func(Values) (float64, bool) {
	return func(v Values) (float64, bool) {
		product := 1.0
		for _, name := range names {
			value, ok := namespaced(name)(v)
			if !ok {
				return 0, false
			}
			product *= value
		}
		return product, true
	}
}

// pythonField returns one field of the text of a Python namespace, as namespace(a=1, b='x'); empty if it has none.
// Fields of namespaces inside of it are not its own.
func pythonField(text, name string) string {
	open := strings.IndexByte(text, '(')
	if open < 0 || !strings.HasSuffix(strings.ToLower(text[:open]), "namespace") {
		return ""
	}
	for rest := text[open+1:]; rest != ""; {
		field, after := pythonCut(rest)
		key, value, found := strings.Cut(strings.TrimSpace(field), "=")
		if found && key == name {
			return value
		}
		rest = after
	}
	return ""
}

// pythonCut cuts a list at its next comma or at its end, whatever quotes and brackets hold.
func pythonCut(text string) (before, after string) {
	depth, quote := 0, byte(0)
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case quote != 0 && c == '\\':
			i++
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '\'' || c == '"':
			quote = c
		case c == '(' || c == '[' || c == '{':
			depth++
		case depth == 0 && (c == ')' || c == ']' || c == '}'):
			return text[:i], ""
		case c == ')' || c == ']' || c == '}':
			depth--
		case c == ',' && depth == 0:
			return text[:i], text[i+1:]
		}
	}
	return text, ""
}
