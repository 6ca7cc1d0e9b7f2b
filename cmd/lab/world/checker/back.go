package checker

import (
	"cmp"
	"slices"
	"strings"
)

// backWithin is how long a run may be without a writer that says it runs, beside the time of a writer's lease, once nothing keeps
// planes from it.
const backWithin = 30 * second

// checkBack reports a time in which no plane said that it runs, though one could have.
func (c *check) checkBack() {
	var running []*poll
	for i := range c.said.polls {
		if p := &c.said.polls[i]; p.word.running() {
			running = append(running, p)
		}
	}
	slices.SortStableFunc(running, func(a, b *poll) int { return cmp.Compare(a.at, b.at) })
	for i := 1; i < len(running); i++ {
		from, to := running[i-1].at, running[i].began
		for _, o := range c.outages {
			if o.from < to && !strings.HasPrefix(o.host, "worker") && !strings.HasPrefix(o.host, "trainer") {
				from = max(from, min(o.to, to))
			}
		}
		if away := to - from; away > backWithin+int64(c.log.rules.writerS*float64(second)) {
			c.fail(RuleBack, running[i].line, "no plane has said that it runs for %.3f s, and nothing kept one from it", seconds(away))
		}
	}
}
