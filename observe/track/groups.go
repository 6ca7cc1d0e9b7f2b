package track

import (
	"cmp"
	"iter"
	"slices"

	"github.com/headway-rl/headway/loop"
)

// Groups finds figures of live groups by the group's number. Numbers rise, and live ones lie close together, so that
// the low bits of a number are its place. A group that outlives its neighbours is put aside when another comes to its
// place. With many of those the table doubles.
//
// A pointer to a group is good until the next Put. [NewGroups] makes a table.
type Groups[T any] struct {
	places []Entry[T]
	aside  []Entry[T]
	// last is the group that was opened last, whose siblings follow; 0 once it has been removed.
	last loop.GroupID
}

// Entry is a live group: its number, 0 for a free place, and its figures.
type Entry[T any] struct {
	ID loop.GroupID
	Of T
}

// NewGroups returns an empty table for a loop with these rules.
func NewGroups[T any](cfg *loop.Config) Groups[T] {
	n, atLeast := 64, 4*(cfg.Concurrency()/cfg.GroupSize+cfg.QueueGroups+cfg.BatchGroups+4)
	for n < atLeast {
		n *= 2
	}
	return Groups[T]{places: make([]Entry[T], n)}
}

func (t *Groups[T]) place(id loop.GroupID) *Entry[T] { return &t.places[int(id)&(len(t.places)-1)] }

// Get returns the figures of a live group, nil if it does not live.
func (t *Groups[T]) Get(id loop.GroupID) *T {
	if g := t.place(id); g.ID == id && id != 0 {
		return &g.Of
	}
	return t.getAside(id)
}

// getAside is apart so that Get, which is called for every rollout, can be inlined.
func (t *Groups[T]) getAside(id loop.GroupID) *T {
	for i := range t.aside { // hardly ever any
		if t.aside[i].ID == id {
			return &t.aside[i].Of
		}
	}
	return nil
}

// asideMax is how many groups may be aside: few enough to look through.
const asideMax = 8

// Open makes a group live if it does not live. It is a Put without a pointer, and costs nothing for siblings.
func (t *Groups[T]) Open(id loop.GroupID) {
	if id != t.last {
		t.Put(id)
	}
}

// Put returns the figures of a group. A group that does not live becomes live, with the zero value.
func (t *Groups[T]) Put(id loop.GroupID) (of *T, opened bool) {
	t.last = id
	if of = t.Get(id); of != nil {
		return of, false
	}
	for {
		g := t.place(id)
		if g.ID != 0 && g.ID < id && len(t.aside) < asideMax {
			t.aside = append(t.aside, *g)
			g.ID = 0
		}
		if g.ID == 0 {
			*g = Entry[T]{ID: id}
			return &g.Of, true
		}
		t.double()
	}
}

// double makes the table as much larger as it takes for no two groups to have one place.
func (t *Groups[T]) double() {
	old := append(t.places, t.aside...)
	t.aside = t.aside[:0]
	for n := 2 * len(t.places); !t.fill(n, old); n *= 2 {
	}
}

// fill makes a table of n places for these groups, and reports whether each has its own.
func (t *Groups[T]) fill(n int, groups []Entry[T]) bool {
	t.places = make([]Entry[T], n)
	for i := range groups {
		if groups[i].ID == 0 {
			continue
		}
		p := t.place(groups[i].ID)
		if p.ID != 0 {
			return false
		}
		*p = groups[i]
	}
	return true
}

// Remove ends a group, if it lives.
func (t *Groups[T]) Remove(id loop.GroupID) {
	if g := t.place(id); g.ID == id {
		g.ID = 0
	} else if len(t.aside) > 0 {
		t.aside = slices.DeleteFunc(t.aside, func(g Entry[T]) bool { return g.ID == id })
	}
	if id == t.last {
		t.last = 0
	}
}

// All visits every live group, in no order of its own.
func (t *Groups[T]) All() iter.Seq2[loop.GroupID, *T] {
	return func(yield func(loop.GroupID, *T) bool) {
		for _, part := range [...][]Entry[T]{t.places, t.aside} {
			for i := range part {
				if part[i].ID != 0 && !yield(part[i].ID, &part[i].Of) {
					return
				}
			}
		}
	}
}

// Entries returns copies of all live groups, by their number.
func (t *Groups[T]) Entries() []Entry[T] {
	var all []Entry[T]
	for id, of := range t.All() {
		all = append(all, Entry[T]{id, *of})
	}
	slices.SortFunc(all, func(a, b Entry[T]) int { return cmp.Compare(a.ID, b.ID) })
	return all
}
