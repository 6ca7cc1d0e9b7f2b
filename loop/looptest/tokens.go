package looptest

import "github.com/headway-rl/headway/loop"

// tokenModel counts the tokens of a batch, and those of them that are within the goal's versions.
type tokenModel struct{ all, within int64 }

// share is -1 while there is none.
func (b tokenModel) share() float64 {
	if b.all == 0 {
		return -1
	}
	return float64(b.within) / float64(b.all)
}

// tokensScored books a response's tokens by version. No version is older than the group or newer than the newest, and
// what the event does not name is as old as the group.
func (c *Checker) tokensScored(g *groupModel, ev loop.Event) {
	if c.cfg.Control == nil || !c.cfg.Control.Tokens {
		return
	}
	if g.tokens == nil {
		g.tokens = map[loop.Version]int64{}
	}
	unnamed := int64(ev.Tokens)
	for _, made := range ev.Made {
		for n := made.Tokens; n > 0 && unnamed > 0; n-- {
			g.tokens[max(g.start, 0, min(made.Version, c.version))]++
			unnamed--
		}
	}
	if unnamed > 0 {
		g.tokens[max(g.start, 0)] += unnamed
	}
}

// tokensTrained books what a group adds to the batch that is trained. After 64 versions nobody knows any more which
// version made what: all of it is as old as the group.
func (c *Checker) tokensTrained(g *groupModel) {
	old := c.lease.version-g.start >= 64
	for v, n := range g.tokens {
		c.control.batch.all += n
		if !old && c.lease.version-v <= c.cfg.Control.Within {
			c.control.batch.within += n
		}
	}
}

// made splits a response's tokens at random among the versions there are, and sometimes among others.
func (w *World) made(ev *loop.Event) {
	if ctl := w.plan.Config.Control; ctl == nil || !ctl.Tokens || ev.Kind != loop.RolloutScored {
		return
	}
	for v := w.Checker.Version(); w.rng.IntN(3) > 0; v -= loop.Version(w.rng.IntN(3)) {
		ev.Made = append(ev.Made, loop.VersionTokens{Version: v + loop.Version(w.rng.IntN(12)/11), Tokens: int64(w.rng.IntN(9) - 1)})
	}
}

// TokenShares tells of every batch which part of its tokens is within so many versions, as a driver measured them.
// The loop's own count is compared with it.
type TokenShares struct {
	Within loop.Version
	groups map[loop.GroupID][]loop.VersionTokens
}

// Observe takes a step of the loop with the tokens of a scored rollout by version. When a batch was trained it returns
// its share.
func (s *TokenShares) Observe(ev *loop.Event, made []loop.VersionTokens, actions []loop.Action) (share float64, trained bool) {
	if s.groups == nil {
		s.groups = map[loop.GroupID][]loop.VersionTokens{}
	}
	if ev.Kind == loop.RolloutScored {
		s.groups[ev.Group] = append(s.groups[ev.Group], made...)
	}
	var b tokenModel
	for _, a := range actions {
		if a.Kind != loop.GroupTrained {
			continue
		}
		for _, t := range s.groups[a.Group] {
			b.all += t.Tokens
			if a.Version-t.Version <= s.Within {
				b.within += t.Tokens
			}
		}
	}
	return b.share(), b.all > 0
}
