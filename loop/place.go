package loop

// siblingsAt returns the engine of whose open group the next rollout starts, given the one with the most free
// slots, and opens that group if it is new; none if nothing may start. Only PlaceCacheAware asks.
//
// An engine has a group of its own, and its next rollout is that group's. An engine without one opens a group, unless
// admission is closed or another engine's group has waited long enough. Then it is that group's turn: where it is at
// home, or where the slots are.
func (l *Loop) siblingsAt(e int32) int32 {
	s := &l.s
	if s.Opens[e] != none {
		return e
	}
	first := l.firstOpen()
	if (first == none || !l.overdue(s.Opens[first])) && l.mayOpen() {
		s.Opens[e] = l.openGroup()
		return e
	}
	if first != none && !l.canStart(&s.Engines[first]) {
		s.Opens[e], s.Opens[first] = s.Opens[first], none
		return e
	}
	return first
}

// firstOpen returns the engine whose open group was opened first, none if no group is open.
func (l *Loop) firstOpen() int32 {
	s, first := &l.s, none
	for e, gi := range s.Opens {
		if gi != none && (first == none || s.Groups[gi].ID < s.Groups[s.Opens[first]].ID) {
			first = int32(e)
		}
	}
	return first
}

// overdue reports whether an open group has waited at its engine for half of a rollout's mean time: so long it takes to
// open half as many groups as run at once. Under StartGang its slots are free already, and no other may take them.
func (l *Loop) overdue(gi int32) bool {
	opened := l.s.NextGroup - 1 - l.s.Groups[gi].ID
	return l.cfg.Start == StartGang || opened >= GroupID(l.rules.slots/(2*l.rules.size))
}

// cachedOn is the number of an engine that keeps a rollout's tokens in its cache, for PlaceCacheAware alone.
func (l *Loop) cachedOn(e int32) int32 {
	if l.cfg.Placement != PlaceCacheAware {
		return 0
	}
	return e + 1
}

// cachedAt returns the engine whose cache has a waiting rollout's tokens, if it takes rollouts, else the given one.
func (l *Loop) cachedAt(r retry, e int32) int32 {
	if home := r.Cached - 1; home >= 0 && l.canStart(&l.s.Engines[home]) {
		return home
	}
	return e
}
