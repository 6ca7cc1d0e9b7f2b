package checker

import (
	"cmp"
	"slices"
)

// checkCounted compares the ends of rollouts, as workers were told of them, with the log.
func (c *check) checkCounted() {
	counted := map[attemptID]*finish{} // by group and sample: attempt 0
	denied := map[attemptID]*finish{}
	for i := range c.said.finishes {
		f := &c.said.finishes[i]
		a := c.log.attempts[f.id]
		switch {
		case !f.whole:
		case f.status == 409 && f.failed == "":
			c.refusedAgain(f)
		case f.status != 200:
		case f.counted:
			if f.failed == "" {
				c.once(counted, f)
			}
			c.logged(f, a)
		default:
			denied[f.id] = f
			if a != nil && a.state == scored && f.failed == "" {
				c.fail(RuleCountedLogged, f.line, "%s was told that %v does not count, and event %d of the log counts it", f.worker, f.id, a.ended)
			}
		}
	}
	for i := range c.said.finishes {
		f := &c.said.finishes[i]
		if no := denied[f.id]; f.counted && f.failed == "" && no != nil {
			c.fail(RuleCountedOnce, max(f.line, no.line), "%v was said to count at line %d, and not to count at line %d", f.id, f.line, no.line)
		}
	}
	c.checkScored()
}

// refusedAgain reports a finish that was refused, and had been answered before.
func (c *check) refusedAgain(f *finish) {
	for i := range c.said.finishes {
		was := &c.said.finishes[i]
		if was.id == f.id && was.counted && was.failed == "" && was.at < f.began && was.worker == f.worker && was.reward != nil && f.reward != nil && *was.reward == *f.reward {
			c.fail(RuleCountedLogged, f.line, "%v was finished again as at line %d, which counted, and was refused", f.id, was.line)
			return
		}
	}
}

// once reports a second attempt of a rollout that is said to count, and a second reward.
func (c *check) once(counted map[attemptID]*finish, f *finish) {
	sample := attemptID{f.id.group, f.id.sample, 0}
	was := counted[sample]
	switch {
	case was == nil:
		counted[sample] = f
	case was.id != f.id:
		c.fail(RuleCountedOnce, f.line, "%v was said to count, and so was %v at line %d", f.id, was.id, was.line)
	case was.reward != nil && f.reward != nil && *was.reward != *f.reward:
		c.fail(RuleCountedOnce, f.line, "%v was said to count with reward %g, and with %g at line %d", f.id, *f.reward, *was.reward, was.line)
	}
}

// logged reports a rollout that is said to count and is not in the log as it was said.
func (c *check) logged(f *finish, a *attempt) {
	switch {
	case c.unwritten(a):
	case a == nil:
		c.fail(RuleCountedLogged, f.line, "%v was said to count, and the log has no such attempt", f.id)
	case f.failed != "":
		if a.state != failed {
			c.fail(RuleCountedLogged, f.line, "%v was taken as failed, and is %s in the log", f.id, a.state)
		}
	case a.state != scored:
		c.fail(RuleCountedLogged, f.line, "%v was said to count, and is %s in the log (%s)", f.id, a.state, a.reason)
	case f.reward == nil:
		c.fail(RuleCountedLogged, f.line, "%v was said to count, and its worker gave no reward", f.id)
	case *f.reward != a.reward:
		c.fail(RuleCountedLogged, f.line, "%v was said to count with reward %g, and has %g in the log", f.id, *f.reward, a.reward)
	}
}

// unwritten says whether the end of an attempt may still wait to be written: the log of a run that has not ended has no end.
func (c *check) unwritten(a *attempt) bool {
	return !c.ending.Finished && (a == nil || a.inFlight())
}

// checkScored reports rollouts that count in the log and that no worker has finished so.
func (c *check) checkScored() {
	asked := map[attemptID][]*finish{}
	for i := range c.said.finishes {
		f := &c.said.finishes[i]
		asked[f.id] = append(asked[f.id], f)
	}
	for i := range c.log.entries {
		e := &c.log.entries[i]
		if e.kind != "rollout-scored" {
			continue
		}
		a := c.log.attempts[e.attemptID()]
		if a == nil || a.ended != e.n || a.state != scored || c.played(a.id) {
			continue
		}
		if !slices.ContainsFunc(asked[a.id], func(f *finish) bool { return f.failed == "" && f.reward != nil && *f.reward == a.reward }) {
			c.fail(RuleCountedLogged, -1, "event %d counts %v with reward %g, and no worker finished it so", e.n, a.id, a.reward)
		}
	}
}

// played says whether a plane may have played an attempt itself: no worker was given it.
func (c *check) played(id attemptID) bool {
	return c.log.rules.played && !slices.ContainsFunc(c.said.claims, func(k claim) bool { return k.id == id })
}

// logTime is an event of the log with the time in which it was written, as its callers know it.
type logTime struct {
	n         int64
	began, at int64
	line      int
	what      string
	to        string
}

// acknowledged are the events that callers were told of, each once: from the first call that may have caused it to the
// first answer that says so.
func (c *check) acknowledged() []logTime {
	times := map[int64]*logTime{}
	asked := map[int64]int64{} // event: when it was first asked for
	add := func(n int64, k call, done bool, what string) {
		if first, ok := asked[n]; !ok || k.began < first {
			asked[n] = k.began
		}
		if done && (times[n] == nil || k.at < times[n].at) {
			times[n] = &logTime{n: n, at: k.at, line: k.line, what: what, to: k.to}
		}
	}
	for i := range c.said.finishes {
		f := &c.said.finishes[i]
		if a := c.log.attempts[f.id]; a != nil && a.state == scored {
			add(a.ended, f.call, f.counted && f.failed == "", "finish")
		}
	}
	for i := range c.said.publishes {
		p := &c.said.publishes[i]
		if n := c.log.madeBy(p.manifest.Version); n != 0 && p.manifest.RestoredFrom == nil {
			add(n, p.call, p.whole && p.status == 200 && !p.existing, "publish")
		}
	}
	for i := range c.said.named {
		n := &c.said.named[i]
		if l := c.log.leases[n.lease]; n.kind == "ack" && l != nil && l.trained != 0 {
			add(l.trained, n.call, n.whole && n.status == 200, "ack")
		}
	}
	out := make([]logTime, 0, len(times))
	for n, t := range times {
		t.began = asked[n]
		out = append(out, *t)
	}
	slices.SortFunc(out, func(a, b logTime) int { return cmp.Compare(a.n, b.n) })
	return out
}

// madeBy is the event that made a version, 0 for none.
func (l *ledger) madeBy(version int64) int64 {
	if version <= 0 || version >= int64(len(l.versions)) {
		return 0
	}
	return l.versions[version].n
}

// checkOrder compares the order of the log with the order in which its events were acknowledged.
func (c *check) checkOrder() {
	all := c.acknowledged()
	byEnd := slices.Clone(all)
	slices.SortFunc(byEnd, func(a, b logTime) int { return cmp.Compare(a.at, b.at) })
	slices.SortFunc(all, func(a, b logTime) int { return cmp.Compare(a.began, b.began) })
	at := 0
	var last *logTime
	for i := range all {
		for at < len(byEnd) && byEnd[at].at < all[i].began {
			// A version is durable with its manifest: its event may come later.
			if byEnd[at].what == "finish" && (last == nil || byEnd[at].n > last.n) {
				last = &byEnd[at]
			}
			at++
		}
		if last != nil && last.n > all[i].n {
			c.fail(RuleAcknowledgedOrder, all[i].line, "%s at line %d is event %d of the log, and %s at line %d, which was answered before that began, is event %d",
				all[i].what, all[i].line, all[i].n, last.what, last.line, last.n)
		}
	}
}
