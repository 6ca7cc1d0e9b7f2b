package schedule

import "github.com/headway-rl/headway/loop"

// Name is a schedule.
type Name string

// The schedules, in the order in which they are compared.
const (
	// Colocated is synchronous on shared GPUs: each phase has all of them.
	Colocated Name = "colocated"
	// Synchronous is synchronous on separate GPUs: one side waits for the other.
	Synchronous Name = "synchronous"
	// OneStepOff generates the next batch while the one before is trained, and waits for both.
	OneStepOff Name = "one-step-off"
	// Streamed generates one batch a sync and trains on it in pieces as they become ready.
	Streamed Name = "streamed"
	// Async starts a share of the next batch before the sync, which waits for rollouts in flight.
	Async Name = "async"
	// Partial is Async whose rollouts are interrupted by the sync and resumed.
	Partial Name = "async-partial"
	// Drop never waits: engines generate through syncs, and a full queue drops its oldest group.
	Drop Name = "queue-drop"
)

// Names are all schedules, in the order in which they are compared.
func Names() []Name {
	return []Name{Colocated, Synchronous, OneStepOff, Streamed, Async, Partial, Drop}
}

// Arm is one schedule of one input: where it runs and the loop's rules.
type Arm struct {
	// Name of the schedule.
	Name Name
	// RolloutGPUs and TrainGPUs are what each phase has; Shared says they are the same ones.
	RolloutGPUs, TrainGPUs int
	Shared                 bool
	// Pieces is how many train steps one batch takes.
	Pieces int
	// LogProbs says that the trainer computes the old log-probs again.
	LogProbs bool
	// SyncS and LoadS of this schedule.
	SyncS, LoadS float64
	// Rules of the loop.
	Rules loop.Config
}

// Arm returns a schedule of the input, which must have defaults.
func (in Input) Arm(name Name) Arm {
	a := Arm{Name: name, Pieces: 1, SyncS: in.SyncS, LoadS: in.LoadS, RolloutGPUs: in.RolloutGPUs}
	if a.RolloutGPUs == 0 {
		a.RolloutGPUs = in.BestSplit()
	}
	a.TrainGPUs = in.trainGPUs(a.RolloutGPUs)
	rules := loop.Config{GroupSize: in.GroupSize, TrainerBlocked: true, Seed: in.Seed}
	switch name {
	case Colocated:
		a.Shared, a.RolloutGPUs, a.TrainGPUs = true, in.GPUs/in.GPUsPerEngine*in.GPUsPerEngine, in.trainGPUs(0)
		a.SyncS, a.LoadS, a.LogProbs = in.SwitchS, 0, true
		rules.Policy, rules.Sync = loop.PolicySynchronous, loop.SyncPause
	case Synchronous:
		a.LogProbs = true
		rules.Policy, rules.Sync = loop.PolicySynchronous, loop.SyncPause
	case OneStepOff:
		a.LogProbs = true
		rules.Policy, rules.Sync, rules.StalenessThreshold = loop.PolicyThreshold, loop.SyncDrain, 1
	case Streamed:
		a.Pieces = in.Pieces
		rules.Policy, rules.Sync = loop.PolicyThreshold, loop.SyncPause
	case Async:
		a.Pieces = in.Pieces
		rules.Policy, rules.Sync, rules.StalenessThreshold = loop.PolicyThreshold, loop.SyncDrain, in.Threshold
	case Partial:
		a.Pieces = in.Pieces
		rules.Policy, rules.Sync, rules.StalenessThreshold = loop.PolicyThreshold, loop.SyncRestart, in.Threshold
	case Drop:
		rules.Policy, rules.Sync, rules.TrainerBlocked = loop.PolicyDrop, loop.SyncInFlight, false
	}
	rules.BatchGroups, rules.SyncEvery = in.BatchGroups/a.Pieces, a.Pieces
	slots := in.SlotsPerEngine
	if in.WholeGroups {
		rules.GroupSize, slots = 1, in.SlotsPerEngine/in.GroupSize
	}
	for range a.RolloutGPUs / in.GPUsPerEngine {
		rules.EngineSlots = append(rules.EngineSlots, slots)
	}
	rules.QueueGroups = rules.BatchGroups
	switch rules.Policy {
	case loop.PolicyThreshold:
		rules.QueueGroups = max(rules.LiveGroupsMax(), rules.BatchGroups)
	case loop.PolicyDrop:
		rules.QueueGroups = max(int(in.QueueFactor*float64(in.BatchGroups)), rules.BatchGroups)
	}
	a.Rules = rules
	return a
}

// trainS is the trainer's time for a mean batch: the part that no batch's size
// changes, the part that does, and how much of both is log-probs.
func (in Input) trainS(a Arm) (fixed, shared, logProbs float64) {
	fixed, shared = in.Train.fixed(), in.Train.shared(a.TrainGPUs)
	if a.LogProbs && in.LogProbs.S > 0 {
		logProbs = in.LogProbs.On(a.TrainGPUs)
		fixed += in.LogProbs.fixed()
		shared += in.LogProbs.shared(a.TrainGPUs)
	}
	return fixed, shared, logProbs
}
