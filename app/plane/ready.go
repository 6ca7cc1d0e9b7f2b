package plane

import (
	"errors"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// readyGroups are those of the plane's runtime, none before it is there.
type readyGroups struct{ p *Plane }

// After implements remote.Groups.
func (r readyGroups) After(place int64, most int) (groups []port.Group, places []int64, changed <-chan struct{}) {
	if run := r.p.runtime.Load(); run != nil {
		return run.ReadyAfter(place, most)
	}
	return nil, nil, nil
}

// Read implements remote.Groups.
func (r readyGroups) Read(id loop.GroupID) (port.Group, error) {
	run := r.p.runtime.Load()
	if run == nil {
		return port.Group{}, protocol.Refuse(protocol.CodeUnavailable, "the run is starting: try again in a moment")
	}
	group, err := run.ReadyGroup(id)
	if err != nil && !errors.Is(err, port.ErrNotReady) && r.p.fence() != nil {
		err = protocol.Refuse(protocol.CodeUnavailable, "this process is the run's writer no more, and reads no groups: ask the one that is, or again in a moment")
	}
	return group, err
}
