package plan

import (
	"fmt"

	"github.com/headway-rl/headway/predict/theory"
)

// Lever is one change of the recommended setting and its effect. It says what it
// holds fixed, since that decides its sign.
type Lever struct {
	// Name is one of split, batch, queue_factor, rule, concurrency, sync_every, sync_time, tail, gpus.
	Name string `json:"name"`
	// Change says what is turned, from and to.
	Change string `json:"change"`
	// HoldsFixed says what stays while it is turned.
	HoldsFixed string `json:"holds_fixed"`
	// StalenessMean and StalenessP95 are those after the change, in versions.
	StalenessMean float64 `json:"staleness_mean"`
	StalenessP95  int     `json:"staleness_p95"`
	// StalenessChange is the mean's change in versions, the ratios are after over before.
	StalenessChange float64 `json:"staleness_change"`
	PeriodRatio     float64 `json:"period_ratio"`
	UpdateRatio     float64 `json:"update_ratio"`
	CostRatio       float64 `json:"cost_per_update_ratio"`
	// Keeps says that the budget is kept after the change.
	Keeps bool `json:"keeps_budget"`
	// GPUsNeeded is how many GPUs the change takes where there are fewer, else 0.
	GPUsNeeded int `json:"gpus_needed,omitempty"`
	// Basis is closed form or simulated: both sides of the comparison alike.
	Basis string `json:"basis"`
	// Note says what else changes with it; "" for nothing.
	Note string `json:"note,omitempty"`
}

// pull is a lever before it is priced.
type pull struct {
	lever     Lever
	candidate Candidate
	eval      *evaluator // another one where the workload changes
}

// levers prices single changes of the recommended setting, by closed form where
// one covers it, else by simulation of both sides.
func (s *search) levers() error {
	base := s.plan.Recommended
	pulls := s.pulls(base)
	simulated := base.Predicted == nil && s.problem.Simulation != nil
	before, basis := base.Predicted, "closed form"
	if simulated {
		before, basis = &base.Simulated.Figures, "simulated"
		if err := s.simulatePulls(pulls); err != nil {
			return err
		}
	}
	for i := range pulls {
		l, after := pulls[i].lever, pulls[i].candidate.Simulated
		l.Basis = basis
		f := (*Figures)(nil)
		switch {
		case simulated && after != nil:
			f = &after.Figures
		case !simulated:
			pulls[i].under(s.eval).evaluate(&pulls[i].candidate)
			f = pulls[i].candidate.Predicted
		}
		if f == nil || before == nil {
			continue // neither can say
		}
		l.price(s.problem, before, f)
		if n := pulls[i].candidate.GPUs(); n > s.problem.Machine.GPUs {
			l.GPUsNeeded = n
		}
		s.plan.Levers = append(s.plan.Levers, l)
	}
	return nil
}

// under is the evaluator of a lever: its own where it changes the workload.
func (l *pull) under(usual *evaluator) *evaluator {
	if l.eval != nil {
		return l.eval
	}
	return usual
}

// simulatePulls simulates what levers lead to, each under its own workload.
func (s *search) simulatePulls(pulls []pull) error {
	var usual []*Candidate
	for i := range pulls {
		c, eval := &pulls[i].candidate, pulls[i].under(s.eval)
		eval.rates(c)
		if eval == s.eval {
			usual = append(usual, c)
		} else if err := eval.simulateAll("pricing levers", []*Candidate{c}, levering); err != nil {
			return err
		}
	}
	return s.eval.simulateAll("pricing levers", usual, levering)
}

// levering is the effort of pricing a lever by simulation.
var levering = effort{rollouts: 500_000, stepsMin: 160, stepsMax: 1500}

// price fills in what comes of a lever.
func (l *Lever) price(p *Problem, before, after *Figures) {
	l.StalenessMean, l.StalenessP95 = after.StalenessMean, after.StalenessP95
	l.StalenessChange = after.StalenessMean - before.StalenessMean
	l.PeriodRatio, l.UpdateRatio = after.PeriodS/before.PeriodS, after.UpdateS/before.UpdateS
	l.CostRatio = 1
	if before.CostPerUpdate > 0 {
		l.CostRatio = after.CostPerUpdate / before.CostPerUpdate
	}
	over, _ := p.excess(after)
	l.Keeps = over == 0
}

// keeping says in a word or two whether the lever can be pulled within the budget.
func (l *Lever) keeping() string {
	switch {
	case l.GPUsNeeded > 0 && l.Keeps:
		return fmt.Sprintf("needs %d GPUs", l.GPUsNeeded)
	case l.Keeps:
		return "kept"
	}
	return "broken"
}

// pulls lists the levers of a setting.
func (s *search) pulls(base Candidate) []pull {
	base.Predicted, base.Simulated, base.Uncovered = nil, nil, ""
	var list []pull
	add := func(name, change, holds, note string, turn func(*Candidate)) {
		c := base
		turn(&c)
		list = append(list, pull{lever: Lever{Name: name, Change: change, HoldsFixed: holds, Note: note}, candidate: c})
	}
	s.splitPulls(base, add)
	s.sizePulls(base, add)
	s.syncPulls(base, add, &list)
	s.tailPull(base, &list)
	return list
}

type adder func(name, change, holds, note string, turn func(*Candidate))

// splitPulls move GPUs between the sides, or add some.
func (s *search) splitPulls(base Candidate, add adder) {
	m := s.problem.Machine
	unit := up(m.TrainGPUsUnit, m.GPUsPerReplica)
	move := func(name, holds string, rollout, train int) {
		n := base.RolloutGPUs + rollout
		if n < m.GPUsPerReplica || base.TrainGPUs+train < m.TrainGPUsMin {
			return
		}
		add(name, fmt.Sprintf("%d + %d → %d + %d GPUs", base.RolloutGPUs, base.TrainGPUs, n, base.TrainGPUs+train), holds, "", func(c *Candidate) {
			c.RolloutGPUs, c.TrainGPUs, c.Replicas = n, base.TrainGPUs+train, n/m.GPUsPerReplica
		})
	}
	const split = "GPUs in all, B, q, slots per rollout GPU and so the decode speed of a slot (C moves with the rollout GPUs)"
	move("split", split, unit, -unit)
	move("split", split, -unit, unit)
	const gpus = "B, q, slots per rollout GPU; the other side's GPUs"
	move("gpus", gpus, unit, 0)
	move("gpus", gpus, 0, unit)
}

// sizePulls change batch, queue and concurrency.
func (s *search) sizePulls(base Candidate, add adder) {
	group, m := s.problem.Document.Rollout.GroupSize, s.problem.Machine
	batch := func(n int) {
		if n >= group && n%group == 0 {
			add("batch", fmt.Sprintf("batch %d → %d rollouts", base.BatchRollouts, n), "GPUs, split, C and q (the queue's capacity moves with the batch)", "",
				func(c *Candidate) { c.BatchRollouts = n })
		}
	}
	batch(2 * base.BatchRollouts)
	batch(base.BatchRollouts / 2)
	if base.Policy == theory.PolicyDrop || base.Policy == theory.PolicyBlock {
		to := 1.0
		if base.QueueFactor == 1 {
			to = 2
		}
		add("queue_factor", fmt.Sprintf("queue factor %s → %s", plain(base.QueueFactor), plain(to)), "GPUs, split, C and B", "", func(c *Candidate) { c.QueueFactor = to })
	}
	s.rulePulls(base, add)
	slots := func(n int) {
		if n >= 1 && (m.SlotsMax == 0 || n <= m.SlotsMax) && m.SlotsFixed == 0 && n*base.Replicas >= group {
			add("concurrency", fmt.Sprintf("%d → %d slots a replica", base.SlotsPerReplica, n), "GPUs, split, B and q; the decode speed of a slot follows from the slots beside it", "",
				func(c *Candidate) { c.SlotsPerReplica = n })
		}
	}
	slots(2 * base.SlotsPerReplica)
	slots(base.SlotsPerReplica / 2)
}

// rulePulls change the bound of a rule that has one of its own.
func (s *search) rulePulls(base Candidate, add adder) {
	const holds = "GPUs, split, C and B"
	switch base.Policy {
	case policyBounded:
		for _, to := range []float64{max(2*base.Eta, 0.5), base.Eta / 2} {
			if to > 0 {
				add("rule", fmt.Sprintf("η %s → %s", plain(base.Eta), plain(to)), holds, "", func(c *Candidate) { c.Eta = to })
			}
		}
	case policyThreshold:
		for _, to := range []float64{base.StalenessThreshold + 0.5, base.StalenessThreshold - 0.5} {
			if to > 0 || to == 0 && !base.Partial {
				add("rule", fmt.Sprintf("θ %s → %s", plain(base.StalenessThreshold), plain(to)), holds, "", func(c *Candidate) { c.StalenessThreshold = to })
			}
		}
	}
}

// syncPulls make syncs rarer or shorter.
func (s *search) syncPulls(base Candidate, add adder, list *[]pull) {
	if base.Policy == theory.PolicySynchronous || base.SyncS == 0 {
		return
	}
	add("sync_every", fmt.Sprintf("a sync every %d → %d steps", base.SyncEvery, 2*base.SyncEvery), "everything else", "", func(c *Candidate) { c.SyncEvery *= 2 })
	faster := *s.problem
	whole := faster.Machine.SyncS
	faster.Machine.SyncS = func(rolloutGPUs, trainGPUs int) float64 { return whole(rolloutGPUs, trainGPUs) / 2 }
	if eval, err := newEvaluator(&faster); err == nil {
		*list = append(*list, pull{Lever{Name: "sync_time", Change: fmt.Sprintf("a sync of %.3g → %.3g s", base.SyncS, base.SyncS/2), HoldsFixed: "everything else"}, base, eval})
	}
}

// tailPull caps lengths at their 90th percentile.
func (s *search) tailPull(base Candidate, list *[]pull) {
	p := *s.problem
	group := p.Document.Rollout.GroupSize
	limit := p.Lengths.Quantile(0.9)
	if p.Lengths.TailMultiplier(group) < 1+1e-9 {
		return
	}
	capped, truncated := p.Lengths.Capped(limit)
	l := Lever{Name: "tail", Change: fmt.Sprintf("length cap %d → %d tokens", p.Lengths.Quantile(1), limit),
		HoldsFixed: "GPUs, split, slots and their decode speed, B and q; the train step shortens with the mean length",
		Note:       fmt.Sprintf("M %.2f → %.2f, %.1f %% of rollouts truncated", p.Lengths.TailMultiplier(group), capped.TailMultiplier(group), 100*truncated)}
	p.Lengths = capped
	raw, err := p.Raw.Set(fmt.Sprintf("modelled.length.cap_tokens=%d", limit))
	if err != nil {
		return
	}
	p.Raw = raw // what is simulated is made of the document
	if eval, err := newEvaluator(&p); err == nil {
		*list = append(*list, pull{l, base, eval})
	}
}
