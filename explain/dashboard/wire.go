package dashboard

import (
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/attribution"
	"github.com/headway-rl/headway/observe/metrics"
)

// Info is what does not change while a run is watched.
type Info struct {
	Name string `json:"name"`
	// Kind is live, run or simulation.
	Kind string `json:"kind"`
	// Program made the run; Config is its resolved document as YAML, Task what it learns.
	Program string `json:"program"`
	Config  string `json:"config"`
	Task    string `json:"task"`
	// The rules in short. Steps is how many the run is to make, 0 for no end.
	Policy      string   `json:"policy"`
	GroupSize   int      `json:"group_size"`
	BatchGroups int      `json:"batch_groups"`
	QueueGroups int      `json:"queue_groups"`
	Concurrency int      `json:"concurrency_rollouts"`
	SyncMode    string   `json:"sync_mode"`
	SyncEvery   int      `json:"sync_every"`
	Steps       int      `json:"steps"`
	Engines     []string `json:"engines"`
	// Cells has the cell of each engine, "" for the control plane's own; nil for a run without cells.
	Cells            []string `json:"cells,omitempty"`
	MaxStaleness     int64    `json:"max_staleness"`
	WarmupSteps      int64    `json:"warmup_steps"`
	HasTokens        bool     `json:"has_tokens"`
	HasText          bool     `json:"has_text"`
	TimelineLevelMin int      `json:"timeline_level_min"`
	TimelineLevelMax int      `json:"timeline_level_max"`
}

// Summary is the state of a run in figures: the overview.
type Summary struct {
	// AtNS is the run's time it is of, Ended that nothing more comes, State as protocol.Status has it.
	AtNS    int64        `json:"at_ns"`
	Ended   bool         `json:"ended"`
	State   string       `json:"state"`
	Version loop.Version `json:"version"`
	// Health is the queue's: the groups that enter and leave, at which rates, and the side that binds.
	Health Health `json:"health"`
	// Staleness of the window, its split, and its prediction (nil where there is none).
	Staleness   metrics.Staleness    `json:"staleness"`
	PQS         float64              `json:"pqs"`
	IQS         float64              `json:"iqs"`
	Attribution *attribution.Summary `json:"attribution"`
	Predicted   *Predicted           `json:"predicted"`
	// Control is the goal that the run keeps; nil without one.
	Control *ControlState `json:"control"`
	// Ledger as in status.
	Ledger   loop.Ledger    `json:"ledger"`
	Balanced bool           `json:"balanced"`
	Queue    QueueState     `json:"queue"`
	Engines  []EngineState  `json:"engines"`
	Reward   Trend          `json:"reward"`
	Signal   metrics.Signal `json:"signal"`
	// Length, Latency and Waste of the window.
	Length  metrics.Length  `json:"length"`
	Latency metrics.Latency `json:"latency"`
	Waste   metrics.Waste   `json:"waste"`
	// OffPolicy of the newest step: 0 where no trainer says.
	ClipFraction float64 `json:"clip_fraction"`
	MeanLogRatio float64 `json:"mean_log_ratio"`
	ESS          float64 `json:"effective_sample_size"`
	// HeldOut is the newest held-out accuracy, at HeldOutStep; nil for none.
	HeldOut     *float64 `json:"held_out"`
	HeldOutStep int64    `json:"held_out_step"`
	// Stall is what the run waits for while nothing makes progress, empty for nothing.
	Stall string `json:"stall,omitempty"`
	// Reading is how far a recorded run has been read, nil once it has been read whole.
	Reading *Reading `json:"reading"`
	// Missed counts events that a live run could not hand over in time, so that figures are of the others.
	Missed int64 `json:"missed_events"`
	// Problem says why no more of the run can be shown, empty for nothing.
	Problem string `json:"problem,omitempty"`
}

// Reading is how far a recorded run has been read, in bytes of its trace.
type Reading struct {
	Bytes int64 `json:"bytes"`
	Of    int64 `json:"of"`
}

// Health says what enters the queue, what leaves it, and what binds.
type Health struct {
	metrics.Throughput
	// Binding says in a sentence which side binds and the meaning of that; its word is in Throughput.
	Sentence string `json:"sentence"`
	// QueueTrendGroupsPerStep is how the queue's content moves.
	QueueTrendGroupsPerStep float64 `json:"queue_trend_groups_per_step"`
	TrainerIdle             float64 `json:"trainer_idle_ratio"`
	RolloutIdle             float64 `json:"rollout_idle_ratio"`
	// TrainerAbsent is the share of the time in which there was no trainer (metrics.Attendance).
	TrainerAbsent float64 `json:"trainer_absent_ratio"`
	TokensPerS    float64 `json:"tokens_per_s"`
	PeriodS       float64 `json:"period_s"`
	StepS         float64 `json:"step_s"`
	Acceptance    float64 `json:"acceptance"`
	DroppedShare  float64 `json:"dropped_share"`
	// FromStep and ToStep are the train steps that all of it is of, 0 where there is none, WindowS how long they took.
	FromStep loop.Version `json:"from_step"`
	ToStep   loop.Version `json:"to_step"`
	WindowS  float64      `json:"window_s"`
	// IdleTrainer and IdleEngines are the idle shares of these steps by cause.
	IdleTrainer attribution.Idle `json:"idle_trainer"`
	IdleEngines attribution.Idle `json:"idle_engines"`
}

// Predicted is what was expected: before the run, and by the closed form at measured inputs.
type Predicted struct {
	BeforeMean     *float64 `json:"before_mean"`
	ClosedFormMean *float64 `json:"closed_form_mean"`
	PQS            *float64 `json:"pqs"`
	IQS            *float64 `json:"iqs"`
	PeriodS        *float64 `json:"period_s"`
}

// QueueState is the queue's now.
type QueueState struct {
	Groups   int `json:"groups"`
	Capacity int `json:"capacity_groups"`
	Held     int `json:"held_groups"`
	Open     int `json:"open_groups"`
	Batch    int `json:"batch_groups"`
}

// EngineState is one engine now.
type EngineState struct {
	Name string `json:"name"`
	// Cell plays on it, "" for the control plane.
	Cell    string       `json:"cell,omitempty"`
	State   string       `json:"state"`
	Version loop.Version `json:"version"`
	Active  int          `json:"active"`
	Slots   int          `json:"slots"`
}

// Trend is a figure with where it was.
type Trend struct {
	First float64 `json:"first"`
	Last  float64 `json:"last"`
	Best  float64 `json:"best"`
}

// Series is the run step by step, by column; every column is as long as Step. NaN is null. Where more steps
// are asked for than points, a point stands for several: values are means, Step the last of them.
type Series struct {
	Step    []int64               `json:"step"`
	TimeS   []float64             `json:"time_s"`
	Columns map[string][]*float64 `json:"columns"`
}

// Columns of a Series, those there are of them: production, effective and consumption (rollouts/s of the period),
// acceptance, reward, staleness, pqs, iqs, staleness_max, token_staleness,
// period_s, train_s, trainer_idle, rollout_idle, queue_groups, tokens_per_s, response_tokens, clip_fraction,
// mean_log_ratio, effective_sample_size, held_out, one "from_SOURCE" for each attribution.Source, and the idle shares of the period by cause:
// trainer_starved, _syncing, _validating, _paused, _blocked, and engines_ likewise.

// Tracks are the rows of the timeline, from top to bottom, in the three rows of a dependency view. The first makes
// rollouts (engines, slots, environments), the second waits (queue), the third trains (trainer, sync).
type Tracks struct {
	// EndNS is how far the run has come; a tile beyond is empty. Tiles that end by FinalNS do not change
	// any more, as long as Version stays; it changes when old spans are thinned.
	EndNS   int64   `json:"end_ns"`
	FinalNS int64   `json:"final_ns"`
	Version int64   `json:"version"`
	Tracks  []Track `json:"tracks"`
}

// Track is one row.
type Track struct {
	ID    int    `json:"id"`
	Name  string `json:"name"`
	Kind  string `json:"kind"`  // slot, weights, environment, queue, trainer, sync
	Row   string `json:"row"`   // rollout, queue, train
	Group string `json:"group"` // the engine it belongs to, for folding
}

// Tile of the timeline. A level-L pixel is 2^L microseconds, a tile 1,024 pixels wide, so that tile (L, I) begins at
// I·1024·2^L µs. Spans of less than a pixel in one track are merged: Count says how many, Version is that of the
// longest of them. Where a tile had too many spans for a viewer, wider ones are merged too. A span that has not ended
// is drawn up to EndNS. Version is that of the weights a rollout began with, that a sync brings, or that a train step
// makes. For a group in the queue it is its start version. A tile asked for with from_track and to_track (exclusive)
// has the spans of those tracks alone, merged less.
//
// On the wire come the bytes "HWT1", then little-endian uint32 n (spans) and uint32 f (flows). Columns follow one after
// the other, each padded to 4 bytes. The spans' are float32 start and float32 end, int32 track, int32 version, int32
// count, int32 ref, uint8 kind. Start and end are pixels from the tile's beginning and may reach outside; ref is the
// group, or the step. The flows' are float32 x0, float32 x1, int32 track0, int32 track1, int32 version, int32 ref (the
// group).
type Tile struct {
	Start, End                 []float32
	Track, Version, Count, Ref []int32
	Kind                       []SpanKind
	FlowX0, FlowX1             []float32
	FlowTrack0, FlowTrack1     []int32
	FlowVersion, FlowRef       []int32
}

// SpanKind says what a span is.
type SpanKind uint8

// Kinds of spans.
const (
	SpanGenerate SpanKind = iota
	SpanEnvironment
	SpanInterrupted
	SpanLoad
	SpanSwitch
	SpanQueued
	SpanTrain
	SpanSync
	SpanFailed
	SpanValidate
)

// Queue lists the groups that are ready and the open ones, oldest first.
type Queue struct {
	State QueueState   `json:"state"`
	Ready []QueueGroup `json:"ready"`
	Open  []QueueGroup `json:"open"`
}

// QueueGroup is one group on its way.
type QueueGroup struct {
	ID           loop.GroupID `json:"id"`
	StartVersion loop.Version `json:"start_version"`
	ReadyVersion loop.Version `json:"ready_version"` // -1 while open
	// AgeS since its first rollout was issued, WaitS since it was ready.
	AgeS  float64 `json:"age_s"`
	WaitS float64 `json:"wait_s"`
	// StalenessNow is what it would have if it were trained now.
	StalenessNow loop.Version `json:"staleness_now"`
	Scored       int          `json:"scored"`
	Size         int          `json:"size"`
	Tokens       int64        `json:"tokens"`
	RewardMean   float64      `json:"reward_mean"`
	Held         bool         `json:"held"`
}

// Groups is a page of groups whose rollouts can be read.
type Groups struct {
	Groups []GroupLine  `json:"groups"`
	Next   loop.GroupID `json:"next"` // to ask on from, 0 for no more
}

// GroupLine is one group in a list.
type GroupLine struct {
	ID         loop.GroupID `json:"id"`
	Step       loop.Version `json:"step"` // that trained it, -1 for none
	End        string       `json:"end"`
	Staleness  loop.Version `json:"staleness"`
	RewardMean float64      `json:"reward_mean"`
	RewardMin  float64      `json:"reward_min"`
	RewardMax  float64      `json:"reward_max"`
	Tokens     int64        `json:"tokens"`
	Prompt     string       `json:"prompt"` // its beginning
	// Readable: the rollout's text is kept. Of others there are the figures alone.
	Readable bool `json:"readable"`
}

// GroupDetail is one group whole.
type GroupDetail struct {
	GroupLine
	StartVersion loop.Version        `json:"start_version"`
	ReadyVersion loop.Version        `json:"ready_version"`
	Split        *attribution.Split  `json:"split"`
	Rollouts     []RolloutDetail     `json:"rollouts"`
	PromptText   string              `json:"prompt_text"`
	Meta         map[string][]string `json:"meta,omitempty"`
}

// RolloutDetail is one sample: its turns, and its tokens by column.
type RolloutDetail struct {
	Sample    int32    `json:"sample"`
	Attempt   int32    `json:"attempt"`
	Reward    float64  `json:"reward"`
	Advantage *float64 `json:"advantage"`
	Truncated bool     `json:"truncated"`
	Turns     []Turn   `json:"turns"`
}

// Turn is a stretch of a rollout: what was asked, what the policy said, what a tool said.
type Turn struct {
	// Role is prompt, policy, tool or verifier.
	Role string `json:"role"`
	// Name is of the tool or verifier; of a policy's turn it is the agent's.
	Name string `json:"name,omitempty"`
	Text string `json:"text"`
	// Tokens of a policy's turn: the text of each, its id, log-probability and policy version. The last is the
	// trainer's log-probability minus the rollout's where it is known (nil where not).
	Pieces    []string   `json:"pieces,omitempty"`
	IDs       []int32    `json:"ids,omitempty"`
	Logprobs  []float32  `json:"logprobs,omitempty"`
	Versions  []int64    `json:"versions,omitempty"`
	LogRatios []*float32 `json:"log_ratios,omitempty"`
	// DurationS is how long it took, 0 where not known.
	DurationS float64 `json:"duration_s,omitempty"`
}

// Frontier is where the run stands among the settings it could have.
type Frontier struct {
	// Inputs are those it was computed for, by name, as predict names its flags.
	Inputs map[string]float64 `json:"inputs"`
	// Choices are those of its inputs that are words: policy, select, start, sync_mode, sync_trainer.
	Choices map[string]string `json:"choices"`
	// Point is the setting asked for, Here the run's own.
	Point FrontierPoint  `json:"point"`
	Here  *FrontierPoint `json:"here"`
	// Curve is the frontier over the split of the GPUs (utilization), and Cheapest the cheapest move from Here.
	Curve    []FrontierPoint `json:"curve"`
	Cheapest *FrontierMove   `json:"cheapest"`
	Warnings []string        `json:"warnings"`
}

// FrontierPoint is one setting's outcome.
type FrontierPoint struct {
	Utilization   float64 `json:"utilization"`
	StalenessMean float64 `json:"staleness_mean"`
	StalenessP95  float64 `json:"staleness_p95"`
	PQS           float64 `json:"pqs"`
	IQS           float64 `json:"iqs"`
	// PeriodRatio is relative to the shortest period of the curve.
	PeriodRatio float64 `json:"period_ratio"`
	Regime      string  `json:"regime"`
}

// FrontierMove is a change of one setting, and the point that it leads to from Here: its figures mean what those of
// a FrontierPoint do.
type FrontierMove struct {
	Change        string  `json:"change"`
	HoldsFixed    string  `json:"holds_fixed"`
	StalenessMean float64 `json:"staleness_mean"`
	PeriodRatio   float64 `json:"period_ratio"`
}

// Schedules are the dependency graphs of a step under several topologies.
type Schedules struct {
	Inputs    map[string]float64 `json:"inputs"`
	Schedules []Schedule         `json:"schedules"`
}

// Schedule is one of them.
type Schedule struct {
	// Topology is colocated, disaggregated, one_step_off, fully_async or partial.
	Topology string `json:"topology"`
	Title    string `json:"title"`
	// Bars are one steady-state stretch of steps, Arrows what waits for what; seconds.
	Bars   []Bar   `json:"bars"`
	Arrows []Arrow `json:"arrows"`
	// PeriodS of a step, RolloutsPerS, the idle shares, the mean staleness and the clip fraction expected of it.
	PeriodS       float64  `json:"period_s"`
	RolloutsPerS  float64  `json:"rollouts_per_s"`
	TrainerIdle   float64  `json:"trainer_idle_ratio"`
	RolloutIdle   float64  `json:"rollout_idle_ratio"`
	StalenessMean float64  `json:"staleness_mean"`
	ClipFraction  *float64 `json:"clip_fraction"`
	WithinBudget  bool     `json:"within_budget"`
	Notes         []string `json:"notes"`
}

// Bar is one piece of work on a lane.
type Bar struct {
	ID      int     `json:"id"`
	Lane    string  `json:"lane"` // rollout, queue, trainer, sync
	Row     int     `json:"row"`
	FromS   float64 `json:"from_s"`
	ToS     float64 `json:"to_s"`
	Label   string  `json:"label"`
	Kind    string  `json:"kind"` // generate, environment, logprobs, train, sync, wait
	Version int64   `json:"version"`
}

// Arrow says that one bar waits for another.
type Arrow struct {
	From int    `json:"from"`
	To   int    `json:"to"`
	Why  string `json:"why"`
}
