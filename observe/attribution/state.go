package attribution

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/track"
)

// stateVersion changes when what a state holds does, or what it means.
const stateVersion = 4

// kept is a state as it is written.
type kept struct {
	StateVersion int
	Warmup       loop.Version
	State        state
	Run          track.State
	// Groups are the live ones by their number; Made are the versions that any of them looks back on,
	// the newest last.
	Groups []track.Entry[life]
	Made   []origin
	Last   Step
}

// State returns all that the observer remembers, for Restore: a JSON document, and the same bytes
// for the same observations. It has no checksum; the caller that keeps it gives it one.
func (o *Observer) State() ([]byte, error) {
	o.settle()
	k := kept{StateVersion: stateVersion, Warmup: o.Warmup, State: o.s, Run: o.run.State, Groups: o.groups.Entries(), Last: o.last}
	back := o.run.Version
	for i := range k.Groups {
		if begun := k.Groups[i].Of.Begun; begun != loop.NoVersion {
			back = min(back, begun)
		}
	}
	for v := max(back, o.run.Version-remembered, 0) + 1; v <= o.run.Version; v++ {
		k.Made = append(k.Made, o.s.Made[int(v)%remembered])
	}
	k.State.Made = nil
	return json.Marshal(k)
}

// Restore returns the observer that State was called on, of a loop with these rules. It goes on as
// that one would have; callbacks are to be set again. A state of another version of the observer, or
// of other rules, is an error: observe the events again instead.
func Restore(cfg loop.Config, data []byte) (*Observer, error) {
	var k kept
	if err := json.Unmarshal(data, &k); err != nil {
		return nil, fmt.Errorf("attribution: the observer's state cannot be read (%w): observe the events again", err)
	}
	if k.StateVersion != stateVersion {
		return nil, fmt.Errorf("attribution: an observer's state of version %d, this program reads %d: observe the events again", k.StateVersion, stateVersion)
	}
	o := New(cfg)
	if !o.run.Restore(k.Run) || len(k.State.Recent) != recentSteps || len(k.Made) > remembered || loop.Version(len(k.Made)) > k.Run.Version {
		return nil, errors.New("attribution: the observer's state is damaged, or of other rules: observe the events again")
	}
	made := o.s.Made
	o.Warmup, o.s, o.last = k.Warmup, k.State, k.Last
	o.s.Made = made
	for i := range k.Made {
		v := int(k.Run.Version) - len(k.Made) + 1 + i
		made[v%remembered] = k.Made[i]
	}
	for i := range k.Groups {
		if k.Groups[i].ID <= 0 {
			return nil, errors.New("attribution: the observer's state is damaged: observe the events again")
		}
		g, _ := o.groups.Put(k.Groups[i].ID)
		*g = k.Groups[i].Of
	}
	return o, nil
}
