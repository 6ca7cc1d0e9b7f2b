package config

// Config is a whole document. The zero value means "everything by default":
// see [Config.WithDefaults]. Where zero is a meaningful value and not the
// default, a document that gives the key keeps it.
type Config struct {
	// Seed of everything that is drawn: lengths, times, prompts, weights and sampled tokens. Default 1.
	Seed uint64 `json:"seed"`
	// Schedule is asynchronous (engines never wait for the trainer) or synchronous (exactly one batch of groups is opened per served version, none until the next is served; this replaces the queue's policy and capacity). Default asynchronous.
	Schedule string `json:"schedule" allowed:"asynchronous synchronous"`
	// Preset is not available yet.
	Preset string `json:"preset,omitempty" later:"*"`

	// Rollout says how responses are generated.
	Rollout Rollout `json:"rollout"`
	// Train says what a train step consumes and how long it takes.
	Train Train `json:"train"`
	// Queue says which ready groups wait, and which are dropped.
	Queue Queue `json:"queue"`
	// Sync says how new weights reach the engines.
	Sync Sync `json:"sync"`
	// Filter says which groups teach nothing and are not trained on.
	Filter Filter `json:"filter"`
	// Steps says how long a simulation is. A run ends by trainer.steps.
	Steps Steps `json:"steps"`

	// Model is the policy network of a run.
	Model Model `json:"model"`
	// Engines generate the rollouts of a run. Default: one embedded engine with rollout.concurrency slots.
	Engines []Engine `json:"engines"`
	// Environment is what a run's policy is trained on.
	Environment Environment `json:"environment"`
	// Trainer says how a run learns.
	Trainer Trainer `json:"trainer"`
	// Store says where a run keeps its files, and how safely.
	Store Store `json:"store"`
	// Failures says what happens when a rollout or a train step fails.
	Failures Failures `json:"failures"`
	// Evaluate says how a run measures held-out accuracy.
	Evaluate Evaluate `json:"evaluate"`

	// origin remembers where each key was given, so that a relation that does
	// not hold is reported with its line.
	origin *origin
}

// Rollout says how responses are generated.
type Rollout struct {
	// Concurrency is C, the rollouts generated at once over all engines. Default train.batch.
	Concurrency int `json:"concurrency" min:"1" max:"16777216"`
	// GroupSize is S, the rollouts of one prompt. Default 8.
	GroupSize int `json:"group_size" min:"1" max:"65536"`
	// DecodeTokensPerS is the modelled speed of one slot in tokens per second; a run measures its own. Unset with throughput_tokens_per_s, else 50 in a simulation.
	DecodeTokensPerS float64 `json:"decode_tokens_per_s,omitempty" above:"0" max:"1e9"`
	// ThroughputTokensPerS is the modelled speed of all slots together in tokens per second, instead of decode_tokens_per_s.
	ThroughputTokensPerS float64 `json:"throughput_tokens_per_s,omitempty" above:"0" max:"1e15"`
	// Start is the start order: stream fills slots as they free up, gang starts a group when a slot is free for each of its rollouts. Default stream.
	Start string `json:"start" allowed:"stream gang"`
	// Length models how long responses are; a run measures its own.
	Length Length `json:"length"`
	// Environment models the time a rollout spends outside the engine while it holds its slot. In a run it really waits.
	Environment Service `json:"environment"`
}

// Length is a model of response lengths in tokens.
type Length struct {
	// Kind of distribution. Default lognormal, or empirical when file or groups is given.
	Kind string `json:"kind" allowed:"fixed lognormal exponential pareto empirical"`
	// MeanTokens is the nominal mean, before rounding and the cap. Default 1400.
	MeanTokens float64 `json:"mean_tokens,omitempty" min:"1" max:"1048576"`
	// Tailness is the lognormal's tail from 0 (all the same) to 100: sigma = 1.3 * tailness / 100. Default 50.
	Tailness float64 `json:"tailness,omitempty" min:"0" max:"100"`
	// Alpha is the exponent of pareto's tail, above 1.
	Alpha float64 `json:"alpha,omitempty" above:"1" max:"1000"`
	// CapTokens is the longest response, where longer ones are cut. Default 8080 where nothing at all is said about lengths, else no cap.
	CapTokens int `json:"cap_tokens,omitempty" min:"1" max:"1048576"`
	// File of measured lengths for empirical, relative to the working directory: a number, a list or a JSON object a line.
	File string `json:"file,omitempty"`
	// Groups are measured lengths for empirical in place of file: one list a prompt, its siblings in it.
	Groups [][]int `json:"groups,omitempty" min:"1" max:"1048576"`
}

// Service is a model of the time an environment takes per rollout.
type Service struct {
	// Kind of distribution. Default none, lognormal when tailness is given, fixed when only mean_s is, empirical when file or groups is.
	Kind string `json:"kind" allowed:"none fixed lognormal exponential empirical" later:"pareto"`
	// MeanS is the nominal mean in seconds, before the cap.
	MeanS float64 `json:"mean_s,omitempty" min:"0" max:"604800"`
	// Tailness is the lognormal's tail from 0 to 100, as for lengths. Default 50.
	Tailness float64 `json:"tailness,omitempty" min:"0" max:"100"`
	// CapS is the longest time in seconds, where longer ones are cut. Default no cap.
	CapS float64 `json:"cap_s,omitempty" above:"0" max:"604800"`
	// File of measured times in seconds for empirical, relative to the working directory, in the forms of a file of lengths.
	File string `json:"file,omitempty"`
	// Groups are measured times in seconds for empirical in place of file: one list a prompt, its siblings in it.
	Groups [][]float64 `json:"groups,omitempty" min:"0" max:"604800"`
}

// Train says what a train step consumes and how long it takes.
type Train struct {
	// Batch is B, the rollouts one train step consumes; a multiple of rollout.group_size. Default 128, or 16 groups.
	Batch int `json:"batch" min:"1" max:"16777216"`
	// Utilization is rollout throughput over train throughput; it sets the train step's time in a simulation. Below 1 the run is rollout-bound, above train-bound.
	Utilization float64 `json:"utilization,omitempty" above:"0" max:"1e6"`
	// StepS is the train step's time in seconds in a simulation, instead of utilization.
	StepS float64 `json:"step_s,omitempty" above:"0" max:"1e7"`
	// ThroughputTokensPerS is the trainer's speed in tokens per second in a simulation, instead of utilization.
	ThroughputTokensPerS float64 `json:"throughput_tokens_per_s,omitempty" above:"0" max:"1e15"`
}

// Queue says which ready groups wait, and which are dropped.
type Queue struct {
	// Policy: drop evicts the oldest group of a full queue, max also discards groups over the staleness budget, block admits nothing while the queue is full. Default drop.
	Policy string `json:"policy" allowed:"drop max block" later:"bounded threshold replay"`
	// Factor is q, the queue's capacity over the batch. Default 1.
	Factor float64 `json:"factor,omitempty" min:"1" max:"1e6"`
	// Capacity is Q, the queue's capacity in rollouts, instead of factor; a multiple of rollout.group_size.
	Capacity int `json:"capacity,omitempty" min:"1" max:"268435456"`
	// Select is the order in which ready groups enter a batch. Default oldest.
	Select string `json:"select" allowed:"oldest newest oldest-version"`
	// Hold is the share of a train step before its end in which no group opens; 0 is off and all there is yet.
	Hold float64 `json:"hold" later:"*"`
	// MaxStaleness is the budget of policy max: the largest staleness, in versions, a trained group may have.
	MaxStaleness int `json:"max_staleness,omitempty" min:"0" max:"1000000000"`
	// Abort makes policy max cancel groups in flight as soon as they cannot meet the budget.
	Abort bool `json:"abort,omitempty"`
}

// Sync says how new weights reach the engines.
type Sync struct {
	// Mode: in_flight keeps generating across the switch, pause holds running rollouts while an engine switches, drain lets them finish first. Default in_flight.
	Mode string `json:"mode" allowed:"in_flight pause drain" later:"restart"`
	// TimeS is the modelled time of one sync in seconds; a run measures its own. Default 0.
	TimeS float64 `json:"time_s" min:"0" max:"1e6"`
	// Every is the number of train steps per sync. Default 1.
	Every int `json:"every" min:"1" max:"1000000"`
	// Trainer is free to start its next step during a sync, or blocked until it ends. Default free.
	Trainer string `json:"trainer" allowed:"free blocked"`
	// Switch: all engines change together (fleet), or each when it has loaded (rolling). Default fleet.
	Switch string `json:"switch" allowed:"fleet rolling"`
}

// Filter says which groups teach nothing and are not trained on.
type Filter struct {
	// Acceptance is the modelled share of groups that a filter lets through; a run measures its own. Default 1.
	Acceptance float64 `json:"acceptance" above:"0" max:"1"`
	// ZeroAdvantage ends groups whose rewards are all equal instead of queueing them, in a run. Near the end of learning that is most of them, and the trainer starves. Default false.
	ZeroAdvantage bool `json:"zero_advantage"`
}

// Steps says how long a simulation is.
type Steps struct {
	// Warmup is the number of train steps before anything is measured. Default 300.
	Warmup int `json:"warmup" min:"0" max:"100000000"`
	// Measured is the number of train steps measured. Default 1500.
	Measured int `json:"measured" min:"1" max:"100000000"`
}

// Model is the policy network of a run: a decoder-only transformer.
type Model struct {
	// Layers is the number of transformer blocks. Default 2.
	Layers int `json:"layers" min:"1" max:"128"`
	// Width is the size of a token's vector; a multiple of heads. Default 64.
	Width int `json:"width" min:"2" max:"16384"`
	// Heads is the number of attention heads. Default 4.
	Heads int `json:"heads" min:"1" max:"256"`
	// Context is the longest sequence in tokens, prompt and response together. Default 16.
	Context int `json:"context" min:"4" max:"131072"`
}

// Engine is one replica that generates rollouts.
type Engine struct {
	// Kind of engine. Default embedded.
	Kind string `json:"kind" allowed:"embedded"`
	// Name in status and reports. Default engine-0, engine-1 and so on.
	Name string `json:"name"`
	// Slots is the number of rollouts the engine generates at once; all engines' slots add up to rollout.concurrency.
	Slots int `json:"slots" min:"1" max:"16777216"`
	// DecodeStepS is the least time of one decode step in seconds: a faster engine waits for it. 0 is as fast as it can. Default 0.
	DecodeStepS float64 `json:"decode_step_s" min:"0" max:"3600"`
}

// Environment is what a run's policy is trained on.
type Environment struct {
	// Task: reverse a word, sort its letters, or add two numbers. Default reverse.
	Task string `json:"task" allowed:"reverse sort addition"`
	// LettersMin is the shortest word of reverse and sort. Default 2.
	LettersMin int `json:"letters_min" min:"1" max:"64"`
	// LettersMax is the longest word of reverse and sort. Default 5.
	LettersMax int `json:"letters_max" min:"1" max:"64"`
	// HeldOut is the number of prompts kept for evaluation, never trained on. Default 1000.
	HeldOut int `json:"held_out" min:"1" max:"10000000"`
	// ServiceTime is the time a rollout waits for tools and sandboxes; the same as rollout.environment, which simulations read, and either may be given.
	ServiceTime Service `json:"service_time"`
	// WarmupSteps is the number of supervised steps before reinforcement learning begins; 0 for none. Default 1200 for addition, else 0.
	WarmupSteps int `json:"warmup_steps" min:"0" max:"1000000"`
}

// Trainer says how a run learns.
type Trainer struct {
	// Kind of trainer. Default embedded.
	Kind string `json:"kind" allowed:"embedded"`
	// Steps is the number of train steps of the run. Default 600.
	Steps int `json:"steps" min:"1" max:"1000000000"`
	// LearningRate of Adam. Default 0.001, 0.0003 for addition.
	LearningRate float64 `json:"learning_rate" above:"0" max:"10"`
	// ClipEpsilon bounds the importance ratio to [1 - epsilon, 1 + epsilon]. Default 0.2.
	ClipEpsilon float64 `json:"clip_epsilon" above:"0" below:"1"`
	// NormalizeStd divides advantages by the standard deviation of their group's rewards. Default true.
	NormalizeStd bool `json:"normalize_std"`
	// GradientNorm is the largest norm of a gradient, where larger ones are scaled down; 0 for no bound. Default 1.
	GradientNorm float64 `json:"gradient_norm" min:"0" max:"1e6"`
	// Threads is the number of processor threads of one step; 0 is one, which leaves the others to engines. Default 0.
	Threads int `json:"threads" min:"0" max:"4096"`
	// StepS is the least time of one train step in seconds: a faster trainer waits for it. 0 is as fast as it can. Default 0.
	StepS float64 `json:"step_s" min:"0" max:"86400"`
}

// Store says where a run keeps its files, and how safely.
type Store struct {
	// Dir is the folder of all runs; each has its own in it. Default runs.
	Dir string `json:"dir"`
	// Sync: kernel survives kill -9, always survives losing power and is slower. Default kernel.
	Sync string `json:"sync" allowed:"kernel always"`
	// SnapshotEvery is the number of train steps between snapshots of the loop. Default 25.
	SnapshotEvery int `json:"snapshot_every" min:"1" max:"1000000"`
	// KeepVersions is the number of weight versions kept on disk; older ones are removed. Default 3.
	KeepVersions int `json:"keep_versions" min:"1" max:"1000000"`
	// SamplesEvery is the number of train steps between readable rollouts written to samples/; 0 for none. Default 25.
	SamplesEvery int `json:"samples_every" min:"0" max:"1000000"`
}

// Failures says what happens when a rollout or a train step fails.
type Failures struct {
	// MaxAttempts is how often one rollout is tried. Default 3.
	MaxAttempts int `json:"max_attempts" min:"1" max:"1000"`
	// OnFailure: after the last attempt drop the whole group, or go on with its other rollouts (shrink). Default drop_group.
	OnFailure string `json:"on_failure" allowed:"drop_group shrink"`
	// TrainAttempts is how often one train step is tried before the run stops. Default 3.
	TrainAttempts int `json:"train_attempts" min:"1" max:"1000"`
}

// Evaluate says how a run measures held-out accuracy.
type Evaluate struct {
	// Prompts is the number of held-out prompts answered greedily; at most environment.held_out. Default 200.
	Prompts int `json:"prompts" min:"1" max:"10000000"`
	// Every is the number of train steps between evaluations; 0 for only after the last. Default 25.
	Every int `json:"every" min:"0" max:"1000000"`
}
