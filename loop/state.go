package loop

import "fmt"

// none is the arena index of no group.
const none int32 = -1

// state is everything a loop remembers. Its fields are exported for the
// snapshot alone.
type state struct {
	Now      int64
	Started  bool
	Stopping bool
	Finished Reason
	// Trained is the trainer's version.
	Trained   Version
	NextGroup GroupID
	NextLease LeaseID
	// NextTurn is the Turn of the next group to become ready.
	NextTurn int64
	// Groups, Extras and Samples are the arena of live groups; sample k of group i is Samples[i*stride+k].
	Groups     []group
	Extras     []extra
	Samples    []sample
	FreeGroups []int32
	// LiveGroups counts groups that have been opened and have not ended.
	LiveGroups int
	// Open is the group whose rollouts are being issued. Under PlaceCacheAware each engine has one of its own:
	// Opens, none where there is none.
	Open    int32
	Opens   []int32 `json:",omitempty"`
	Retries waiting
	Slots   []slot
	Engines []engine
	// Queue holds ready groups in the order in which they became ready, Held those kept out of it.
	Queue list
	Held  list
	Lease lease
	Sync  sync
	// Asked: the trainer has asked for a batch since its last step began (TrainerAsks).
	Asked bool `json:",omitempty"`
	// Restored is the newest version that no batch made, 0 for none (TrainerAsks).
	Restored Version `json:",omitempty"`
	// Settle is the instant of a Tick that the loop has asked for, or NoTick.
	Settle int64
	Ledger Ledger
	Counts Counts

	// Backlog are interrupted rollouts that wait for a slot, the longest waiting first.
	Backlog waiting
	// Requeue are prompts to be played again, Cursor counts those taken from the prompt set.
	Requeue []prompt
	Cursor  int64
	// Draws counts the loop's own draws.
	Draws uint64
	// Levels are the curriculum's estimates.
	Levels []level
	// FreshFrom is the Turn from which groups became ready since the last batch was selected, Fresh how
	// many of those came to the queue (SelectFresh).
	FreshFrom int64
	Fresh     int64
	// Taken counts the groups leased since the last completed sync (PolicyThreshold).
	Taken int
	Times times
	Hold  hold
	Cost  holdCost
	// Slope is the estimate of drift per version, in millionths of a nat, once SlopeKnown (PolicyReplay).
	Slope      int64
	SlopeKnown bool
	// Control is what the controller knows, and where it has the settings; nil without a goal.
	Control *controller `json:",omitempty"`
}

type groupState uint8

const (
	groupFree groupState = iota
	groupRunning
	groupHeld
	groupQueued
	groupLeased
)

// group is a live group in the arena.
type group struct {
	ID    GroupID
	State groupState
	// TokenSeen: the group's first token has been reported.
	TokenSeen bool
	Rejected  bool
	// Uneven: two scored rewards differ.
	Uneven bool
	// Issued counts samples that have been started at least once, Lost those given up. InFlight counts
	// interrupted ones too.
	Issued   int32
	InFlight int32
	Scored   int32
	Lost     int32
	Reward   float32
	Start    Version
	Ready    Version
	// Turn orders groups by the moment they became ready.
	Turn int64
	Prev int32
	Next int32
}

// extra is what few rules need of a live group. It lies apart so that a group
// fills one cache line.
type extra struct {
	// Failed counts the lost samples that failed, Solved the scored ones whose answer is wholly right.
	Failed int32
	Solved int32
	// Prompt and Level as carried by every start.
	Prompt int64
	Level  int32
	// Uses counts train steps, Drift is what the last one measured in millionths of a nat, DriftAt its
	// version (PolicyReplay).
	Uses    int32
	Drift   int64
	DriftAt Version
	// Size is the number of rollouts the group is to have, where that may differ.
	Size int32 `json:",omitempty"`
}

// sample is one rollout of a live group.
type sample struct {
	Attempt  int32
	Failures int32
	// Slot holds the attempt in flight; none if there is none, parked if it is in the backlog.
	Slot int32
	// Spans counts the times the attempt was interrupted with more tokens than before, which were Tokens.
	Spans  int32
	Tokens int32
}

// parked is the slot of a sample in the backlog.
const parked int32 = -2

// retry names a sample that waits for a slot.
type retry struct {
	Group  int32
	Sample int32
	// Cached is the number, from 1, of the engine whose cache has its tokens; 0 for none.
	Cached int32 `json:",omitempty"`
	// Cell has what an interrupted one has made.
	Cell int32 `json:",omitempty"`
}

// prompt is what a group plays.
type prompt struct {
	Prompt int64
	Level  int32
}

type slotState uint8

const (
	slotFree slotState = iota
	slotRunning
	// slotInterrupting has been asked to stop and keep its tokens.
	slotInterrupting
	// slotAborting waits for the engine's word after its attempt has ended.
	slotAborting
)

// slot is one concurrent rollout of an engine.
type slot struct {
	ID      GroupID
	Group   int32
	Sample  int32
	Attempt int32
	Engine  int32
	State   slotState
}

// lease is the batch at the trainer; ID 0 means there is none.
type lease struct {
	ID       LeaseID
	Attempt  int32
	Failures int32
	Version  Version
	Groups   []int32
}

// sync is the weight sync of the fleet.
type sync struct {
	// Target is the version being brought to the engines, or NoVersion.
	Target Version
	// Completed is the version of the last completed sync.
	Completed Version
}

// list is a doubly linked list through the arena.
type list struct {
	Head int32
	Tail int32
	Len  int
}

func (s *state) pushBack(l *list, i int32) {
	g := &s.Groups[i]
	g.Prev, g.Next = l.Tail, none
	if l.Tail == none {
		l.Head = i
	} else {
		s.Groups[l.Tail].Next = i
	}
	l.Tail = i
	l.Len++
}

// insert puts group i where it stood in the order of readiness.
func (s *state) insert(l *list, i int32) {
	next := l.Head
	for next != none && s.Groups[next].Turn < s.Groups[i].Turn {
		next = s.Groups[next].Next
	}
	if next == none {
		s.pushBack(l, i)
		return
	}
	prev := s.Groups[next].Prev
	if prev == none {
		s.pushFront(l, i)
		return
	}
	s.Groups[i].Prev, s.Groups[i].Next = prev, next
	s.Groups[prev].Next, s.Groups[next].Prev = i, i
	l.Len++
}

func (s *state) pushFront(l *list, i int32) {
	g := &s.Groups[i]
	g.Prev, g.Next = none, l.Head
	if l.Head == none {
		l.Tail = i
	} else {
		s.Groups[l.Head].Prev = i
	}
	l.Head = i
	l.Len++
}

func (s *state) remove(l *list, i int32) {
	g := &s.Groups[i]
	if g.Prev == none {
		l.Head = g.Next
	} else {
		s.Groups[g.Prev].Next = g.Next
	}
	if g.Next == none {
		l.Tail = g.Prev
	} else {
		s.Groups[g.Next].Prev = g.Prev
	}
	g.Prev, g.Next = none, none
	l.Len--
}

// InvariantError is the panic value of a step that finds the loop in an impossible state. It is a
// defect of the loop, never of its input.
type InvariantError struct {
	// The broken rule, in a sentence.
	What string
	// Event during which it was found.
	Event Event
}

func (e *InvariantError) Error() string {
	return fmt.Sprintf("loop: broken invariant: %s (at %v)", e.What, e.Event)
}

// broken stops the step: the loop has found itself in a state that cannot be.
func (l *Loop) broken(format string, args ...any) {
	panic(&InvariantError{fmt.Sprintf(format, args...), *l.ev})
}

// check asserts the cheap invariants after every step.
func (l *Loop) check() {
	if !l.s.Ledger.balanced() || l.s.Queue.Len > l.rules.queue {
		l.report()
	}
}

// report says which of the cheap invariants is broken.
func (l *Loop) report() {
	s := &l.s
	if !s.Ledger.balanced() {
		l.broken("the ledger does not balance: %+v", s.Ledger)
	}
	l.broken("the queue holds %d groups of %d", s.Queue.Len, l.rules.queue)
}
