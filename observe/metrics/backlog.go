package metrics

import "github.com/headway-rl/headway/loop"

// paused is an interrupted attempt that waits to be resumed.
type paused struct {
	group         loop.GroupID
	sample        int32
	attempt       int32
	interruptions int32
	tokens        int32
	first         int32
	// slotNS is its time in slots so far.
	slotNS int64
}

// backlog holds interrupted attempts in the order in which they were interrupted,
// which is most often the order in which they are resumed.
type backlog struct {
	entries []paused
	head    int // entries before it are gone
}

func (b *backlog) len() int { return len(b.entries) - b.head }

func (b *backlog) push(p paused) {
	if b.head > 0 && len(b.entries) == cap(b.entries) {
		b.entries = append(b.entries[:0], b.entries[b.head:]...)
		b.head = 0
	}
	b.entries = append(b.entries, p)
}

// take removes an attempt; ok is false if it is not there.
func (b *backlog) take(group loop.GroupID, sample, attempt int32) (p paused, ok bool) {
	for i := b.head; i < len(b.entries); i++ {
		p = b.entries[i]
		if p.group != group || p.sample != sample || p.attempt != attempt {
			continue
		}
		copy(b.entries[b.head+1:i+1], b.entries[b.head:i])
		if b.head++; b.head == len(b.entries) {
			b.entries, b.head = b.entries[:0], 0
		}
		return p, true
	}
	return paused{}, false
}

// clear removes everything and returns the tokens it had.
func (b *backlog) clear() (tokens int64) {
	for _, p := range b.entries[b.head:] {
		tokens += int64(p.tokens)
	}
	b.entries, b.head = b.entries[:0], 0
	return tokens
}

// interrupted takes an attempt out of its slot, into the backlog.
func (r *Recorder) interrupted(ev *loop.Event) {
	use := r.vacate(ev)
	if use == nil {
		return
	}
	p := &r.window.partial
	before := r.pastOf(ev.Slot)
	if use.aborted {
		r.window.waste.add(use.end(loop.EndCancelled), ev.Tokens)
		return
	}
	if ev.Tokens > before.tokens {
		before.interruptions++
	}
	p.interruptions++
	r.backlog.push(paused{group: ev.Group, sample: ev.Sample, attempt: ev.Attempt,
		interruptions: before.interruptions, tokens: ev.Tokens, first: use.first, slotNS: r.now - use.start})
}

// resumed has an interrupted attempt run again.
func (r *Recorder) resumed(a *loop.Action) {
	use := r.occupy(a)
	r.served[a.Engine] = a.Version
	if p, ok := r.backlog.take(a.Group, a.Sample, a.Attempt); ok {
		use.first, use.start, use.past = p.first, r.now-p.slotNS, true
		r.pasts[a.Slot] = past{p.interruptions, p.tokens}
		r.window.partial.resumed++
	}
}

// aborted notes that an attempt has ended before its time: with its group, or for
// the reason given. In a slot its tokens are known when the engine has stopped it.
func (r *Recorder) aborted(a *loop.Action) {
	switch g := r.groups.get(a.Group); {
	case a.Reason == loop.ReasonSpans:
		r.window.partial.limited++
	case a.Reason == loop.ReasonNone && g != nil:
		g.cancelled++
	}
	if a.Slot < 0 {
		if p, ok := r.backlog.take(a.Group, a.Sample, a.Attempt); ok {
			r.window.waste.add(loop.EndCancelled, p.tokens)
		}
		return
	}
	if use := &r.slotsOf[a.Slot]; use.group == a.Group && use.sample == a.Sample && use.attempt == a.Attempt {
		use.aborted, use.failed = true, a.Reason != loop.ReasonNone
	}
}

// partial sums what interruptions do to rollouts.
type partial struct {
	interruptions, resumed int64
	limited                int64 // ended because of MaxSpans
	backlogNS              int64 // Σ interrupted attempts · time
	backlogMax             int
	// rollouts scored that had been interrupted, Σ of their interruptions, the most.
	rollouts, interrupted, interruptedMax int64
	// Σ of their environments' lag, the most of that.
	stateLag, stateLagMax int64
	// Rollouts of complete groups and Σ of their rewards.
	resumedRollouts, freshRollouts int64
	resumedReward, freshReward     float64
	// Rollouts of which the driver says their version spans, Σ of these, the most.
	spanned, spans, spansMax int64
	// spanning counts trained rollouts made under more than one version, spanMax the most
	// versions between a rollout's first and last.
	spanning, spanMax int64
	// staleGroups and staleRollouts were trained after a sync that followed their end.
	staleGroups, staleRollouts int64
}

// made counts a scored rollout of a group that had been resumed; one that was interrupted
// before its first token is as fresh as any.
func (p *partial) made(g *liveGroup, before past, reward float64, m *Measured) {
	if before.interruptions == 0 && !m.Resumed {
		return
	}
	p.rollouts++
	p.interrupted += int64(before.interruptions)
	p.interruptedMax = max(p.interruptedMax, int64(before.interruptions))
	p.stateLag += m.StateLag
	p.stateLagMax = max(p.stateLagMax, m.StateLag)
	g.resumed++
	g.resumedReward += reward
}

// complete compares the rewards of resumed and other rollouts of a complete group.
func (p *partial) complete(g *liveGroup) {
	p.resumedRollouts += int64(g.resumed)
	p.resumedReward += g.resumedReward
	p.freshRollouts += int64(g.scored - g.resumed)
	p.freshReward += g.reward - g.resumedReward
}

// trained counts a group at each of its train steps; stale says that a sync
// followed the end of its last rollout.
func (p *partial) trained(g *liveGroup, stale bool) {
	p.spanning += int64(g.spanning)
	p.spanMax = max(p.spanMax, int64(g.spanMax))
	p.staleRollouts += int64(g.scored)
	if stale {
		p.staleGroups++
		return
	}
	// Whatever ended under the newest synced version is fresh; no rollout ends under a
	// newer one, so these are those of the group's newest.
	p.staleRollouts -= int64(g.atNewest)
}
