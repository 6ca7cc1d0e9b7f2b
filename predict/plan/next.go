package plan

import (
	"fmt"
	"math"

	"github.com/headway-rl/headway/observe/report"
)

// Next is what one more unit of a side would bring: the finite difference of the plan's objective.
type Next struct {
	// Side is rollout or train, GPUs the size of one more engine or unit of the trainer.
	Side string `json:"side"`
	GPUs int    `json:"gpus"`
	// Speedup is by what share noise-adjusted updates come more often within the budget; 0 where nothing that was tried is faster.
	Speedup float64 `json:"speedup"`
	// WorthPerHour are those updates at today's cost of one, RentPerHour is what the unit costs, NetPerHour the
	// difference. All are 0 without prices.
	WorthPerHour float64 `json:"worth_per_hour"`
	RentPerHour  float64 `json:"rent_per_hour"`
	NetPerHour   float64 `json:"net_per_hour"`
	// CostPer1000Change is what 1,000 trained rollouts then cost more, with their noise.
	CostPer1000Change float64 `json:"cost_per_1000_rollouts_change"`
	// Basis is closed form or simulated.
	Basis string `json:"basis"`
	// To is the setting that would then be best.
	To Setting `json:"setting"`

	priced bool
}

// next prices one more engine and one more unit of the trainer.
func (s *search) next() error {
	m, c := &s.problem.Machine, &s.plan.Recommended
	for _, side := range []struct {
		name           string
		rollout, train int
	}{{"rollout", m.GPUsPerReplica, 0}, {"train", 0, m.TrainGPUsUnit}} {
		found, err := s.onSplit(c.RolloutGPUs+side.rollout, c.TrainGPUs+side.train)
		if err != nil {
			return err
		}
		s.plan.Next = append(s.plan.Next, s.valued(side.name, side.rollout+side.train, found))
	}
	return nil
}

// onSplit is the best setting of a split that keeps the budget: the recommended one moved there, or what closed forms
// find. Both are simulated where the recommended one is. It is nil for none.
func (s *search) onSplit(rollout, train int) (*Candidate, error) {
	p := s.problem
	moved := s.plan.Recommended
	moved.Predicted, moved.Simulated, moved.Uncovered = nil, nil, ""
	moved.RolloutGPUs, moved.TrainGPUs, moved.Replicas = rollout, train, rollout/p.Machine.GPUsPerReplica
	s.eval.evaluate(&moved)
	tried := []Candidate{moved}
	g := s.grid
	g.splits = []split{{rollout, train}}
	list := g.candidates(s.eval)
	s.eval.evaluateAll(list)
	if i := p.best(list); i >= 0 && list[i].Setting != moved.Setting {
		tried = append(tried, list[i])
	}
	if p.Simulation != nil && s.plan.Recommended.Simulated != nil {
		if err := s.eval.simulateAll("pricing the next GPUs", addresses(tried), thorough); err != nil {
			return nil, err
		}
	}
	if i := p.best(tried); i >= 0 {
		return &tried[i], nil
	}
	return nil, nil
}

// valued turns a setting on one more unit into money. One that is no faster leaves the unit idle.
func (s *search) valued(side string, gpus int, found *Candidate) Next {
	p, c := s.problem, &s.plan.Recommended
	at := c.Best()
	n := Next{Side: side, GPUs: gpus, Basis: "closed form", To: c.Setting, priced: p.priced()}
	if c.Simulated != nil {
		n.Basis = "simulated"
	}
	rented := c.Setting
	if side == "rollout" {
		rented.RolloutGPUs += gpus
	} else {
		rented.TrainGPUs += gpus
	}
	if found != nil {
		if speedup := at.UpdateS/found.Best().UpdateS - 1; speedup > tie {
			n.Speedup, n.To, rented = speedup, found.Setting, found.Setting
		}
	}
	if !n.priced || at.PeriodS <= 0 {
		return n
	}
	// Fewer sandboxes than now are no gain of the unit: this side could do with fewer too.
	rented.slots = max(rented.Concurrency(), c.Concurrency())
	now := p.costPerHour(c.Setting)
	n.WorthPerHour, n.RentPerHour = now*n.Speedup, p.costPerHour(rented)-now
	n.NetPerHour = n.WorthPerHour - n.RentPerHour
	n.CostPer1000Change = 1000 * at.CostPerStep / float64(c.BatchRollouts) * ((1+n.RentPerHour/now)/(1+n.Speedup) - 1)
	return n
}

// words are a unit's value in few.
func (n *Next) words(currency string) string {
	what := "engine"
	if n.Side == "train" {
		what = "trainer unit"
	}
	text := fmt.Sprintf("next %s (%s): %s updates", what, report.Counted(n.GPUs, "GPU"), signed(100*n.Speedup, 0, " %"))
	if !n.priced {
		return text
	}
	return fmt.Sprintf("%s, net %s %s/h, %s per 1,000 rollouts", text, signed(n.NetPerHour, 2, ""), currency, signed(n.CostPer1000Change, 2, ""))
}

// signed prints a figure with its sign.
func signed(x float64, decimals int, unit string) string {
	if math.Abs(x) < math.Pow(10, -float64(decimals))/2 {
		return "0" + unit
	}
	return fmt.Sprintf("%+.*f%s", decimals, x, unit)
}
