package config

// Hardware is what a plan starts from: the model, the GPUs, and how well they are used.
// A plan derives rollout.concurrency, decode speed and the train step's time from it
// where the document does not give them.
type Hardware struct {
	// Model is a preset's name, such as qwen3-8b; headway plan --presets lists them. Shape keys given beside it replace its own.
	Model string `json:"model,omitempty"`
	// Shape is a model's, where no preset has it.
	Shape ModelShape `json:"shape,omitempty"`
	// Teacher is the preset of a model that scores every rollout, as scoring.servers do, on GPUs beside these. A plan counts its servers, and derives modelled.scorer where that says nothing. Default none.
	Teacher string `json:"teacher,omitempty"`
	// GPU is a preset's name, such as h100-sxm; headway plan --presets lists them.
	GPU string `json:"gpu,omitempty"`
	// GPUs is the number of them for rollout and training together.
	GPUs int `json:"gpus,omitempty" min:"2" max:"1000000"`
	// RolloutGPUs fixes the rollout side; unset leaves it to the plan.
	RolloutGPUs int `json:"rollout_gpus,omitempty" min:"1" max:"1000000"`
	// TrainGPUs fixes the trainer's side; unset leaves it to the plan.
	TrainGPUs int `json:"train_gpus,omitempty" min:"1" max:"1000000"`
	// GPUsPerReplica is the size of one engine replica; unset leaves it to the plan, from the fewest that hold the weights and a useful cache.
	GPUsPerReplica int `json:"gpus_per_replica,omitempty" min:"1" max:"4096"`
	// TrainGPUsMin is the fewest GPUs the trainer runs on; unset is what its memory needs, in whole train_gpus_unit.
	TrainGPUsMin int `json:"train_gpus_min,omitempty" min:"1" max:"1000000"`
	// TrainGPUsUnit is the number by which train GPUs are added. Default a sixteenth of gpus, from 1 to 8.
	TrainGPUsUnit int `json:"train_gpus_unit,omitempty" min:"1" max:"4096"`
	// PromptTokens is the mean prompt, in tokens; a plan adds what modelled.tools return. Default modelled.prompt_tokens, or 512.
	PromptTokens float64 `json:"prompt_tokens,omitempty" min:"0" max:"1048576"`
	// WeightBytes is the bytes of a parameter in the engines: 2 for bf16, 1 for fp8. Default 2.
	WeightBytes float64 `json:"weight_bytes,omitempty" min:"0.25" max:"8"`
	// KVBytes is the bytes of a number in the cache. Default 2.
	KVBytes float64 `json:"kv_bytes,omitempty" min:"0.25" max:"8"`
	// MemoryUse is the share of a rollout GPU's memory that weights and cache may take. Default 0.9.
	MemoryUse float64 `json:"memory_use,omitempty" above:"0" max:"1"`
	// BandwidthUse is the share of the peak memory bandwidth that decoding reaches. Default what published runs show.
	BandwidthUse float64 `json:"bandwidth_use,omitempty" above:"0" max:"1"`
	// PrefillUse is the share of peak FLOP/s that prefill reaches. Default 0.5.
	PrefillUse float64 `json:"prefill_use,omitempty" above:"0" max:"1"`
	// PrefillTokensPerS is the speed at which a replica reads prompts and tools' outputs, measured, instead of prefill_use. Default modelled.prefill.tokens_per_s of mode engine.
	PrefillTokensPerS float64 `json:"prefill_tokens_per_s,omitempty" above:"0" max:"1e12"`
	// StepOverheadS is the part of a decode step that no roofline explains, in seconds. Default by layers and exchanges, as published runs show.
	StepOverheadS float64 `json:"step_overhead_s,omitempty" min:"0" max:"10"`
	// MFU is the share of peak FLOP/s that training reaches, launches included. Default by layers and micro-batches, as published runs show.
	MFU float64 `json:"mfu,omitempty" above:"0" max:"1"`
	// Recompute counts the forward pass twice, as activation checkpointing does. Default true.
	Recompute bool `json:"recompute,omitempty"`
	// NetworkBytesPerS is a node's network bandwidth for weights, in bytes per second. Default 50e9 (400 Gb/s).
	NetworkBytesPerS float64 `json:"network_bytes_per_s,omitempty" above:"0" max:"1e13"`
	// RolloutTokensPerSPerGPU is a measured rollout speed at slots_per_gpu, instead of the roofline; modelled.decode_curve gives more points, of one replica.
	RolloutTokensPerSPerGPU float64 `json:"rollout_tokens_per_s_per_gpu,omitempty" above:"0" max:"1e9"`
	// SlotsPerGPU is the rollouts at once on one rollout GPU, instead of what fits into the cache.
	SlotsPerGPU float64 `json:"slots_per_gpu,omitempty" above:"0" max:"1e6"`
	// TrainTokensPerSPerGPU is a measured train speed, prompt and response tokens together, instead of mfu.
	TrainTokensPerSPerGPU float64 `json:"train_tokens_per_s_per_gpu,omitempty" above:"0" max:"1e9"`
}

// ModelShape is what rooflines need to know of a model.
type ModelShape struct {
	// Parameters in all.
	Parameters float64 `json:"parameters,omitempty" above:"0" max:"1e14"`
	// ActiveParameters are those a token uses. Default all of them.
	ActiveParameters float64 `json:"active_parameters,omitempty" above:"0" max:"1e14"`
	// Layers is the number of blocks.
	Layers int `json:"layers,omitempty" min:"1" max:"10000"`
	// KVHeads is the number of key-value heads.
	KVHeads int `json:"kv_heads,omitempty" min:"1" max:"100000"`
	// HeadDim is the size of one head.
	HeadDim int `json:"head_dim,omitempty" min:"1" max:"100000"`
	// KVBytesPerToken is a token's cache in all layers, in bytes at kv_bytes 2, where heads do not say it (latent attention).
	KVBytesPerToken float64 `json:"kv_bytes_per_token,omitempty" above:"0" max:"1e9"`
	// Experts is the number of routed experts a layer has; unset for a dense model.
	Experts int `json:"experts,omitempty" min:"1" max:"100000"`
	// ExpertsPerToken is how many of them a token uses.
	ExpertsPerToken int `json:"experts_per_token,omitempty" min:"1" max:"100000"`
	// ExpertParameters are the parameters of all routed experts of all layers.
	ExpertParameters float64 `json:"expert_parameters,omitempty" above:"0" max:"1e14"`
}

// Prices are what a plan multiplies hours with.
type Prices struct {
	// GPUHour is the price of one GPU for an hour, on both sides.
	GPUHour float64 `json:"gpu_hour,omitempty" min:"0" max:"1e6"`
	// RolloutGPUHour is that of a rollout GPU, where it differs.
	RolloutGPUHour float64 `json:"rollout_gpu_hour,omitempty" min:"0" max:"1e6"`
	// CPUHour is the price of one sandbox CPU for an hour.
	CPUHour float64 `json:"cpu_hour,omitempty" min:"0" max:"1e6"`
	// CPUsPerSandbox is what one rollout's sandbox holds while the rollout runs. Default 0.
	CPUsPerSandbox float64 `json:"cpus_per_sandbox,omitempty" min:"0" max:"1e4"`
	// HostedPerMillionTokens is the price of a hosted engine's million generated tokens, to be compared with.
	HostedPerMillionTokens float64 `json:"hosted_per_million_tokens,omitempty" min:"0" max:"1e6"`
	// Currency is how prices are printed. Default USD.
	Currency string `json:"currency,omitempty"`
}

// Budget is what a plan must keep.
type Budget struct {
	// StalenessMean is the largest mean staleness, in versions; unset for no such bound, but 4 where no bound of the budget is given.
	StalenessMean float64 `json:"staleness_mean,omitempty" above:"0" max:"1e6"`
	// StalenessP95 is the largest 95 % quantile, in versions; unset for no such bound.
	StalenessP95 int `json:"staleness_p95,omitempty" min:"1" max:"1000000"`
	// StepS is the longest time between updates, in seconds; unset for no such bound.
	StepS float64 `json:"step_s,omitempty" above:"0" max:"1e7"`
	// CostPerStep is the largest price of a step; unset for no such bound.
	CostPerStep float64 `json:"cost_per_step,omitempty" above:"0" max:"1e9"`
	// WasteShare is the largest share of generated groups that may be dropped; unset for no such bound.
	WasteShare float64 `json:"waste_share,omitempty" above:"0" max:"1"`
	// LengthBias is how far the mean length trained on may be from the mean sampled, as a share; unset for no such bound.
	LengthBias float64 `json:"length_bias,omitempty" above:"0" max:"1"`
}

// Search lists what a plan tries beside the document's own value; an unset list
// is the plan's choice.
type Search struct {
	// RolloutGPUs are the splits to try, by the rollout side.
	RolloutGPUs []int `json:"rollout_gpus,omitempty" min:"1" max:"1000000"`
	// Batch are the train batches to try, in rollouts.
	Batch []int `json:"batch,omitempty" min:"1" max:"16777216"`
	// Prefer is what is made small within the budget: speed, the noise-adjusted time of an update, or cost, its price. Default speed.
	Prefer string `json:"prefer,omitempty" allowed:"speed cost"`
	// BatchMin is the smallest useful batch, in rollouts. Default 64, or the document's batch or the smallest to try if that is less.
	BatchMin int `json:"batch_min,omitempty" min:"1" max:"16777216"`
	// QueueFactor are the queue factors to try.
	QueueFactor []float64 `json:"queue_factor,omitempty" min:"1" max:"1e6"`
	// SlotsPerGPU are the rollouts at once on a rollout GPU to try.
	SlotsPerGPU []float64 `json:"slots_per_gpu,omitempty" above:"0" max:"1e6"`
	// SyncEvery are the train steps per sync to try.
	SyncEvery []int `json:"sync_every,omitempty" min:"1" max:"1000000"`
	// StalenessThreshold are verl's thresholds to try.
	StalenessThreshold []float64 `json:"staleness_threshold,omitempty" min:"0" max:"1e6"`
	// Eta are the bounds of policy bounded to try, in versions.
	Eta []float64 `json:"eta,omitempty" min:"0" max:"1e6"`
	// Hold are the values of queue.hold to try under policy drop.
	Hold []float64 `json:"hold,omitempty" min:"0" below:"1"`
	// Select are the selection orders to try under policy drop.
	Select []string `json:"select,omitempty" allowed:"oldest newest oldest-version fresh"`
	// RewardCorrelation is the correlation of rewards within a group, for the noise of an update. Default 0.2.
	RewardCorrelation float64 `json:"reward_correlation,omitempty" min:"0" max:"1"`
	// Policies are the queue policies to try.
	Policies []string `json:"policies,omitempty" allowed:"drop max block bounded threshold synchronous"`
	// Finalists is the number of settings simulated at the end. Default 20.
	Finalists int `json:"finalists,omitempty" min:"1" max:"10000"`
}
