package foreign

// Notion is one of Step's figures.
type Notion struct {
	// Name is as in JSON: units last. Words are what it is.
	Name, Words string
	// At is where a step keeps it.
	At func(*Step) *Figure
}

// Notions of a step.
var (
	Period         = Notion{"period_s", "time between two updates", func(s *Step) *Figure { return &s.PeriodS }}
	Train          = Notion{"train_s", "train step alone", func(s *Step) *Figure { return &s.TrainS }}
	Sync           = Notion{"sync_s", "weight sync", func(s *Step) *Figure { return &s.SyncS }}
	Wait           = Notion{"wait_s", "the trainer's wait for a batch", func(s *Step) *Figure { return &s.WaitS }}
	Generate       = Notion{"generate_s", "generation of a batch, in turns with training", func(s *Step) *Figure { return &s.GenerateS }}
	LogProbs       = Notion{"log_probs_s", "the trainer's pass for the old log-probs", func(s *Step) *Figure { return &s.LogProbsS }}
	Busy           = Notion{"slots_busy_share", "share of a batch that still generates, mean over its generation", func(s *Step) *Figure { return &s.SlotsBusy }}
	Staleness      = Notion{"staleness_mean", "staleness, mean", func(s *Step) *Figure { return &s.StalenessMean }}
	StalenessTop   = Notion{"staleness_max", "staleness, largest", func(s *Step) *Figure { return &s.StalenessMax }}
	PreQueue       = Notion{"pqs", "pre-queue staleness", func(s *Step) *Figure { return &s.PQS }}
	InQueue        = Notion{"iqs", "in-queue staleness", func(s *Step) *Figure { return &s.IQS }}
	TokenStaleness = Notion{"token_staleness", "token staleness, mean", func(s *Step) *Figure { return &s.TokenStaleness }}
	TrainerIdle    = Notion{"trainer_idle_ratio", "trainer idle", func(s *Step) *Figure { return &s.TrainerIdle }}
	RolloutIdle    = Notion{"rollout_idle_ratio", "engines idle", func(s *Step) *Figure { return &s.RolloutIdle }}
	RolloutMean    = Notion{"rollout_mean_s", "time of a rollout, mean", func(s *Step) *Figure { return &s.RolloutMeanS }}
	RolloutP95     = Notion{"rollout_p95_s", "time of a rollout, p95", func(s *Step) *Figure { return &s.RolloutP95S }}
	RolloutTop     = Notion{"rollout_max_s", "time of a rollout, longest", func(s *Step) *Figure { return &s.RolloutMaxS }}
	GroupMean      = Notion{"group_mean_s", "time of a group, mean", func(s *Step) *Figure { return &s.GroupMeanS }}
	Tail           = Notion{"tail_multiplier", "longest of a group over the mean", func(s *Step) *Figure { return &s.TailMultiplier }}
	InFlight       = Notion{"in_flight_rollouts", "rollouts in flight", func(s *Step) *Figure { return &s.InFlightRollouts }}
	Queued         = Notion{"queued_rollouts", "rollouts queued", func(s *Step) *Figure { return &s.QueuedRollouts }}
	Trained        = Notion{"trained_rollouts", "rollouts trained", func(s *Step) *Figure { return &s.Trained }}
	Dropped        = Notion{"dropped_rollouts", "rollouts dropped for staleness", func(s *Step) *Figure { return &s.Dropped }}
	Filtered       = Notion{"filtered_rollouts", "rollouts filtered", func(s *Step) *Figure { return &s.Filtered }}
	Failed         = Notion{"failed_rollouts", "rollouts failed", func(s *Step) *Figure { return &s.Failed }}
	Reward         = Notion{"reward", "reward, mean", func(s *Step) *Figure { return &s.Reward }}
	Response       = Notion{"response_tokens", "response length, mean", func(s *Step) *Figure { return &s.ResponseTokens }}
	Truncated      = Notion{"truncated_share", "rollouts at the length cap", func(s *Step) *Figure { return &s.TruncatedShare }}
	SolveRate      = Notion{"solve_rate", "solve rate", func(s *Step) *Figure { return &s.SolveRate }}
	Clipped        = Notion{"clip_fraction", "clip fraction", func(s *Step) *Figure { return &s.ClipFraction }}
	LogRatio       = Notion{"mean_log_ratio", "mean log-ratio", func(s *Step) *Figure { return &s.MeanLogRatio }}
	EffectiveSize  = Notion{"effective_sample_size", "effective sample size", func(s *Step) *Figure { return &s.EffectiveSampleSize }}
	Divergence     = Notion{"kl", "KL divergence", func(s *Step) *Figure { return &s.KL }}
	TokensPerS     = Notion{"tokens_per_s", "tokens per second", func(s *Step) *Figure { return &s.TokensPerS }}
)

// Notions are all of them, in the order in which they are shown.
var Notions = []Notion{
	Period, Train, Sync, Wait, Generate, LogProbs, Busy, Staleness, StalenessTop, PreQueue, InQueue, TokenStaleness, TrainerIdle, RolloutIdle,
	RolloutMean, RolloutP95, RolloutTop, GroupMean, Tail, InFlight, Queued, Trained, Dropped, Filtered, Failed,
	Reward, Response, Truncated, SolveRate, Clipped, LogRatio, EffectiveSize, Divergence, TokensPerS,
}

// Setting is one of Settings' figures.
type Setting struct {
	// Name is as in JSON, and as a caller may give it. Words are what it is.
	Name, Words string
	// At is where settings keep it.
	At func(*Settings) *Figure
}

// Settings of a run.
var (
	Concurrency = Setting{"concurrency_rollouts", "concurrency C, in rollouts", func(s *Settings) *Figure { return &s.ConcurrencyRollouts }}
	Batch       = Setting{"batch_rollouts", "batch B, in rollouts", func(s *Settings) *Figure { return &s.BatchRollouts }}
	GroupSize   = Setting{"group_size", "group size S", func(s *Settings) *Figure { return &s.GroupSize }}
	Queue       = Setting{"queue_rollouts", "queue capacity Q, in rollouts", func(s *Settings) *Figure { return &s.QueueRollouts }}
	Budget      = Setting{"staleness_budget", "staleness budget, the framework's own", func(s *Settings) *Figure { return &s.StalenessBudget }}
	SyncEvery   = Setting{"sync_every", "train steps a weight sync", func(s *Settings) *Figure { return &s.SyncEvery }}
	RolloutGPUs = Setting{"rollout_gpus", "GPUs that roll out", func(s *Settings) *Figure { return &s.RolloutGPUs }}
	TrainGPUs   = Setting{"train_gpus", "GPUs that train", func(s *Settings) *Figure { return &s.TrainGPUs }}
)

// SettingsKnown are all settings that are figures, in the order in which they are shown.
var SettingsKnown = []Setting{Concurrency, Batch, GroupSize, Queue, Budget, SyncEvery, RolloutGPUs, TrainGPUs}
