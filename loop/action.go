package loop

// ActionKind names a decision. The effects are executed at a port and finish by
// an event; the notices only say what was decided.
type ActionKind uint8

// Action kinds, with the fields each carries beside Kind.
const (
	// StartRollout: Engine starts Group, Sample, Attempt in Slot; it serves Version. Ends by
	// RolloutScored, RolloutFailed or RolloutAborted.
	StartRollout ActionKind = iota + 1
	// ResumeRollout: Engine continues the interrupted Group, Sample, Attempt in Slot, with the tokens it
	// has; it serves Version. Ends like StartRollout.
	ResumeRollout
	// InterruptRollout: the rollout in Slot (Group, Sample, Attempt) is to stop and keep its tokens. Ends
	// by RolloutInterrupted, or by whichever completion was already under way. With Slot -1 the rollout
	// (StartVersion, Prompt, Level) stands interrupted, and the new process of Engine's cell takes it up;
	// nothing answers (Config.ResumeRestart).
	InterruptRollout
	// AbortRollout: the rollout in Slot (Group, Sample, Attempt) is no longer wanted. Ends by
	// RolloutAborted, or by whichever completion was already under way. With Slot -1 the rollout
	// stands interrupted, and nothing answers. Reason says why the attempt ended, where it was not
	// cancelled with its group: a sync that failed, or as many spans as may be.
	AbortRollout
	// StartTrainStep: train on the Count groups just named by GroupLeased (Lease, Attempt), from Version.
	// Ends by TrainStepEnded, TrainStepFailed or LeaseReturned.
	StartTrainStep
	// LoadWeights: Engine fetches Version beside what it serves (Attempt). Ends by WeightsLoaded or SyncFailed.
	LoadWeights
	// SwitchWeights: Engine serves Version between two tokens (Attempt). Ends by WeightsSwitched or SyncFailed.
	SwitchWeights
	// AcquireEngine asks the pool for Engine (Attempt). Ends by EngineJoined or EngineUnavailable, which name the attempt.
	AcquireEngine
	// ReleaseEngine gives Engine, which is empty and counts as lost, back to the pool. Nothing answers.
	ReleaseEngine
	// FinishRun: nothing more will be decided; Reason says why.
	FinishRun

	// GroupQueued is a notice: Group became ready (StartVersion, Version when ready) and entered the queue.
	GroupQueued
	// GroupHeld is a notice: Group became ready and waits outside a full queue (StartVersion, Version when ready).
	GroupHeld
	// GroupLeased is a notice: Group is part of the batch Lease, to be trained from Version.
	GroupLeased
	// GroupTrained is a notice: Group (StartVersion, ReadyVersion) was trained from Version; Count rollouts.
	// It ends the group, except under PolicyReplay, where GroupEnded does, after any number of these.
	GroupTrained
	// GroupEnded is a notice that Group ended untrained, or trained at least once under PolicyReplay. End
	// says how, Reason why, Count how many of its rollouts had been scored.
	GroupEnded
	// SyncCompleted is a notice: every engine of the sync serves Version.
	SyncCompleted
	// SettingChanged is a notice that the controller moved Setting to Value, for Reason. The first ones, at the
	// start of the run, give the initial settings.
	SettingChanged
	// ControlChanged is a notice: the controller's state became Control. Value is what the goal was measured
	// to be; for ControlUnreachable, Setting is what binds and Value the nearest that can be reached.
	ControlChanged

	actionKindCount
)

// IsEffect reports whether an action of this kind is to be executed at a port.
func (k ActionKind) IsEffect() bool { return k >= StartRollout && k <= FinishRun }

// End says how a rollout attempt left the loop.
type End uint8

// Ends of an attempt.
const (
	// EndNone: not ended.
	EndNone End = iota
	// EndTrained: a train step consumed it.
	EndTrained
	// EndEvicted: the full queue made room for a newer group.
	EndEvicted
	// EndDiscarded: it exceeded the staleness budget.
	EndDiscarded
	// EndFiltered: its group teaches nothing (zero advantage or a verdict).
	EndFiltered
	// EndPruned: it, or a sibling its group could not do without, was stopped early by a rule on the rollout itself.
	EndPruned
	// EndCancelled: it was stopped in flight because its group was no longer wanted.
	EndCancelled
	// EndFailed: it, or a sibling its group could not do without, failed.
	EndFailed

	endCount
)

// Action is one decision. Which fields count depends on Kind; the others are zero.
type Action struct {
	// Kind says what was decided.
	Kind ActionKind
	// End of a group.
	End End
	// Reason of an end, an abort, a move or the finish.
	Reason Reason
	// Setting that moved, and Control, the state that the controller came to.
	Setting Setting
	Control ControlState
	// Engine is the index of the engine.
	Engine int32
	// Slot of the rollout, counted over all engines.
	Slot int32
	// Sample is the rollout's place in its group, 0 to S-1, or further with redundancy.
	Sample int32
	// Attempt of the effect, from 1; its completion must name it.
	Attempt int32
	// Count is a number of groups or rollouts.
	Count int32
	// Group concerned.
	Group GroupID
	// Lease of a train step.
	Lease LeaseID
	// Prompt of a rollout that starts: its number in the prompt set, from 1. 0 stands for a prompt of
	// the group's own, numbered like the group.
	Prompt int64
	// Level is the difficulty of a rollout that starts, from 1 to Config.Levels; 0 without a curriculum.
	Level int32
	// Version concerned.
	Version Version
	// StartVersion is the group's stamp.
	StartVersion Version
	// ReadyVersion is the trainer's version when the group became ready.
	ReadyVersion Version
	// Value of a setting, or of what the controller measured.
	Value float64
}

// Staleness returns the staleness of a GroupLeased or GroupTrained action and its
// two parts, pre-queue (PQS) and in-queue (IQS), in versions. It is the only
// place where staleness is computed.
func (a Action) Staleness() (total, preQueue, inQueue Version) {
	preQueue = a.ReadyVersion - a.StartVersion
	inQueue = a.Version - a.ReadyVersion
	return preQueue + inQueue, preQueue, inQueue
}
