package config

// Config is a whole document. The zero value means "everything by default":
// see [Config.WithDefaults]. Where zero is a meaningful value and not the
// default, a document that gives the key keeps it.
type Config struct {
	// Seed of everything that is drawn: lengths, times, prompts, weights and sampled tokens. Default 1.
	Seed uint64 `json:"seed"`
	// Schedule is asynchronous or synchronous. Under asynchronous, engines never wait for the trainer. Under synchronous, exactly one batch of groups is opened per served version, none until the next is served. This replaces the queue's policy and capacity. Default asynchronous.
	Schedule string `json:"schedule" allowed:"asynchronous synchronous"`
	// Preset sets the rules of a framework's loop, key by key: schedule, queue, sync, partial rollouts and the trainer's correction. Keys that the document gives come before it, but those that make it what it is cannot be changed. headway config --presets lists them. Default none.
	Preset string `json:"preset,omitempty" allowed:"verl-fully-async areal prime-rl skyrl nemo-windowed pipelinerl slime openrlhf one-step-off synchronous"`

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
	// Prompts says which prompts are played, and which are played again.
	Prompts Prompts `json:"prompts"`
	// Modelled is the world as simulations, predictions and plans assume it. No run reads it: a run measures its own.
	Modelled Modelled `json:"modelled"`
	// Control is a goal that the loop keeps by moving its own settings while it runs. Default none, which moves nothing.
	Control Control `json:"control,omitempty"`
	// Steps says how long a simulation is. A run ends by trainer.steps.
	Steps Steps `json:"steps"`

	// Model is the policy network of a run.
	Model Model `json:"model"`
	// Engines generate the rollouts of a run. Default: one embedded engine with rollout.concurrency slots.
	Engines []Engine `json:"engines"`
	// Fleet starts and stops engines while a run goes on. Default none: the engines of the document are there by themselves.
	Fleet Fleet `json:"fleet,omitempty"`
	// Environment is what a run's policy is trained on.
	Environment Environment `json:"environment"`
	// Sandbox says what code of the policy runs in, in a run; modelled.sandbox is what simulations reckon with. Default none, where nothing runs.
	Sandbox Sandbox `json:"sandbox,omitempty"`
	// Trainer says how a run learns.
	Trainer Trainer `json:"trainer"`
	// Store says where a run keeps its files, and how safely.
	Store Store `json:"store"`
	// Failures says what happens when a rollout or a train step fails.
	Failures Failures `json:"failures"`
	// Scoring says which other models score rollouts: teachers and references. Default none.
	Scoring Scoring `json:"scoring,omitempty"`
	// Evaluate says how a run measures held-out accuracy.
	Evaluate Evaluate `json:"evaluate"`
	// Server says how a control plane is reached.
	Server Server `json:"server"`
	// Watchdog says when a control plane complains that nothing makes progress.
	Watchdog Watchdog `json:"watchdog"`
	// Gateway says how agents that speak OpenAI's API become rollouts.
	Gateway Gateway `json:"gateway"`
	// Sinks says where a run's figures go beside its own metrics.jsonl.
	Sinks Sinks `json:"sinks,omitempty"`

	// Hardware is the model and the GPUs of a plan.
	Hardware Hardware `json:"hardware,omitempty"`
	// Prices are what a plan reckons costs with.
	Prices Prices `json:"prices,omitempty"`
	// Budget is what a plan must keep.
	Budget Budget `json:"budget,omitempty"`
	// Search lists what a plan tries.
	Search Search `json:"search,omitempty"`

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
	// Start is the start order. Under stream, rollouts fill slots as these free up. Under gang, a group starts when a slot is free for each of its rollouts. Default stream.
	Start string `json:"start" allowed:"stream gang"`
	// Placement says at which engine a rollout gets its slot. Under least_loaded, it is the one with the most free slots. Under cache_aware, an engine starts all rollouts of a group before it opens the next, so that they find their prompt in its prefix cache. An interrupted rollout goes on where it was, if a slot is free there. Default least_loaded.
	Placement string `json:"placement,omitempty" allowed:"least_loaded cache_aware"`
	// Redundancy is the number of rollouts started beyond group_size in every group. The first group_size to be scored are kept and the others cancelled, which favours short ones. Default 0.
	Redundancy int `json:"redundancy" min:"0" max:"65535"`
	// Oversample is the number of groups opened per version over those of a batch under schedule synchronous. The first to be ready are trained, which favours short ones. The others are cancelled, or interrupted with partial.interrupt batch. Default 1.
	Oversample float64 `json:"oversample" min:"1" max:"1000"`
	// Partial says when running rollouts are interrupted with their tokens kept.
	Partial Partial `json:"partial"`
	// Prune says which rollouts are stopped early; they count for nothing.
	Prune Prune `json:"prune"`
	// Sampling says how the engines of a run draw tokens. Default from the policy as it is.
	Sampling Sampling `json:"sampling"`
	// Channels are what engines say of a rollout's tokens beside their log-probs. Value routed_experts has the experts of every layer for each token, and sampling_mask the tokens that top_k and top_p left to draw from. Value indexer_topk has the positions that a sparse attention chose. An engine whose server does not say one is refused at the start. Default none.
	Channels []string `json:"channels,omitempty" allowed:"routed_experts sampling_mask indexer_topk"`
	// Drift is how responses, their environment and the train step change over a simulation, or a run of embedded engines, as the policy learns. Default not at all.
	Drift Drift `json:"drift,omitempty"`
}

// Drift is how a workload changes as the policy learns. Factors go from 1 to their
// value in a straight line, by the version that starts a rollout or a train step.
type Drift struct {
	// Begin is the number of train steps before the factors begin to move. Default 0.
	Begin int `json:"begin,omitempty" min:"0" max:"1000000000"`
	// Steps is the number of train steps, from then on, until the factors have their value.
	Steps int `json:"steps,omitempty" min:"1" max:"1000000000"`
	// LengthFactor multiplies lengths; modelled.length.cap_tokens still cuts them. In a run the task asks for answers so many times as long. Default 1.
	LengthFactor float64 `json:"length_factor,omitempty" above:"0" max:"1000"`
	// ToolCallsFactor multiplies the mean number of tool calls of a simulation. Default 1.
	ToolCallsFactor float64 `json:"tool_calls_factor,omitempty" above:"0" max:"1000"`
	// EnvironmentFactor multiplies the environment's time (modelled.environment, environment.service_time). Default 1.
	EnvironmentFactor float64 `json:"environment_factor,omitempty" above:"0" max:"1000"`
	// StepFactor multiplies the time of a train step: modelled.train.step_s of a simulation, trainer.step_s of a run. Default 1.
	StepFactor float64 `json:"step_factor,omitempty" above:"0" max:"1000"`
}

// Partial says when running rollouts are interrupted with their tokens kept.
// A weight sync interrupts them under sync.mode restart.
type Partial struct {
	// Interrupt says whether running rollouts are interrupted. Under batch, every rollout in flight is interrupted when a whole batch is ready and waits, and resumed for a later one. Under none, they go on. Default none.
	Interrupt string `json:"interrupt" allowed:"none batch"`
	// MaxSpans is the number of spans between interruptions a rollout may be made of; one that needs more is cancelled and tried afresh. 0 is no limit. Default 0.
	MaxSpans int `json:"max_spans" min:"0" max:"1000000"`
}

// Prune says which rollouts are stopped early, before their reward is known.
type Prune struct {
	// Tokens stops a rollout that is not done after so many response tokens; 0 is no limit. Default 0.
	Tokens int `json:"tokens" min:"0" max:"1048576"`
	// Check says whether a run stops a rollout by its answer. Under task, a rollout stops as soon as its task can tell that the answer will not be wholly right. This takes the worst ones out of every group. Under none, no rollout is stopped so. Default none.
	Check string `json:"check" allowed:"none task"`
}

// Train says what a train step consumes and how long it takes.
type Train struct {
	// Batch is B, the rollouts one train step consumes; a multiple of rollout.group_size. Default 128, or 16 groups.
	Batch int `json:"batch" min:"1" max:"16777216"`
}

// Queue says which ready groups wait, and which are dropped.
type Queue struct {
	// Policy says which groups the queue admits and which it drops. Policy drop evicts the oldest group of a full queue; max also discards groups over the staleness budget. Policy block admits nothing while the queue is full. Policy bounded admits by a bound of the mean staleness (eta). Policy threshold admits a share of groups ahead between two syncs (staleness_threshold). Policy replay keeps trained groups and draws from them again. Default drop; bounded where engines and environment are embedded. Such a document names no other key of the queue, no preset and no goal, and models no train step.
	Policy string `json:"policy" allowed:"drop max block bounded threshold replay"`
	// Factor is q, the queue's capacity over the batch. Default 1; 4 for replay; for bounded and threshold what they can admit, and no less.
	Factor float64 `json:"factor,omitempty" min:"1" max:"1e6"`
	// Capacity is Q, the queue's capacity in rollouts, instead of factor; a multiple of rollout.group_size.
	Capacity int `json:"capacity,omitempty" min:"1" max:"268435456"`
	// Select is how ready groups enter a batch: oldest or newest first, or those of the oldest version first. Value fresh is a random choice among the groups that became ready since the batch before. Policy replay draws by itself. Default oldest.
	Select string `json:"select,omitempty" allowed:"oldest newest oldest-version fresh"`
	// Hold is theta. No group opens while the next switch of weights is expected within theta times the train period, nor for longer than twice that. Above 0.3 it biases lengths, unless select is fresh. Default 0, off.
	Hold float64 `json:"hold" min:"0" below:"1"`
	// HoldAdaptive makes hold the most that the hold in force may be. The hold in force begins at 0 and follows its cost. It goes up while a full queue drops groups, which makes it free, and down where slots wait for nothing. It wants select fresh, and then hold 0.9 is a good most. Default false.
	HoldAdaptive bool `json:"hold_adaptive,omitempty"`
	// HoldCost is the share of the slots' time that an adaptive hold may cost beyond the time of groups that would be dropped anyway. It is about the share by which the train period grows where rollouts are the slower side. Default 0: only holds that are free.
	HoldCost float64 `json:"hold_cost,omitempty" min:"0" below:"1"`
	// PauseAt opens no group while the queue holds that many batches, under any policy; at least 1, or 0 for no such limit. Default 0.
	PauseAt float64 `json:"pause_at" min:"0" max:"1e6"`

	// MaxStaleness is the budget of policy max: the largest staleness, in versions, a trained group may have. Under replay it is optional, and 0 is none.
	MaxStaleness int `json:"max_staleness,omitempty" min:"0" max:"1000000000"`
	// Abort makes policy max cancel groups in flight as soon as they cannot meet the budget.
	Abort bool `json:"abort,omitempty"`
	// Eta is the bound of the mean staleness of policy bounded, in versions. No more than (eta + 1) batches of groups are generating, ready or at the trainer. AReaL's max_head_offpolicyness, SkyRL's max_staleness_steps. Default 1 where policy bounded is the default, and 1 + rollout.concurrency/train.batch there if engines are paced or rollouts wait for tools.
	Eta float64 `json:"eta,omitempty" min:"0" max:"1e6"`

	// Evict is the group that replay's full buffer gives up. Value version takes the group of the oldest start version. Value drift takes the one whose importance ratio is expected to be the farthest from 1. Default version.
	Evict string `json:"evict,omitempty" allowed:"version drift"`
	// Gamma is the weight in replay's sampling of a group one version older. Default 0.95.
	Gamma float64 `json:"gamma,omitempty" above:"0" max:"1"`
	// Balance divides a group's weight in replay's sampling by the groups of its prompt in the buffer; it needs prompts.count. Default false.
	Balance bool `json:"balance,omitempty"`
	// MaxUses is how often replay trains on one group. Default 2.
	MaxUses int `json:"max_uses,omitempty" min:"1" max:"1000000"`

	// StalenessThreshold of policy threshold, verl's: between two syncs at most (1 + staleness_threshold) times the groups of sync.every batches start, less those carried over. A share of groups, not a number of versions.
	StalenessThreshold float64 `json:"staleness_threshold,omitempty" min:"0" max:"1e6"`
	// TriggerParameterSyncStep is verl's name of sync.every.
	TriggerParameterSyncStep int `json:"trigger_parameter_sync_step,omitempty" min:"1" max:"1000000"`
	// RequireBatches is verl's number of mini-batches per train step; with ppo_mini_batch_size it sets train.batch, and trainer.minibatches unless that is given. Default 1.
	RequireBatches int `json:"require_batches,omitempty" min:"1" max:"1000000"`
	// PPOMiniBatchSize is verl's number of prompts (groups) of a mini-batch: train.batch is require_batches times this times rollout.group_size.
	PPOMiniBatchSize int `json:"ppo_mini_batch_size,omitempty" min:"1" max:"16777216"`
	// PartialRollout is verl's name of sync.mode restart (true) and drain (false). Default true, unless sync.mode is given.
	PartialRollout bool `json:"partial_rollout,omitempty"`
	// UseRolloutLogProbs is verl's: true keeps the rollout's log-probs as the old ones; false recomputes them, which is trainer.correction.kind decoupled-ppo. Default true.
	UseRolloutLogProbs bool `json:"use_rollout_log_probs,omitempty"`
	// TotalRolloutSteps is verl's number of prompts (groups) of the whole run; it sets trainer.steps.
	TotalRolloutSteps int `json:"total_rollout_steps,omitempty" min:"1" max:"9007199254740992"`
	// TestFreq is verl's number of weight syncs between validations; it sets evaluate.every. 0 or below for none.
	TestFreq int `json:"test_freq,omitempty" min:"-1" max:"1000000"`
	// TrainBatchSize is verl's, which has no effect in its fully asynchronous trainer, nor here; 0 there.
	TrainBatchSize int `json:"train_batch_size,omitempty" min:"0" max:"16777216"`
	// GenBatchSize is verl's, and has no effect here: prompts are fed one by one, as in verl's fully asynchronous trainer.
	GenBatchSize int `json:"gen_batch_size,omitempty" min:"1" max:"16777216"`
	// Rollout holds verl's rollout.n and the rollouter's machines.
	Rollout VerlRollout `json:"rollout,omitempty"`
	// Trainer holds the trainer's machines in verl's words; for information.
	Trainer VerlTrainer `json:"trainer,omitempty"`
}

// VerlRollout is the section rollout of a verl document.
type VerlRollout struct {
	// N is verl's name of rollout.group_size.
	N int `json:"n,omitempty" min:"1" max:"65536"`
	// Nnodes is the number of the rollouter's machines; for information.
	Nnodes int `json:"nnodes,omitempty" min:"1" max:"1000000"`
	// NGPUsPerNode is the number of GPUs of each of them; for information.
	NGPUsPerNode int `json:"n_gpus_per_node,omitempty" min:"1" max:"1000000"`
}

// VerlTrainer is the section trainer of a verl document.
type VerlTrainer struct {
	// Nnodes is the number of the trainer's machines; for information.
	Nnodes int `json:"nnodes,omitempty" min:"1" max:"1000000"`
	// NGPUsPerNode is the number of GPUs of each of them; for information.
	NGPUsPerNode int `json:"n_gpus_per_node,omitempty" min:"1" max:"1000000"`
}

// Sync says how new weights reach the engines.
type Sync struct {
	// Mode says what running rollouts do when weights switch. Mode in_flight keeps generating across the switch. Mode pause holds running rollouts while an engine switches. Mode restart interrupts them before it and resumes them after it; their tokens are read into the cache anew. Mode drain lets them finish first. Default in_flight.
	Mode string `json:"mode" allowed:"in_flight pause restart drain"`
	// Every is the number of train steps per sync. Default 1.
	Every int `json:"every" min:"1" max:"1000000"`
	// Trainer is free to start its next step during a sync, or blocked until it ends. Default free.
	Trainer string `json:"trainer" allowed:"free blocked"`
	// Switch: all engines change together (fleet), or each when it has loaded (rolling). Default fleet.
	Switch string `json:"switch" allowed:"fleet rolling"`
}

// Filter says which groups teach nothing and are not trained on.
type Filter struct {
	// ZeroAdvantage ends groups whose rewards are all equal instead of queueing them, in a run. Near the end of learning that is most of them, and the trainer starves. Default false.
	ZeroAdvantage bool `json:"zero_advantage"`
	// SolveRate is the band of solve rates that teach, and whether groups outside it are filtered.
	SolveRate SolveRate `json:"solve_rate"`
	// Curriculum chooses the difficulty of every group so that its solve rate stays in the band as the policy learns.
	Curriculum Curriculum `json:"curriculum"`
}

// SolveRate is a filter on the share of a group's rollouts that are wholly right.
type SolveRate struct {
	// Low is the lowest solve rate that teaches. Default 0.1 where drop or a curriculum asks for it.
	Low float64 `json:"low,omitempty" min:"0" max:"1"`
	// High is the highest. Default 0.9 where drop or a curriculum asks for it.
	High float64 `json:"high,omitempty" min:"0" max:"1"`
	// Drop ends groups outside the band instead of queueing them. Default false.
	Drop bool `json:"drop"`
}

// Curriculum chooses the difficulty of groups by the solve rates measured.
type Curriculum struct {
	// Levels is the number of difficulties to choose from; 0 is no curriculum. Default 0.
	Levels int `json:"levels" min:"0" max:"1000"`
	// Low is the lowest solve rate aimed at; the band is that of filter.solve_rate. Default the same.
	Low float64 `json:"low,omitempty" min:"0" max:"1"`
	// High is the highest. Default that of filter.solve_rate.
	High float64 `json:"high,omitempty" min:"0" max:"1"`
	// Explore is the share of groups whose level is drawn from all of them, so that the others are measured too. Default 0.1 with a curriculum.
	Explore float64 `json:"explore,omitempty" min:"0" max:"1"`
}

// Prompts says which prompts are played, and which are played again.
type Prompts struct {
	// Count is the size of the prompt set, every pass through it in another order; 0 gives every group a prompt of its own. Default 0.
	Count int `json:"count" min:"0" max:"16777216"`
	// Requeue plays the prompt of a group that was evicted, discarded or cancelled again before further ones. The prompts of groups that were filtered, pruned or failed are left out, because they would end so again. Default false.
	Requeue bool `json:"requeue"`
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
	// Path is a directory with a model in the layout of Hugging Face (config.json, tokenizer files, safetensors), for engines of other kinds than embedded. The model is version 0 of the run, and the weights of every later version are put beside it. The other keys then describe nothing.
	Path string `json:"path,omitempty"`
	// Layers is the number of transformer blocks. Default 2.
	Layers int `json:"layers" min:"1" max:"128"`
	// Width is the size of a token's vector; a multiple of heads. Default 64.
	Width int `json:"width" min:"2" max:"16384"`
	// Heads is the number of attention heads. Default 4.
	Heads int `json:"heads" min:"1" max:"256"`
	// Context is the longest sequence in tokens, prompt and response together. Default 16.
	Context int `json:"context" min:"4" max:"131072"`
}

// Trainer says how a run learns.
type Trainer struct {
	// Kind of trainer. Kind remote is a program of yours that leases batches from headway serve. Kind tinker is the service that the engine of that kind is. Default embedded; remote for serve, and where an engine is not embedded; tinker with an engine of kind tinker.
	Kind string `json:"kind" allowed:"embedded remote tinker"`
	// Steps is the number of train steps of the run. Default 600.
	Steps int `json:"steps" min:"1" max:"1000000000"`
	// LearningRate of Adam. Default 0.001, 0.0003 for addition, 0.00004 for the adapters of kind tinker.
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
	// Correction says what a train step does about tokens that another policy sampled.
	Correction Correction `json:"correction"`
	// Minibatches divides the groups of a batch over that many optimizer steps, all of which make one version; at most the groups of a batch. Default 1, or verl's require_batches.
	Minibatches int `json:"minibatches" min:"1" max:"16777216"`
	// ShuffleMinibatches draws the groups of each minibatch instead of taking them in order. Default false.
	ShuffleMinibatches bool `json:"shuffle_minibatches"`
	// AdapterRank is the rank of the adapter that kind tinker trains; services have a most of their own. Default 32.
	AdapterRank int `json:"adapter_rank,omitempty" min:"1" max:"4096"`
}

// Correction says what a train step does about tokens that another policy
// sampled. r is a token's importance ratio, trainer over rollout.
type Correction struct {
	// Kind of correction. Kind ppo-clip clips r to the band; none takes tokens as on-policy. Kind decoupled-ppo clips against the policy the step began with, and weighs by how far that is from the rollout's. Kind tis weighs by r cut to [floor, cap], and cispo by r cut to the band. Kinds token-mask and sequence-mask leave out tokens or responses whose r is outside [low, high]. Kind dppo leaves out tokens whose probability has moved too far to where the advantage pushes it. Default ppo-clip.
	Kind string `json:"kind" allowed:"ppo-clip none decoupled-ppo tis token-mask sequence-mask cispo dppo"`
	// EpsilonLow is the band's lower half width, instead of trainer.clip_epsilon; 1 is no lower bound.
	EpsilonLow float64 `json:"epsilon_low,omitempty" above:"0" max:"1"`
	// EpsilonHigh is the band's upper half width, instead of trainer.clip_epsilon.
	EpsilonHigh float64 `json:"epsilon_high,omitempty" above:"0" max:"1000"`
	// Level over which tis takes its weight: token, sequence (the product of the response's ratios) or geometric (their geometric mean). Default token.
	Level string `json:"level,omitempty" allowed:"token sequence geometric"`
	// Floor is the least weight of tis and decoupled-ppo. Default 0.
	Floor float64 `json:"floor,omitempty" min:"0" max:"1e6"`
	// Cap is the largest weight of tis and decoupled-ppo. Default 2 for tis, none for decoupled-ppo.
	Cap float64 `json:"cap,omitempty" above:"0" max:"1e6"`
	// DropOverCap leaves tokens over the cap out instead of cutting their weight; it needs cap. Default false.
	DropOverCap bool `json:"drop_over_cap,omitempty"`
	// DropUnderFloor leaves tokens under the floor out instead of raising their weight; it needs floor. With drop_over_cap, floor 0.5 and cap 5 decoupled-ppo is IcePop. Default false.
	DropUnderFloor bool `json:"drop_under_floor,omitempty"`
	// DifferenceLow is by how much a token's probability may have fallen below the rollout's before dppo leaves it out, where its advantage is not positive. Default 0.2.
	DifferenceLow float64 `json:"difference_low,omitempty" above:"0" max:"1"`
	// DifferenceHigh is by how much it may have risen, where its advantage is positive. Default 0.2.
	DifferenceHigh float64 `json:"difference_high,omitempty" above:"0" max:"1"`
	// Penalty is the weight of the squared log-ratio of every token in the loss of dppo. Default 0.
	Penalty float64 `json:"penalty,omitempty" min:"0" max:"1e6"`
	// Low is the least ratio that token-mask and sequence-mask keep. Default 0.5.
	Low float64 `json:"low,omitempty" above:"0" below:"1"`
	// High is the largest. Default 5 for token-mask, 2 for sequence-mask.
	High float64 `json:"high,omitempty" above:"1" max:"1e6"`
	// Metric by which sequence-mask judges a response: the geometric mean of its ratios or its kl. Default geometric.
	Metric string `json:"metric,omitempty" allowed:"geometric kl"`
	// MaxKL is the largest kl that sequence-mask keeps, in nats a token. Default 0.1.
	MaxKL float64 `json:"max_kl,omitempty" above:"0" max:"1e6"`
	// NegativeOnly lets sequence-mask leave out only responses with a negative advantage. Default false.
	NegativeOnly bool `json:"negative_only,omitempty"`
	// VersionMask leaves out tokens by the version that sampled them. Value newest keeps those of the newest version in their response, training those of the version the step starts from. Both keep those within version_lag. Default all, which leaves none out.
	VersionMask string `json:"version_mask" allowed:"all newest training"`
	// VersionLag is the width of version_mask in versions. Default 0.
	VersionLag int `json:"version_lag,omitempty" min:"0" max:"1000000000"`
	// MaxSpans leaves out responses of more runs of one version than that; 0 is no limit. Default 0.
	MaxSpans int `json:"max_spans" min:"0" max:"1000000"`
}

// Store says where a run keeps its files, and how safely.
type Store struct {
	// Dir is the folder of all runs; each has its own in it. Default runs.
	Dir string `json:"dir"`
	// Durability: kernel survives kill -9, always survives losing power and is slower. Default kernel.
	Durability string `json:"durability" allowed:"kernel always"`
	// SnapshotEvery is the number of train steps between snapshots of the loop. Default 25.
	SnapshotEvery int `json:"snapshot_every" min:"1" max:"1000000"`
	// KeepVersions is the number of weight versions kept on disk; older ones are removed. Default 3.
	KeepVersions int `json:"keep_versions" min:"1" max:"1000000"`
	// SamplesEvery is the number of train steps between readable rollouts written to samples/; 0 for none. Default 25.
	SamplesEvery int `json:"samples_every" min:"0" max:"1000000"`
	// Trace: full mirrors a control plane's whole event log into the run directory, none keeps only what recovery needs. Default full.
	Trace string `json:"trace" allowed:"full none"`
	// NATS is where a control plane keeps log and payloads.
	NATS NATS `json:"nats"`
}

// Failures says what happens when a rollout or a train step fails.
type Failures struct {
	// MaxAttempts is how often one rollout is tried; once where its data is at fault. Default 3.
	MaxAttempts int `json:"max_attempts" min:"1" max:"1000"`
	// OnFailure: after the last attempt drop the whole group, or go on with its other rollouts (shrink). Default drop_group.
	OnFailure string `json:"on_failure" allowed:"drop_group shrink"`
	// GroupMin is the fewest scored rollouts that a shrunken group is trained with; one that cannot have them ends. At most rollout.group_size. Default 1 with on_failure shrink.
	GroupMin int `json:"group_min,omitempty" min:"1" max:"65536"`
	// OnEngineLoss: the rollouts of a lost engine are tried again from the start (retry), or go on elsewhere with the tokens they have (resume). Default resume where an engine is not embedded, else retry.
	OnEngineLoss string `json:"on_engine_loss,omitempty" allowed:"retry resume"`
	// TrainAttempts is how often one train step is tried before the run stops. Default 3.
	TrainAttempts int `json:"train_attempts" min:"1" max:"1000"`
	// EnginePlan are losses of engines at given times, or train steps, of a simulation or a run of embedded engines.
	EnginePlan []EngineLoss `json:"engine_plan,omitempty"`
}

// EngineLoss is one loss of an engine, in a simulation or in a run of embedded engines.
type EngineLoss struct {
	// Engine is its name.
	Engine string `json:"engine"`
	// AtS is when it is lost, in seconds from the start, warm-up included.
	AtS float64 `json:"at_s" min:"0" max:"4e9"`
	// DownS is how long it is gone, in seconds, before it loads weights; 0 is for good. With at_s at most 4e9. Default 0.
	DownS float64 `json:"down_s,omitempty" min:"0" max:"4e9"`
	// AtStep loses it at the end of that train step instead, so that runs of different speed lose it at the same one.
	AtStep int `json:"at_step,omitempty" min:"1" max:"1000000000"`
	// BackStep is the train step at the end of which it joins again, before it loads weights. Default never.
	BackStep int `json:"back_step,omitempty" min:"1" max:"1000000000"`
}

// Evaluate says how a run measures held-out accuracy.
type Evaluate struct {
	// Prompts is the number of held-out prompts answered greedily, or played with slots; at most environment.held_out, but in a simulation in which they occupy something. Default 200.
	Prompts int `json:"prompts" min:"1" max:"10000000"`
	// Every is the number of train steps between evaluations; 0 for only after the last. Default 25.
	Every int `json:"every" min:"0" max:"1000000"`
	// Slots are slots of engines, beside rollout.concurrency, in which players or workers play held-out prompts while the run goes on; 0 for no such evaluation. Default 0.
	Slots int `json:"slots,omitempty" min:"0" max:"65536"`
}

// EvaluationSlots are the slots of an engine that evaluate.slots gives it: as many as others have, or one more.
func (c Config) EvaluationSlots(engine string) int {
	for i, e := range c.Engines {
		if e.Name == engine {
			return (c.Evaluate.Slots + len(c.Engines) - 1 - i) / len(c.Engines)
		}
	}
	return 0
}
