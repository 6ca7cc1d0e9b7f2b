package plan

import (
	"math"
	"slices"

	"github.com/headway-rl/headway/predict/theory"
)

// policiesDefault are tried where the document lists none. Policy max is left
// out: it discards what is slow, which biases lengths.
var policiesDefault = []string{theory.PolicyDrop, theory.PolicyBlock, policyBounded, policyThreshold, theory.PolicySynchronous}

// policies are those to try.
func (p *Problem) policies() []string {
	if list := p.Document.Search.Policies; len(list) > 0 {
		return list
	}
	list := slices.Clone(policiesDefault)
	if p.Document.Schedule == theory.PolicySynchronous {
		return list
	}
	if own := p.Document.Queue.Policy; p.Document.Given("queue.policy") && own != "replay" && !slices.Contains(list, own) {
		list = append(list, own)
	}
	return list
}

// variants are the settings that share a candidate's split, batch and slots but
// admit, order or hold by another rule.
func (p *Problem) variants(base Candidate) []Candidate {
	base.Predicted, base.Simulated, base.Uncovered = nil, nil, ""
	var list []Candidate
	add := func(change func(*Candidate)) {
		c := base
		change(&c)
		list = append(list, c)
	}
	for _, policy := range p.policies() {
		switch policy {
		case theory.PolicyDrop:
			p.dropVariants(add)
		case theory.PolicyBlock:
			add(func(c *Candidate) { c.Policy, c.QueueFactor = policy, 1 })
		case policyBounded:
			for _, eta := range p.etas() {
				add(func(c *Candidate) { c.Policy, c.QueueFactor, c.Eta = policy, 0, eta })
			}
		case policyThreshold:
			for _, theta := range p.thetas() {
				for _, partial := range []bool{true, false} {
					if theta == 0 && partial {
						continue // nothing is in flight to be interrupted
					}
					for _, every := range p.thresholdSyncs() {
						add(func(c *Candidate) {
							c.Policy, c.QueueFactor, c.StalenessThreshold, c.Partial, c.SyncEvery = policy, 0, theta, partial, every
						})
					}
				}
			}
		case theory.PolicyMax:
			add(func(c *Candidate) { c.Policy, c.MaxStaleness = policy, p.maxStaleness() })
		case theory.PolicySynchronous:
			add(func(c *Candidate) { *c = synchronous(*c) })
		}
	}
	return list
}

// dropVariants are selection orders and holds under policy drop.
func (p *Problem) dropVariants(add func(func(*Candidate))) {
	type order struct {
		selection string
		hold      float64
	}
	orders := []order{{theory.SelectNewest, 0}, {theory.SelectNewest, 0.3}, {theory.SelectOldest, 0.3}}
	s := p.Document.Search
	if len(s.Select) > 0 || len(s.Hold) > 0 {
		orders = nil
		selections, holds := s.Select, s.Hold
		if len(selections) == 0 {
			selections = []string{theory.SelectOldest, theory.SelectNewest}
		}
		if len(holds) == 0 {
			holds = []float64{0}
		}
		for _, selection := range selections {
			for _, hold := range holds {
				if selection != theory.SelectOldest || hold > 0 {
					orders = append(orders, order{selection, hold})
				}
			}
		}
	}
	for _, o := range orders {
		add(func(c *Candidate) {
			c.Policy, c.Select, c.Hold = theory.PolicyDrop, o.selection, o.hold
			if o.selection == theory.SelectNewest {
				c.QueueFactor = max(c.QueueFactor, 2)
			}
		})
	}
}

// etas are the bounds of policy bounded to try: those asked for, else steps up
// to the budget, and the budget itself.
func (p *Problem) etas() []float64 {
	if list := p.Document.Search.Eta; len(list) > 0 {
		return list
	}
	top := p.stalenessBudget()
	list := []float64{0.5, 1, 2, 4}
	list = slices.DeleteFunc(list, func(eta float64) bool { return eta > top+1e-9 })
	// Admission by counts can use all of the budget, so that the budget itself is worth trying.
	if !slices.Contains(list, top) {
		list = append(list, top)
	}
	return list
}

// thetas are verl's thresholds to try.
func (p *Problem) thetas() []float64 {
	if list := p.Document.Search.StalenessThreshold; len(list) > 0 {
		return list
	}
	return []float64{0, 0.5, 1}
}

// thresholdSyncs are the train steps per sync to try under policy threshold,
// which starts groups by sync.
func (p *Problem) thresholdSyncs() []int {
	if list := p.Document.Search.SyncEvery; len(list) > 0 {
		return list
	}
	return []int{1, 4}
}

// maxStaleness is the budget given to policy max.
func (p *Problem) maxStaleness() int {
	if p.Document.Given("queue.max_staleness") {
		return p.Document.Queue.MaxStaleness
	}
	return max(int(math.Ceil(p.stalenessBudget())), 1)
}

// stalenessBudget is the tighter of the two staleness bounds, 4 without one.
func (p *Problem) stalenessBudget() float64 {
	b := p.Document.Budget
	budget := math.Inf(1)
	if b.StalenessMean > 0 {
		budget = b.StalenessMean
	}
	if b.StalenessP95 > 0 {
		budget = min(budget, float64(b.StalenessP95))
	}
	if math.IsInf(budget, 1) {
		return 4
	}
	return budget
}

// basesMax is how many splits rules without a closed form are tried on.
const basesMax = 5

// bases are candidates to try rules on: the best within the budget, the best
// whatever its staleness (a rule may lower it), the best with less staleness, and
// the frontier's point between.
func (p *Problem) bases(list []Candidate, front []int) []int {
	var chosen []int
	add := func(i int) {
		same := func(k int) bool {
			a, b := &list[k].Setting, &list[i].Setting
			return a.RolloutGPUs == b.RolloutGPUs && a.TrainGPUs == b.TrainGPUs && a.BatchRollouts == b.BatchRollouts && a.SlotsPerReplica == b.SlotsPerReplica
		}
		if i >= 0 && len(chosen) < basesMax && !slices.ContainsFunc(chosen, same) {
			chosen = append(chosen, i)
		}
	}
	best := p.best(list)
	add(best)
	if len(front) == 0 {
		return chosen
	}
	add(front[len(front)-1])
	budget := p.stalenessBudget()
	for _, factor := range []float64{1.25, 1.6, 0.75} {
		add(p.bestWithin(list, front, factor*budget))
	}
	return chosen
}

// bestWithin is the point of the frontier of the best objective up to a mean staleness, -1 for none.
func (p *Problem) bestWithin(list []Candidate, front []int, staleness float64) int {
	found := -1
	for _, i := range front { // staleness rises, the objective falls
		if list[i].figures().StalenessMean <= staleness {
			found = i
		}
	}
	return found
}
