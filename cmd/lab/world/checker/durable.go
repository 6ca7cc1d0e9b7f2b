package checker

import (
	"slices"
	"strings"

	"github.com/headway-rl/headway/cmd/lab/world/history"
)

// checkDurable reports what was said while the broker could take nothing: a claim, the end of a rollout and a lease are durable
// before anybody is told. Calls count that began and ended in the outage, of what was not there before it.
func (c *check) checkDurable() {
	if !slices.ContainsFunc(c.lines, func(l history.Line) bool { return l.Kind == "start" && l.Host == "broker" }) {
		return // it is inside a plane, or has several servers
	}
	clocks := c.clocks()
	for i := range c.outages {
		o := &c.outages[i]
		stands := o.host == "broker" && (o.kind == "freeze" || o.kind == "dead")
		dark := func(k *call) bool {
			return (stands || strings.HasPrefix(k.to, "plane") && o.cuts(k.to)) && k.began > o.from && k.at < o.to
		}
		later := func(event int64) bool {
			at, known := c.log.earliest(clocks, event)
			return event > 0 && known && at > o.from
		}
		tell := func(k *call, what any) {
			c.fail(RuleDurable, k.line, "%s told %s of %v, which the broker could not take from %.3f to %.3f s", k.to, k.host, what, seconds(o.from), seconds(o.to))
		}
		for j := range c.said.claims {
			if k := &c.said.claims[j]; dark(&k.call) && !k.evaluation && !c.unkept() {
				tell(&k.call, k.name)
			}
		}
		for j := range c.said.finishes {
			before := func(g finish) bool { return g.id == c.said.finishes[j].id && g.began <= o.from }
			if f := &c.said.finishes[j]; dark(&f.call) && f.counted && !slices.ContainsFunc(c.said.finishes, before) {
				if a := c.log.attempts[f.id]; a != nil && later(a.ended) {
					tell(&f.call, f.id)
				}
			}
		}
		asked := slices.ContainsFunc(c.said.asks, func(k call) bool { return k.began <= o.from && k.at > o.from }) // and not answered in time
		for j := range c.said.batches {
			if b := &c.said.batches[j]; dark(&b.call) && !asked && later(c.log.steps[[2]int64{b.body.lease.Lease, b.body.lease.Attempt}]) {
				tell(&b.call, b.body.lease.Lease)
			}
		}
	}
}

// checkSound reports programs that ended because the lines of the log that they had read do not go together. The log is sound: what
// they read there, it had lost since, and they did not notice.
func (c *check) checkSound() {
	for i := range c.lines {
		if l := &c.lines[i]; l.Kind == "note" && strings.HasPrefix(l.Text, "ended: ") && strings.Contains(l.Text, "checksum mismatch") {
			c.fail(RuleLog, i, "%s ended by a log that no fault has damaged: %s", l.Host, l.Text)
		}
	}
}
