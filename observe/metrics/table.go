package metrics

import (
	"slices"

	"github.com/headway-rl/headway/loop"
)

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
// the low bits of an id are its place. A group that lives on while all others of its
// time have ended is put aside when another comes to its place; with many of those
// the table doubles.
type table struct {
	places []liveGroup
	aside  []liveGroup
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
	for i := range t.aside { // hardly ever any
		if t.aside[i].id == id {
			return &t.aside[i]
		}
	}
	return nil
}

// put makes a group live if it is not.
func (t *table) put(id loop.GroupID) {
	if id != t.last {
		t.add(id)
	}
}

// asideMax is how many groups may be aside: few enough to look through.
const asideMax = 8

func (t *table) add(id loop.GroupID) {
	t.last = id
	if t.get(id) != nil {
		return
	}
	for {
		g := t.place(id)
		if g.id != 0 && g.id < id && len(t.aside) < asideMax {
			t.aside = append(t.aside, *g)
			g.id = 0
		}
		if g.id == 0 {
			*g = liveGroup{id: id}
			return
		}
		t.double()
	}
}

// double makes the table as much larger as it takes for no two groups to have one place.
func (t *table) double() {
	old := append(t.places, t.aside...)
	t.aside = t.aside[:0]
	for n := 2 * len(t.places); !t.fill(n, old); n *= 2 {
	}
}

// fill makes a table of n places for these groups, and reports whether each has its own.
func (t *table) fill(n int, groups []liveGroup) bool {
	t.places = make([]liveGroup, n)
	for i := range groups {
		if groups[i].id == 0 {
			continue
		}
		p := t.place(groups[i].id)
		if p.id != 0 {
			return false
		}
		*p = groups[i]
	}
	return true
}

func (t *table) remove(id loop.GroupID) {
	if g := t.place(id); g.id == id {
		g.id = 0
	} else if i := slices.IndexFunc(t.aside, func(g liveGroup) bool { return g.id == id }); i >= 0 {
		t.aside = slices.Delete(t.aside, i, i+1)
	}
	if id == t.last {
		t.last = 0
	}
}

// GroupTokens returns the response tokens scored so far of a group that has not
// ended, 0 for others.
func (r *Recorder) GroupTokens(id loop.GroupID) int64 {
	if g := r.groups.get(id); g != nil {
		return g.tokens
	}
	return 0
}
