package vllm

import "github.com/headway-rl/headway/engine/upstream"

// missing lists what the server lacks, with what it is started with to have it.
func (p *prober) missing() {
	c := p.caps
	on := func(delivery upstream.Delivery, there, fatal bool, what, flag string) {
		if !there {
			c.Missing = append(c.Missing, upstream.Missing{What: what, Flag: flag, Delivery: delivery, Fatal: fatal})
		}
	}
	lack := func(there, fatal bool, what, flag string) { on("", there, fatal, what, flag) }
	const developer = "VLLM_SERVER_DEV_MODE=1 in its environment, in a private network"
	lack(c.TokenIDs, true, "no ids of sampled tokens", "a vLLM that has return_token_ids or /inference/v1/generate")
	lack(c.Logprobs, true, "no log-probs of sampled tokens", "--logprobs-mode processed_logprobs, and --max-logprobs not 0")
	lack(!c.Logprobs || c.ProcessedLogprobs, false, "log-probs are of the model's own distribution and not of the one that is sampled from: with another temperature than 1, or a cut, the trainer corrects for the wrong one", "--logprobs-mode processed_logprobs")
	lack(p.developer, false, "sampling cannot be paused and weights cannot change while it runs", developer)
	lack(!p.developer || c.Pause, false, "a pause does not stop sampling: every switch of weights cuts off what is under way", "a vLLM whose /pause has mode=keep")
	on(upstream.DeliveryDisk, !p.developer || c.UpdateDisk, false, "weights cannot be read from a directory while it runs", "a vLLM whose workers have reload_weights with weights_path")
	lack(c.VersionSpans, false, "it does not say which weights sampled which tokens: versions are derived from when they are switched", "--enable-scale-out")
	on(upstream.DeliveryLora, c.UpdateLora, false, "weights cannot be replaced by an adapter", "--enable-lora with --max-lora-rank, and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 in its environment")
	lack(c.Flush, false, "keys and values of old weights cannot be dropped", developer)
	lack(c.Salt, false, "prefixes of different weights cannot be kept apart by a salt", "a vLLM that has cache_salt")
	lack(p.config == nil || p.config.Cache.Prefixes == nil || *p.config.Cache.Prefixes, false, "every turn of a rollout computes all turns before it anew", "--enable-prefix-caching")
	lack(c.Template, false, "it cannot render chats", "a tokenizer (without --tokens-only and --skip-tokenizer-init), and --chat-template where the model brings none")
	lack(c.Score, false, "it cannot say what log-probs given tokens have", "a vLLM that has prompt_logprobs")
	lack(p.busy, false, "it does not say how busy it is", "without --disable-log-stats")
}
