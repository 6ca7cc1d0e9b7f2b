package metrics

import "github.com/headway-rl/headway/loop"

// liveGroup is what the recorder remembers of a group until it ends.
//
// What every rollout touches comes first, within a cache line.
type liveGroup struct {
	id            loop.GroupID // 0: the place is free
	tokens        int64
	versionTokens int64
	longest       int64 // ns
	reward        float64
	tokensMax     int32
	scored        int32
	solved        int32
	// newest is the newest version under which a rollout of it ended, atNewest how many did.
	newest   int32
	atNewest int32
	ready    bool
	// spanning counts rollouts made under more than one version, spanMax the most versions
	// between a rollout's first and last.
	spanning      int32
	spanMax       int32
	cancelled     int32
	uses          int32 // train steps on it
	resumed       int32
	resumedReward float64
}

// endsAt counts a rollout that began under the version first and ended under last. It
// computes without branches, which no processor would foresee: whether a switch
// fell into a rollout is all but chance.
func (g *liveGroup) endsAt(last, first int32) {
	g.spanning += negative(first - last)
	g.spanMax = max(g.spanMax, last-first)
	newer := negative(g.newest - last)
	older := negative(last - g.newest)
	g.atNewest = g.atNewest&(newer-1) + 1 - older
	g.newest = max(g.newest, last)
}

// negative is 1 for a negative number and 0 for others.
func negative(v int32) int32 { return int32(uint32(v) >> 31) }

// table finds live groups by id. IDs rise, and live ones lie close together, so
// the low bits of an id are its place; the table doubles where two collide.
type table struct {
	places []liveGroup
	// last is the group that was made live last, whose siblings follow; 0 once it has been removed.
	last loop.GroupID
}

func (t *table) init(atLeast int) {
	n := 64
	for n < atLeast {
		n *= 2
	}
	t.places = make([]liveGroup, n)
}

func (t *table) place(id loop.GroupID) *liveGroup {
	return &t.places[int(id)&(len(t.places)-1)]
}

// get returns a live group, nil if it is not.
func (t *table) get(id loop.GroupID) *liveGroup {
	if g := t.place(id); g.id == id && id != 0 {
		return g
	}
	return nil
}

// put makes a group live if it is not.
func (t *table) put(id loop.GroupID) {
	if id != t.last {
		t.add(id)
	}
}

func (t *table) add(id loop.GroupID) {
	for t.last = id; ; {
		g := t.place(id)
		if g.id == id {
			return
		}
		if g.id == 0 {
			*g = liveGroup{id: id}
			return
		}
		t.double()
	}
}

func (t *table) double() {
	old := t.places
	t.places = make([]liveGroup, 2*len(old))
	for i := range old {
		if old[i].id != 0 {
			*t.place(old[i].id) = old[i]
		}
	}
}

func (t *table) remove(id loop.GroupID) {
	if g := t.get(id); g != nil {
		g.id = 0
	}
	if id == t.last {
		t.last = 0
	}
}
