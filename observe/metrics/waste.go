package metrics

import "github.com/headway-rl/headway/loop"

// ends is how many ways there are for an attempt to end, the none included.
const ends = int(loop.EndFailed) + 1

// waste sums what became of what was made.
type waste struct {
	tokens [ends]int64 // response tokens by how their attempt ended
	groups [ends]int64
	// Groups that were filtered, by the filter.
	rejected, zeroAdvantage, solveRate int64
	prunedRollouts                     int64
	redundantRollouts                  int64
	surplusGroups, surplusRollouts     int64
	usedGroups, usesSum, usesMax       int64
}

// add counts the tokens of an attempt that ended.
func (w *waste) add(end loop.End, tokens int32) { w.tokens[end] += int64(tokens) }

// usable is the share of the groups that ended by being trained, evicted or
// discarded that were not too stale to be of use.
func (w *waste) usable() float64 {
	discarded := w.groups[loop.EndDiscarded]
	all := discarded + w.groups[loop.EndTrained] + w.groups[loop.EndEvicted]
	return 1 - ratio(discarded, all)
}

// filtered counts a filtered group by its filter.
func (w *waste) filtered(a *loop.Action) {
	if a.End != loop.EndFiltered {
		return
	}
	switch a.Reason {
	case loop.ReasonRejected:
		w.rejected++
	case loop.ReasonZeroAdvantage:
		w.zeroAdvantage++
	case loop.ReasonSolveRate:
		w.solveRate++
	}
}

// uses counts a group that will not be trained again.
func (w *waste) uses(n int32) {
	w.usedGroups++
	w.usesSum += int64(n)
	w.usesMax = max(w.usesMax, int64(n))
}

// signal sums what complete groups have to teach.
type signal struct {
	groups, rollouts, solved, allSolved, noneSolved int64
}

func (s *signal) add(g *liveGroup) {
	s.groups++
	s.rollouts += int64(g.scored)
	s.solved += int64(g.solved)
	switch g.solved {
	case 0:
		s.noneSolved++
	case g.scored:
		s.allSolved++
	}
}
