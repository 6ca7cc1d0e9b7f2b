package checker

import (
	"cmp"
	"net/http"
	"slices"
)

// stillWanted reports a touch that was told that its rollout is wanted, long after its attempt had ended otherwise than by its
// worker.
func (e *expiry) stillWanted() {
	for i := range e.said.named {
		n := &e.said.named[i]
		a := e.log.attempts[n.id]
		if !n.wanted || a == nil || a.inFlight() || a.state == scored {
			continue
		}
		ended, ok := e.log.latest(e.clocks, a.ended)
		if ok && n.began > ended+prompt && !e.twin(n.to) && e.undisturbed(n.host, ended, n.at) {
			e.fail(RuleExpired, n.line, "%s was told that %v is wanted, which ended %.3f s before, by event %d", n.host, a.id, seconds(n.began-ended), a.ended)
		}
	}
}

// lost are the statuses by which a worker learns that a claim is not its own any more.
var lost = map[int]bool{http.StatusUnauthorized: true, http.StatusForbidden: true, http.StatusNotFound: true, http.StatusConflict: true, http.StatusGone: true}

// givenUpInVain reports who was told that a rollout is not wanted, that its finish does not count, or for good that the call is of
// no claim, though the attempt went on until nobody was heard of who plays it. A claim that has run out is said to have.
func (e *expiry) givenUpInVain() {
	for i := range e.said.named {
		switch n := &e.said.named[i]; {
		case n.unwanted:
			e.endedLater(&n.call, n.id, "that %v is not wanted")
		case n.kind == "completion" && n.status == http.StatusConflict: // of some choices, which an agent may ask for again
		case n.whole && lost[n.status] && n.outcome != "expired":
			e.endedLater(&n.call, n.id, "for good that there is no claim of %v")
		}
	}
	for i := range e.said.finishes {
		if f := &e.said.finishes[i]; f.told && !f.counted && f.failed == "" {
			e.endedLater(&f.call, f.id, "that its finish of %v does not count")
		}
	}
}

// endedLater reports an attempt that ended for its worker's silence, long after the worker was told what lets it drop the attempt.
func (e *expiry) endedLater(told *call, id attemptID, what string) {
	a := e.log.attempts[id]
	if a == nil || a.state != failed || a.reason != "timeout" || e.saidFailed(id) {
		return
	}
	if ended, ok := e.log.earliest(e.clocks, a.ended); ok && ended > told.at+prompt {
		e.fail(RuleExpired, told.line, "%s was told "+what+", and it ended for its silence %.3f s later, by event %d", told.host, id, seconds(ended-told.at), a.ended)
	}
}

// writtenAgain is how long after a full disk has room a broker may refuse.
const writtenAgain = 6 * second

// overdueAfter is how long a claim that has run out may still be there.
const overdueAfter = 5 * second

// overdue reports a claim that was never ended for its worker's silence.
func (e *expiry) overdue() {
	last := int64(len(e.log.times) - 1)
	end, ok := e.log.earliest(e.clocks, last)
	if !ok {
		return
	}
	ids := make([]attemptID, 0, len(e.given))
	for id := range e.given {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b attemptID) int {
		return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(a.sample, b.sample), cmp.Compare(a.attempt, b.attempt))
	})
	for _, id := range ids {
		g, a := e.given[id], e.log.attempts[id]
		if a == nil || !a.inFlight() {
			continue
		}
		heard := g.at
		for _, n := range e.claims[id] {
			heard = max(heard, n.at)
		}
		allowed := int64(g.deadlineS*float64(second)) + overdueAfter
		if at, known := e.latestRecovery(); known && at > heard { // the next process may have been absent all the while
			heard, allowed = at, allowed+graceMost
		}
		grace := int64(0) // of an outage that was over when it was heard last
		for _, o := range e.outages {
			to := o.to
			if o.kind == "full" { // what could not be written is tried again later
				to += writtenAgain
			}
			if o.keeps() && to <= heard {
				grace = max(grace, to+min(to-o.from, graceMost)+2*second-heard)
			}
			if during := min(to, end) - max(o.from, heard); o.keeps() && during > 0 {
				allowed += during + min(during+2*second, graceMost+2*second)
			}
		}
		if silent := end - heard; silent > allowed+grace {
			e.fail(RuleExpired, g.line, "the claim of %v by %s goes on at the end, %.3f s after it was heard of, and lasts %g s", id, g.worker, seconds(silent), g.deadlineS)
		}
	}
}

// latestRecovery is the latest time at which a process can have taken over, where it is known.
func (e *expiry) latestRecovery() (latest int64, known bool) {
	for _, n := range e.log.recovered {
		if at, ok := e.log.latest(e.clocks, n); ok {
			latest, known = max(latest, at), true
		}
	}
	return latest, known
}
