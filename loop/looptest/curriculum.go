package looptest

import (
	"cmp"

	"github.com/headway-rl/headway/loop"
)

// promptModel says which prompt a group gets.
type promptModel struct {
	// passes counts those begun through the prompt set, ahead are the prompts of this one to come.
	passes uint64
	ahead  []int64
	// again are the prompts to be played again, the first first.
	again []requeued
}

type requeued struct {
	prompt int64
	level  int32
}

// levelModel is the solve rate of a level, as far as it is known.
type levelModel struct {
	measured bool
	// rate is an estimate in 1/65536.
	rate int32
}

const wholeRate = 1 << 16

// nextPrompt returns the prompt and the level of the group that is opened.
func (c *Checker) nextPrompt() (prompt int64, level int32) {
	p := &c.prompts
	if len(p.again) > 0 {
		first := p.again[0]
		p.again = p.again[1:]
		return first.prompt, first.level
	}
	if c.cfg.Prompts > 0 {
		if len(p.ahead) == 0 {
			p.ahead = c.pass(p.passes)
			p.passes++
		}
		prompt, p.ahead = p.ahead[0], p.ahead[1:]
	}
	if c.cfg.Levels > 0 {
		level = c.drawLevel()
	}
	return prompt, level
}

// pass returns the order of a pass through the prompt set: from a drawn place
// with the first stride, from a drawn one on, that comes by every prompt.
func (c *Checker) pass(number uint64) []int64 {
	n := uint64(c.cfg.Prompts)
	place := loop.Draw(^c.cfg.Seed, 2*number) % n
	for stride := loop.Draw(^c.cfg.Seed, 2*number+1)%n + 1; ; stride++ {
		order, seen := []int64{}, make([]bool, n)
		for at := place; !seen[at]; at = (at + stride) % n {
			seen[at] = true
			order = append(order, int64(at)+1)
		}
		if len(order) == int(n) {
			return order
		}
	}
}

// requeue has the prompt of a group that ended untrained played again.
func (c *Checker) requeue(g *groupModel, end loop.End, why loop.Reason) {
	lost := end == loop.EndEvicted || end == loop.EndDiscarded || end == loop.EndCancelled && why != loop.ReasonSurplus
	if !c.cfg.Requeue || !lost {
		return
	}
	prompt := cmp.Or(g.prompt, int64(g.id))
	c.prompts.again = append(c.prompts.again, requeued{prompt, g.level})
}

// drawLevel draws among all levels, or among those that the band asks for.
func (c *Checker) drawLevel() int32 {
	u, w := loop.Draw(c.cfg.Seed, 2*c.draws), loop.Draw(c.cfg.Seed, 2*c.draws+1)
	c.draws++
	if float64(u>>11)/(1<<53) < c.cfg.Explore {
		return int32(1 + w%uint64(len(c.levels)))
	}
	least := c.offBand(0)
	for i := range c.levels {
		least = min(least, c.offBand(i))
	}
	var among []int32
	for i := range c.levels {
		if c.offBand(i) == least {
			among = append(among, int32(i+1))
		}
	}
	return among[w%uint64(len(among))]
}

// offBand is how far the solve rate of a level lies outside the band; 0 for one
// that is within, or has never been measured.
func (c *Checker) offBand(i int) int32 {
	l := c.levels[i]
	if !l.measured {
		return 0
	}
	return max(0, int32(c.cfg.SolveLow*wholeRate)-l.rate, l.rate-int32(c.cfg.SolveHigh*wholeRate))
}

// solves counts the rollouts of a group that a verdict called solved.
func (g *groupModel) solves() int {
	n := 0
	for _, s := range g.samples {
		if s.state == scored && s.solved {
			n++
		}
	}
	return n
}

// measureLevel books the solve rate of a ready group for its level.
func (c *Checker) measureLevel(g *groupModel) {
	if g.level == 0 {
		return
	}
	l := &c.levels[g.level-1]
	rate := int32(g.solves() * wholeRate / g.count(scored))
	if !l.measured {
		*l = levelModel{true, rate}
		return
	}
	l.rate += (rate - l.rate) / 8
}

// inBand reports whether a ready group's share of solved rollouts is one that teaches.
func (c *Checker) inBand(g *groupModel) bool {
	rate := float64(g.solves()) / float64(g.count(scored))
	return rate >= c.cfg.SolveLow-1e-9 && rate <= c.cfg.SolveHigh+1e-9
}
