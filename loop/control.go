package loop

import "math"

// Setting names one of the rules that a controller may move while the loop runs.
type Setting uint8

// Settings. Each is a number; its unit is beside it.
const (
	// SettingSlots is the number of rollouts in flight over all engines, at most Config.Concurrency.
	SettingSlots Setting = iota
	// SettingLive is the number of groups that may be live just after an update and expected to be trained. Ready groups
	// count whole, running ones by the share that passes the filters. A group opens while fewer than that and one batch
	// are live, the batch at the trainer included. For every version by which engines lag behind it is a batch less. A
	// fraction is kept in the mean over versions. By Little's law the mean staleness of a loop that drops nothing is at
	// most this over BatchGroups, under any drift.
	SettingLive
	// SettingHold is Config.Hold, a share of the train period.
	SettingHold
	// SettingQueue is the capacity of the queue in groups, from BatchGroups to Config.QueueGroups.
	SettingQueue
	// SettingRedundancy is the number of rollouts started beyond GroupSize in a group, up to Config.Redundancy.
	SettingRedundancy
	// SettingSyncEvery is the number of train steps per weight sync, at least 1.
	SettingSyncEvery
	// SettingEngines is the number of engines that are wanted, where a pool can start and stop them.
	SettingEngines

	settingCount
)

// Range is what a setting may be moved within, both ends included, in the setting's unit. The zero
// Range, like any other with equal ends, leaves the setting where Config has it.
type Range struct {
	Least, Most float64
}

// Moves reports whether the range leaves anything to choose.
func (r Range) Moves() bool { return r.Least < r.Most }

// Control is a goal that the loop keeps by moving its own settings: the highest throughput at which
// the goal holds. All of it is part of the loop's state, so that a move is the same in a
// simulation, a live run and a replay. Without Mean and Share settings move only as they are asked to
// (SettingRequested).
type Control struct {
	// Mean is the largest mean staleness of the groups that Window train steps consumed, in versions; 0 for
	// no such goal.
	Mean float64 `json:",omitempty"`
	// Share is the least share of the data of those steps that is at most Within versions stale. It is
	// in (0, 1), or 0 for no such goal.
	Share  float64 `json:",omitempty"`
	Within Version `json:",omitempty"`
	// Tokens has Share count tokens, each by the version that sampled it; by default it counts rollouts.
	Tokens bool `json:",omitempty"`
	// Window is the number of train steps over which the goal is meant; 0 means 32.
	Window int `json:",omitempty"`
	// Ranges are what each setting may be moved within, by Setting.
	Ranges [settingCount]Range
}

// ControlState says what the controller is doing.
type ControlState uint8

// States of the controller.
const (
	// ControlOff: the loop has no goal.
	ControlOff ControlState = iota
	// ControlSettling: too few train steps have been measured since the start, or since a change of regime.
	ControlSettling
	// ControlKeeping: the goal holds.
	ControlKeeping
	// ControlCorrecting: the goal does not hold, and settings move towards it.
	ControlCorrecting
	// ControlUnreachable: the goal does not hold, and every setting that would help is at the end of its range.
	ControlUnreachable
	// ControlSilent: no train step has ended for so long that there is nothing to go by; settings stay.
	ControlSilent

	controlStateCount
)

// ControlStatus is a controller in a Status.
type ControlStatus struct {
	// State is settling, keeping, correcting, unreachable or silent.
	State string `json:"state"`
	// MeasuredMean is the mean staleness over the window, and MeasuredShare the share within Within
	// versions, -1 while nothing is known.
	MeasuredMean  float64 `json:"measured_mean"`
	MeasuredShare float64 `json:"measured_share"`
	// Steps is the number of judged train steps since the controller began. HeldSteps is the number of
	// those that ended with the goal held over their window.
	HeldSteps int64 `json:"held_steps"`
	Steps     int64 `json:"steps"`
	// HeldBatches counts those of Steps whose own batch met the goal, which is stricter. LastMean and
	// LastShare are of the newest batch alone, -1 while there is none.
	HeldBatches int64   `json:"held_batches"`
	LastMean    float64 `json:"last_mean"`
	LastShare   float64 `json:"last_share"`
	// Nearest is the staleness, or the share, that the controller expects at best where the goal is
	// unreachable. Binding is the setting that binds then; empty otherwise.
	Nearest float64 `json:"nearest,omitempty"`
	Binding string  `json:"binding,omitempty"`
	// Settings are those that may move, in the order of Setting.
	Settings []SettingStatus `json:"settings"`
	// Moves counts changes of settings.
	Moves int64 `json:"moves"`
}

// SettingStatus is one setting of a controller.
type SettingStatus struct {
	Name string `json:"name"`
	// Value it has, within Least and Most.
	Value float64 `json:"value"`
	Least float64 `json:"least"`
	Most  float64 `json:"most"`
	// Why it was moved last; empty if it never was.
	Why string `json:"why,omitempty"`
}

// goal reports whether there is something to keep. Without one, settings move only as they are asked to.
func (c *Control) goal() bool { return c.Mean > 0 || c.Share > 0 }

// whole reports whether a setting counts something.
func (s Setting) whole() bool { return s != SettingHold && s != SettingLive }

// fit returns the value in the range that is nearest to v, a whole number for a setting that counts.
func (r Range) fit(set Setting, v float64) float64 {
	if set.whole() {
		v = math.Floor(v + 0.5)
	}
	return min(max(v, r.Least), r.Most)
}

// startOf is where a setting stands as the run starts: where Config has it, as far as its range permits.
// What SettingLive is to be follows from the goal.
func (c *Config) startOf(set Setting) float64 {
	r := c.Control.Ranges[set]
	v := 0.0
	switch set {
	case SettingSlots:
		v = float64(c.Concurrency())
	case SettingLive:
		v = r.Most
		if c.Control.goal() {
			v = c.liveForward()
		}
	case SettingHold:
		v = c.Hold
	case SettingQueue:
		v = float64(c.QueueGroups)
	case SettingRedundancy:
		v = float64(c.Redundancy)
	case SettingSyncEvery:
		v = float64(c.SyncEvery)
	case SettingEngines:
		v = float64(len(c.EngineSlots))
		if c.EnginesStart > 0 {
			v = float64(c.EnginesStart)
		}
	}
	if !r.Moves() {
		return v
	}
	return r.fit(set, v)
}

// versions is the mean staleness that the goal is taken for. A share is taken for a mean: staleness is seldom more than
// twice its mean.
func (c *Control) versions() float64 {
	versions := math.Inf(1)
	if c.Mean > 0 {
		versions = c.Mean
	}
	if c.Share > 0 {
		versions = min(versions, float64(c.Within+1)/2)
	}
	return versions
}

// liveForward is the number of live groups that the goal permits where nothing is known yet. By Little's
// law the mean staleness is at most the live groups over those of a batch.
func (c *Config) liveForward() float64 {
	live := float64(c.Control.versions()*float64(c.BatchGroups))*(1-marginLeast) + betweenSyncs(max(c.SyncEvery, 1), c.BatchGroups)
	return math.Floor(live*liveParts) / liveParts
}

// Request returns the event that asks for a setting's value. Values are kept to
// seven digits: an event has no room for more.
func Request(set Setting, value float64, atNS int64) Event {
	return Event{Time: atNS, Kind: SettingRequested, Setting: set, Reward: float32(value)}
}

// Value is what a SettingRequested asks for: six places after the point.
func (e Event) Value() float64 { return math.Round(float64(e.Reward)*1e6) / 1e6 }
