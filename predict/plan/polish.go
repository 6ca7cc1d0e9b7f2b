package plan

import "slices"

// Polishing goes on from the best rules found, to their neighbours: a rule wants
// another split, batch or concurrency than the closed form's best it was tried on.
const (
	polishRounds = 6
	polishFrom   = 2
)

// polish adds the neighbours of the best rules, round by round, until a round
// finds nothing better.
func (s *search) polish(rules []Candidate) ([]Candidate, error) {
	p := s.problem
	for range polishRounds {
		order := p.polished(rules)
		if len(order) == 0 {
			return rules, nil
		}
		best := order[0]
		var fresh []Candidate
		for _, i := range order[:min(len(order), polishFrom)] {
			for _, c := range s.neighbours(rules[i]) {
				known := func(o Candidate) bool { return o.Setting == c.Setting }
				if !slices.ContainsFunc(rules, known) && !slices.ContainsFunc(fresh, known) {
					s.eval.evaluate(&c)
					fresh = append(fresh, c)
				}
			}
		}
		if len(fresh) == 0 {
			return rules, nil
		}
		if err := s.eval.simulateAll("polishing rules", addresses(fresh), screening); err != nil {
			return nil, err
		}
		s.plan.Searched.Simulated += len(fresh)
		before := *rules[best].figures()
		rules = append(rules, fresh...)
		if after := p.polished(rules); !p.gains(rules[after[0]].figures(), &before) {
			return rules, nil
		}
	}
	return rules, nil
}

// polished are the rules that polishing is for, the best first: where a closed form covers a rule, the whole grid of it
// has been ranked.
func (p *Problem) polished(rules []Candidate) []int {
	return slices.DeleteFunc(p.order(rules), func(i int) bool { return rules[i].Predicted != nil && p.Uncovered == "" })
}

// gains reports whether figures are clearly better than those before: nearer to the budget, or as near and faster.
func (p *Problem) gains(after, before *Figures) bool {
	was, _ := p.excess(before)
	is, _ := p.excess(after)
	if is == was {
		return p.objective(after) <= p.objective(before)*(1-tie)
	}
	return is < was*(1-tie)
}

// neighbours are the settings of the grid next to one, one step in one dimension.
func (s *search) neighbours(c Candidate) []Candidate {
	c.Predicted, c.Simulated, c.Uncovered = nil, nil, ""
	var list []Candidate
	add := func(change func(*Candidate)) {
		n := c
		change(&n)
		list = append(list, n)
	}
	m := s.problem.Machine
	move := up(m.TrainGPUsUnit, m.GPUsPerReplica)
	for _, to := range []split{
		{c.RolloutGPUs + move, c.TrainGPUs - move}, {c.RolloutGPUs - move, c.TrainGPUs + move},
		{c.RolloutGPUs + m.GPUsPerReplica, c.TrainGPUs}, {c.RolloutGPUs, c.TrainGPUs + m.TrainGPUsUnit},
	} {
		if slices.Contains(s.grid.splits, to) {
			add(func(n *Candidate) {
				n.RolloutGPUs, n.TrainGPUs, n.Replicas = to.rollout, to.train, to.rollout/m.GPUsPerReplica
			})
		}
	}
	for _, batch := range beside(s.grid.batches, c.BatchRollouts) {
		add(func(n *Candidate) { n.BatchRollouts = batch })
	}
	for _, slots := range beside(s.grid.slots, c.SlotsPerReplica) {
		add(func(n *Candidate) { n.SlotsPerReplica = slots })
	}
	return slices.DeleteFunc(list, func(n Candidate) bool { return s.eval.absurd(&n) })
}

// beside returns the values of an ascending list next to one of them.
func beside(list []int, value int) []int {
	var found []int
	for i, v := range list {
		if v == value {
			if i > 0 {
				found = append(found, list[i-1])
			}
			if i+1 < len(list) {
				found = append(found, list[i+1])
			}
		}
	}
	return found
}
