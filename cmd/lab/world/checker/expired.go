package checker

import (
	"cmp"
	"slices"
	"strings"
)

// prompt is how long a request takes to its plane, and an event into its log, while nothing is at fault.
const prompt = second

// checkExpired reports claims and leases that ended while their holder was heard, or could not be.
func (c *check) checkExpired() {
	e := &expiry{check: c, clocks: c.clocks(), stops: map[int][]span{}, claims: map[attemptID][]*named{}, leases: map[[2]int64][]*named{}, given: map[attemptID]*claim{}}
	for i := range c.said.claims {
		e.given[c.said.claims[i].id] = &c.said.claims[i]
	}
	for i := range c.said.named {
		n := &c.said.named[i]
		if n.lease != 0 {
			key := [2]int64{n.lease, n.attempt}
			e.leases[key] = append(e.leases[key], n)
		} else {
			e.claims[n.id] = append(e.claims[n.id], n)
		}
	}
	for i := range c.said.named {
		if n := &c.said.named[i]; n.status == 410 && !e.over(n) {
			if n.lease != 0 {
				e.leaseGone(n)
			} else {
				e.claimGone(n)
			}
		}
	}
	for _, k := range c.said.ended {
		if at, known := c.log.earliest(e.clocks, c.log.finished); c.log.finished != 0 && known && k.at < at || c.log.finished == 0 && c.ending.Finished {
			c.fail(RuleStatus, k.line, "%s was told that the run has ended, and event %d ended it later", k.host, c.log.finished)
		}
	}
	var silent []*attempt
	for _, a := range c.log.attempts {
		if a.state == failed && a.reason == "timeout" && !c.saidFailed(a.id) {
			silent = append(silent, a)
		}
	}
	slices.SortFunc(silent, func(a, b *attempt) int { return cmp.Compare(a.ended, b.ended) })
	for _, a := range silent {
		if e.given[a.id] != nil {
			e.claimEnded(a)
		} else {
			e.givenToNobody(a)
		}
	}
	e.stillWanted()
	e.givenUpInVain()
	e.overdue()
	var leases []*lease
	for _, l := range c.log.leases {
		leases = append(leases, l)
	}
	slices.SortFunc(leases, func(a, b *lease) int { return cmp.Compare(a.id, b.id) })
	for _, l := range leases {
		for i := range l.returned {
			e.leaseEnded(l, &l.returned[i])
		}
	}
}

// expiry checks how claims and leases ended.
type expiry struct {
	*check
	clocks clocks
	stops  map[int][]span // by the number of recoveries before
	claims map[attemptID][]*named
	leases map[[2]int64][]*named // by lease and attempt
	given  map[attemptID]*claim
}

// still are the times in which the clocks of claims and leases stand still at the plane that wrote an event.
func (e *expiry) still(event int64) []span {
	segment := e.log.segment(event)
	stops, known := e.stops[segment]
	if !known {
		first := int64(1) // of the run, before which nothing was given out
		if segment > 0 {
			first = e.log.recovered[segment-1]
		}
		began, _ := e.log.latest(e.clocks, first) // known where the event's is
		stops = e.check.stops(e.writers[segment].to, began)
		e.stops[segment] = stops
	}
	return stops
}

// over says whether the run had ended, so that nothing is wanted any more.
func (e *expiry) over(n *named) bool {
	end := e.log.finished
	if end == 0 {
		return false
	}
	at, known := e.log.earliest(e.clocks, end)
	return !known || n.at >= at
}

// saidFailed says whether a worker ended an attempt as failed itself.
func (c *check) saidFailed(id attemptID) bool {
	return slices.ContainsFunc(c.said.finishes, func(f finish) bool { return f.id == id && f.failed != "" })
}

// claimEnded reports an attempt that ended for its worker's silence though its worker was heard.
func (e *expiry) claimEnded(a *attempt) {
	g := e.given[a.id]
	ended, ok := e.log.latest(e.clocks, a.ended)
	if !ok {
		return
	}
	e.open(e.claims[a.id], a.ended, ended, func(n *named) {
		e.fail(RuleExpired, n.line, "the claim of %v ended by event %d for its worker's silence, while %s waited for the answer of line %d", a.id, a.ended, g.worker, n.line)
	})
	for _, n := range e.claims[a.id] {
		if n.whole && n.status == 200 && n.kind != "finish" && n.began > ended+prompt && e.undisturbed(n.host, ended, n.at) {
			e.fail(RuleExpired, n.line, "a %s of %v was answered, whose claim ended by event %d", n.kind, a.id, a.ended)
		}
	}
	calls, still, by := e.claims[a.id], e.still(a.ended), e.writers[e.log.segment(a.ended)].to
	heard, line := lastWord(calls, ended, g.began, g.line)
	word, _ := lastWord(unrefused(calls), ended, g.began, g.line)
	if ofCell(g.to) {
		still, by = e.frozen(g.to), g.to
	} else {
		word = e.anew(word, a.ended)
	}
	heard, word = e.notBefore(heard, a.began), e.notBefore(word, a.began)
	lasted := max(ran(still, heard, ended), ran(withRefusals(still, calls, by), word, ended))
	if !e.twin(g.to) && float64(lasted) < g.deadlineS*float64(second) {
		e.fail(RuleExpired, line, "the claim of %v ended by event %d for its worker's silence, at most %.3f s after %s was heard at line %d, and lasts %g s",
			a.id, a.ended, float64(lasted)/float64(second), g.worker, line, g.deadlineS)
	}
}

// givenToNobody reports an attempt that ended for its worker's silence, though no worker had it and no answer to one can
// have been lost. A cell gives out the claims of its own engines, and a plane those of the others. Whoever could not keep a
// claim may have kept it for the next process.
func (e *expiry) givenToNobody(a *attempt) {
	from, ok := e.log.earliest(e.clocks, a.began)
	to, ok2 := e.log.latest(e.clocks, a.ended)
	if !ok || !ok2 || !e.ending.Finished {
		return
	}
	gives := "plane"
	if e.log.rules.cellOf(a.engine) != 0 {
		gives = "cell"
	}
	lost := slices.ContainsFunc(e.outages, func(o outage) bool { return o.from <= to && o.to+settles >= from && o.between("worker", gives) })
	if !lost && !slices.ContainsFunc(e.said.unkept, func(n call) bool { return n.began <= to && n.at >= from && strings.HasPrefix(n.to, gives) }) {
		e.fail(RuleClaim, -1, "%v ended by event %d for its worker's silence, and no worker had been given it", a.id, a.ended)
	}
}

// between says whether an outage touches hosts of one of two roles.
func (o *outage) between(a, b string) bool {
	touches := func(host string) bool { return strings.HasPrefix(host, a) || strings.HasPrefix(host, b) }
	return touches(o.host) || touches(o.other)
}

// lastWord is when the last call began that was answered before a time, and its line. An answer that the claim or lease
// is over has renewed nothing, nor has one of a plane that stands by or is starting. A plane that cannot write refuses calls, and
// has its clock stand still within a tick. A lease that was given lasts from then, though the answer comes late.
func lastWord(calls []*named, before, began int64, line int) (int64, int) {
	for _, n := range calls {
		told := n.at
		if n.status == 503 {
			told += tick
		}
		if n.status != 0 && n.status != 410 && !n.aside() && (told <= before || n.kind == "lease" && n.began <= before) && n.began > began {
			began, line = n.began, n.line
		}
	}
	return began, line
}

// unrefused are the calls that were not refused for now. A refusal renews nothing where the plane's clock stands still: what
// had run before counts. A call that was let in, and failed there, renews: of both readings, the longer time holds.
func unrefused(calls []*named) (out []*named) {
	for _, n := range calls {
		if n.status != 503 || n.late() {
			out = append(out, n)
		}
	}
	return out
}

// withRefusals are a plane's stops and the times behind its refusals, in order: its clock stands still from the next tick on.
func withRefusals(stops []span, calls []*named, by string) []span {
	out := slices.Clone(stops)
	for _, n := range calls {
		if from, to := n.at+tick, n.began+graceLeast; n.status == 503 && n.to == by && !n.aside() && !n.late() && from < to {
			out = append(out, span{from, to})
		}
	}
	slices.SortFunc(out, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	return out
}

// ran is how much of the time from one to another a plane's clock has counted, at most.
func ran(stops []span, from, to int64) int64 { return to - from - within(stops, from, to) }

// anew is when a holder was heard last for a plane that wrote an event: one that has begun anew counts from then.
func (e *expiry) anew(heard, event int64) int64 {
	for _, n := range e.log.recovered {
		if at, ok := e.log.latest(e.clocks, n); n < event && ok {
			heard = max(heard, at)
		}
	}
	return heard
}

// notBefore is when a holder was heard last, who was given what an event began: it was not given before that.
func (e *expiry) notBefore(heard, event int64) int64 {
	if at, ok := e.log.earliest(e.clocks, event); ok && event > 0 {
		return max(heard, at)
	}
	return heard
}

// late says whether a call was let in, and told to come again because engines were busy.
func (n *named) late() bool { return strings.Contains(n.message, "has had no token for") }

// aside says whether a plane answered that another one is the run's writer, or that its run does not stand yet: the call
// changed nothing.
func (n *named) aside() bool {
	return n.status == 503 && (strings.Contains(n.message, "stands by") || strings.Contains(n.message, "is starting"))
}

// open tells of calls that a plane had before an event and answered after it.
func (e *expiry) open(calls []*named, event, latest int64, tell func(n *named)) {
	earliest, ok := e.log.earliest(e.clocks, event)
	if !ok {
		return
	}
	for _, n := range calls {
		if n.whole && n.at > latest && n.began+prompt < earliest && e.undisturbed(n.host, n.began, n.at) {
			tell(n)
		}
	}
}

// leaseEnded reports a lease that went back though its trainer was heard, and gave no reason.
func (e *expiry) leaseEnded(l *lease, r *giveBack) {
	if r.kind == "recovered" || r.kind == "trainer-restored" {
		return
	}
	ended, ok := e.log.latest(e.clocks, r.n)
	if !ok {
		return
	}
	calls := e.leases[[2]int64{l.id, r.attempt}]
	if slices.ContainsFunc(calls, func(n *named) bool { return n.kind == "nack" && n.began <= ended }) {
		return
	}
	if at, _ := lastWord(calls, ended, -1, -1); at < 0 && r.kind == "train-step-failed" {
		e.fail(RuleExpired, -1, "lease %d, attempt %d failed by event %d, and no trainer had had it", l.id, r.attempt, r.n)
	}
	heard, line, ranks := e.lastWordOfRanks(calls, ended)
	if heard < 0 || e.connected(heard, ended) {
		return // a rank of its trainer never had its share, or has begun anew
	}
	if ranks == 1 { // else another rank may have been silent
		e.open(calls, r.n, ended, func(n *named) {
			e.fail(RuleExpired, n.line, "lease %d, attempt %d went back by event %d (%s), while its trainer waited for the answer of line %d", l.id, r.attempt, r.n, r.kind, n.line)
		})
	}
	for _, n := range calls {
		if n.whole && n.status == 200 && n.kind == "renew" && n.began > ended {
			e.fail(RuleExpired, n.line, "lease %d, attempt %d was renewed, and had gone back by event %d", l.id, r.attempt, r.n)
		}
	}
	word, _, _ := e.lastWordOfRanks(unrefused(calls), ended)
	if word < 0 {
		return // a rank was refused, and never answered
	}
	given, still, by := e.log.steps[[2]int64{l.id, r.attempt}], e.still(r.n), e.writers[e.log.segment(r.n)].to
	heard, word = e.notBefore(e.anew(heard, r.n), given), e.notBefore(e.anew(word, r.n), given)
	lasted := max(ran(still, heard, ended), ran(withRefusals(still, calls, by), word, ended))
	if float64(lasted) < e.log.rules.leaseS*float64(second) {
		e.fail(RuleExpired, line, "lease %d, attempt %d went back by event %d (%s), at most %.3f s after its trainer was heard at line %d, and lasts %g s",
			l.id, r.attempt, r.n, r.kind, float64(lasted)/float64(second), line, e.log.rules.leaseS)
	}
}

// lastWordOfRanks is the last word before a time of the rank that was silent for the longest, with its line, and the number
// of ranks; -1 where a rank has not been heard.
func (e *expiry) lastWordOfRanks(calls []*named, before int64) (heard int64, line, ranks int) {
	ranks = e.said.ranks
	for rank := range ranks {
		var own []*named
		for _, n := range calls {
			if n.rank == rank {
				own = append(own, n)
			}
		}
		at, of := lastWord(own, before, -1, -1)
		if rank == 0 || at < heard {
			heard, line = at, of
		}
	}
	return heard, line, ranks
}

// connected says whether a trainer may have connected between two times.
func (e *expiry) connected(from, to int64) bool {
	return slices.ContainsFunc(e.said.connecting, func(k call) bool { return k.at >= from && k.began <= to })
}

// claimGone reports a claim that was said to be over, and whose attempt had not ended.
func (e *expiry) claimGone(n *named) {
	a := e.log.attempts[n.id]
	switch {
	case a == nil || e.unwritten(a):
	case ofCell(n.to) && e.given[n.id] != nil && e.started(n.to, e.given[n.id].began, n.at): // it knows no claims from before
	case e.log.rules.ResumeRestart && (e.begunAnewSince(n.at) || e.writers[len(e.log.recovered)].to != n.to): // its end was not logged, so that it goes on, and times out
	case a.inFlight() && a.left && e.unkept(): // it fails when it is resumed
	case a.inFlight():
		e.fail(RuleExpired, n.line, "the claim of %v was said to be over, and goes on in the log: %s", n.id, n.message)
	case a.state == scored && e.log.segment(a.ended) == len(e.log.recovered):
		e.fail(RuleExpired, n.line, "the claim of %v was said to be over, and counts in the log: %s", n.id, n.message)
	case a.state != scored && e.early(n, a.ended):
		e.fail(RuleExpired, n.line, "the claim of %v was said to be over, and ended later, by event %d: %s", n.id, a.ended, n.message)
	}
}

// begunAnewSince says whether a plane has recovered the run after a time.
func (e *expiry) begunAnewSince(at int64) bool {
	return slices.ContainsFunc(e.log.recovered, func(n int64) bool {
		t, ok := e.log.latest(e.clocks, n)
		return !ok || t > at
	})
}

// early says whether a refusal came before an event that would explain it.
func (e *expiry) early(n *named, event int64) bool {
	at, ok := e.log.earliest(e.clocks, event)
	return ok && at > n.at+prompt && e.undisturbed(n.host, n.began, at)
}

// mute says whether the plane that refused a call wrote nothing after that, until another recovered the run by an event.
func (e *expiry) mute(n *named, recovered int64) bool {
	last, ok := e.log.earliest(e.clocks, recovered-1)
	return ok && n.to == e.writers[e.log.segment(recovered-1)].to && last <= n.at
}

// leaseGone reports a lease that was said to be over, and had neither gone back nor been taken anew.
func (e *expiry) leaseGone(n *named) {
	l := e.log.leases[n.lease]
	if l == nil || !e.ending.Finished {
		return
	}
	calls := e.leases[[2]int64{n.lease, n.attempt}]
	if slices.ContainsFunc(calls, func(p *named) bool { return p.kind == "nack" && p.began <= n.at && !p.aside() }) {
		return // whoever recovers the run gives the batch out anew, whether or not the log has it
	}
	given, _ := lastWord(calls, n.at, -1, -1)
	if e.connected(given, n.at) || slices.ContainsFunc(e.said.asks, func(k call) bool { return k.host == n.host && k.began > given && k.began <= n.at }) {
		return
	}
	if l.trained != 0 && slices.ContainsFunc(e.said.named, func(p named) bool {
		return p.lease == l.id && (p.kind == "publish" || p.kind == "ack") && p.began < n.at && p.call != n.call && !p.aside()
	}) {
		return
	}
	for i := range l.returned {
		switch r := &l.returned[i]; {
		case r.attempt < n.attempt:
		case r.kind != "recovered" && !e.early(n, r.n):
			return
		case r.kind == "recovered" && e.mute(n, r.n):
			return // it could not write that any more, and whoever recovers the run gives the batch out anew
		}
	}
	e.fail(RuleExpired, n.line, "lease %d, attempt %d was said to be over, and the log has not ended it: %s", n.lease, n.attempt, n.message)
}
