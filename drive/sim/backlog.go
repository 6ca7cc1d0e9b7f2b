package sim

import "github.com/headway-rl/headway/loop"

// backlog holds interrupted rollouts until they are resumed or aborted. The loop
// resumes them in the order in which they were interrupted, so that the first one
// is nearly always the one that is asked for.
type backlog struct {
	rollouts []slot // group 0: taken out
	head     int
	len      int
}

// put adds a rollout.
func (b *backlog) put(s *slot) {
	if b.len == 0 {
		b.rollouts, b.head = b.rollouts[:0], 0
	}
	if b.head > len(b.rollouts)/2 && len(b.rollouts) == cap(b.rollouts) {
		b.rollouts = b.rollouts[:copy(b.rollouts, b.rollouts[b.head:])]
		b.head = 0
	}
	b.rollouts = append(b.rollouts, *s)
	b.len++
}

// take removes a rollout; ok is false if it is not there.
func (b *backlog) take(group loop.GroupID, sample, attempt int32) (s slot, ok bool) {
	for i := b.head; i < len(b.rollouts); i++ {
		if p := &b.rollouts[i]; p.is(group, sample, attempt) {
			s = *p
			p.group = 0
			b.len--
			for b.head < len(b.rollouts) && b.rollouts[b.head].group == 0 {
				b.head++
			}
			return s, true
		}
	}
	return slot{}, false
}
