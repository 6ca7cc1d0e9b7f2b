package attribution

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/headway-rl/headway/loop"
)

// stateVersion changes when what a state holds does, or what it means.
const stateVersion = 3

// kept is a state as it is written.
type kept struct {
	StateVersion int
	Warmup       loop.Version
	State        state
	// Groups are the live ones by their number; Made are the versions that any of them looks back on,
	// the newest last.
	Groups []life
	Made   []origin
	Last   Step
}

// State returns all that the observer remembers, for Restore: a JSON document, and the same bytes
// for the same observations. It has no checksum; whoever keeps it gives it one.
func (o *Observer) State() ([]byte, error) {
	o.settle()
	k := kept{StateVersion: stateVersion, Warmup: o.Warmup, State: o.s, Last: o.last}
	back := o.s.Version
	o.groups.each(func(g *life) {
		k.Groups = append(k.Groups, *g)
		if g.Begun != loop.NoVersion {
			back = min(back, g.Begun)
		}
	})
	slices.SortFunc(k.Groups, func(a, b life) int { return int(a.ID - b.ID) })
	for v := max(back, o.s.Version-remembered, 0) + 1; v <= o.s.Version; v++ {
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
	if len(k.State.Slots) != len(o.s.Slots) || len(k.State.Engines) != len(o.s.Engines) || len(k.State.Recent) != recentSteps ||
		len(k.Made) > remembered || loop.Version(len(k.Made)) > k.State.Version {
		return nil, errors.New("attribution: the observer's state is damaged, or of other rules: observe the events again")
	}
	made := o.s.Made
	o.Warmup, o.s, o.last = k.Warmup, k.State, k.Last
	o.s.Made = made
	for i := range k.Made {
		v := int(k.State.Version) - len(k.Made) + 1 + i
		made[v%remembered] = k.Made[i]
	}
	for i := range k.Groups {
		if k.Groups[i].ID <= 0 {
			return nil, errors.New("attribution: the observer's state is damaged: observe the events again")
		}
		*o.groups.put(k.Groups[i].ID) = k.Groups[i]
	}
	return o, nil
}
