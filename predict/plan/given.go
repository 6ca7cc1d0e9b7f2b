package plan

import (
	"fmt"
)

// unplanned are keys of a simulation that a plan chooses or derives itself, with the
// ones that say the same to a plan.
var unplanned = []struct{ key, instead string }{
	{"modelled.train.step_s", "hardware.train_tokens_per_s_per_gpu has a measured trainer's speed"},
	{"modelled.train.utilization", "the split of the GPUs decides it"},
	{"modelled.train.throughput_tokens_per_s", "hardware.train_tokens_per_s_per_gpu has a measured trainer's speed"},
	{"modelled.decode_tokens_per_s", "hardware.rollout_tokens_per_s_per_gpu with hardware.slots_per_gpu, or modelled.decode_curve, has measured speeds"},
	{"modelled.throughput_tokens_per_s", "hardware.rollout_tokens_per_s_per_gpu with hardware.slots_per_gpu has measured speeds"},
	{"rollout.concurrency", "hardware.slots_per_gpu fixes the rollouts at once on a GPU"},
}

// given warns of what the document gives and the plan does not go by, and of a
// budget that it does not give.
func (s *search) given() {
	p := s.problem
	warn := func(format string, args ...any) {
		s.plan.Warnings = append(s.plan.Warnings, fmt.Sprintf(format, args...))
	}
	if p.Machine.unsplit != "" {
		warn("%s", p.Machine.unsplit)
	}
	b := p.Document.Budget
	if b.StalenessMean == 0 && b.StalenessP95 == 0 {
		warn("nothing bounds staleness: the budget has neither staleness_mean nor staleness_p95")
	}
	for _, u := range unplanned {
		if p.Raw.Given(u.key) {
			warn("%s is given and not planned with: %s", u.key, u.instead)
		}
	}
	if p.Raw.Given("train.batch") && len(p.Document.Search.Batch) == 0 {
		warn("train.batch %d is tried among other batches: search.batch lists the only ones to try", p.Document.Train.Batch)
	}
}

// assume says what stands in for a budget that was not given.
func (s *search) assume() {
	p, b := s.problem, s.problem.Document.Budget
	if p.Raw.Given("budget.staleness_mean") || b.StalenessMean == 0 {
		return
	}
	s.plan.Assumed = fmt.Sprintf("no budget was given: a mean staleness of at most %s versions is taken, the lower end of what is published as tolerable (4 to 8); budget.staleness_mean sets another", plain(b.StalenessMean))
}

// pins says of admission by counts what it does not bound.
func (s *search) pins() {
	c := &s.plan.Recommended
	f := c.Best()
	if c.Policy != policyBounded || float64(f.StalenessP95) <= c.Eta {
		return
	}
	s.plan.Why = append(s.plan.Why, fmt.Sprintf("Bounded η %s pins the mean staleness and not that of a group: its p95 is %d, its p99 %d; budget.staleness_p95 bounds those.", plain(c.Eta), f.StalenessP95, f.StalenessP99))
}
