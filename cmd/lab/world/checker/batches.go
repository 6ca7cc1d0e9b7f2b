package checker

import (
	"bytes"
	"math"
	"slices"
)

// share names a share of a batch.
type share struct {
	lease       int64
	rank, world int
}

// checkBatches checks every batch by itself, and with what else is known of its lease.
func (c *check) checkBatches() {
	first := map[share]*batch{}
	asked := map[attemptID][]float32{}
	for i := range c.said.finishes {
		if f := &c.said.finishes[i]; f.failed == "" && f.reward != nil {
			asked[f.id] = append(asked[f.id], *f.reward)
		}
	}
	tokens := c.newTokens()
	for i := range c.said.batches {
		b := &c.said.batches[i]
		c.shares(first, b)
		key := share{b.body.lease.Lease, b.rank, max(b.world, 1)}
		if was := first[key]; was != nil {
			c.same(was, b)
			if bytes.Equal(was.body.data, b.body.data) {
				continue // the rest of it is known
			}
		} else {
			first[key] = b
		}
		c.leased(b)
		c.stamps(b)
		c.rows(b)
		c.counted(b)
		tokens.check(b)
	}
	c.checkWhole(first)
}

// shares reports a share that its rank has done, and groups that another rank has as well.
func (c *check) shares(first map[share]*batch, b *batch) {
	w := &b.body.lease
	if b.after == w.Lease && w.Attempt <= b.afterAttempt {
		c.fail(RuleLeaseContent, b.line, "rank %d had done its share of lease %d, attempt %d, and was given attempt %d", b.rank, b.after, b.afterAttempt, w.Attempt)
	}
	for rank := range b.world {
		other := first[share{w.Lease, rank, b.world}]
		if rank == b.rank || other == nil {
			continue
		}
		for _, g := range b.body.groups {
			if slices.Contains(other.body.groups, g) {
				c.fail(RuleLeaseContent, b.line, "rank %d has group %d of lease %d, and so has rank %d at line %d", b.rank, g, w.Lease, rank, other.line)
				return
			}
		}
	}
}

// same compares two answers to a lease.
func (c *check) same(was, b *batch) {
	x, y := &was.body.lease, &b.body.lease
	switch {
	case y.Attempt < x.Attempt:
		c.fail(RuleLeaseContent, b.line, "lease %d is attempt %d, and was attempt %d at line %d", y.Lease, y.Attempt, x.Attempt, was.line)
	case x.Version != y.Version:
		c.fail(RuleLeaseContent, b.line, "lease %d is to be trained from version %d, and from version %d at line %d", y.Lease, y.Version, x.Version, was.line)
	case !slices.Equal(was.body.groups, b.body.groups):
		c.fail(RuleLeaseContent, b.line, "lease %d has rollouts of the groups %v, and had %v at line %d", y.Lease, b.body.groups, was.body.groups, was.line)
	case !bytes.Equal(was.body.data, b.body.data):
		c.fail(RuleLeaseContent, b.line, "lease %d has other tensors than at line %d", y.Lease, was.line)
	case !slices.Equal(x.Stamps, y.Stamps):
		c.fail(RuleLeaseContent, b.line, "lease %d has the stamps %v, and had %v at line %d", y.Lease, y.Stamps, x.Stamps, was.line)
	}
}

// leased compares a batch with the lease in the log.
func (c *check) leased(b *batch) {
	w := &b.body.lease
	l := c.log.leases[w.Lease]
	if l == nil {
		c.fail(RuleLeaseContent, b.line, "lease %d was given out, and the log has none", w.Lease)
		return
	}
	if l.version != w.Version {
		c.fail(RuleLeaseContent, b.line, "lease %d was given out from version %d, and begins from version %d in the log", w.Lease, w.Version, l.version)
	}
	groups := slices.Compact(slices.Clone(b.body.groups))
	whole := b.world <= 1
	for _, g := range groups {
		if !slices.Contains(l.groups, g) {
			c.fail(RuleLeaseContent, b.line, "lease %d has group %d, and in the log the groups %v", w.Lease, g, l.groups)
		}
	}
	if sorted := slices.Clone(groups); whole && len(groups) != len(l.groups) || len(slices.Compact(sort(sorted))) != len(groups) {
		c.fail(RuleLeaseContent, b.line, "lease %d has the groups %v, and in the log %v", w.Lease, groups, l.groups)
	}
	if r := &c.log.rules; w.Groups != r.BatchGroups {
		c.fail(RuleBatch, b.line, "lease %d is of %d groups, and a batch has %d", w.Lease, w.Groups, r.BatchGroups)
	}
}

func sort(ids []int64) []int64 {
	slices.Sort(ids)
	return ids
}

// stamps checks the stamps of a batch.
func (c *check) stamps(b *batch) {
	w := &b.body.lease
	for _, s := range w.Stamps {
		if s.Start < 0 || s.Start > s.Ready || s.Ready > w.Version {
			c.fail(RuleBatch, b.line, "group %d of lease %d has the stamps %d and %d, and is trained from version %d", s.Group, w.Lease, s.Start, s.Ready, w.Version)
		}
		if g := c.log.groups[s.Group]; g != nil && g.lease == w.Lease && (g.start != s.Start || g.ready != s.Ready) {
			c.fail(RuleBatch, b.line, "group %d of lease %d has the stamps %d and %d, and in the log %d and %d", s.Group, w.Lease, s.Start, s.Ready, g.start, g.ready)
		}
	}
}

// rows checks the rollouts of a batch: their number, their rewards as workers said them, and their advantages.
func (c *check) rows(b *batch) {
	w, r := &b.body.lease, &c.log.rules
	for from := 0; from < len(b.body.groups); {
		to := from
		for to < len(b.body.groups) && b.body.groups[to] == b.body.groups[from] {
			to++
		}
		g := b.body.groups[from]
		var samples []int32
		var rewards, advantages []float32
		for i := from; i < to; i++ {
			if b.body.rollouts != nil && i > from && b.body.rollouts[i] == b.body.rollouts[i-1] {
				if b.body.rewards[i] != b.body.rewards[i-1] || b.body.advantages[i] != b.body.advantages[i-1] {
					c.fail(RuleReward, b.line, "two sequences of rollout %d of group %d in lease %d have different rewards or advantages", b.body.samples[i], g, w.Lease)
				}
				continue
			}
			samples = append(samples, b.body.samples[i])
			rewards = append(rewards, b.body.rewards[i])
			advantages = append(advantages, b.body.advantages[i])
		}
		c.group(b, g, samples, rewards, advantages)
		if r.OnFailure == 0 && len(samples) != r.GroupSize {
			c.fail(RuleBatch, b.line, "group %d of lease %d has %d rollouts, and a group has %d", g, w.Lease, len(samples), r.GroupSize)
		}
		from = to
	}
}

// group checks the rollouts of a group in a batch.
func (c *check) group(b *batch, g int64, samples []int32, rewards, advantages []float32) {
	sorted := slices.Clone(samples)
	slices.Sort(sorted)
	if len(slices.Compact(sorted)) != len(samples) {
		c.fail(RuleBatch, b.line, "group %d of lease %d has the rollouts %v: one is there twice", g, b.body.lease.Lease, samples)
	}
	for i, s := range samples {
		a := c.log.newest[attemptID{g, s, 0}]
		switch {
		case a == nil || a.state != scored:
			c.fail(RuleReward, b.line, "lease %d has rollout %d of group %d, which no attempt in the log has finished", b.body.lease.Lease, s, g)
		case a.reward != rewards[i]:
			c.fail(RuleReward, b.line, "lease %d has %v with reward %g, and the log says %g", b.body.lease.Lease, a.id, rewards[i], a.reward)
		}
	}
	n := float64(len(rewards))
	mean, square := 0.0, 0.0
	for _, x := range rewards {
		mean += float64(x) / n
	}
	for _, x := range rewards {
		square += (float64(x) - mean) * (float64(x) - mean) / n
	}
	deviation := math.Sqrt(square)
	for i, x := range rewards {
		want := float64(x) - mean
		if c.log.rules.normalizeStd {
			if deviation < 1e-3 && deviation > 0 {
				return // divided by no less than some floor
			}
			if deviation > 0 {
				want /= deviation
			}
		}
		if math.Abs(want-float64(advantages[i])) > 1e-2*(1+math.Abs(want)) {
			c.fail(RuleReward, b.line, "rollout %d of group %d in lease %d has advantage %g, and its rewards %v make %g", samples[i], g, b.body.lease.Lease, advantages[i], rewards, want)
		}
	}
}
