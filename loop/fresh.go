package loop

// fresh reports whether batches are drawn among fresh groups. Under PolicyReplay
// the buffer's own sampling counts.
func (l *Loop) fresh() bool {
	return l.cfg.Select == SelectFresh && l.cfg.Policy != PolicyReplay
}

// sampleFresh returns the next group of a batch: one drawn among the fresh ones,
// or the newest there is if they do not suffice for what the batch still lacks.
//
// All fresh groups would be trained from the same version, so that it costs
// nothing to choose at random. The last of them to become ready are not a random
// choice: where groups open together, behind a switch of weights, the moment of
// readiness is the generation time modulo the period, and newest first selects
// by length.
func (l *Loop) sampleFresh() int32 {
	s := &l.s
	n := 0
	for i := s.Queue.Tail; i != none && s.Groups[i].Turn >= s.FreshFrom; i = s.Groups[i].Prev {
		n++
	}
	if n <= l.cfg.BatchGroups-len(s.Lease.Groups) {
		return s.Queue.Tail
	}
	return l.before(s.Queue.Tail, l.draw(uint64(n)))
}

// endOneOf evicts, of a full queue of fresh groups and the one that arrives, one
// drawn so that the queue remains a uniform sample of all that were fresh. It
// returns the group that ended.
func (l *Loop) endOneOf(arrives int32) int32 {
	s := &l.s
	out := arrives
	if x := l.draw(uint64(s.Fresh)); x < uint64(s.Queue.Len) {
		out = l.before(s.Queue.Tail, x)
	}
	l.endGroup(out, EndEvicted, ReasonFull)
	return out
}

// before returns the group n places before another in its list.
func (l *Loop) before(i int32, n uint64) int32 {
	for ; n > 0; n-- {
		i = l.s.Groups[i].Prev
	}
	return i
}

// draw returns the loop's next own draw, uniform below n.
func (l *Loop) draw(n uint64) uint64 {
	x := Draw(l.cfg.Seed, l.s.Draws) % n
	l.s.Draws++
	return x
}
