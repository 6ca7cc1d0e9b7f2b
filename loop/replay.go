package loop

import "math"

// replayAges is the number of ages whose sampling weights differ; older groups weigh like the oldest.
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

// replayWeight returns the weight of a queued group in the sampling.
func (l *Loop) replayWeight(g *group) uint64 {
	age := min(max(l.s.Trained-g.Start, 0), replayAges-1)
	w := l.weights[age]
	if l.cfg.Balance {
		w = max(w/l.queuedOf(g.Prompt), 1)
	}
	return w
}

// queuedOf counts the queued groups of a prompt.
func (l *Loop) queuedOf(prompt int64) uint64 {
	n := uint64(0)
	for i := l.s.Queue.Head; i != none; i = l.s.Groups[i].Next {
		if l.s.Groups[i].Prompt == prompt {
			n++
		}
	}
	return max(n, 1)
}

// sampleReplay draws a queued group by its weight.
func (l *Loop) sampleReplay() int32 {
	s := &l.s
	total := uint64(0)
	for i := s.Queue.Head; i != none; i = s.Groups[i].Next {
		total += l.replayWeight(&s.Groups[i])
	}
	x := Draw(l.cfg.Seed, s.Draws) % total
	s.Draws++
	for i := s.Queue.Head; ; i = s.Groups[i].Next {
		w := l.replayWeight(&s.Groups[i])
		if x < w || s.Groups[i].Next == none {
			return i
		}
		x -= w
	}
}

// evictReplay returns the queued group that a full buffer gives up.
func (l *Loop) evictReplay() int32 {
	s := &l.s
	best := s.Queue.Head
	for i := s.Groups[best].Next; i != none; i = s.Groups[i].Next {
		a, b := &s.Groups[i], &s.Groups[best]
		if l.cfg.Evict == EvictOldestVersion && a.Start < b.Start || l.cfg.Evict == EvictDrift && l.expectedDrift(a) > l.expectedDrift(b) {
			best = i
		}
	}
	return best
}

// expectedDrift extends what was measured of a group by the drift per version
// that others showed, in millionths of a nat.
func (l *Loop) expectedDrift(g *group) int64 {
	at := g.DriftAt
	if at == NoVersion {
		at = g.Start
	}
	return g.Drift + l.s.Slope*int64(l.s.Trained-at)
}

// driftMax is the largest mean absolute log-ratio that is taken for one, in nats.
const driftMax = 1e6

// onGroupMeasured takes what the running train step found of one of its groups.
func (l *Loop) onGroupMeasured(ev *Event) {
	s := &l.s
	d := float64(ev.Drift)
	g := l.leasedGroup(ev.Group)
	if g == nil || !(d >= 0 && d <= driftMax) {
		l.late()
		return
	}
	g.Drift, g.DriftAt = int64(math.Round(d*1e6)), s.Lease.Version
	if age := int64(s.Lease.Version - g.Start); age > 0 {
		sample := g.Drift / age
		if !s.SlopeKnown {
			s.Slope, s.SlopeKnown = sample, true
		} else {
			s.Slope += (sample - s.Slope) / 8
		}
	}
}

// leasedGroup returns a group of the batch at the trainer, nil if it is not there.
func (l *Loop) leasedGroup(id GroupID) *group {
	if l.s.Lease.ID == 0 {
		return nil
	}
	for _, gi := range l.s.Lease.Groups {
		if g := &l.s.Groups[gi]; g.ID == id {
			return g
		}
	}
	return nil
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
		if int(g.Uses) >= l.cfg.MaxUses {
			l.endGroup(gi, EndTrained, ReasonUses)
		}
	}
}
