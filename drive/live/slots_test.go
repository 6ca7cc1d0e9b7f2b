package live

import (
	"slices"
	"testing"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// TestStarted: a slot is held from a start or a resume until the event or the action by which its attempt leaves it, and
// the age of an attempt counts from its start.
func TestStarted(t *testing.T) {
	s := newStarted([]int{2, 1})
	of := func(sample, attempt, slot int32) loop.Action {
		return loop.Action{Group: 4, Sample: sample, Attempt: attempt, Slot: slot}
	}
	id := func(sample, attempt int32) port.RolloutID {
		return port.RolloutID{Group: 4, Sample: sample, Attempt: attempt}
	}
	held := func(want ...holder) {
		t.Helper()
		var got []holder
		for _, h := range s.holders {
			if h.runs {
				got = append(got, h)
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("held by %v, want %v", got, want)
		}
	}
	s.start(of(0, 1, 0), 10)
	s.start(of(1, 1, 1), 20)
	held(holder{id(0, 1), 10, true}, holder{id(1, 1), 20, true})
	s.leave(0, id(0, 2)) // of an attempt that is not in it
	s.leave(-1, id(0, 1))
	held(holder{id(0, 1), 10, true}, holder{id(1, 1), 20, true})
	s.leave(0, id(0, 1)) // interrupted
	s.resume(of(0, 1, 2))
	held(holder{id(1, 1), 20, true}, holder{id(0, 1), 10, true})
	s.start(of(0, 2, 0), 30) // the one before was given up with its engine, without a word
	held(holder{id(0, 2), 30, true}, holder{id(1, 1), 20, true})
	s.resume(of(0, 1, 2)) // which is forgotten
	s.abort(of(1, 2, 1))
	held(holder{id(0, 2), 30, true}, holder{id(1, 1), 20, true})
	s.abort(of(1, 1, 1))
	held(holder{id(0, 2), 30, true})
	s.endGroup(4)
	held()
	if len(s.groups) > 0 || !slices.Equal(s.engineOf, []int32{0, 0, 1}) {
		t.Errorf("groups %v, slots of engines %v", s.groups, s.engineOf)
	}
}
