package live

import (
	"iter"
	"slices"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// started follows, by actions and events alone, the attempts that this process has started of groups that have not
// ended, and the slots that they hold.
type started struct {
	groups map[loop.GroupID][]begun
	// holders are by slot, engineOf has the engine of each.
	holders  []holder
	engineOf []int32
}

// begun is the newest attempt at a sample of a group, and the slot that it was given last.
type begun struct {
	sample, attempt, slot int32
	// since is when it was started, in the run's time.
	since int64
}

// holder is the attempt that was given a slot last. Runs: it holds the slot, and is wanted.
type holder struct {
	id    port.RolloutID
	since int64
	runs  bool
}

func newStarted(engineSlots []int) started {
	s := started{groups: make(map[loop.GroupID][]begun)}
	for i, n := range engineSlots {
		s.engineOf = append(s.engineOf, slices.Repeat([]int32{int32(i)}, n)...)
	}
	s.holders = make([]holder, len(s.engineOf))
	return s
}

// start takes an attempt that is started now, in the place of the one before it.
func (s *started) start(a loop.Action, now int64) {
	next := begun{sample: a.Sample, attempt: a.Attempt, slot: a.Slot, since: now}
	if b := s.newest(a.Group, a.Sample); b != nil {
		s.leave(b.slot, b.id(a.Group)) // the loop may have given it up without a word
		*b = next
	} else {
		s.groups[a.Group] = append(s.groups[a.Group], next)
	}
	s.holders[a.Slot] = holder{next.id(a.Group), now, true}
}

// resume takes an attempt that goes on in a slot.
func (s *started) resume(a loop.Action) {
	if b := s.newest(a.Group, a.Sample); b != nil && b.attempt == a.Attempt {
		b.slot = a.Slot
		s.holders[a.Slot] = holder{b.id(a.Group), b.since, true}
	}
}

// abort takes an attempt that is not wanted any more.
func (s *started) abort(a loop.Action) {
	if b := s.newest(a.Group, a.Sample); b != nil && b.attempt == a.Attempt {
		s.leave(b.slot, b.id(a.Group))
	}
}

// leave takes an attempt out of a slot, if it is in it.
func (s *started) leave(slot int32, id port.RolloutID) {
	if uint(slot) < uint(len(s.holders)) && s.holders[slot].id == id {
		s.holders[slot].runs = false
	}
}

// running are the attempts that hold a slot and are wanted, with the engine of each, in the order of their slots.
func (s *started) running() iter.Seq2[int32, *holder] {
	return func(yield func(int32, *holder) bool) {
		for slot := range s.holders {
			if h := &s.holders[slot]; h.runs && !yield(s.engineOf[slot], h) {
				return
			}
		}
	}
}

// endGroup forgets a group.
func (s *started) endGroup(group loop.GroupID) {
	for _, b := range s.groups[group] {
		s.leave(b.slot, b.id(group))
	}
	delete(s.groups, group)
}

// watchSlot takes an attempt out of its slot by whose event it has left it.
func (r *Runtime) watchSlot(ev *loop.Event) {
	switch ev.Kind {
	case loop.RolloutScored, loop.RolloutFailed, loop.RolloutAborted, loop.RolloutInterrupted:
		r.started.leave(ev.Slot, idOf(*ev))
	}
}

func (s *started) newest(group loop.GroupID, sample int32) *begun {
	members := s.groups[group]
	for i := range members {
		if members[i].sample == sample {
			return &members[i]
		}
	}
	return nil
}

func (b *begun) id(group loop.GroupID) port.RolloutID {
	return port.RolloutID{Group: group, Sample: b.sample, Attempt: b.attempt}
}
