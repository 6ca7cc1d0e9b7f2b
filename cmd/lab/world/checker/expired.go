package checker

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"
)

const second = int64(1e9)

// graceMost bounds the time for which claims and leases stand still after the plane could not write or answer.
const graceMost = 10 * second

// A plane needs a while to find out that it cannot write or answer: so much of an outage may count.
const (
	blindPlane  = 2 * second
	blindBroker = 8 * second
)

// span is a time of the world, in nanoseconds.
type span struct{ from, to int64 }

// clocks bring the log's time to the world's: for each segment of the log, the least and the greatest difference that
// its acknowledged events allow.
type clocks []span

// clocks reads the differences off the events that callers were told of.
func (c *check) clocks() clocks {
	out := make(clocks, len(c.log.recovered)+1)
	for i := range out {
		out[i] = span{math.MinInt64, math.MaxInt64}
	}
	for _, e := range c.acknowledged() {
		s := &out[c.log.segment(e.n)]
		t := c.log.time(e.n)
		s.from, s.to = max(s.from, e.began-t), min(s.to, e.at-t)
	}
	return out
}

// latest is the latest time of the world at which an event can have been.
func (l *ledger) latest(k clocks, n, t int64) (int64, bool) {
	s := k[l.segment(n)]
	if s.to == math.MaxInt64 || s.from > s.to {
		return 0, false
	}
	return t + s.to, true
}

// stops are the times in which no plane could write or answer, with the grace after each, in order.
func (c *check) stops() []span {
	open := map[string]int64{}
	var out []span
	end := func(key string, at int64) {
		from, ok := open[key]
		if !ok {
			return
		}
		delete(open, key)
		late := blindBroker
		if strings.HasPrefix(key, "freeze plane") {
			late = blindPlane
		}
		if from += late; from < at {
			out = append(out, span{from, at + min(at-from, graceMost)})
		}
	}
	last := int64(0)
	for i := range c.lines {
		l := &c.lines[i]
		last = l.AtNS
		kind, rest, _ := strings.Cut(l.Text, " ")
		other, _, _ := strings.Cut(rest, " ")
		key := kind + " " + l.Host
		switch plane, broker := strings.HasPrefix(l.Host, "plane"), strings.HasPrefix(l.Host, "broker"); {
		case l.Kind == "fault" && kind == "freeze" && (plane || broker),
			l.Kind == "fault" && kind == "cut" && (plane && strings.HasPrefix(other, "broker") || broker && (strings.HasPrefix(other, "plane") || other == "for")):
			open[key] = l.AtNS
		case l.Kind == "dead" && broker:
			open["broker"] = l.AtNS
		case l.Kind == "start" && broker:
			end("broker", l.AtNS)
		case l.Kind == "healed":
			end(key, l.AtNS)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(open)) {
		end(key, last)
	}
	slices.SortFunc(out, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	return out
}

// within is how much of the stops lies between two times.
func within(stops []span, from, to int64) int64 {
	sum, at := int64(0), from
	for _, s := range stops {
		a, b := max(s.from, at), min(s.to, to)
		if a < b {
			sum += b - a
			at = b
		}
	}
	return sum
}

// checkExpired reports claims and leases that ended while their holder was heard, or could not be.
func (c *check) checkExpired() {
	k, stops := c.clocks(), c.stops()
	leases := map[[2]int64][]*named{} // of a lease's holder
	given := map[attemptID]*claim{}
	for i := range c.said.claims {
		given[c.said.claims[i].id] = &c.said.claims[i]
	}
	byClaim := map[attemptID][]*named{}
	for i := range c.said.named {
		n := &c.said.named[i]
		if n.lease != 0 {
			leases[[2]int64{n.lease, n.attempt}] = append(leases[[2]int64{n.lease, n.attempt}], n)
		} else {
			byClaim[n.id] = append(byClaim[n.id], n)
		}
		if n.status == 410 {
			c.gone(k, n)
		}
	}
	for id, a := range c.log.attempts {
		g := given[id]
		if a.state != failed || a.reason != "timeout" || g == nil || c.saidFailed(id) {
			continue
		}
		heard := g.began
		line := g.line
		ended, ok := c.log.latest(k, a.ended, a.t)
		if !ok {
			continue
		}
		for _, n := range byClaim[id] {
			if n.status != 0 && n.began <= ended && n.began > heard {
				heard, line = n.began, n.line
			}
		}
		if lasted := ended - heard - within(stops, heard, ended); float64(lasted) < g.deadlineS*float64(second) {
			c.fail(RuleExpired, line, "the claim of %v ended by event %d for its worker's silence, at most %.3f s after %s was heard at line %d, and lasts %g s",
				id, a.ended, float64(lasted)/float64(second), g.worker, line, g.deadlineS)
		}
	}
	for _, l := range c.log.leases {
		for _, r := range l.returned {
			c.returned(k, stops, l, &r, leases[[2]int64{l.id, r.attempt}])
		}
	}
}

// saidFailed says whether a worker ended an attempt as failed itself.
func (c *check) saidFailed(id attemptID) bool {
	return slices.ContainsFunc(c.said.finishes, func(f finish) bool { return f.id == id && f.failed != "" })
}

// returned reports a lease that went back though its trainer was heard, and gave no reason.
func (c *check) returned(k clocks, stops []span, l *lease, r *giveBack, calls []*named) {
	if r.kind == "recovered" || r.kind == "trainer-restored" {
		return
	}
	ended, ok := c.log.latest(k, r.n, r.t)
	if !ok {
		return
	}
	heard, line := int64(-1), -1
	for _, n := range calls {
		if n.kind == "nack" && n.began <= ended {
			return
		}
		if n.status != 0 && n.began <= ended && n.began > heard {
			heard, line = n.began, n.line
		}
	}
	if heard < 0 {
		return // its trainer never had it
	}
	for i := range c.said.connects {
		if k := &c.said.connects[i]; k.at >= heard && k.began <= ended {
			return
		}
	}
	// A plane that has begun anew counts from then.
	for _, n := range c.log.recovered {
		if n < r.n {
			if at, ok := c.log.latest(k, n, c.log.time(n)); ok && at > heard {
				heard = at
			}
		}
	}
	if lasted := ended - heard - within(stops, heard, ended); float64(lasted) < c.log.rules.leaseS*float64(second) {
		c.fail(RuleExpired, line, "lease %d, attempt %d went back by event %d (%s), at most %.3f s after its trainer was heard at line %d, and lasts %g s",
			l.id, r.attempt, r.n, r.kind, float64(lasted)/float64(second), line, c.log.rules.leaseS)
	}
}

// gone reports a claim or a lease that was said to be over and never ended in the log.
func (c *check) gone(k clocks, n *named) {
	if end := c.log.finished; end > 0 {
		if s := k[c.log.segment(end)]; s.from == math.MinInt64 || n.at >= c.log.time(end)+s.from {
			return // nothing is wanted any more
		}
	}
	if n.lease != 0 {
		l := c.log.leases[n.lease]
		if l != nil && l.trained == 0 && l.out && l.attempt == n.attempt && !slices.ContainsFunc(l.returned, func(r giveBack) bool { return r.attempt >= n.attempt }) {
			c.fail(RuleExpired, n.line, "lease %d, attempt %d was said to be over, and is at the trainer in the log: %s", n.lease, n.attempt, n.message)
		}
		return
	}
	a := c.log.attempts[n.id]
	switch {
	case a == nil:
	case a.inFlight():
		c.fail(RuleExpired, n.line, "the claim of %v was said to be over, and goes on in the log: %s", n.id, n.message)
	case a.state == scored && c.log.segment(a.ended) == len(c.log.recovered):
		c.fail(RuleExpired, n.line, "the claim of %v was said to be over, and counts in the log: %s", n.id, n.message)
	}
}
