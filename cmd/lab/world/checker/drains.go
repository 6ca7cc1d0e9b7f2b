package checker

import "slices"

// drainsWithin is how long a plane may give out what it had in hand when it is told to stop.
const drainsWithin = second / 2

// checkDrains reports rollouts and batches that a plane gave out after it was told to stop, in order. A batch that it had given
// out before may be asked for again, or by other ranks, and the train step that it had begun may be taken.
func (c *check) checkDrains() {
	clocks := c.clocks()
	for i := range c.outages {
		o := &c.outages[i]
		if o.kind != "stop" || ofCell(o.host) {
			continue
		}
		told, gone := o.from+drainsWithin, c.stoppedAt(o.host, o.from)
		for j := range c.outages { // one that stands still hears of it later
			if f := &c.outages[j]; f.kind == "freeze" && f.host == o.host && f.from <= told && f.to >= o.from {
				told = f.to + drainsWithin
			}
		}
		within := func(k *call) bool { return k.to == o.host && k.began > told && k.at < gone }
		for j := range c.said.claims {
			if k := &c.said.claims[j]; within(&k.call) && !k.evaluation {
				c.fail(RuleWriter, k.line, "%s gave out %s, and was told to stop at %.3f s", o.host, k.name, seconds(o.from))
			}
		}
		for j := range c.said.batches {
			b := &c.said.batches[j]
			before := func(other batch) bool { return other.began <= told && other.body.lease.Lease == b.body.lease.Lease }
			begun, known := c.log.earliest(clocks, c.log.steps[[2]int64{b.body.lease.Lease, b.body.lease.Attempt}])
			if within(&b.call) && !(known && begun <= told) && !slices.ContainsFunc(c.said.batches, before) {
				c.fail(RuleWriter, b.line, "%s gave out lease %d, and was told to stop at %.3f s", o.host, b.body.lease.Lease, seconds(o.from))
			}
		}
	}
}

// stoppedAt is when a host that was told to stop had ended in order; the time itself where it did not.
func (c *check) stoppedAt(host string, from int64) int64 {
	for i := range c.lines {
		switch l := &c.lines[i]; {
		case l.Host != host || l.AtNS < from:
		case l.Kind == "dead" && l.Text == "stop":
			return l.AtNS
		case l.Kind == "dead", l.Kind == "start":
			return from
		}
	}
	return from
}
