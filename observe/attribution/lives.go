package attribution

import "github.com/headway-rl/headway/loop"

// life is what is remembered of a group from its first rollout to its end. Exported fields are
// for State alone.
type life struct {
	ID loop.GroupID
	// Begun is the trainer's version when the group began, Due the newest version that a weight
	// sync without any duration would have brought by then; Begun is loop.NoVersion while
	// nothing of the group has begun.
	Begun, Due loop.Version
	// BegunNS is when that was.
	BegunNS int64
	// Born is the oldest version that an engine served when it was given one of the rollouts,
	// observed apart from the loop's stamp; loop.NoVersion for none.
	Born loop.Version
	// EndsNS and EnvironmentNS are sums over the rollouts scored: of their ends since BegunNS, and
	// of what their environments took until then.
	EndsNS, EnvironmentNS int64
	// Flying counts attempts that have not ended, Scored those that were kept.
	Flying, Scored int32
	// LastNS is when the last of them ended since BegunNS, MadeNS the longest that one took but for its
	// environment.
	LastNS, MadeNS int64
	// Seen: the first token was reported. Ready: the group has been ready, when the step of
	// ReadyLease was the newest that had begun. Held: it waits outside a full queue.
	Seen, Ready, Held bool
	ReadyLease        loop.LeaseID
	// Waited is how many versions were made while it was held.
	Waited loop.Version
	// Before is the part of the split up to being ready.
	Before quanta
}

// began notes that a rollout of the group was given to an engine.
func (g *life) began(s *state, served loop.Version) {
	if g.Begun == loop.NoVersion {
		g.Begun, g.Due, g.BegunNS = s.Version, s.Due, s.Now
	}
	if g.Born == loop.NoVersion || served < g.Born {
		g.Born = served
	}
}

// left notes that an attempt ended without a score. A group of which nothing is left begins anew.
func (g *life) left() {
	g.Flying--
	g.anew()
}

func (g *life) anew() {
	if g.Flying <= 0 && g.Scored == 0 {
		*g = life{ID: g.ID, Begun: loop.NoVersion, Born: loop.NoVersion}
	}
}

// lives finds live groups by their number. Numbers rise and live ones lie close together, so that
// the low bits of a number are its place. A group that outlives all others of its time moves to
// late when another comes to its place.
type lives struct {
	places []life
	late   map[loop.GroupID]*life
}

func newLives(atLeast int) lives {
	n := 64
	for n < atLeast {
		n *= 2
	}
	return lives{places: make([]life, n), late: map[loop.GroupID]*life{}}
}

// get returns a live group, nil if it is not.
func (l *lives) get(id loop.GroupID) *life {
	if g := &l.places[int(id)&(len(l.places)-1)]; g.ID == id && id != 0 {
		return g
	}
	if len(l.late) == 0 {
		return nil
	}
	return l.late[id]
}

// put returns a group, which it makes live if it is not.
func (l *lives) put(id loop.GroupID) *life {
	if g := l.get(id); g != nil {
		return g
	}
	g := &l.places[int(id)&(len(l.places)-1)]
	if g.ID != 0 {
		older := *g
		l.late[older.ID] = &older
		g.ID = 0
		if len(l.late) > len(l.places)/4 {
			l.double()
			return l.put(id)
		}
	}
	*g = life{ID: id, Begun: loop.NoVersion, Born: loop.NoVersion}
	return g
}

// double makes room for twice as many.
func (l *lives) double() {
	all := make([]life, 0, len(l.places))
	l.each(func(g *life) { all = append(all, *g) })
	*l = newLives(2 * len(l.places))
	for i := range all {
		*l.put(all[i].ID) = all[i]
	}
}

func (l *lives) remove(id loop.GroupID) {
	if g := &l.places[int(id)&(len(l.places)-1)]; g.ID == id {
		g.ID = 0
	} else if len(l.late) > 0 {
		delete(l.late, id)
	}
}

// each visits every live group, in no order of its own.
func (l *lives) each(visit func(*life)) {
	for i := range l.places {
		if l.places[i].ID != 0 {
			visit(&l.places[i])
		}
	}
	for _, g := range l.late {
		visit(g)
	}
}
