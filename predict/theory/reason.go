package theory

// Reason says why closed forms do not cover a setting, so that a command can
// simulate instead and say so. Its JSON is its name.
type Reason uint8

// Reasons, each with its sentence in [Reason.Sentence].
const (
	ReasonNone       Reason = iota // covered
	ReasonInvalid                  // not a setting at all
	ReasonPolicy                   // the queue policy admits or discards by rules no closed form covers
	ReasonOrder                    // another selection order than oldest, where it matters
	ReasonBlock                    // policy block holds slots at this ρ
	ReasonDiscards                 // policy max discards a share that matters
	ReasonLongSync                 // a sync longer than a period skips versions
	ReasonSyncMode                 // drain and restart change how long rollouts take
	ReasonPausedNear               // paused engines where the trainer waits for some steps and not for others
	ReasonUnevenSync               // one of several steps a sync takes all its time
	ReasonGang                     // start order gang with fewer than 16 groups in flight
	ReasonFewSlots                 // fewer than 32 slots, or than two for each of a group's rollouts
	ReasonFewGroups                // fewer than four groups a batch
	ReasonFilter                   // filters that keep less than a quarter
	ReasonLocked                   // nearly equal lengths: phase locking, not smooth
	ReasonThreshold                // policy threshold between binding and not binding
	ReasonBarrier                  // synchronous batch that is filtered or too large
)

var reasons = [...]struct{ name, sentence string }{
	ReasonNone:       {"", ""},
	ReasonInvalid:    {"invalid", "the setting is not valid"},
	ReasonPolicy:     {"policy", "the queue policy admits or discards by rules that no closed form covers"},
	ReasonOrder:      {"order", "the selection order matters here and the closed form is for oldest first"},
	ReasonBlock:      {"block", "policy block holds slots at this utilization, which makes generation longer than the tail says"},
	ReasonDiscards:   {"discards", "policy max discards groups, which changes lengths, staleness and period"},
	ReasonLongSync:   {"long_sync", "a weight sync that takes longer than a train period skips versions"},
	ReasonSyncMode:   {"sync_mode", "this sync mode changes how long rollouts take"},
	ReasonPausedNear: {"paused_near", "paused engines leave the trainer waiting at some steps and not at others"},
	ReasonUnevenSync: {"uneven_sync", "one step in several takes the whole time of a weight sync, which a mean step does not show"},
	ReasonGang:       {"gang", "start gang with fewer than 16 groups in flight leaves many slots idle"},
	ReasonFewSlots:   {"few_slots", "with fewer than 32 slots, or than two for each of a group's rollouts, groups do not become ready in a smooth stream"},
	ReasonFewGroups:  {"few_groups", "a batch of fewer than four groups comes as irregularly as single groups do"},
	ReasonFilter:     {"filter", "filters that keep less than a quarter leave the trained groups far apart"},
	ReasonLocked:     {"locked", "rollouts take nearly equal times, so groups fall in step with the trainer (phase locking) and staleness is a staircase"},
	ReasonThreshold:  {"threshold", "policy threshold neither always nor never binds here"},
	ReasonBarrier:    {"barrier", "the barrier of this synchronous batch is not predicted"},
}

// String returns the machine-readable name, "" where covered.
func (r Reason) String() string { return reasons[min(int(r), len(reasons)-1)].name }

// Sentence says it for people, without a period.
func (r Reason) Sentence() string { return reasons[min(int(r), len(reasons)-1)].sentence }

// MarshalText writes the name.
func (r Reason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// blind reports whether nothing about staleness is known.
func (r Reason) blind() bool {
	switch r {
	case ReasonNone, ReasonLocked, ReasonFewSlots, ReasonFewGroups, ReasonFilter:
		return false
	}
	return true
}

// untimed reports whether not even the period is known.
func (r Reason) untimed() bool { return r.blind() && r != ReasonOrder }
