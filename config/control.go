package config

import (
	"math"

	"github.com/headway-rl/headway/loop"
)

// Control is a goal that the loop keeps by moving its own settings, at the highest throughput at which the goal holds.
type Control struct {
	// Target is the goal. A number alone is target.staleness_mean. Default none, which moves nothing.
	Target Target `json:"target,omitempty" short:"staleness_mean"`
	// Window is the number of train steps over which the goal is measured. A step is held if the goal holds over the window that ends with it. Default 32.
	Window int `json:"window,omitempty" min:"1" max:"1024"`
	// Limits are what each setting may be moved within. A setting whose ends are equal stays where it is.
	Limits Limits `json:"limits,omitempty"`
}

// Target is what a controller keeps: a mean, a share, or both.
type Target struct {
	// StalenessMean is the largest mean staleness of what is trained, in versions. Default none.
	StalenessMean float64 `json:"staleness_mean,omitempty" above:"0" max:"1e6"`
	// Share is the least share of what is trained that is at most within versions stale. Default none.
	Share float64 `json:"share,omitempty" above:"0" below:"1"`
	// Within is the staleness, in versions, that share counts up to; at most 62.
	Within int `json:"within,omitempty" min:"0" max:"62"`
	// Of says what share counts: rollouts by the version their group started from, or tokens by the version that sampled each. Default rollouts.
	Of string `json:"of,omitempty" allowed:"rollouts tokens"`
}

// Limits are the ranges of the settings that a controller moves.
type Limits struct {
	// Concurrency is the number of rollouts in flight, of the slots there are. Default from the rollouts of one group to rollout.concurrency.
	Concurrency CountLimits `json:"concurrency,omitempty"`
	// LiveGroups is the number of groups that may be generating or ready just after an update, beside those of a batch. Over the groups of a batch it bounds the mean staleness where nothing is dropped. Default from 0 (with sync.every 1) to all that slots and queue can hold.
	LiveGroups CountLimits `json:"live_groups,omitempty"`
	// Hold is queue.hold. Default from 0 to 0.3, and to 0.7 with queue.select fresh; not moved with fewer than 16 groups in flight, unless select is fresh.
	Hold ShareLimits `json:"hold,omitempty"`
	// QueueFactor is the queue's capacity over the batch. Default from 1 to what the queue holds, and not moved under policies bounded, threshold and replay.
	QueueFactor FactorLimits `json:"queue_factor,omitempty"`
	// Redundancy is the number of rollouts started beyond group_size in every group, up to rollout.redundancy. It changes what is learned. Default not moved.
	Redundancy CountLimits `json:"redundancy,omitempty"`
	// SyncEvery is the number of train steps per weight sync. It changes what is learned. Default not moved.
	SyncEvery CountLimits `json:"sync_every,omitempty"`
	// Engines is the number of engines, where a fleet starts and stops them. Default from fleet.least to fleet.most.
	Engines CountLimits `json:"engines,omitempty"`
}

// CountLimits is a range of whole numbers, both ends included.
type CountLimits struct {
	// Least is the lowest value.
	Least int `json:"least,omitempty" min:"0" max:"16777216"`
	// Most is the highest value.
	Most int `json:"most,omitempty" min:"0" max:"16777216"`
}

// ShareLimits is a range of shares of a train period, both ends included.
type ShareLimits struct {
	// Least is the lowest value.
	Least float64 `json:"least,omitempty" min:"0" max:"0.99"`
	// Most is the highest value.
	Most float64 `json:"most,omitempty" min:"0" max:"0.99"`
}

// FactorLimits is a range of batches, both ends included.
type FactorLimits struct {
	// Least is the lowest value.
	Least float64 `json:"least,omitempty" min:"1" max:"1e6"`
	// Most is the highest value.
	Most float64 `json:"most,omitempty" min:"1" max:"1e6"`
}

// controlWindowDefault is the loop's own, said so that a printed document shows it.
const controlWindowDefault = 32

// The hold that a controller may go to by itself: what biases lengths by less than a hundredth.
const (
	holdControlledMax      = holdMax
	holdControlledMaxFresh = 0.7
	holdMovedMax           = 0.99 // as high as any may be moved
)

// Controlled reports whether a resolved document has a goal for the loop to keep.
func (c Config) Controlled() bool { return c.Control.Target != Target{} }

// controlDefaults fills in what belongs to a goal. The ranges follow from other
// keys and are derived where they are asked for: see [Config.ControlRanges].
func (c *Config) controlDefaults() {
	if c.Schedule == synchronousSchedule {
		c.replace("control", Control{})
		return
	}
	if !c.Controlled() {
		return
	}
	orCount(&c.Control.Window, controlWindowDefault, c.given("control.window"))
	if c.Control.Target.Share != 0 {
		orWord(&c.Control.Target.Of, "rollouts")
	}
}

// controlKeys are the keys of the ranges, by setting.
var controlKeys = map[loop.Setting]string{
	loop.SettingSlots: "control.limits.concurrency", loop.SettingLive: "control.limits.live_groups", loop.SettingHold: "control.limits.hold",
	loop.SettingQueue: "control.limits.queue_factor", loop.SettingRedundancy: "control.limits.redundancy",
	loop.SettingSyncEvery: "control.limits.sync_every", loop.SettingEngines: "control.limits.engines",
}

// ControlKey returns the key of the range of a setting.
func ControlKey(setting loop.Setting) string { return controlKeys[setting] }

// control is the goal in the loop's words, nil where nothing may move.
func (c Config) control() *loop.Control {
	if !c.Controlled() {
		return c.fleetControl()
	}
	t := c.Control.Target
	goal := &loop.Control{Mean: t.StalenessMean, Share: t.Share, Within: loop.Version(t.Within), Tokens: t.Of == "tokens", Window: c.Control.Window}
	for _, r := range c.ControlRanges() {
		goal.Ranges[r.Setting] = r.Range
	}
	return goal
}

// ControlRange is what one setting is moved within, in the loop's unit.
type ControlRange struct {
	// Setting that is moved.
	Setting loop.Setting
	// Range it is moved within.
	loop.Range
	// Start is where it stands when the run begins.
	Start float64
}

// ControlRanges returns the ranges of all settings under a resolved document with a
// goal, in the order of loop.Setting. One that is not moved has equal ends.
func (c Config) ControlRanges() []ControlRange {
	l, groups := c.Control.Limits, c.BatchGroups()
	stride := c.Rollout.GroupSize + c.Rollout.Redundancy
	admitted := c.QueueGroups() + c.Rollout.Concurrency
	if most := c.admission().LiveGroupsMax(); most > 0 {
		admitted = most
	}
	fewestLive := min(c.liveLeast(), admitted)
	if c.Queue.Policy == "replay" { // whose groups stay after they were trained
		fewestLive = admitted
	}
	hold := c.holdRange()
	queue := FactorLimits{Least: c.queueFactor(), Most: c.queueFactor()}
	if c.queueMoves() {
		queue.Least = 1
	}
	inGroups := func(factor float64) float64 { return math.Floor(factor*float64(groups) + groupEpsilon) }
	factor := c.factorRange(l.QueueFactor, queue)
	fewest, most, start := c.engineRange()
	ranges := []ControlRange{
		{loop.SettingSlots, c.countRange(loop.SettingSlots, l.Concurrency, min(stride, c.Rollout.Concurrency), c.Rollout.Concurrency), float64(c.Rollout.Concurrency)},
		{loop.SettingLive, c.countRange(loop.SettingLive, l.LiveGroups, fewestLive, admitted), float64(admitted)},
		{loop.SettingHold, hold, c.Queue.Hold},
		{loop.SettingQueue, loop.Range{Least: inGroups(factor.Least), Most: inGroups(factor.Most)}, float64(c.QueueGroups())},
		{loop.SettingRedundancy, c.countRange(loop.SettingRedundancy, l.Redundancy, c.Rollout.Redundancy, c.Rollout.Redundancy), float64(c.Rollout.Redundancy)},
		{loop.SettingSyncEvery, c.countRange(loop.SettingSyncEvery, l.SyncEvery, c.Sync.Every, c.Sync.Every), float64(c.Sync.Every)},
		{loop.SettingEngines, c.countRange(loop.SettingEngines, l.Engines, fewest, most), float64(start)},
	}
	for i := range ranges {
		ranges[i].Start = min(max(ranges[i].Start, ranges[i].Least), ranges[i].Most)
	}
	return ranges
}

// end returns one end of a range: what the document says, or else the fallback.
func (c Config) end(setting loop.Setting, name string, value, fallback float64) float64 {
	if value != 0 || c.given(join(controlKeys[setting], name)) {
		return value
	}
	return fallback
}

func (c Config) countRange(setting loop.Setting, l CountLimits, least, most int) loop.Range {
	return loop.Range{Least: c.end(setting, "least", float64(l.Least), float64(least)), Most: c.end(setting, "most", float64(l.Most), float64(most))}
}

func (c Config) factorRange(l, fallback FactorLimits) FactorLimits {
	return FactorLimits{Least: c.end(loop.SettingQueue, "least", l.Least, fallback.Least), Most: c.end(loop.SettingQueue, "most", l.Most, fallback.Most)}
}

// holdRange is the range of the hold. By itself a controller leaves it where it would bias lengths.
func (c Config) holdRange() loop.Range {
	least, most := 0.0, holdControlledMax
	switch {
	case c.Queue.HoldAdaptive: // it moves by itself
		return loop.Range{Least: c.Queue.Hold, Most: c.Queue.Hold}
	case c.Queue.Select == "fresh":
		most = holdControlledMaxFresh
	case c.Rollout.Concurrency < groupsInFlightHold*c.Rollout.GroupSize:
		least, most = min(c.Queue.Hold, holdMovedMax), min(c.Queue.Hold, holdMovedMax)
	}
	l := c.Control.Limits.Hold
	return loop.Range{Least: c.end(loop.SettingHold, "least", l.Least, least), Most: c.end(loop.SettingHold, "most", l.Most, max(most, min(c.Queue.Hold, holdMovedMax)))}
}

// liveLeast is the fewest live groups with which a batch still fills: between syncs engines fall
// behind, and what they generate counts that much more.
func (c Config) liveLeast() int {
	return (c.syncEveryMost() - 1) * c.BatchGroups()
}

// syncEveryMost is the longest interval between syncs, in train steps.
func (c Config) syncEveryMost() int {
	if c.Queue.Policy == "threshold" { // whose queue is sized by sync.every
		return c.Sync.Every
	}
	return max(c.Sync.Every, c.Control.Limits.SyncEvery.Most)
}

// queueMoves reports whether the policy's capacity is free to move: under bounded and
// threshold it follows from what they admit, and replay's is a buffer.
func (c Config) queueMoves() bool {
	switch c.Queue.Policy {
	case "drop", "max", "block":
		return true
	}
	return false
}

// queueFactor is the queue's capacity over the batch.
func (c Config) queueFactor() float64 { return float64(c.QueueGroups()) / float64(c.BatchGroups()) }
