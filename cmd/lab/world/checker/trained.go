package checker

import (
	"bytes"
	"maps"
	"slices"
)

// checkTrained reports groups that were trained twice, and steps that were acknowledged and are not in the log.
func (c *check) checkTrained() {
	leased := map[int64][]int64{} // groups that trainers were given with a lease
	for i := range c.said.batches {
		b := &c.said.batches[i]
		for _, g := range b.body.groups {
			if !slices.Contains(leased[b.body.lease.Lease], g) {
				leased[b.body.lease.Lease] = append(leased[b.body.lease.Lease], g)
			}
		}
	}
	done := map[int64]int64{} // the version that a lease made, as its trainer was told
	by := map[int64]int64{}   // the lease that trained a group
	commit := func(k call, lease, version int64, how string) {
		if was, ok := done[lease]; ok {
			if was != version {
				c.fail(RuleTrainedOnce, k.line, "lease %d was %s as version %d, and made version %d before", lease, how, version, was)
			}
			return
		}
		done[lease] = version
		for _, g := range leased[lease] {
			if was, ok := by[g]; ok {
				c.fail(RuleTrainedOnce, k.line, "group %d was trained with lease %d, and with lease %d, both acknowledged", g, lease, was)
			}
			by[g] = lease
		}
		switch m := c.log.made(version); {
		case m == nil && c.lastOf(version):
		case m == nil:
			c.fail(RulePublished, k.line, "lease %d was %s as version %d, and the log has no such version", lease, how, version)
		case m.lease != lease:
			c.fail(RulePublished, k.line, "lease %d was %s as version %d, which is of lease %d in the log", lease, how, version, m.lease)
		}
	}
	for i := range c.said.publishes {
		p := &c.said.publishes[i]
		if !p.whole || p.status != 200 {
			continue
		}
		if p.version != p.manifest.Version {
			c.fail(RulePublished, p.line, "version %d was published, and the answer says version %d", p.manifest.Version, p.version)
		}
		switch {
		case p.manifest.Lease != 0:
			commit(p.call, p.manifest.Lease, p.version, "published")
		case p.version > 0:
			if m := c.log.made(p.version); m == nil && !c.lastOf(p.version) || m != nil && m.lease != 0 {
				c.fail(RulePublished, p.line, "version %d was restored, and the log has no such version, or one of a lease", p.version)
			}
		}
	}
	c.again()
	for i := range c.said.acks {
		if s := &c.said.acks[i]; s.whole && s.status == 200 {
			commit(s.call, s.lease, s.version, "acknowledged")
		}
	}
}

// lastOf says whether a version may be missing in the log as its last: of a run that has not ended, the event of the
// newest version may still wait to be written. A trainer that begins anew when the run has ended may still go back to the
// last version that has weights, of which no event comes.
func (c *check) lastOf(version int64) bool {
	if version != int64(len(c.log.versions)) {
		return false
	}
	return !c.ending.Finished || c.log.finished != 0 && slices.ContainsFunc(c.said.publishes, func(p publish) bool {
		return p.manifest.Version == version && p.manifest.RestoredFrom != nil
	})
}

// again reports a publish that was refused, though the same had been acknowledged before.
func (c *check) again() {
	for i := range c.said.publishes {
		p := &c.said.publishes[i]
		if !p.whole || p.status != 409 && p.status != 410 || p.files == nil {
			continue
		}
		for j := range c.said.publishes {
			was := &c.said.publishes[j]
			same := was.manifest.Version == p.manifest.Version && was.manifest.Lease == p.manifest.Lease && was.manifest.Attempt == p.manifest.Attempt
			if was.whole && was.status == 200 && was.at < p.began && same && maps.EqualFunc(was.files, p.files, bytes.Equal) {
				c.fail(RulePublished, p.line, "version %d was sent again as at line %d, which was acknowledged, and was refused", p.manifest.Version, was.line)
				break
			}
		}
	}
}

// refusedMade reports a publish that was refused as late or as another one, though the log has its version, of its lease
// and with its files: sent again, it is answered as the first.
func (c *check) refusedMade() {
	for i := range c.said.publishes {
		p := &c.said.publishes[i]
		v, m := p.manifest.Version, c.log.made(p.manifest.Version)
		if !p.whole || p.status != 409 && p.status != 410 || len(p.files) == 0 || p.manifest.Lease == 0 || m == nil || m.lease != p.manifest.Lease {
			continue
		}
		same := true
		for name, text := range p.files {
			same = same && c.version(v).hashes[name].hash == hashOf(text)
		}
		pruned := slices.ContainsFunc(c.said.publishes, func(later publish) bool { return later.manifest.Version > v+1 && later.began < p.at })
		if same && !pruned {
			c.fail(RulePublished, p.line, "version %d of lease %d is there with the files that were sent, and was refused with %d", v, m.lease, p.status)
		}
	}
}

// made is a version in the log, nil for none. Version 0 is there from the start.
func (l *ledger) made(version int64) *made {
	if version < 0 || version >= int64(len(l.versions)) {
		return nil
	}
	return &l.versions[version]
}

// checkStaleness holds the mean staleness of the first n batches to its bound, for every n.
func (c *check) checkStaleness() {
	r := &c.log.rules
	if r.Policy != policyBounded || r.BatchGroups == 0 {
		return
	}
	sum := int64(0)
	for i, g := range c.log.trainOrder {
		if g.start > g.version {
			c.fail(RuleStale, -1, "group %d was trained from version %d, and began under version %d", g.group, g.version, g.start)
		}
		sum += g.version - g.start
		if (i+1)%r.BatchGroups != 0 {
			continue
		}
		bound := int64(r.Eta * (i + 1))
		for _, v := range c.log.restored {
			if v <= g.version {
				bound += int64((r.Eta + 1) * r.BatchGroups)
			}
		}
		if sum > bound {
			c.fail(RuleStale, -1, "the first %d groups that were trained are %d versions stale in all, and may be %d", i+1, sum, bound)
		}
	}
}
