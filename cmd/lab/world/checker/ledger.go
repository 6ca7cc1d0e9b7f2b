package checker

// attemptID names an attempt at a rollout.
type attemptID struct {
	group   int64
	sample  int32
	attempt int32
}

// States of an attempt in the log.
const (
	running   = "running"
	parked    = "interrupted"
	scored    = "scored"
	failed    = "failed"
	pruned    = "pruned"
	cancelled = "cancelled"
)

// attempt is what the log says of one.
type attempt struct {
	id           attemptID
	state        string
	left         bool // interrupted by the restart of a plane, and not resumed since
	engine, slot int64
	// began and ended are numbers of events, t the time of the last one. given is the one by which it started or went on last.
	began, given, ended, t int64
	// line of the log that starts it.
	line                  int
	reason                string
	reward                float32
	tokens, versionTokens int64
}

func (a *attempt) inFlight() bool { return a.state == running || a.state == parked }

// group is what the log says of a group.
type group struct {
	id     int64
	scored int
	// lease is the newest that it was part of, trained the number of the event that trained it.
	lease, trained int64
	ended          bool
	endedAs        string
	start, ready   int64
	// complete is the trainer's version when its last rollout was scored.
	complete int64
}

// lease is what the log says of a lease.
type lease struct {
	id       int64
	attempt  int64
	version  int64
	groups   []int64
	out      bool
	trained  int64 // the event
	returned []giveBack
}

// giveBack is an end of a lease without a version.
type giveBack struct {
	n, t, attempt int64
	kind, reason  string
}

// made is a version in the log.
type made struct {
	n, lease int64
}

// sums is the ledger of the loop.
type sums struct {
	Admitted  int64 `json:"admitted"`
	InFlight  int64 `json:"in_flight"`
	Waiting   int64 `json:"waiting"`
	Queued    int64 `json:"queued"`
	Leased    int64 `json:"leased"`
	Trained   int64 `json:"trained"`
	Evicted   int64 `json:"evicted"`
	Discarded int64 `json:"discarded"`
	Filtered  int64 `json:"filtered"`
	Pruned    int64 `json:"pruned"`
	Cancelled int64 `json:"cancelled"`
	Failed    int64 `json:"failed"`
}

func (s sums) ended() int64 {
	return s.Trained + s.Evicted + s.Discarded + s.Filtered + s.Pruned + s.Cancelled + s.Failed
}

// after says whether a ledger is another one in which more attempts began, and more that had begun ended untrained. One
// that was cancelled may count as failed by the recovery in the other.
func (s sums) after(was sums) bool {
	return s.balanced() && s.Trained == was.Trained && s.Admitted >= was.Admitted && s.InFlight <= was.InFlight && s.Waiting <= was.Waiting &&
		s.Evicted >= was.Evicted && s.Discarded >= was.Discarded && s.Filtered >= was.Filtered && s.Pruned >= was.Pruned && s.Cancelled >= was.Cancelled && s.Failed+s.Cancelled >= was.Failed+was.Cancelled
}

func (s sums) balanced() bool {
	for _, n := range []int64{s.Admitted, s.InFlight, s.Waiting, s.Queued, s.Leased, s.Trained, s.Evicted, s.Discarded, s.Filtered, s.Pruned, s.Cancelled, s.Failed} {
		if n < 0 {
			return false
		}
	}
	return s.Admitted == s.InFlight+s.Waiting+s.Queued+s.Leased+s.ended()
}

// rules are those of the run, as the log's header has them.
type rules struct {
	GroupSize, BatchGroups, Policy, Eta, SyncEvery, Redundancy, OnFailure, MaxUses int
	MaxStaleness                                                                   int64
	ResumeLost, FilterZeroAdvantage, FilterSolveRate, StaysInCell, ResumeRestart   bool
	EngineSlots, EngineCells                                                       []int

	claimS, leaseS, writerS float64
	responseMax             int
	normalizeStd            bool
	durability              string
	// played: planes play rollouts themselves, beside the workers.
	played bool
}

// policyMax and policyBounded are the numbers of policies in a header.
const (
	policyMax     = 1
	policyBounded = 4
)

// ledger is the log, folded event by event.
type ledger struct {
	c          *check
	rules      rules
	entries    []entry
	attempts   map[attemptID]*attempt
	newest     map[attemptID]*attempt // by group and sample, attempt 0
	groups     map[int64]*group
	leases     map[int64]*lease
	out        *lease
	versions   []made // by number
	restored   []int64
	recovered  []int64 // numbers of the events
	slots      map[int64]*attempt
	cells      cells
	unwanted   map[int64]bool // events whose score the log says to count for nothing
	trainOrder []trainedGroup
	sums       sums
	// trainedAt is the number of rollouts that were trained when a version was made.
	trainedAt []int64
	live      int
	end       *sums
	last      int64
	// steps are the events that began an attempt of a lease.
	steps map[[2]int64]int64
	// times are those of events, by number. finished is the event that ended the run.
	times    []int64
	finished int64
}

// trainedGroup is a group in the order of training.
type trainedGroup struct {
	group, n, version, start int64
}
