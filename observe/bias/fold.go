package bias

import (
	"math"

	"github.com/headway-rl/headway/loop"
)

// spread holds what the correlation of siblings is estimated from: sums over
// rollouts of a score, and over groups of their sums.
type spread struct {
	groups, rollouts, sizes2    float64
	sum, squares, groupsSquares float64 // Σ x, Σ x², Σ (group's Σ x)²/n
}

func (s *spread) add(n, sum, squares float64) {
	if n == 0 {
		return
	}
	s.groups++
	s.rollouts += n
	s.sizes2 += n * n
	s.sum += sum
	s.squares += squares
	s.groupsSquares += sum * sum / n
}

// effect is the design effect on a cumulative share: by how much siblings' likeness
// shrinks the number of independent values, 1 + (n−1)·ICC, at least 1. The
// correlation of the scores is by the analysis of variance; that of being on the same side of
// the median, which is what a distance of distributions is made of, is 2/π·asin of
// it for normal scores, and less towards the tails.
func (s *spread) effect() float64 {
	if s.groups < 2 || s.rollouts <= s.groups {
		return 1
	}
	mean := s.rollouts / s.groups
	between := (s.groupsSquares - s.sum*s.sum/s.rollouts) / (s.groups - 1)
	within := (s.squares - s.groupsSquares) / (s.rollouts - s.groups)
	size := (s.rollouts - s.sizes2/s.rollouts) / (s.groups - 1)
	total := between + (size-1)*within
	if total <= 0 {
		return 1
	}
	return 1 + (mean-1)*2/math.Pi*math.Asin(min(max((between-within)/total, 0), 1))
}

// end folds a group that has ended into the counts, and forgets it.
func (o *Observer) end(id loop.GroupID, g *liveGroup) {
	if g.birth >= 0 {
		b := o.series.of(g.birth)
		b.live--
		o.foldRollouts(g, b)
		o.foldGroup(g)
	}
	o.spare = append(o.spare, g.rollouts)
	o.groups.Remove(id)
}

// foldRollouts counts the lengths and times of a group's rollouts.
func (o *Observer) foldRollouts(g *liveGroup, b *block) {
	uses := int64(g.uses)
	var n, length, lengthSquares, env, envSquares float64
	for i := range g.rollouts {
		r := &g.rollouts[i]
		if !r.issued {
			continue
		}
		o.rollouts++
		if r.known {
			l, e := binOf(int64(r.startedTokens)), binOf(r.startedEnvironment)
			o.length[started][l]++
			o.environment[started][e]++
			b.length.started++
			b.length.startedX += float64(r.startedTokens)
			b.environment.started++
			b.environment.startedX += float64(r.startedEnvironment)
			n++
			length += float64(l)
			lengthSquares += float64(l) * float64(l)
			env += float64(e)
			envSquares += float64(e) * float64(e)
			if uses == 0 || !r.done {
				o.length[untrained][l]++
				o.environment[untrained][e]++
			}
		} else {
			o.censored++
		}
		if uses > 0 && r.done {
			o.length[trained][binOf(int64(r.tokens))] += uses
			o.environment[trained][binOf(r.environment)] += uses
			b.length.trained += uses
			b.length.trainedX += float64(uses) * float64(r.tokens)
			b.environment.trained += uses
			b.environment.trainedX += float64(uses) * float64(r.environment)
		}
	}
	o.lengthSpread.add(n, length, lengthSquares)
	o.environmentSpread.add(n, env, envSquares)
}

// foldGroup counts what a group is as a whole.
func (o *Observer) foldGroup(g *liveGroup) {
	once := min(int64(g.uses), 1)
	o.counts.groups++
	o.trainedGroups += once
	if n := int64(len(o.prompts)); n > 0 && g.prompt > 0 {
		o.prompts[(g.prompt-1)%n].count(once)
	}
	if n := len(o.levels); n > 0 && g.level > 0 {
		o.levels[int(g.level-1)%n].count(once)
	}
	if g.scored == 0 || int(g.scored) < o.size {
		return // its solve rate is not known
	}
	rate := float64(g.solved) / float64(g.scored)
	o.solved[solveCell(rate)].count(once)
	o.solvedSum[started] += rate
	o.solvedSum[trained] += rate * float64(once)
}

func (s *share) count(trained int64) {
	s.started++
	s.trained += trained
}

// solveCell is where a solve rate is counted: none and all solved stand apart.
func solveCell(rate float64) int {
	switch {
	case rate <= 0:
		return 0
	case rate >= 1:
		return solveCells - 1
	}
	return min(int(math.Ceil(rate*10)), solveCells-2)
}
