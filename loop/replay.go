package loop

import "math"

// replayAges is the number of ages beyond the youngest's whose sampling weights differ; older groups weigh like the last.
const replayAges = 64

// replayWeights returns the sampling weight by age in versions, in units of
// 2^-32. Products alone: a fused multiply-add would differ between machines.
func replayWeights(gamma float64) []uint64 {
	w := make([]uint64, replayAges)
	w[0] = 1 << 32
	for k := 1; k < replayAges; k++ {
		w[k] = max(uint64(float64(w[k-1])*gamma), 1)
	}
	return w
}

// replayWeight returns the weight of a queued group in the sampling, beside
// one of the youngest version there is: weights are what they are to each other.
func (l *Loop) replayWeight(gi int32, youngest Version) uint64 {
	age := min(max(youngest-l.s.Groups[gi].Start, 0), replayAges-1)
	w := l.weights[age]
	if l.cfg.Balance {
		w = max(w/max(l.queued[l.s.Extras[gi].Prompt], 1), 1)
	}
	return w
}

// countQueued prepares the counts by prompt for a selection, or clears them after it.
func (l *Loop) countQueued(clear bool) {
	s := &l.s
	for i := s.Queue.Head; i != none; i = s.Groups[i].Next {
		if n := &l.queued[s.Extras[i].Prompt]; clear {
			*n = 0
		} else {
			*n++
		}
	}
}

// sampleReplay draws a queued group by its weight.
func (l *Loop) sampleReplay() int32 {
	s := &l.s
	youngest, total := NoVersion, uint64(0)
	for i := s.Queue.Head; i != none; i = s.Groups[i].Next {
		youngest = max(youngest, s.Groups[i].Start)
	}
	for i := s.Queue.Head; i != none; i = s.Groups[i].Next {
		total += l.replayWeight(i, youngest)
	}
	x, i := l.draw(total), s.Queue.Head
	for w := l.replayWeight(i, youngest); x >= w; w = l.replayWeight(i, youngest) {
		x -= w
		i = s.Groups[i].Next
	}
	if l.cfg.Balance {
		l.queued[s.Extras[i].Prompt]--
	}
	return i
}

// evictReplay returns the queued group that a full buffer gives up.
func (l *Loop) evictReplay() int32 {
	s := &l.s
	best := s.Queue.Head
	for i := s.Groups[best].Next; i != none; i = s.Groups[i].Next {
		if l.cfg.Evict == EvictOldestVersion && s.Groups[i].Start < s.Groups[best].Start ||
			l.cfg.Evict == EvictDrift && l.expectedDrift(i) > l.expectedDrift(best) {
			best = i
		}
	}
	return best
}

// expectedDrift extends what was measured of a group by the drift per version
// that others showed, in millionths of a nat.
func (l *Loop) expectedDrift(gi int32) int64 {
	x := &l.s.Extras[gi]
	at := x.DriftAt
	if at == NoVersion {
		at = l.s.Groups[gi].Start
	}
	return x.Drift + l.s.Slope*int64(l.s.Trained-at)
}

// driftMax is the largest mean absolute log-ratio that is taken for one, in nats.
const driftMax = 1e6

// onGroupMeasured takes what the running train step found of one of its groups.
func (l *Loop) onGroupMeasured(ev *Event) {
	s := &l.s
	d := float64(ev.Drift)
	gi := l.leasedGroup(ev.Group)
	if gi == none || !(d >= 0 && d <= driftMax) {
		l.late()
		return
	}
	x := &s.Extras[gi]
	x.Drift, x.DriftAt = int64(math.Round(d*1e6)), s.Lease.Version
	if age := int64(s.Lease.Version - s.Groups[gi].Start); age > 0 {
		sample := x.Drift / age
		if !s.SlopeKnown {
			s.Slope, s.SlopeKnown = sample, true
		} else {
			s.Slope += (sample - s.Slope) / 8
		}
	}
}

// leasedGroup returns a group of the batch at the trainer, none if it is not there.
func (l *Loop) leasedGroup(id GroupID) int32 {
	if l.s.Lease.ID == 0 {
		return none
	}
	for _, gi := range l.s.Lease.Groups {
		if l.s.Groups[gi].ID == id {
			return gi
		}
	}
	return none
}

// keep puts the trained groups of a batch back into the buffer, but for those
// that were used as often as may be.
func (l *Loop) keep() {
	s := &l.s
	for _, gi := range s.Lease.Groups {
		g := &s.Groups[gi]
		s.Ledger.Leased -= int64(g.Scored)
		s.Ledger.Queued += int64(g.Scored)
		g.State = groupQueued
		s.insert(&s.Queue, gi)
		if int(s.Extras[gi].Uses) >= l.cfg.MaxUses {
			l.endGroup(gi, EndTrained, ReasonUses)
		}
	}
}
