package loop

import "cmp"

// Version is a policy version: the number of train steps completed. v0 is the
// start. NoVersion stands for "unknown".
type Version int64

// NoVersion marks an unknown or absent policy version.
const NoVersion Version = -1

// GroupID names one group, the rollouts of one prompt. IDs start at 1 and rise
// in the order in which groups are opened; 0 names no group.
type GroupID int64

// LeaseID names one batch handed to the trainer. IDs start at 1; 0 is none.
type LeaseID int64

// Policy is the rule of the queue of ready groups.
type Policy uint8

// Queue policies.
const (
	// PolicyDrop evicts the oldest ready group when one arrives at a full queue.
	PolicyDrop Policy = iota
	// PolicyMax is PolicyDrop, and discards at selection what exceeds MaxStaleness.
	PolicyMax
	// PolicyBlock opens no group while the queue is full, and keeps ready groups out until there is room.
	PolicyBlock
	// PolicySynchronous opens exactly BatchGroups groups per served version.
	PolicySynchronous
	// PolicyBounded opens a group while fewer than (Eta+1-lag)*BatchGroups groups are live (generating,
	// ready or at the trainer). Here lag is the number of versions by which the engines are behind. It
	// discards nothing: the mean staleness stays within Eta.
	PolicyBounded
	// PolicyThreshold opens, from one weight sync to the next, at most
	// (1+StalenessThreshold)*SyncEvery*BatchGroups groups, less those carried over. It drops nothing: a batch
	// that comes back to a full queue has the newest groups wait outside.
	PolicyThreshold
	// PolicyReplay keeps trained groups in the queue, its buffer, and may train on them again.
	PolicyReplay
)

// Eviction is what a full replay buffer gives up first.
type Eviction uint8

// Evictions.
const (
	// EvictOldestVersion gives up the group with the lowest start version, of equals the one ready first.
	EvictOldestVersion Eviction = iota
	// EvictDrift gives up the group whose expected mean absolute log-ratio is the largest.
	EvictDrift
)

// StartOrder says how slots are given to groups.
type StartOrder uint8

// Start orders.
const (
	// StartStream gives every freed slot the next rollout of the open group.
	StartStream StartOrder = iota
	// StartGang starts a group only when a slot is free for each of its rollouts.
	StartGang
)

// Placement says at which engine a rollout gets its slot, where several have a free one.
type Placement uint8

// Placements. Neither leaves a slot free for which a rollout waits, and both keep the order in which rollouts wait.
const (
	// PlaceLeastLoaded takes the engine with the most free slots.
	PlaceLeastLoaded Placement = iota
	// PlaceCacheAware has an engine start the rollouts of one group before it opens the next, so that they share
	// their prompt in its cache. An interrupted rollout goes on where it was, if a slot is free there. Else it is PlaceLeastLoaded.
	PlaceCacheAware
)

// Selection is the order in which ready groups enter a batch.
type Selection uint8

// Selection orders.
const (
	// SelectOldest takes the groups that became ready first.
	SelectOldest Selection = iota
	// SelectNewest takes the groups that became ready last.
	SelectNewest
	// SelectOldestVersion takes the groups with the lowest start version, of equals the one ready first.
	SelectOldestVersion
	// SelectFresh draws the batch at random among the groups that became ready since the one before was
	// selected. It fills the batch with the newest of the others. The groups that a full queue gives up
	// are drawn likewise.
	SelectFresh
)

// SyncMode says what engines do with running rollouts while weights change.
type SyncMode uint8

// Weight sync modes.
const (
	// SyncInFlight keeps generating; a rollout can span versions.
	SyncInFlight SyncMode = iota
	// SyncPause holds every rollout of an engine while it switches, then continues it.
	SyncPause
	// SyncDrain starts nothing until the rollouts in flight have finished and the engine has switched.
	SyncDrain
	// SyncRestart interrupts every rollout of an engine before it switches and resumes it afterwards with
	// the tokens it has, from a cache filled anew.
	SyncRestart
)

// FailureRule says what becomes of a group whose rollout failed its last attempt.
type FailureRule uint8

// Failure rules.
const (
	// DropGroup ends the whole group as failed.
	DropGroup FailureRule = iota
	// ShrinkGroup goes on with the remaining rollouts, as long as Config.GroupMin are left.
	ShrinkGroup
)

// Config holds every rule of one loop. It never changes during a run.
type Config struct {
	// GroupSize is S, the rollouts of one group. At least 1.
	GroupSize int
	// BatchGroups is G, the groups one train step consumes; B = G*S rollouts. At least 1.
	BatchGroups int
	// EngineSlots is the number of concurrent rollouts of each engine; their sum is C.
	// At least one engine, each with at least one slot.
	EngineSlots []int
	// EngineCells is the cell of each engine, see Owns. Nil is 0 for all.
	EngineCells []int `json:",omitempty"`
	// Policy is the queue's rule; the zero value is PolicyDrop.
	Policy Policy
	// QueueGroups is Q in groups: the ready groups the queue may hold. At least BatchGroups.
	// PolicySynchronous needs exactly BatchGroups and ExtraGroups, PolicyBounded and PolicyThreshold at
	// least what they admit.
	QueueGroups int
	// Select orders the ready groups; the zero value is SelectOldest.
	Select Selection
	// MaxStaleness is PolicyMax's budget in versions. Under PolicyReplay it is one too, 0 being none;
	// other policies ignore it.
	MaxStaleness Version
	// Abort makes PolicyMax cancel groups in flight as soon as they can no longer meet the budget. It
	// gives nothing to engines whose version could not meet it.
	Abort bool
	// Start is the start order; the zero value is StartStream.
	// StartGang needs at least GroupSize slots in all.
	Start StartOrder
	// Placement says at which engine a rollout gets its slot; the zero value is PlaceLeastLoaded.
	Placement Placement `json:",omitempty"`
	// Sync is the weight sync mode; the zero value is SyncInFlight.
	Sync SyncMode
	// SyncEvery is the number of train steps per weight sync; 0 means 1. A trainer that asks for its
	// batches publishes weights for the multiples of it alone, and for what it went back to.
	SyncEvery int
	// TrainerBlocked keeps the trainer from its next step while a sync runs.
	TrainerBlocked bool
	// TrainerAsks selects a batch only once the trainer has asked for one (TrainerReady) since its last
	// step began. A lease is then the start of a step also where the trainer comes and goes. While it
	// has neither asked nor a batch, no group opens beside a full queue. By default a trainer without a
	// batch is always ready.
	TrainerAsks bool `json:",omitempty"`
	// RollingSwitch lets each engine switch when it has loaded; by default all switch together.
	RollingSwitch bool
	// FilterZeroAdvantage ends groups whose rewards are all equal instead of queueing them.
	FilterZeroAdvantage bool

	// Eta is PolicyBounded's bound of the mean staleness, in versions; fractions are allowed.
	Eta float64
	// StalenessThreshold is PolicyThreshold's share of groups that may be stale, 0 for none.
	StalenessThreshold float64
	// MaxUses is how often PolicyReplay trains on one group; 0 means 1.
	MaxUses int
	// Gamma is the weight in PolicyReplay's sampling of a group one version older, in (0, 1]; 0 means 1.
	Gamma float64
	// Balance divides a group's weight in PolicyReplay's sampling by the groups of its prompt in the
	// buffer. It needs Prompts.
	Balance bool
	// Evict is what PolicyReplay's full buffer gives up; the zero value is EvictOldestVersion.
	Evict Eviction
	// Seed of the loop's own draws: replay sampling, SelectFresh, the curriculum and the order of prompts.
	Seed uint64

	// PauseGroups opens no group while the queue holds that many, under any policy; 0 is no such limit.
	PauseGroups int
	// Hold is theta: no group opens while the next switch of weights is expected within Hold times the
	// train period, nor longer than twice that. In [0, 1); 0 is off.
	Hold float64
	// HoldAdaptive makes Hold the most: the hold in force begins at 0 and follows its cost. It goes up while a full queue
	// drops groups, which makes it free, and down where slots wait for nothing. It moves at train steps' ends and says so.
	HoldAdaptive bool `json:",omitempty"`
	// HoldCost is the share of slot time that an adaptive hold may cost beyond the groups that would be dropped anyway.
	// Where rollouts are the slower side, the train period grows by about that share. In [0, 1); 0 takes what is free.
	HoldCost float64 `json:",omitempty"`
	// InterruptAtBatch interrupts every rollout in flight when a whole batch is ready and waits, and
	// resumes them for the next batch. Under PolicySynchronous it does so when the batch is at the
	// trainer.
	InterruptAtBatch bool
	// MaxSpans is the number of spans, between interruptions, a rollout may be made of; one that needs
	// more is cancelled and tried afresh. 0 is no limit.
	MaxSpans int

	// ExtraGroups are opened beside BatchGroups per version under PolicySynchronous; when the batch is
	// full the others are cancelled, or interrupted under InterruptAtBatch.
	ExtraGroups int
	// Redundancy is the number of rollouts started beyond GroupSize in every group; the first GroupSize to be
	// scored are kept and the others cancelled.
	Redundancy int
	// SolveLow and SolveHigh bound the band of solve rates that teach, both inclusive; 0 and 0 is no band.
	SolveLow, SolveHigh float64
	// FilterSolveRate ends groups whose share of solved rollouts is outside the band.
	FilterSolveRate bool
	// Levels is the number of difficulties the curriculum chooses from for every group, to keep the
	// solve rate within the band; 0 is no curriculum.
	Levels int
	// Explore is the share of groups whose level is drawn from all; in [0, 1].
	Explore float64
	// Prompts is the size of the prompt set, every pass through it in another order; 0 gives every group a
	// prompt of its own.
	Prompts int
	// Requeue plays the prompt of a group that was evicted, discarded or cancelled again, before further
	// prompts. One whose rollouts were filtered, pruned or failed would be so again, for ever.
	Requeue bool
	// MaxAttempts is how often one rollout may fail before OnFailure applies; 0 means 3.
	// Attempts cut short by a restart of the run do not count. ReasonData is tried once.
	MaxAttempts int
	// OnFailure applies after the last attempt; the zero value is DropGroup.
	OnFailure FailureRule
	// GroupMin is the fewest scored rollouts that ShrinkGroup trains a group with; 0 means 1. A group ends as soon as
	// it has lost so many, failed or pruned, that it cannot have them.
	GroupMin int `json:",omitempty"`
	// ResumeLost has the rollouts of a lost engine, and of one whose switch failed, go on elsewhere with
	// their tokens, which the driver keeps. By default they fail and are tried again.
	ResumeLost bool `json:",omitempty"`
	// ResumeRestart has the rollouts of a cell stand interrupted when another process takes its place. They go on as the same
	// attempts, as the driver keeps their turns. Recovered says so of cell 0, EngineLost with ReasonRestart of the engines of
	// another. By default they fail with the process that played them and are tried again.
	ResumeRestart bool `json:",omitempty"`
	// StaysInCell has an interrupted rollout go on at engines of its cell alone, where its tools and sandbox are. It fails with
	// the cell: cell 0 ends with the driver's process, any other with the last of its engines, unless ResumeRestart.
	StaysInCell bool `json:",omitempty"`
	// TrainAttempts is how often one train step may fail before the run stops; 0 means 3.
	TrainAttempts int
	// EnginesStart is the number of engines that are there when the run starts, the first ones, where a
	// controller may move SettingEngines; 0 is all. The others are the pool's.
	EnginesStart int `json:",omitempty"`
	// Control is a goal that the loop keeps by moving its own settings; nil for none.
	Control *Control `json:",omitempty"`
	// TrainSteps is the version at which the run finishes; 0 means never. Versions count, not steps: one
	// that TrainerRestored made is one of them.
	TrainSteps Version
}

// CellOf returns the cell of an engine.
func (c *Config) CellOf(engine int32) int32 {
	if c.EngineCells == nil {
		return 0
	}
	return int32(c.EngineCells[engine])
}

// Owns reports whether an engine is of cell 0, which is in the driver's process. It serves when the run starts, and a
// restart (Recovered) ends all that it has. Other cells are processes of their own: their engines join when they are there,
// and go on through a restart.
func (c *Config) Owns(engine int32) bool { return c.CellOf(engine) == 0 }

// WithDefaults returns a copy in which every zero that stands for a default is replaced by it.
func (c Config) WithDefaults() Config {
	c.SyncEvery = cmp.Or(c.SyncEvery, 1)
	c.MaxAttempts = cmp.Or(c.MaxAttempts, 3)
	c.TrainAttempts = cmp.Or(c.TrainAttempts, 3)
	c.MaxUses = cmp.Or(c.MaxUses, 1)
	c.Gamma = cmp.Or(c.Gamma, 1)
	c.EngineSlots = append([]int(nil), c.EngineSlots...)
	c.EngineCells = append([]int(nil), c.EngineCells...)
	if c.Control != nil {
		ctl := *c.Control
		ctl.Window = cmp.Or(ctl.Window, 32)
		c.Control = &ctl
	}
	return c
}

// Concurrency returns C, the slots of all engines.
func (c Config) Concurrency() int {
	sum := 0
	for _, n := range c.EngineSlots {
		sum += n
	}
	return sum
}
