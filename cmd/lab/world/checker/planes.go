package checker

import (
	"cmp"
	"maps"
	"math"
	"slices"
)

// checkClaims reports attempts that two workers held, claims of rollouts that had been counted, and secrets that are not
// one claim's alone.
func (c *check) checkClaims() {
	given := map[string]*claim{}
	secrets := map[string]*claim{}
	counted := map[attemptID]*finish{}
	for i := range c.said.finishes {
		f := &c.said.finishes[i]
		sample := attemptID{f.id.group, f.id.sample, 0}
		if f.counted && f.failed == "" && (counted[sample] == nil || f.at < counted[sample].at) {
			counted[sample] = f
		}
	}
	for i := range c.said.claims {
		k := &c.said.claims[i]
		if was := given[k.name]; was != nil && (was.worker != k.worker || was.secret != k.secret) {
			c.fail(RuleClaim, k.line, "%s was given to %s, and to %s at line %d", k.name, k.worker, was.worker, was.line)
		}
		given[k.name] = k
		for _, secret := range []string{k.key, k.secret} {
			if was := secrets[secret]; was != nil && was.name != k.name || secret == "" {
				c.fail(RuleClaim, k.line, "%s has a key or a secret that is empty, or another claim's", k.name)
			}
			secrets[secret] = k
		}
		if k.evaluation {
			continue
		}
		if a := c.log.attempts[k.id]; a != nil && i > 0 && c.said.claims[i-1].line == k.line {
			if before := c.log.attempts[c.said.claims[i-1].id]; before != nil && before.line > a.line {
				c.fail(RuleClaim, k.line, "%s was given out behind %s, which started later", k.name, c.said.claims[i-1].name)
			}
		}
		if f := counted[attemptID{k.id.group, k.id.sample, 0}]; f != nil && f.at < k.began && !c.lags(k) {
			c.fail(RuleClaim, k.line, "%s was given to %s, and line %d had said that %v counts", k.name, k.worker, f.line, f.id)
		}
		if a := c.log.attempts[k.id]; a == nil && len(c.log.recovered) == 0 && c.ending.Finished {
			c.fail(RuleClaim, k.line, "%s was given to %s, and the log has no such attempt", k.name, k.worker)
		}
	}
}

// unkept says whether a process may not have kept what it gave out: it found no room.
func (c *check) unkept() bool {
	return slices.ContainsFunc(c.outages, func(o outage) bool { return o.kind == "full" })
}

// checkKept reports claims whose attempts failed with the process that had given them out, and was to keep them. One that is
// deposed, or replaced, may give them out later.
func (c *check) checkKept() {
	if !c.log.rules.ResumeRestart || c.unkept() {
		return
	}
	clocks := c.clocks()
	for i := range c.said.claims {
		k := &c.said.claims[i]
		a := c.log.attempts[k.id]
		if k.evaluation || a == nil || a.state != failed || a.reason != "restart" {
			continue
		}
		if ended, known := c.log.earliest(clocks, a.ended); known && ended > k.at && !c.twin(k.to) {
			c.fail(RuleClaim, k.line, "%s was given to %s, and event %d fails it by a restart", k.name, k.worker, a.ended)
		}
	}
}

// running says whether a plane in a state is the writer, by its own word.
func (w *statusWord) running() bool {
	return w.State == "running" || w.State == "draining" || w.State == "stopped"
}

// checkStatus compares what planes say of the run with the log, and with what they said before.
func (c *check) checkStatus() {
	polls := make([]*poll, 0, len(c.said.polls))
	for i := range c.said.polls {
		p := &c.said.polls[i]
		if w := &p.word; w.running() && w.Version >= 0 {
			polls = append(polls, p)
			if !w.Ledger.Balanced || !w.Ledger.balanced() {
				c.fail(RuleLedger, p.line, "the status of %s has a ledger that does not balance: %+v", p.to, w.Ledger)
			}
			if v := w.Version; v >= int64(len(c.log.versions)) {
				if c.lastOf(v) {
					continue
				}
				c.fail(RuleStatus, p.line, "the status of %s says version %d, and the log ends at %d", p.to, v, len(c.log.versions)-1)
			} else if r := &c.log.rules; r.MaxUses <= 1 && w.Ledger.Trained != c.log.trainedAt[v] {
				c.fail(RuleStatus, p.line, "the status of %s says %d trained rollouts at version %d, and the log has %d", p.to, w.Ledger.Trained, v, c.log.trainedAt[v])
			}
			if w.Ledger.Admitted > c.log.sums.Admitted && len(c.log.recovered) == 0 && c.ending.Finished {
				c.fail(RuleStatus, p.line, "the status of %s says %d attempts, and the log has %d", p.to, w.Ledger.Admitted, c.log.sums.Admitted)
			}
		}
	}
	c.sentVersions(polls)
	c.backwards(polls)
	c.outlived(polls)
}

// deposedWithin is how long a plane may take to notice that another has taken over, where nothing keeps it from that.
const deposedWithin = 15 * second

// outlived reports a plane that says that it runs long after another one did under a later epoch.
func (c *check) outlived(polls []*poll) {
	newest := map[string]*poll{} // by plane, the first under its latest epoch
	for _, p := range polls {
		if was := newest[p.to]; was == nil || was.word.Writer.Epoch < p.word.Writer.Epoch {
			newest[p.to] = p
		}
	}
	for _, p := range polls {
		for _, to := range slices.Sorted(maps.Keys(newest)) {
			n := newest[to]
			if p.word.State == "running" && n.word.Writer.Epoch > p.word.Writer.Epoch && p.began > n.at+deposedWithin && c.undisturbed(p.host, p.began-deposedWithin, p.began) {
				c.fail(RuleWriter, p.line, "%s says that it runs under epoch %d, and line %d said %.0f s before that %s runs under epoch %d",
					p.to, p.word.Writer.Epoch, n.line, seconds(p.began-n.at), to, n.word.Writer.Epoch)
			}
		}
	}
}

// sentVersions reports a status with a version that no trainer had begun to send.
func (c *check) sentVersions(polls []*poll) {
	sent := slices.Clone(c.said.publishes)
	slices.SortFunc(sent, func(a, b publish) int { return cmp.Compare(a.began, b.began) })
	byEnd := slices.Clone(polls)
	slices.SortFunc(byEnd, func(a, b *poll) int { return cmp.Compare(a.at, b.at) })
	at, most := 0, int64(0)
	for _, p := range byEnd {
		for at < len(sent) && sent[at].began <= p.at {
			most = max(most, sent[at].manifest.Version)
			at++
		}
		if p.word.Version > most && len(c.said.acks) == 0 {
			c.fail(RuleStatus, p.line, "the status of %s says version %d, and no trainer had sent more than %d", p.to, p.word.Version, most)
		}
	}
}

// shown is a status under an epoch.
type shown struct {
	call
	epoch   uint64
	version int64
	sums    *sums
}

// backwards reports a status that is behind what a plane of the same or of an earlier epoch said before it was asked for.
func (c *check) backwards(polls []*poll) {
	all := make([]shown, 0, len(polls))
	owner := map[uint64]*poll{}
	for _, p := range polls {
		w := &p.word
		all = append(all, shown{p.call, w.Writer.Epoch, w.Version, &w.Ledger.sums})
		if was := owner[w.Writer.Epoch]; was != nil && was.to != p.to {
			c.fail(RuleWriter, p.line, "%s runs under epoch %d, and so did %s at line %d", p.to, w.Writer.Epoch, was.to, was.line)
		}
		owner[w.Writer.Epoch] = p
	}
	ends := make([]*shown, 0, len(all))
	for i := range all {
		ends = append(ends, &all[i])
	}
	slices.SortStableFunc(ends, func(a, b *shown) int { return cmp.Compare(a.at, b.at) })
	asked := slices.Clone(ends)
	slices.SortStableFunc(asked, func(a, b *shown) int { return cmp.Compare(a.began, b.began) })
	newest := map[uint64]*shown{} // by epoch
	sums := map[uint64]*shown{}
	at := 0
	for _, s := range asked {
		for ; at < len(ends) && ends[at].at < s.began; at++ {
			e := ends[at]
			if was := newest[e.epoch]; was == nil || was.version < e.version {
				newest[e.epoch] = e
			}
			sums[e.epoch] = e
		}
		for _, epoch := range slices.Sorted(maps.Keys(newest)) {
			was := newest[epoch]
			if epoch <= s.epoch && was.version > s.version {
				c.fail(RuleStatus, s.line, "the status of %s says version %d under epoch %d, and line %d said version %d under epoch %d", s.to, s.version, s.epoch, was.line, was.version, epoch)
			}
		}
		if was := sums[s.epoch]; was != nil && was.to == s.to && s.sums.below(was.sums) {
			c.fail(RuleStatus, s.line, "the ledger of %s says %+v, and said %+v at line %d", s.to, *s.sums, *was.sums, was.line)
		}
	}
}

// below reports whether a counter that never falls is less than it was.
func (s *sums) below(was *sums) bool {
	return s.Admitted < was.Admitted || s.Trained < was.Trained || s.Evicted < was.Evicted || s.Discarded < was.Discarded ||
		s.Filtered < was.Filtered || s.Pruned < was.Pruned || s.Cancelled < was.Cancelled || s.Failed < was.Failed
}

// checkWriters reports acknowledgements of two planes between the same two recoveries of the log: each writer begins
// with one.
func (c *check) checkWriters() {
	c.writers = map[int]logTime{}
	add := func(n int64, k call, what string) {
		if ofCell(k.to) { // it answers for what it has said, and writes nothing
			return
		}
		segment := c.log.segment(n)
		if was, ok := c.writers[segment]; ok && was.to != k.to {
			c.fail(RuleWriter, k.line, "%s acknowledged event %d (%s), and %s event %d (%s) at line %d: the log has no recovery between them",
				k.to, n, what, was.to, was.n, was.what, was.line)
			return
		}
		c.writers[segment] = logTime{n: n, line: k.line, what: what, to: k.to}
	}
	for i := range c.said.finishes {
		if f := &c.said.finishes[i]; f.counted && f.failed == "" {
			if a := c.log.attempts[f.id]; a != nil && a.state == scored {
				add(a.ended, f.call, "finish")
			}
		}
	}
	for i := range c.said.claims {
		k := &c.said.claims[i]
		if a := c.log.attempts[k.id]; a != nil && !k.evaluation {
			add(a.began, k.call, "claim")
		}
	}
	for i := range c.said.batches {
		b := &c.said.batches[i]
		if n := c.log.steps[[2]int64{b.body.lease.Lease, b.body.lease.Attempt}]; n != 0 {
			add(n, b.call, "lease")
		}
	}
}

// checkDeposed reports calls that a plane answered while another one wrote the log: they began after its recovery, and were
// over before that of the next.
func (c *check) checkDeposed() {
	k := c.clocks()
	spans := make([]span, len(c.log.recovered)+1)
	for i := range spans {
		spans[i] = span{math.MaxInt64, math.MaxInt64}
		if i == 0 {
			continue
		}
		if at, ok := c.log.latest(k, c.log.recovered[i-1]); ok {
			spans[i].from = at
		}
		spans[i-1].to = math.MinInt64
		if at, ok := c.log.earliest(k, c.log.recovered[i-1]); ok {
			spans[i-1].to = at
		}
	}
	if at, ok := c.log.earliest(k, c.log.finished); ok && c.log.finished != 0 { // whoever takes over then writes nothing
		spans[len(spans)-1].to = at
	}
	for i := range c.said.named {
		n := &c.said.named[i]
		if !n.whole || n.status != 200 || ofCell(n.to) {
			continue
		}
		for j, s := range spans {
			if w, ok := c.writers[j]; ok && w.to != n.to && n.began > s.from && n.at < s.to && !c.tookOver(n, w.to, s) {
				c.fail(RuleWriter, n.line, "%s answered a %s that began at %.3f s, and %s wrote the log from %.3f s on", n.to, n.kind, seconds(n.began), w.to, seconds(s.from))
			}
		}
	}
}

// tookOver says whether a plane may have answered in the place of a writer that had ended or was away, from what that one had
// written, and never wrote itself: it ended before, or could not write until another one took over.
func (c *check) tookOver(n *named, writer string, s span) bool {
	known := c.log.rules.ResumeRestart // rollouts stand
	switch n.kind {
	case "lease", "nack": // they change the run
		known = false
	case "renew", "publish", "ack": // leases stand, and versions lie beside the log
		known = true
	}
	return known && (c.started(writer, s.from, n.at) || c.away(writer, n.at)) && !c.wrote(n.to, n.at)
}

// away says whether something had kept a plane from its broker for as long as the shortest lease of a writer is.
func (c *check) away(plane string, at int64) bool {
	return slices.ContainsFunc(c.outages, func(o outage) bool { return (o.host == plane || o.other == plane) && min(o.to, at)-o.from >= second })
}

// wrote says whether the process that a host had at a time ever wrote the log.
func (c *check) wrote(host string, at int64) bool {
	life := span{math.MinInt64, math.MaxInt64}
	for _, l := range c.lines {
		switch {
		case l.Kind != "start" || l.Host != host:
		case l.AtNS <= at:
			life.from = max(life.from, l.AtNS)
		default:
			life.to = min(life.to, l.AtNS)
		}
	}
	for _, w := range c.writers {
		if said := c.lines[w.line].AtNS; w.to == host && said >= life.from && said < life.to {
			return true
		}
	}
	return false
}

// seconds are those of a time in nanoseconds.
func seconds(ns int64) float64 { return float64(ns) / float64(second) }

// segment is the number of recoveries before an event.
func (l *ledger) segment(n int64) int {
	i, _ := slices.BinarySearch(l.recovered, n+1)
	return i
}

// checkConnects checks what trainers were told when they connected.
func (c *check) checkConnects() {
	for i := range c.said.connects {
		k := &c.said.connects[i]
		w, held := &k.word, k.held
		bad := ""
		switch {
		case w.Next != w.Version+1:
			bad = "the next version is not the newest plus 1"
		case w.Load > w.Version:
			bad = "it is to load a version that is not there"
		case w.Version >= int64(len(c.log.versions)):
			bad = "the log has no such version"
		case (w.Action == "initialize") != (w.Version < 0):
			bad = "a run without a version is initialized, and no other"
		case w.Action == "train" && held != w.Version, w.Action == "republish" && held >= w.Version:
			bad = "it holds another version"
		}
		if bad != "" {
			c.fail(RuleStatus, k.line, "a trainer that holds version %d was told %+v: %s", held, *w, bad)
		}
		for j := range c.said.acks {
			if a := &c.said.acks[j]; a.version == w.Load {
				c.fail(RuleStatus, k.line, "a trainer was told to load version %d, which was acknowledged without weights at line %d", w.Load, a.line)
				break
			}
		}
		for j := range c.said.publishes {
			if p := &c.said.publishes[j]; p.whole && p.status == 200 && p.at < k.began && p.version > w.Version {
				c.fail(RuleStatus, k.line, "a trainer was told that version %d is the newest, and line %d had acknowledged version %d", w.Version, p.line, p.version)
				break
			}
		}
	}
}
