package checker

import (
	"bytes"
	"cmp"
	"maps"
	"math"
	"slices"
)

// checkWhole holds the shares of a lease together, where every rank of its trainer was given one: they are all groups of the
// lease, and each says of the whole batch what all of them have.
func (c *check) checkWhole(first map[share]*batch) {
	keys := slices.SortedFunc(maps.Keys(first), func(a, b share) int {
		return cmp.Or(cmp.Compare(a.lease, b.lease), cmp.Compare(a.world, b.world), cmp.Compare(a.rank, b.rank))
	})
	for _, k := range keys {
		if k.rank != 0 {
			continue
		}
		shares := []*batch{}
		for rank := range k.world {
			if b := first[share{k.lease, rank, k.world}]; b != nil {
				shares = append(shares, b)
			}
		}
		if l := c.log.leases[k.lease]; l != nil && len(shares) == k.world {
			c.whole(l, shares)
		}
	}
}

// whole checks the shares of one lease.
func (c *check) whole(l *lease, shares []*batch) {
	var groups []int64
	var stamps []stamp
	tokens, ones, rollouts := 0, 0, map[attemptID]bool{}
	for _, b := range shares {
		groups, stamps = append(groups, b.body.groups...), append(stamps, b.body.lease.Stamps...)
		tokens, ones = tokens+len(b.body.tokens), ones+bytes.Count(b.body.mask, []byte{1})
		for i, g := range b.body.groups {
			rollouts[attemptID{g, b.body.samples[i], 0}] = true
		}
	}
	if all := slices.Compact(sort(groups)); !slices.Equal(all, sort(slices.Clone(l.groups))) {
		c.fail(RuleLeaseContent, shares[0].line, "the %d ranks of lease %d have the groups %v between them, and in the log it has %v", len(shares), l.id, all, l.groups)
	}
	for _, b := range shares {
		w := &b.body.lease
		if w.Tokens != tokens || w.ResponseTokens != ones || w.Rollouts != len(rollouts) {
			c.fail(RuleBatch, b.line, "rank %d of lease %d is told of %d tokens, %d of them sampled, in %d rollouts, and all ranks have %d, %d and %d",
				b.rank, l.id, w.Tokens, w.ResponseTokens, w.Rollouts, tokens, ones, len(rollouts))
		}
		if most, mean := staleness(w.Version, stamps); most != w.StalenessMax || math.Abs(mean-w.StalenessMean) > 1e-9 {
			c.fail(RuleBatch, b.line, "rank %d of lease %d is told of a staleness of %g and at most %d, and the stamps of all ranks say %g and %d", b.rank, l.id, w.StalenessMean, w.StalenessMax, mean, most)
		}
	}
}

// staleness is the largest and the mean staleness by stamps.
func staleness(version int64, stamps []stamp) (most int64, mean float64) {
	for _, s := range stamps {
		most = max(most, version-s.Start)
		mean += float64(version-s.Start) / float64(len(stamps))
	}
	return most, mean
}
