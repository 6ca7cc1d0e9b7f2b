package metrics

import (
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/track"
)

// interrupted counts an attempt that left its slot to stand interrupted.
func (r *Recorder) interrupted(ev *loop.Event, left []int32) {
	if len(left) == 0 {
		return
	}
	if at := &r.run.Slots[ev.Slot]; at.Aborted {
		r.window.waste.add(endOf(at, loop.EndCancelled), ev.Tokens)
		return
	}
	r.window.partial.interruptions++
}

// aborted counts an attempt that is about to end before its time: with its group, or for
// the reason given. In a slot its tokens are known when the engine has stopped it.
func (r *Recorder) aborted(a *loop.Action) {
	switch g := r.groups.Get(a.Group); {
	case a.Reason == loop.ReasonSpans:
		r.window.partial.limited++
	case a.Reason == loop.ReasonNone && g != nil:
		g.cancelled++
	}
	if a.Slot < 0 {
		if p := r.run.Parked.Find(a); p != nil {
			r.window.waste.add(loop.EndCancelled, p.Tokens)
		}
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
func (p *partial) made(g *liveGroup, before track.Past, reward float64, m *Measured) {
	if before.Interruptions == 0 && !m.Resumed {
		return
	}
	p.rollouts++
	p.interrupted += int64(before.Interruptions)
	p.interruptedMax = max(p.interruptedMax, int64(before.Interruptions))
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
