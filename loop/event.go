package loop

// EventKind names what happened. The order of the kinds is the order in which
// events of one instant are to be delivered.
type EventKind uint8

// Event kinds, with the fields each carries beside Time and Kind.
const (
	// RunStarted begins the run; every engine serves v0.
	RunStarted EventKind = iota + 1
	// Recovered begins the run again after its process ended; every outstanding effect is issued anew.
	Recovered
	// StopRequested asks to finish after the running train step.
	StopRequested
	// SettingRequested asks for Setting to be Value(), from outside the loop. The loop sets it to the nearest
	// value within its range.
	SettingRequested
	// GroupMeasured: the train step that is about to end found Drift for Group.
	GroupMeasured
	// TrainStepEnded: the step of Lease, Attempt is done and produced Version.
	TrainStepEnded
	// TrainStepFailed: the step of Lease, Attempt ended without a version; Reason says why.
	TrainStepFailed
	// LeaseReturned: the trainer gave Lease, Attempt back untrained, or its lease ran out.
	LeaseReturned
	// TrainerRestored: the trainer went back to an earlier state and published it as Version, the next
	// one; no batch made it. A batch that was at the trainer is returned.
	TrainerRestored
	// TrainerReady: the trainer asks for a batch (Config.TrainerAsks).
	TrainerReady
	// WeightsLoaded: Engine holds Version beside what it serves (Attempt of the load).
	WeightsLoaded
	// WeightsSwitched: Engine serves Version from now on (Attempt of the load).
	WeightsSwitched
	// SyncFailed: Engine could not load or switch to Version (Attempt of the load).
	SyncFailed
	// EngineLost: Engine is gone and every rollout on it with it.
	EngineLost
	// EngineJoined: Engine is there again, with no weights.
	EngineJoined
	// EngineUnavailable: the pool cannot give Engine now; Reason says why.
	EngineUnavailable
	// Tick is the instant the loop asked for.
	Tick
	// FirstToken: the rollout in Slot (Group, Sample, Attempt) made its first token under Version.
	FirstToken
	// RolloutScored: the rollout in Slot (Group, Sample, Attempt) has its Reward, Tokens, Made and Mark.
	// A reward that is no finite number counts as a failure of the environment.
	RolloutScored
	// RolloutFailed: the rollout in Slot (Group, Sample, Attempt) ended without a reward; Reason says why.
	// ReasonData is a failure of the task, any other one of the infrastructure, which is tried again.
	RolloutFailed
	// RolloutAborted: the rollout in Slot (Group, Sample, Attempt) stopped as asked, after Tokens.
	RolloutAborted
	// RolloutInterrupted: the rollout in Slot (Group, Sample, Attempt) stopped after Tokens, which are kept.
	RolloutInterrupted

	eventKindCount
)

// Mark is what an environment or filter says of a rollout beside its reward.
type Mark uint8

// Marks.
const (
	// MarkNone says nothing.
	MarkNone Mark = iota
	// MarkReject filters the rollout's whole group.
	MarkReject
	// MarkSolved says that the answer is wholly right.
	MarkSolved
	// MarkPruned says that a rule on the rollout itself stopped it early. It counts for nothing,
	// and its group goes on without it.
	MarkPruned

	markCount
)

// Reason says why an attempt, a step or a run ended.
type Reason uint8

// Reasons.
const (
	// ReasonNone is the absence of a reason.
	ReasonNone Reason = iota
	// ReasonSteps: the configured number of train steps is done.
	ReasonSteps
	// ReasonStopped: a stop was requested.
	ReasonStopped
	// ReasonTrainer: the trainer failed.
	ReasonTrainer
	// ReasonEngine: the engine failed or was lost.
	ReasonEngine
	// ReasonSync: a weight sync failed, so the engine's version is unknown.
	ReasonSync
	// ReasonEnvironment: the environment failed.
	ReasonEnvironment
	// ReasonTimeout: a limit on time was reached.
	ReasonTimeout
	// ReasonRestart: the run's process ended while the attempt was in flight.
	ReasonRestart
	// ReasonSibling: another rollout of the group failed its last attempt.
	ReasonSibling
	// ReasonStale: the staleness budget can no longer be met.
	ReasonStale
	// ReasonFull: the queue was full.
	ReasonFull
	// ReasonZeroAdvantage: all rewards of the group are equal.
	ReasonZeroAdvantage
	// ReasonRejected: a verdict rejected the group.
	ReasonRejected
	// ReasonSolveRate: the group's solve rate is outside the band.
	ReasonSolveRate
	// ReasonPruned: the group's last rollout was pruned.
	ReasonPruned
	// ReasonSurplus: enough others were ready before.
	ReasonSurplus
	// ReasonUses: the group was trained as often as may be.
	ReasonUses
	// ReasonSpans: the rollout was interrupted as often as may be.
	ReasonSpans
	// ReasonStart: the setting is where the run begins.
	ReasonStart
	// ReasonAbove: the goal does not hold as measured.
	ReasonAbove
	// ReasonRoom: the goal holds with room that would buy throughput.
	ReasonRoom
	// ReasonForward: the closed form asks for it, given the measured workload.
	ReasonForward
	// ReasonFree: it costs nothing, because the groups that it saves would have been dropped.
	ReasonFree
	// ReasonCapacity: engines came or went.
	ReasonCapacity
	// ReasonRequested: it was asked for from outside.
	ReasonRequested
	// ReasonData: the task cannot be scored, because it is broken above all. Another attempt would fail likewise.
	ReasonData
	// ReasonScorer: no teacher or reference would score the rollout.
	ReasonScorer

	reasonCount
)

// VersionTokens are tokens that one version sampled in one go.
type VersionTokens struct {
	Version Version
	Tokens  int64
}

// Event is one thing that happened, at one instant. Which fields count depends
// on Kind; the others are zero.
type Event struct {
	// Time is nanoseconds since the run started, never falling from event to event.
	Time int64
	// Kind says what happened.
	Kind EventKind
	// Mark of a scored rollout.
	Mark Mark
	// Reason of a failure.
	Reason Reason
	// Setting that is asked for.
	Setting Setting
	// Engine is the index of the engine in Config.EngineSlots.
	Engine int32
	// Slot is the slot of the rollout, counted over all engines from 0 to C-1.
	Slot int32
	// Sample is the rollout's place in its group, 0 to S-1, or further with redundancy.
	Sample int32
	// Attempt of the effect that this event completes, from 1.
	Attempt int32
	// Tokens is the length of a scored rollout's response, or of what an interrupted or aborted one has.
	Tokens int32
	// Made are the tokens of a scored rollout's response by the version that sampled them. It is nil unless
	// Control.Tokens asks for it. The loop reads it during the step alone.
	Made []VersionTokens
	// Reward of a scored rollout. Of a requested setting it is the value; see Event.Value.
	Reward float32
	// Drift is a group's mean absolute log-ratio of trainer to rollout, in nats.
	Drift float32
	// Group of the rollout.
	Group GroupID
	// Lease of the train step.
	Lease LeaseID
	// Version concerned.
	Version Version
}

// Before orders events by time, kind, group, sample, attempt, slot and engine:
// the order in which a driver delivers what happens at one instant.
func (e Event) Before(o Event) bool {
	switch {
	case e.Time != o.Time:
		return e.Time < o.Time
	case e.Kind != o.Kind:
		return e.Kind < o.Kind
	case e.Group != o.Group:
		return e.Group < o.Group
	case e.Sample != o.Sample:
		return e.Sample < o.Sample
	case e.Attempt != o.Attempt:
		return e.Attempt < o.Attempt
	case e.Slot != o.Slot:
		return e.Slot < o.Slot
	}
	return e.Engine < o.Engine
}
