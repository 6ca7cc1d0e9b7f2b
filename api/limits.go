package api

import (
	"cmp"
	"slices"

	"github.com/headway-rl/headway/api/protocol"
)

// addUp are the bounds of which two processes have twice as much as one.
var addUp = []string{protocol.BoundProcessor, boundConnections, boundRequests, boundBodies, protocol.BoundRollouts}

// limits adds the bounds of a control plane's process and of its cells up. The first is the one of which some process has taken
// the largest share, so that it binds first.
func limits(own []protocol.Bound, cells []protocol.Cell) []protocol.Limit {
	if len(cells) == 0 {
		return nil
	}
	var all []protocol.Limit
	for _, name := range addUp {
		l, ofCells := protocol.Limit{Name: name}, int64(0)
		add := func(cell string, bounds []protocol.Bound) (there bool) {
			i := slices.IndexFunc(bounds, func(b protocol.Bound) bool { return b.Name == name })
			if i < 0 || bounds[i].Max <= 0 {
				return false
			}
			b := bounds[i]
			l.Held, l.Max, l.Processes = l.Held+b.Held, l.Max+b.Max, l.Processes+1
			if share := float64(b.Held) / float64(b.Max); share > l.Share || l.Processes == 1 {
				l.Fullest, l.Share = cell, share
			}
			return true
		}
		add("", own)
		before := l.Max
		for _, c := range cells {
			if add(c.Name, c.Bounds) {
				ofCells++
			}
		}
		if ofCells > 0 {
			l.OneMore = (l.Max - before) / ofCells
			all = append(all, l)
		}
	}
	slices.SortStableFunc(all, func(a, b protocol.Limit) int { return cmp.Compare(b.Share, a.Share) })
	return all
}
