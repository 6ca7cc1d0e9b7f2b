package live

import (
	"sync"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// ready has the groups that can be trained, or are in training, in the order in which they became ready. The goroutine that
// owns the loop tells it; any goroutine may ask.
type ready struct {
	mu sync.Mutex
	// groups are without samples. first is the place of the first of them, and places count from 1.
	groups []port.Group
	first  int64
	at     map[loop.GroupID]int64
	// changed is closed, and replaced, when a group comes.
	changed chan struct{}
}

func newReady() *ready {
	return &ready{first: 1, at: make(map[loop.GroupID]int64), changed: make(chan struct{})}
}

// follow takes the actions of an event. A lease that is returned changes nothing: its groups were there all the time.
func (r *ready) follow(actions []loop.Action, counted *Counted) {
	for i := range actions {
		switch a := &actions[i]; a.Kind {
		case loop.GroupQueued, loop.GroupHeld:
			r.add(port.Group{ID: a.Group, StartVersion: a.StartVersion, ReadyVersion: a.ReadyVersion, Rollouts: int(a.Count), Counted: counted.groups[a.Group]})
		case loop.GroupTrained:
			if !counted.kept {
				r.drop(a.Group)
			}
		case loop.GroupEnded:
			r.drop(a.Group)
		}
	}
}

func (r *ready) add(g port.Group) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, there := r.at[g.ID]; there {
		return // it was held outside a full queue
	}
	r.at[g.ID] = r.first + int64(len(r.groups))
	r.groups = append(r.groups, g)
	close(r.changed)
	r.changed = make(chan struct{})
}

// drop forgets a group. Those before it stay where they are, so that places go on.
func (r *ready) drop(id loop.GroupID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	place, there := r.at[id]
	if !there {
		return
	}
	delete(r.at, id)
	r.groups[place-r.first] = port.Group{}
	n := 0
	for n < len(r.groups) && r.groups[n].ID == 0 {
		n++
	}
	r.groups, r.first = r.groups[n:], r.first+int64(n)
}

// ReadyAfter returns groups that can be trained, or are in training, with their places in the order in which they became
// ready. They are those behind a place, at most so many. Their Samples are nil: ReadyGroup reads them. The channel is closed
// when another is ready. It may be called like TrainerReady.
func (r *Runtime) ReadyAfter(place int64, most int) (groups []port.Group, places []int64, changed <-chan struct{}) {
	list := r.ready
	list.mu.Lock()
	defer list.mu.Unlock()
	for at := max(place+1-list.first, 0); at < int64(len(list.groups)) && len(groups) < most; at++ {
		if g := list.groups[at]; g.ID != 0 {
			groups, places = append(groups, g), append(places, list.first+at)
		}
	}
	return groups, places, list.changed
}

// ReadyGroup reads a group of ReadyAfter with its samples. An error that wraps port.ErrNotReady says that it is none. It may be called like TrainerReady.
func (r *Runtime) ReadyGroup(id loop.GroupID) (port.Group, error) {
	g, ok := r.ready.find(id)
	if !ok {
		return port.Group{}, port.ErrNotReady
	}
	err := fetch(&g, r.opt.Store)
	if err != nil {
		if _, still := r.ready.find(id); !still { // it ended meanwhile, and its payloads went
			err = port.ErrNotReady
		}
	}
	return g, err
}

func (r *ready) find(id loop.GroupID) (port.Group, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	place, ok := r.at[id]
	if !ok {
		return port.Group{}, false
	}
	return r.groups[place-r.first], true
}
