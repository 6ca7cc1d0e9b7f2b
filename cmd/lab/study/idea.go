package study

import (
	"fmt"
	"math"
	"slices"

	"github.com/headway-rl/headway/loop"
)

// Idea is something tried to be better than hold with newest first, in variants.
type Idea struct {
	// Name of the idea, and in a sentence what was hoped for and how it is made of the loop's rules.
	Name string `json:"name"`
	Hope string `json:"hope"`
	// Rules are the names of its variants.
	Rules []string `json:"rules"`
	// Better is how many of the cells have a variant of it on the frontier.
	Better int `json:"cells_on_frontier"`
	rules  []Rule
}

// Cells that ideas are tried in.
var (
	ideaRho      = []float64{0.7, 0.9, 1.1, 1.5, 2}
	ideaTailness = []float64{50, 90}
)

// crowding of the cells with a decode speed that falls with concurrency: a lone
// slot is twice as fast as one of C.
const crowding = 1

// ideaCells are the plain cells at C/B = 2, and those with crowded engines.
func (p *plan) ideaCells() []Cell {
	if p.opt.Quick {
		return []Cell{cellAt(1.5, 50, 2, 0)}
	}
	var cells []Cell
	for _, tailness := range ideaTailness {
		for _, rho := range ideaRho {
			cells = append(cells, cellAt(rho, tailness, 2, 0))
		}
	}
	for _, rho := range ideaRho {
		cell := cellAt(rho, 50, 2, 0)
		cell.Crowding = crowding
		cells = append(cells, cell)
	}
	return cells
}

func (p *plan) addIdeas() []Idea {
	all := ideas()
	if p.opt.Quick {
		all = all[:2]
	}
	for i := range all {
		for _, rule := range all[i].rules {
			all[i].Rules = append(all[i].Rules, rule.Name)
		}
	}
	for _, cell := range p.ideaCells() {
		p.add(partIdeas, cell, Drop(2), false)
		for _, idea := range all {
			for _, rule := range idea.rules {
				p.add(partIdeas, cell, rule, false)
			}
		}
	}
	return all
}

// pqs is the published closed form of the pre-queue staleness, C·M/(B·max(1, ρ)).
func pqs(cell Cell) float64 {
	lengths, err := lengthsOf(cell.Tailness)
	if err != nil {
		panic(err) // the studies' own tailness
	}
	return cell.Load * lengths.TailMultiplier(cell.GroupSize) / max(1, cell.Rho)
}

// newest is queue-drop with two batches of capacity, newest first, held by theta.
func newest(theta float64) Rule { return Held(theta, loop.SelectNewest, 2) }

// aligned is verl's threshold, fractional, as far above the closed form's
// pre-queue staleness: it opens a batch's groups in a burst at every switch, and
// drops nothing. The trainer waits for the sync, so that a batch that is at the
// trainer counts as taken.
func aligned(above, theta float64, order loop.Selection) Rule {
	return Rule{fmt.Sprintf("threshold PQS%+g %s hold %g", above, orderNames[order], theta), func(c *loop.Config, cell Cell) {
		c.Policy, c.TrainerBlocked, c.Select, c.Hold = loop.PolicyThreshold, true, order, theta
		c.StalenessThreshold = max(pqs(cell)+above, 0)
		c.QueueGroups = int((2 + c.StalenessThreshold) * float64(c.BatchGroups))
	}}
}

// capped is bounded admission by a fractional η.
func capped(above, theta float64) Rule {
	return Rule{fmt.Sprintf("bounded PQS%+g newest hold %g", above, theta), func(c *loop.Config, cell Cell) {
		c.Policy, c.Select, c.Hold = loop.PolicyBounded, loop.SelectNewest, theta
		c.Eta = max(pqs(cell)+above, 0)
		c.QueueGroups = int((2 + c.Eta) * float64(c.BatchGroups))
	}}
}

// slack is the largest theta that, by the closed form of the price, costs
// production no more than what is dropped anyway, a margin left: the slots that
// wait are θ²ρB/(2C) of all, and 1 − (1+margin)/ρ of production is surplus.
func slack(cell Cell, least, margin float64) float64 {
	surplus := max(1-(1+margin)/cell.Rho, 0)
	return min(max(math.Sqrt(surplus*2*cell.Load/max(cell.Rho, 1)), least), 0.9)
}

// ideas lists them; the first two are the rules of the grid, for comparison.
func ideas() []Idea {
	block := func(q int, order loop.Selection, theta float64) Rule {
		return Rule{fmt.Sprintf("block q=%d %s hold %g", q, orderNames[order], theta), func(c *loop.Config, _ Cell) {
			c.Policy, c.QueueGroups, c.Select, c.Hold = loop.PolicyBlock, q*c.BatchGroups, order, theta
		}}
	}
	gang := func(c *loop.Config, _ Cell) { c.Start = loop.StartGang }
	redundant := func(c *loop.Config, _ Cell) { c.Redundancy = 1 }
	adaptive := func(least, margin float64) Rule {
		return Rule{fmt.Sprintf("newest q=2 adaptive hold from %g margin %g", least, margin), func(c *loop.Config, cell Cell) {
			newest(slack(cell, least, margin)).Set(c, cell)
		}}
	}
	replayed := func(gamma float64) Rule {
		return Rule{fmt.Sprintf("replay once γ %g hold 0.3", gamma), func(c *loop.Config, _ Cell) {
			c.Policy, c.QueueGroups, c.MaxUses, c.Gamma, c.Hold = loop.PolicyReplay, 2*c.BatchGroups, 1, gamma, 0.3
		}}
	}
	return []Idea{
		{Name: "hold and newest first", Hope: "The rule as it was proposed, with larger θ than that allows.",
			rules: []Rule{unheld(), newest(0.1), newest(0.2), best(), newest(0.4), newest(0.5), newest(0.6), newest(0.7), newest(0.8), newest(0.9)}},
		{Name: "hold and a random choice among fresh groups", Hope: "No order of readiness decides, so that θ can be larger without a bias in lengths.",
			rules: []Rule{fresh(0), fresh(0.3), fresh(0.5), fresh(0.7), fresh(0.9)}},
		{Name: "a hold that learns what it costs", Hope: "θ moves up while a full queue drops groups and down where slots wait for nothing, so that no closed form need hold; at a cost, it may also be that dear.",
			rules: []Rule{learned(0), learned(0.02)}},
		{Name: "one batch of capacity", Hope: "q = 1 is as fresh as newest first; its price is starvation.",
			rules: []Rule{Drop(1), Held(0.3, loop.SelectOldest, 1), Held(0.5, loop.SelectOldest, 1)}},
		{Name: "more capacity under newest first", Hope: "Surplus of good times feeds the trainer in bad ones, so that θ can be larger near ρ = 1.",
			rules: []Rule{Held(0.3, loop.SelectNewest, 3), Held(0.5, loop.SelectNewest, 3), Held(0.3, loop.SelectNewest, 4), Held(0.5, loop.SelectNewest, 4), Held(0.7, loop.SelectNewest, 4)}},
		{Name: "adaptive hold", Hope: "θ follows the slack: as large as what would be dropped anyway pays for, a least θ below that.",
			rules: []Rule{adaptive(0.1, 0.05), adaptive(0.3, 0.05), adaptive(0.3, 0.1), adaptive(0.3, 0.2)}},
		{Name: "version-aligned admission", Hope: "threshold, fractional: a batch's groups open in a burst right after every switch, as many as will be consumed; nothing is dropped, so that nothing can be biased.",
			rules: []Rule{aligned(0, 0, loop.SelectOldest), aligned(0.25, 0, loop.SelectOldest), aligned(0.5, 0, loop.SelectOldest), aligned(0.75, 0, loop.SelectOldest), aligned(1, 0, loop.SelectOldest), aligned(1.5, 0, loop.SelectOldest)}},
		{Name: "version-aligned admission with hold", Hope: "hold where the threshold does not bind, below ρ = 1.",
			rules: []Rule{aligned(0.5, 0.3, loop.SelectNewest), aligned(0.75, 0.3, loop.SelectNewest), aligned(1, 0.3, loop.SelectNewest)}},
		{Name: "a fractional bound", Hope: "bounded, hold and newest first: live groups capped at what the trainer needs, nothing dropped.",
			rules: []Rule{capped(0.25, 0.3), capped(0.5, 0.3), capped(0.75, 0.3), capped(1, 0.3), capped(1, 0), capped(1.5, 0.3)}},
		{Name: "pause while a batch waits", Hope: "pause_at: nothing opens once the next batch is ready, so that admission resumes with the switch; a hold that measures its slack.",
			rules: []Rule{unheld().pausing(1), unheld().pausing(1.25), unheld().pausing(1.5), unheld().pausing(1.75), best().pausing(1.25), best().pausing(1.5)}},
		{Name: "generation that stops", Hope: "block: a full queue stops admission, so that what is not needed is not made.",
			rules: []Rule{block(1, loop.SelectOldest, 0), block(1, loop.SelectOldest, 0.3), block(2, loop.SelectNewest, 0.3)}},
		{Name: "oldest version first", Hope: "Trains what would get stale; known to be biased.",
			rules: []Rule{Held(0, loop.SelectOldestVersion, 2), Held(0.3, loop.SelectOldestVersion, 2), Held(0.3, loop.SelectOldestVersion, 1)}},
		{Name: "a random choice", Hope: "replay with one use draws among the ready groups instead of the newest, weighted by age: no order to select lengths by.",
			rules: []Rule{replayed(1), replayed(0.5), replayed(0.1)}},
		{Name: "one rollout more than needed", Hope: "S + 1 rollouts, the first S kept: groups are ready sooner; known to be biased to short ones.",
			rules: []Rule{Drop(2).with("redundancy 1", redundant), best().with("redundancy 1", redundant)}},
		{Name: "gang start", Hope: "All rollouts of a group start at once, so that it takes less long from its first token; slots wait for it.",
			rules: []Rule{Drop(2).with("gang", gang), unheld().with("gang", gang), best().with("gang", gang)}},
	}
}

// countFrontier counts, for every idea, the cells in which it is on the frontier.
func countFrontier(ideas []Idea, rows []Row) {
	for i := range ideas {
		cells := map[Cell]bool{}
		for _, row := range rows {
			if row.Frontier && slices.Contains(ideas[i].Rules, row.Rule) {
				cells[row.Cell] = true
			}
		}
		ideas[i].Better = len(cells)
	}
}

// biasTolerance is how far from 1 the length ratio of a rule on the frontier may be.
const biasTolerance = 0.005

// Differences that count on the frontier, as shares: smaller ones are noise.
const (
	sameStaleness = 0.003
	samePeriod    = 0.001
)

// markFrontier marks the rows of every cell that no other beats: none is as fresh
// and as fast and more than noise better in one of them.
func markFrontier(rows []Row) {
	unbiased := func(r *Row) bool { return r.Failed == "" && math.Abs(r.Length.Mean-1) <= biasTolerance }
	for i := range rows {
		r := &rows[i]
		r.Frontier = unbiased(r)
		for j := range rows {
			o := &rows[j]
			if o.Cell != r.Cell || !unbiased(o) {
				continue
			}
			s, p := o.Staleness.Mean/r.Staleness.Mean-1, o.Period.Mean/r.Period.Mean-1
			if s <= 0 && p <= samePeriod && s < -sameStaleness || p <= 0 && s <= sameStaleness && p < -samePeriod {
				r.Frontier = false
			}
		}
	}
}
