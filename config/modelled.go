package config

// Modelled is the world as a simulation assumes it: lengths, speeds, the times of tools, failures.
// A run measures its own and reads none of it; a test holds that.
type Modelled struct {
	// Sessions is a file of recorded sessions, relative to the working directory, which the rollouts of a simulation play turn by turn. It takes the place of length, prompt_tokens and tools; their time counts where the file has no times. Formats: Mooncake, rollout traces, Claude Code sessions, trace_player.
	Sessions string `json:"sessions,omitempty"`
	// Length models how long responses are; a run measures its own.
	Length Length `json:"length"`
	// Environment models the time a rollout spends outside the engine while it holds its slot; a run waits by environment.service_time. Default the same.
	Environment TimeModel `json:"environment"`
	// Solve models how often a rollout is right in a simulation, for filters and curricula to see; a run measures its own.
	Solve Solve `json:"solve"`
	// DecodeTokensPerS is the modelled speed of one slot in tokens per second; a run measures its own. Unset with throughput_tokens_per_s, else 50 in a simulation.
	DecodeTokensPerS float64 `json:"decode_tokens_per_s,omitempty" above:"0" max:"1e9"`
	// ThroughputTokensPerS is the modelled speed of all slots together in tokens per second, instead of decode_tokens_per_s.
	ThroughputTokensPerS float64 `json:"throughput_tokens_per_s,omitempty" above:"0" max:"1e15"`
	// DecodeCurve is the modelled speed of one slot by how many of its engine's generate at once, instead of decode_tokens_per_s. It is straight between the points and level outside them. A run measures its own.
	DecodeCurve []DecodePoint `json:"decode_curve,omitempty"`
	// PromptTokens is the length of every prompt in a simulation, which is read before the first token. Default 0.
	PromptTokens int `json:"prompt_tokens,omitempty" min:"0" max:"1048576"`
	// Prefill models how prompts, tool outputs and resumed rollouts are read into the cache in a simulation. Default at once.
	Prefill Prefill `json:"prefill,omitempty"`
	// Tools models multi-turn rollouts in a simulation: calls of tools between parts of the generation; a run's own tools are environment.tools. Default none.
	Tools ModelledTools `json:"tools,omitempty"`
	// Sandbox models what a rollout's tools run in, in a simulation; a run's own are those of the section sandbox. Default there at once.
	Sandbox ModelledSandbox `json:"sandbox,omitempty"`
	// Verifier models what rewards a finished rollout in a simulation, while it holds its slot; a run's own is environment.verifier. Default at once.
	Verifier ModelledVerifier `json:"verifier,omitempty"`
	// Scorer models the pool of teachers and references that score a rewarded rollout in a simulation, while it holds its slot. A run's own is the section scoring. Default at once.
	Scorer ModelledScorer `json:"scorer,omitempty"`
	// Train models the time of a train step and the effect of staleness on its batch.
	Train ModelledTrain `json:"train,omitempty"`
	// Sync models the time of a weight sync.
	Sync ModelledSync `json:"sync"`
	// Filter models which groups a filter lets through.
	Filter ModelledFilter `json:"filter"`
	// Fleet models engines that are started.
	Fleet ModelledFleet `json:"fleet,omitempty"`
	// Evaluate models what an evaluation takes.
	Evaluate ModelledEvaluate `json:"evaluate,omitempty"`
	// Failures models losses of engines at random.
	Failures ModelledFailures `json:"failures,omitempty"`
}

// Real returns a copy in which a simulation assumes what it does by default: the document as a run
// reads it.
func (c Config) Real() Config {
	c = c.clone()
	c.Modelled = Modelled{}
	c.origin.forget("modelled")
	for i := range c.Engines {
		c.Engines[i].ModelledSpeed = 0
	}
	return c.WithDefaults()
}

// ModelledTrain says how long a simulated train step takes.
type ModelledTrain struct {
	// Utilization is rollout throughput over train throughput; it sets the train step's time in a simulation. Below 1 the run is rollout-bound, above train-bound.
	Utilization float64 `json:"utilization,omitempty" above:"0" max:"1e6"`
	// StepS is the train step's time in seconds in a simulation, instead of utilization.
	StepS float64 `json:"step_s,omitempty" above:"0" max:"1e7"`
	// ThroughputTokensPerS is the trainer's speed in tokens per second in a simulation, instead of utilization.
	ThroughputTokensPerS float64 `json:"throughput_tokens_per_s,omitempty" above:"0" max:"1e15"`
	// StepBy says how a simulated step's time follows its batch. Under constant, it is the same for every batch. Under rollouts and tokens, it is in proportion to the batch's; the time given is that of a whole batch of mean length. Default constant.
	StepBy string `json:"step_by,omitempty" allowed:"constant rollouts tokens"`
	// StepCV is the coefficient of variation of a simulated step's time around that, lognormal with the same mean. Default 0.
	StepCV float64 `json:"step_cv,omitempty" min:"0" max:"10"`
	// FailureRate is the share of simulated steps that fail at their end, to be tried again as failures.train_attempts says. Default 0.
	FailureRate float64 `json:"failure_rate,omitempty" min:"0" below:"1"`
	// DriftNatsPerVersion is the mean absolute log-ratio that a trained group is modelled to have per version of staleness, for queue.evict drift. A run measures its own. Default 0.01.
	DriftNatsPerVersion float64 `json:"drift_nats_per_version,omitempty" min:"0" max:"100"`
	// DriftSpread is the standard deviation of the logarithm of the groups' own factor on it. Default 0.3.
	DriftSpread float64 `json:"drift_spread,omitempty" min:"0" max:"10"`
}

// ModelledSync says how long a simulated weight sync takes.
type ModelledSync struct {
	// TimeS is the modelled time of one sync in seconds; a run measures its own. Default 0.
	TimeS float64 `json:"time_s" min:"0" max:"1e6"`
	// LoadS is the part of a sync before that in which engines fetch a version beside the one they serve, in seconds. They generate meanwhile in every mode; under drain, only the rollouts they have. Default 0.
	LoadS float64 `json:"load_s,omitempty" min:"0" max:"1e6"`
	// PrefillTokensPerS is the modelled speed, in tokens per second and slot, at which a resumed rollout reads the tokens it has; 0 is at once. A run measures its own. Default 0.
	PrefillTokensPerS float64 `json:"prefill_tokens_per_s" min:"0" max:"1e12"`
}

// ModelledFilter says what a simulated filter lets through.
type ModelledFilter struct {
	// Acceptance is the modelled share of groups that a filter lets through; a run measures its own. Default 1.
	Acceptance float64 `json:"acceptance" above:"0" max:"1"`
}

// ModelledFleet says how long a simulated engine takes to start.
type ModelledFleet struct {
	// StartS is how long an engine takes to be there in a simulation, in seconds; a run measures its own. Default 0.
	StartS float64 `json:"start_s,omitempty" min:"0" max:"1e6"`
}

// ModelledEvaluate says what a simulated evaluation takes.
type ModelledEvaluate struct {
	// Occupies says which part stands still in a simulation while evaluate.prompts rollouts are evaluated. Under engines, all slots take part, from the end of a weight sync on. Under trainer, its next step waits. Under none, nothing stands still. Default none.
	Occupies string `json:"occupies,omitempty" allowed:"none engines trainer"`
	// TimeS is the modelled time of one evaluation in seconds. Default what so many rollouts of the model take in all slots.
	TimeS float64 `json:"time_s,omitempty" above:"0" max:"1e7"`
}

// ModelledFailures says how often simulated engines are lost.
type ModelledFailures struct {
	// EngineMTBFS is the mean time between the losses of one engine in a simulation, in seconds, exponential. Default never.
	EngineMTBFS float64 `json:"engine_mtbf_s,omitempty" above:"0" max:"1e12"`
	// EngineDownS is the mean time until a lost engine is back, exponential, before it loads weights. Default 600 with engine_mtbf_s.
	EngineDownS float64 `json:"engine_down_s,omitempty" above:"0" max:"1e12"`
}

// DecodePoint is one point of a speed curve.
type DecodePoint struct {
	// Active is the number of slots of one engine that generate.
	Active int `json:"active" min:"1" max:"16777216"`
	// TokensPerS is the speed of each of them then, in tokens per second.
	TokensPerS float64 `json:"tokens_per_s" above:"0" max:"1e9"`
}

// Prefill models how an engine reads tokens that a rollout did not generate into
// the cache. These are its prompt, the results of tools, and all its tokens once
// it was interrupted.
type Prefill struct {
	// TokensPerS is the speed, in tokens per second: of a slot, an engine or a worker, as mode says.
	TokensPerS float64 `json:"tokens_per_s,omitempty" above:"0" max:"1e12"`
	// Mode says which rollouts wait for a read. Mode slot lets every rollout read for itself, and slows no other. Mode engine lets an engine read one rollout after the other while its others stand still. Mode pool has workers read for all engines, one rollout each. Default slot.
	Mode string `json:"mode,omitempty" allowed:"slot engine pool"`
	// Workers is the number of the pool's.
	Workers int `json:"workers,omitempty" min:"1" max:"1000000"`
	// CacheTokens is how many tokens of contexts one engine's cache holds. Rollouts of a group on one engine then read their prompt once. A rollout that returns from a tool reads all again where others needed the room, or where weights changed. Unset, every rollout keeps its own context while it has its slot, and shares none.
	CacheTokens int `json:"cache_tokens,omitempty" min:"1" max:"1000000000000"`
}

// ModelledTools is a model of multi-turn rollouts: between two parts of its generation a
// rollout calls a tool, holding its slot.
type ModelledTools struct {
	// Calls is the mean number of calls of a rollout; it generates one part more than that.
	Calls float64 `json:"calls,omitempty" min:"0" max:"4096"`
	// CallsKind is their distribution. Kind fixed is the same number for all. If the mean is not whole, a rollout makes the whole number below or above it, so that the mean holds. Default fixed.
	CallsKind string `json:"calls_kind,omitempty" allowed:"fixed poisson geometric"`
	// CallsMax is the most calls of a rollout. Default no limit.
	CallsMax int `json:"calls_max,omitempty" min:"1" max:"4096"`
	// Split divides the tokens over the turns: even, or at random. Default even.
	Split string `json:"split,omitempty" allowed:"even random"`
	// Time of one call.
	Time TimeModel `json:"time,omitempty"`
	// Concurrency is the number of calls that may run at once; others wait. Default no limit.
	Concurrency int `json:"concurrency,omitempty" min:"1" max:"16777216"`
	// OutputTokens is what a call returns, read into the cache before the next part. Default 0.
	OutputTokens int `json:"output_tokens,omitempty" min:"0" max:"1048576"`
	// FailureRate is the share of calls that fail, after their time. Default 0.
	FailureRate float64 `json:"failure_rate,omitempty" min:"0" below:"1"`
	// Retries is how often a failed call is made again before the rollout's attempt fails. Default 0.
	Retries int `json:"retries,omitempty" min:"0" max:"1000"`
}

// ModelledSandbox is a model of what a rollout's tools run in. A rollout keeps its sandbox
// until it ends, also while it stands interrupted.
type ModelledSandbox struct {
	// When it starts: at the rollout's first tool call (or its environment's time, if that comes first), or with the rollout. Default first_call.
	When string `json:"when,omitempty" allowed:"first_call rollout"`
	// Start is the time that one takes to start.
	Start TimeModel `json:"start,omitempty"`
	// Limit is the number of sandboxes there may be at once; a rollout without one waits. Default no limit.
	Limit int `json:"limit,omitempty" min:"1" max:"16777216"`
	// StartConcurrency is the number that may start at once, so that a start takes longer the more are asked for; others wait. Default no limit.
	StartConcurrency int `json:"start_concurrency,omitempty" min:"1" max:"16777216"`
	// StartTimeoutS gives a start up that is not done after so many seconds, its wait for others included. Default never.
	StartTimeoutS float64 `json:"start_timeout_s,omitempty" above:"0" max:"604800"`
	// FailureRate is the share of starts that fail, after their time. Default 0.
	FailureRate float64 `json:"failure_rate,omitempty" min:"0" below:"1"`
	// MTBFS is the mean time a sandbox lives, in seconds, exponential; a rollout whose sandbox is gone fails when it uses it. Default for ever.
	MTBFS float64 `json:"mtbf_s,omitempty" above:"0" max:"1e12"`
	// Retries is how often a start that failed or took too long is tried again before the rollout's attempt fails. Default 0.
	Retries int `json:"retries,omitempty" min:"0" max:"1000"`
	// Warm is the number kept ready ahead of demand; they count against limit, and rollouts' own starts go first. Default 0.
	Warm int `json:"warm,omitempty" min:"0" max:"16777216"`
	// Uses is the number of rollouts that one sandbox serves, made as if it were new between them. Default 1.
	Uses int `json:"uses,omitempty" min:"1" max:"1000000"`
	// ResetS is the time that takes, in seconds. Default 0.
	ResetS float64 `json:"reset_s,omitempty" min:"0" max:"86400"`
}

// ModelledVerifier is a model of the verifier that rewards a finished rollout: a model or a program of its own.
type ModelledVerifier struct {
	// Time of one verdict.
	Time TimeModel `json:"time,omitempty"`
	// Concurrency is the number of rollouts judged at once; others wait. Default no limit.
	Concurrency int `json:"concurrency,omitempty" min:"1" max:"16777216"`
}

// ModelledScorer is a model of the pool of engines that score a finished rollout: a teacher's or a reference's log-probs of its tokens.
type ModelledScorer struct {
	// Time of one rollout's scores, of any length.
	Time TimeModel `json:"time,omitempty"`
	// TokensPerS is the speed at which a server reads a rollout, in tokens per second, beside time. One prefill has prompt, tools' outputs and response. Default at once.
	TokensPerS float64 `json:"tokens_per_s,omitempty" above:"0" max:"1e12"`
	// Concurrency is the number of rollouts scored at once; others wait. Where compute binds a server's prefill, it is the number of servers. Default no limit.
	Concurrency int `json:"concurrency,omitempty" min:"1" max:"16777216"`
}

// Solve is a model of rewards: 1 for a solved rollout, 0 otherwise.
type Solve struct {
	// Kind of reward model. Kind none gives nothing a reward, and fixed solves every rollout at one rate. Kind logistic has a policy whose skill grows play prompts of several difficulties. It solves a rollout with probability 1/(1 + exp(difficulty - skill)). Default none, fixed when only rate is given, else logistic.
	Kind string `json:"kind" allowed:"none fixed logistic"`
	// Rate is the solve rate of fixed.
	Rate float64 `json:"rate,omitempty" min:"0" max:"1"`
	// Begin is the version at which logistic's skill begins to move. Default 0.
	Begin int `json:"begin,omitempty" min:"0" max:"1000000000"`
	// From is logistic's skill up to version begin, in logits. Default 0.
	From float64 `json:"from,omitempty" min:"-30" max:"30"`
	// To is the skill from version begin + steps on. Default the same as from.
	To float64 `json:"to,omitempty" min:"-30" max:"30"`
	// Steps is the number of train steps in which the skill goes from the one to the other.
	Steps int `json:"steps,omitempty" min:"0" max:"1000000000"`
	// Levels are the difficulties of the curriculum's levels in logits, the first level's first. Without them every prompt is of difficulty 0.
	Levels []float64 `json:"levels,omitempty" min:"-30" max:"30"`
	// Spread is the standard deviation of the prompts' own difficulty around their level's, in logits. Default 0.
	Spread float64 `json:"spread,omitempty" min:"0" max:"10"`
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
	// PromptSigma makes some prompts long and others short. It is the standard deviation of the logarithm of a factor, of mean 1, on all lengths of a prompt. Default 0.
	PromptSigma float64 `json:"prompt_sigma,omitempty" min:"0" max:"3"`
	// File of measured lengths for empirical, relative to the working directory: a number, a list or a JSON object a line.
	File string `json:"file,omitempty"`
	// Groups are measured lengths for empirical in place of file: one list a prompt, its siblings in it.
	Groups [][]int `json:"groups,omitempty" min:"1" max:"1048576"`
}

// TimeModel is a model of the time an environment takes per rollout.
type TimeModel struct {
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
