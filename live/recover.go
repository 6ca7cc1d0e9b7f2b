package live

import "slices"

// Counts reports whether an attempt's score is one that its group, which has not
// ended, is made of: whether a store is to keep its payload over a restart.
func (c *Counted) Counts(id RolloutID) bool { return slices.Contains(c.groups[id.Group], id) }
