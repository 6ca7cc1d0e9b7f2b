package foreign

import "fmt"

// Origin says how a figure was come by.
type Origin string

// Origins.
const (
	// Logged: the framework logged it under a notion that is the same as ours.
	Logged Origin = "logged"
	// Configured: it is a setting in the log's config.
	Configured Origin = "configured"
	// Inferred: computed from other figures; Figure.From says how.
	Inferred Origin = "inferred"
	// Given: by the caller, as --set.
	Given Origin = "given"
)

// Figure is one number of a log. The zero value is not known.
type Figure struct {
	Value float64 `json:"value"`
	// Origin is empty where the figure is not known.
	Origin Origin `json:"origin,omitempty"`
	// From names the keys, or the formula over keys, that it comes from.
	From string `json:"from,omitempty"`
}

// Known reports whether there is a figure.
func (f Figure) Known() bool { return f.Origin != "" }

// Log is a run of another framework in our terms.
type Log struct {
	// Framework is verl-fa, verl-v1, verl-sync, prime-rl, skyrl, areal, pipelinerl, slime, nemo-rl, openrlhf,
	// roll or trl; Files what was read.
	Framework string   `json:"framework"`
	Files     []string `json:"files"`
	Settings  Settings `json:"settings"`
	// Series has one entry a train step, in order of steps; beyond SeriesMax neighbours are merged.
	Series []Step `json:"-"`
	// Rollouts are single rollouts, where the files have them, newest RolloutsMax.
	Rollouts []Rollout `json:"-"`
	// Missing lists the quantities that could not be known, and Inferred the computed ones. Warnings lists the faults
	// of the files: torn lines, values that are no finite numbers, clocks that go back, unknown keys.
	Missing  []Missing `json:"missing"`
	Inferred []string  `json:"inferred"`
	Warnings []Warning `json:"warnings"`
	// Definition says in words how this framework's staleness was turned into ours, and what the
	// difference may be.
	Definition string `json:"definition"`

	// clockS is the time of the series' zero on the clock of the files, 0 where it has none or one of an unknown zone.
	clockS float64
	// dropped says that older rollouts than those kept were left out, droppedTimes that some of them had times.
	dropped, droppedTimes bool
}

// tooManyRollouts warns of rollouts beyond RolloutsMax.
const tooManyRollouts = "more single rollouts than are kept: the oldest are left out, and what only they say of early steps"

// RolloutsMax is how many single rollouts are kept of a log.
const RolloutsMax = 1 << 18

// Settings are what a log says of how the run was set up. Rollouts, not groups, unless the name says so. Unknown
// settings have no key in JSON.
type Settings struct {
	// ConcurrencyRollouts is C, BatchRollouts B, GroupSize S, QueueRollouts Q (0 with an origin: unbounded).
	ConcurrencyRollouts Figure `json:"concurrency_rollouts,omitzero"`
	BatchRollouts       Figure `json:"batch_rollouts,omitzero"`
	GroupSize           Figure `json:"group_size,omitzero"`
	QueueRollouts       Figure `json:"queue_rollouts,omitzero"`
	// StalenessBudget is the framework's own, in versions, SyncEvery the train steps a weight sync.
	StalenessBudget Figure `json:"staleness_budget,omitzero"`
	SyncEvery       Figure `json:"sync_every,omitzero"`
	// Policy is the queue's rule as loop.md names it, Preset the name of ours; empty where unknown.
	Policy string `json:"policy,omitempty"`
	Preset string `json:"preset,omitempty"`
	// RolloutGPUs and TrainGPUs are the split.
	RolloutGPUs Figure `json:"rollout_gpus,omitzero"`
	TrainGPUs   Figure `json:"train_gpus,omitzero"`
	// SharedGPUs says that engines and trainer use the same GPUs, so that none can change sides.
	SharedGPUs bool `json:"shared_gpus,omitempty"`
}

// Step is what a log says of one train step. Times in seconds, lengths in tokens, staleness in versions
// (train steps), ratios from 0 to 1. Figures that the log lacks are not known.
type Step struct {
	// Step is the step as the framework counts it. Where a long log was thinned, it is the last of several; figures are
	// then means over them, largest ones the largest. Steps is how many train steps the entry stands for; weigh by it.
	// It is more than 1 also where a framework logs once a weight sync of several, or every tenth step.
	Step  int64
	Steps int64
	// TimeS is when it was logged, in seconds since the first; unknown where the log has no clock.
	TimeS Figure
	// PeriodS between two updates, TrainS the step alone, SyncS the weight sync, WaitS what the trainer
	// waited for a batch.
	PeriodS, TrainS, SyncS, WaitS Figure
	// GenerateS is the generation of a batch where engines and trainer take turns, and LogProbsS the trainer's pass for the
	// old log-probs. SlotsBusy is the mean share of the batch that still generates during GenerateS.
	GenerateS, LogProbsS, SlotsBusy Figure
	// Staleness of the groups trained, and its parts, which add up to it. TokenStaleness is the mean over trained
	// tokens, by the version that sampled each.
	StalenessMean, StalenessMax, PQS, IQS, TokenStaleness Figure
	// TrainerIdle and RolloutIdle are shares of the time.
	TrainerIdle, RolloutIdle Figure
	// RolloutS is the time of a rollout: mean, p95 and longest; GroupS of a group; TailMultiplier the
	// longest of a group over the mean.
	RolloutMeanS, RolloutP95S, RolloutMaxS, GroupMeanS, TailMultiplier Figure
	// InFlightRollouts and QueuedRollouts at some moment of the step.
	InFlightRollouts, QueuedRollouts Figure
	// Rollouts trained, dropped for staleness, filtered; since the step before.
	Trained, Dropped, Filtered, Failed Figure
	// Reward, response length, and the figures of the loss.
	Reward, ResponseTokens, TruncatedShare, SolveRate   Figure
	ClipFraction, MeanLogRatio, EffectiveSampleSize, KL Figure
	TokensPerS                                          Figure
}

// Rollout is one rollout of a log that has them. Times in seconds on the log's clock.
type Rollout struct {
	Group   string
	StartS  Figure
	EndS    Figure
	Start   Figure // version at its first token
	End     Figure // version at its last
	Trained Figure // version its train step started from
	Tokens  Figure
	Reward  Figure
	// EnvironmentS is the part of its time that was no generation.
	EnvironmentS Figure
}

// Missing is something a log does not say.
type Missing struct {
	// Name of the missing quantity in our terms; Why it cannot be known from these files; Get, how to have it logged.
	What string `json:"what"`
	Why  string `json:"why"`
	Get  string `json:"get,omitempty"`
}

// Warning is something wrong with a file. Warnings of one kind are one, with a count.
type Warning struct {
	File  string `json:"file"`
	Line  int64  `json:"line,omitempty"` // of the first, 0 where lines have no meaning
	Text  string `json:"text"`
	Count int64  `json:"count"`
}

// String says it in a line: where, what, and how often.
func (w Warning) String() string {
	text := w.Text
	if w.File != "" {
		text = w.File + ": " + text
	}
	if w.Count > 1 {
		text += fmt.Sprintf(" (%d times)", w.Count)
	}
	return text
}
