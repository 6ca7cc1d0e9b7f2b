package plan

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/headway-rl/headway/config"
)

// Constraint is something a plan must keep, and the cost of keeping it.
type Constraint struct {
	// Name is one of staleness_mean, staleness_p95, step_s, cost_per_step, waste_share,
	// length_bias, trainer_memory, whole_units, kv_memory, minimum_batch, gpus.
	Name string `json:"name"`
	// Bound says what it is.
	Bound string `json:"bound"`
	// Relaxed says by how much it was relaxed to see what it costs.
	Relaxed string `json:"relaxed"`
	// ObjectiveRatio is the best objective after relaxing over the best before, 1 where nothing is gained.
	ObjectiveRatio float64 `json:"objective_ratio"`
	// Binds says that relaxing it gains more than half a percent.
	Binds bool `json:"binds"`
	// To is the split and batch that it would then be.
	To string `json:"to"`
}

// Relaxation is a bound of a budget that no setting keeps together with the others.
type Relaxation struct {
	Key   string  `json:"key"`
	Bound float64 `json:"bound"`
	// Needed is the least value that some setting reaches with every other bound kept;
	// null where even without this bound no setting keeps the others.
	Needed *float64 `json:"needed"`
	Text   string   `json:"text"`
}

// bound is one bound of a budget.
type bound struct {
	key   string
	value func(*config.Budget) *float64
	of    func(*Figures) float64
}

// bounds lists those that a document sets.
func (p *Problem) bounds() []bound {
	b := p.Document.Budget
	var list []bound
	add := func(set bool, key string, value func(*config.Budget) *float64, of func(*Figures) float64) {
		if set {
			list = append(list, bound{key, value, of})
		}
	}
	add(b.StalenessMean > 0, "staleness_mean", func(b *config.Budget) *float64 { return &b.StalenessMean }, func(f *Figures) float64 { return f.StalenessMean })
	add(b.StalenessP95 > 0, "staleness_p95", nil, func(f *Figures) float64 { return float64(f.StalenessP95) })
	add(b.StepS > 0, "step_s", func(b *config.Budget) *float64 { return &b.StepS }, func(f *Figures) float64 { return f.PeriodS })
	add(b.CostPerStep > 0, "cost_per_step", func(b *config.Budget) *float64 { return &b.CostPerStep }, func(f *Figures) float64 { return f.CostPerStep })
	add(b.WasteShare > 0, "waste_share", func(b *config.Budget) *float64 { return &b.WasteShare }, func(f *Figures) float64 { return f.WasteShare })
	add(b.LengthBias > 0, "length_bias", func(b *config.Budget) *float64 { return &b.LengthBias }, func(f *Figures) float64 { return math.Abs(f.LengthBias) })
	return list
}

// get reads a bound from a budget.
func (b bound) get(budget *config.Budget) float64 {
	if b.value == nil {
		return float64(budget.StalenessP95)
	}
	return *b.value(budget)
}

// scale loosens a bound by a factor; p95 by a version at least. An infinite factor takes it away.
func (b bound) scale(budget *config.Budget, factor float64) {
	switch {
	case b.value == nil && math.IsInf(factor, 1):
		budget.StalenessP95 = 0
	case b.value == nil:
		budget.StalenessP95 = max(int(math.Round(float64(budget.StalenessP95)*factor)), budget.StalenessP95+1)
	case math.IsInf(factor, 1):
		*b.value(budget) = 0
	default:
		*b.value(budget) *= factor
	}
}

// shortfall says what to relax where the budget is not met: each bound by itself,
// and by how much.
func (s *search) shortfall() []Relaxation {
	p := s.problem
	var list []Relaxation
	pool := slices.Concat(s.ranked, s.finals)
	for _, b := range p.bounds() {
		without := *p
		b.scale(&without.Document.Budget, math.Inf(1))
		least := math.Inf(1)
		for i := range pool {
			if f := pool[i].figures(); f != nil {
				if over, _ := without.excess(f); over == 0 {
					least = min(least, b.of(f))
				}
			}
		}
		have := b.get(&p.Document.Budget)
		r := Relaxation{Key: "budget." + b.key, Bound: have}
		if math.IsInf(least, 1) {
			r.Text = fmt.Sprintf("budget.%s %s: even without it no setting keeps the other bounds", b.key, plain(have))
		} else if least > have {
			r.Needed = &least
			r.Text = fmt.Sprintf("budget.%s %s: the least possible with the other bounds kept is %s, %s more", b.key, plain(have), number(least), percent(least/have-1))
		} else {
			continue
		}
		list = append(list, r)
	}
	return list
}

// loosened is by what share a bound of the budget is relaxed to see what it costs.
const loosened = 1.1

// bindsAt is the gain from which a constraint counts as binding.
const bindsAt = 0.005

// binding relaxes every constraint by itself and ranks again.
func (s *search) binding() error {
	p := s.problem
	base := p.best(s.ranked)
	if base < 0 {
		s.plan.Binding = []Constraint{}
		return nil
	}
	before := p.objective(s.ranked[base].figures())
	for _, b := range p.bounds() {
		loose := *p
		b.scale(&loose.Document.Budget, loosened)
		c := Constraint{Name: b.key, Bound: "budget." + b.key + " " + plain(b.get(&p.Document.Budget)), Relaxed: "to " + number(b.get(&loose.Document.Budget))}
		s.judge(&c, before, s.ranked, &loose)
	}
	ranked := make(map[Setting]bool, len(s.ranked))
	for i := range s.ranked {
		ranked[s.ranked[i].Setting] = true
	}
	for _, r := range s.relaxations() {
		g, err := newGrid(p, r.limits)
		if err != nil {
			continue
		}
		// What was ranked before is still allowed: only what is new can be better.
		list := slices.DeleteFunc(g.candidates(s.eval), func(c Candidate) bool { return ranked[c.Setting] })
		s.eval.evaluateAll(list)
		s.judge(&r.constraint, before, list, p)
	}
	slices.SortStableFunc(s.plan.Binding, func(a, b Constraint) int { return cmp.Compare(a.ObjectiveRatio, b.ObjectiveRatio) })
	return nil
}

// judge notes what a relaxed search finds.
func (s *search) judge(c *Constraint, before float64, list []Candidate, p *Problem) {
	c.ObjectiveRatio = 1
	if i := p.best(list); i >= 0 {
		c.ObjectiveRatio = min(p.objective(list[i].figures())/before, 1)
		if c.ObjectiveRatio < 1-bindsAt {
			c.Binds = true
			c.To = fmt.Sprintf("%d + %d GPUs, batch %d, q %s, %d slots a replica", list[i].RolloutGPUs, list[i].TrainGPUs, list[i].BatchRollouts, plain(list[i].QueueFactor), list[i].SlotsPerReplica)
		}
	}
	s.plan.Binding = append(s.plan.Binding, *c)
}

// relaxation is a constraint of the hardware with the limits that relax it.
type relaxation struct {
	constraint Constraint
	limits     limits
}

// relaxations lists those that can be relaxed one by one.
func (s *search) relaxations() []relaxation {
	m, base := s.problem.Machine, limitsOf(s.problem)
	var list []relaxation
	add := func(name, bound, relaxed string, change func(*limits)) {
		l := base
		change(&l)
		list = append(list, relaxation{Constraint{Name: name, Bound: bound, Relaxed: relaxed}, l})
	}
	if base.trainMin > base.trainUnit {
		add("trainer_memory", fmt.Sprintf("at least %d train GPUs (%s)", base.trainMin, m.TrainFloor), fmt.Sprintf("to %d", base.trainUnit), func(l *limits) { l.trainMin = l.trainUnit })
	}
	if base.trainUnit > 1 {
		add("whole_units", fmt.Sprintf("train GPUs in units of %d, replicas of %d", base.trainUnit, base.replica), "to single GPUs", func(l *limits) { l.trainUnit = 1 })
	}
	if base.slotsMax > 0 && m.SlotsFixed == 0 {
		add("kv_memory", fmt.Sprintf("%d rollouts' caches on a replica", base.slotsMax), fmt.Sprintf("to %d", base.slotsMax*3/2), func(l *limits) { l.slotsMax = l.slotsMax * 3 / 2 })
	}
	if base.batchMin > s.problem.Document.Rollout.GroupSize {
		add("minimum_batch", fmt.Sprintf("batch of at least %d rollouts", base.batchMin), fmt.Sprintf("to %d", base.batchMin/2), func(l *limits) { l.batchMin /= 2 })
	}
	if h := s.problem.Document.Hardware; h.TrainGPUs == 0 || h.RolloutGPUs == 0 {
		more := max(base.trainUnit, base.replica)
		add("gpus", fmt.Sprintf("%d GPUs", base.gpus), fmt.Sprintf("to %d", base.gpus+more), func(l *limits) { l.gpus += more })
	}
	return list
}

// percent prints a share with a sign that its sentence gives.
func percent(share float64) string { return fmt.Sprintf("%.0f %%", 100*share) }

// number prints a figure with four digits.
func number(x float64) string { return fmt.Sprintf("%.4g", x) }
