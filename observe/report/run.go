package report

import (
	"math"

	"github.com/headway-rl/headway/observe/bias"
)

// Unknown stands for a figure that was not measured or cannot be computed.
var Unknown = math.NaN()

// Run is everything a report says about one run or simulation. Empty parts are
// left out of the report.
type Run struct {
	// Name of the run, as its directory is called.
	Name string
	// Summary is one or two sentences on what was run and how it ended. Health is one line on the groups that enter and
	// leave the queue, and on the side that binds; "" for nothing.
	Summary, Health string
	// Settings are the config's keys worth showing, in order.
	Settings []Row
	// Headline are the few figures a reader wants first.
	Headline []Row
	// Steps are the train steps in order.
	Steps []Step
	// Accuracy is held-out greedy accuracy, by train step.
	Accuracy []Point
	// Comparison sets measured staleness beside the closed form and the simulation.
	Comparison []Comparison
	// Measured and Simulated count trained groups by staleness: [k] is how many
	// were trained at staleness k. Simulated may be empty.
	Measured, Simulated []int64
	// Attribution says where staleness comes from, Idle what both sides waited for.
	Attribution, Idle []Row
	// Dominant is the larger part of the staleness: "pqs", "iqs", or "" when
	// nothing was trained.
	Dominant string
	// Source is the largest of Attribution's sources, which then is named instead of Dominant; its zero
	// value where nothing was attributed.
	Source Source
	// QueueLever names what moves the wait in the queue, "" for the queue's factor
	// and the split between rollouts and training.
	QueueLever string
	// Notes are warnings and findings, one sentence each.
	Notes []string
	// Window names the span of the figures, such as "after the warm-up", except for the ledger, which
	// counts from the start. It is "" where both are of the whole run.
	Window string
	// Ledger are the rollout attempts by how they ended.
	Ledger []Row
	// Balanced says that the ledger's parts add up to what was admitted.
	Balanced bool
	// Throughput are the rates of both sides.
	Throughput []Row
	// Bias compares what was trained with what was started; nil for none.
	Bias *bias.Report
	// Waste says what became of the tokens made, Partial what interruptions did: see
	// [WasteRows] and [PartialRows]. Hold says how often and how long starts were held.
	Waste, Partial, Hold []Row
	// Control says how a target was kept, and what was moved for it.
	Control []Row
	// OffPolicy says how far training was off policy, by staleness, and OffPolicyNote
	// by which band, "" for nothing to say.
	OffPolicy     []OffPolicy
	OffPolicyNote string
	// Samples are rollouts to read.
	Samples []Sample
	// Files are where everything else is, by what it is; Next are commands to go on with, by what they answer.
	Files, Next []Row
}

// Source is a source of staleness.
type Source struct {
	// Name of it, Words when or where its versions are made, as the end of a sentence; Share is its part of all staleness.
	Name, Words string
	Share       float64
	// Lever is a sentence on what moves it, without its full stop, "" for nothing.
	Lever string
}

// Row is one named figure. Value is printed as it is; Note explains, "" for
// nothing.
type Row struct {
	// Name of the figure, with its unit where it has one.
	Name string
	// Value as it is to be read, Predicted what was expected of it before the run, "" for nothing.
	Value, Predicted string
	// Note explains.
	Note string
}

// Step is one train step's line in every series. Figures that were not measured
// are [Unknown].
type Step struct {
	// Step is the version the step ended with.
	Step int64
	// TimeS is when it ended, in seconds since the run started.
	TimeS float64
	// Reward is the mean reward of the batch.
	Reward float64
	// Staleness is the mean staleness of the batch's groups in versions; PQS and
	// IQS are its two parts.
	Staleness, PQS, IQS float64
	// TrainerIdle and RolloutIdle are the shares of wall time in which the trainer
	// waited and slots were empty.
	TrainerIdle, RolloutIdle float64
	// ClipFraction is the share of tokens whose importance ratio left the band.
	ClipFraction float64
	// TokensPerS is how fast rollouts were generated, in tokens per second.
	TokensPerS float64
}

// Point is one value of a series that is not known at every step.
type Point struct {
	// Step is the train step.
	Step int64
	// Value there.
	Value float64
}

// Comparison is one figure from three sources. A missing one is [Unknown].
type Comparison struct {
	// Name of the figure.
	Name string
	// Measured on the run itself.
	Measured float64
	// Predicted before the first step.
	Predicted float64
	// Closed is the closed form with the run's own inputs.
	Closed float64
	// Simulated is the run's own lengths and times through the simulator.
	Simulated float64
}

// Sample is one rollout to read. The texts may hold anything.
type Sample struct {
	// Step is the train step around which it was made.
	Step int64
	// Prompt, Answer and Expected are what was asked, said and hoped for; Expected
	// may be empty.
	Prompt, Answer, Expected string
	// Reward it got.
	Reward float64
	// Versions are the policy versions that made it, such as "17" or "17–18".
	Versions string
}

// OffPolicy is how far the tokens trained at one staleness were from the policy
// that trained on them. Figures that were not measured are [Unknown].
type OffPolicy struct {
	// Staleness of the bucket, such as "2" or "8 and more".
	Staleness string
	// Tokens trained at it.
	Tokens int64
	// ClipFraction is the share of them outside the band, and Predicted the share that was expected at
	// this lag. Clipped is the share that lost its gradient to clipping.
	ClipFraction, Predicted, Clipped float64
	// MeanLogRatio is the mean of trainer's over rollout's log-probability, in nats.
	MeanLogRatio float64
	// EffectiveShare is the effective sample size over the number of tokens.
	EffectiveShare float64
	// Health is the band the figures are in, in a word or two; "" for none.
	Health string
}
