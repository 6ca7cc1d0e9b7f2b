package plan

import (
	"fmt"
	"math"

	"github.com/headway-rl/headway/predict/theory"
)

// Finding is a rule of thumb, whether it holds here, and when it fails.
type Finding struct {
	// Name is one of queue_factor_one, rollout_bound, tail, batch_against_staleness.
	Name string `json:"name"`
	// Rule is the rule in a few words.
	Rule string `json:"rule"`
	// Holds says whether it holds for this plan; Evidence by which figures.
	Holds    bool   `json:"holds"`
	Evidence string `json:"evidence"`
	// Fails is the condition under which the rule fails.
	Fails string `json:"fails_when"`
}

// findings states the rules of thumb of docs/theory.md with their conditions.
func (s *search) findings() {
	s.plan.Findings = []Finding{s.queueFinding(), s.sideFinding(), s.tailFinding(), s.batchFinding()}
}

// bestOf is the best predicted setting among those that qualify, nil for none.
func (s *search) bestOf(qualifies func(*Candidate) bool) *Candidate {
	var list []Candidate
	for i := range s.ranked {
		if s.ranked[i].Predicted != nil && qualifies(&s.ranked[i]) {
			list = append(list, s.ranked[i])
		}
	}
	if i := s.problem.best(list); i >= 0 {
		return &list[i]
	}
	return nil
}

// queueFinding: set q = 1.
func (s *search) queueFinding() Finding {
	f := Finding{Name: "queue_factor_one", Rule: "set the queue factor to 1",
		Fails: "near ρ = 1 with uneven arrivals, where a queue of one batch lets the trainer starve; newest first with q = 2 keeps q = 1's staleness without that"}
	one := s.bestOf(func(c *Candidate) bool { return c.QueueFactor == 1 })
	more := s.bestOf(func(c *Candidate) bool { return c.QueueFactor > 1 })
	chosen := s.plan.Recommended
	newest := chosen.Select == theory.SelectNewest
	switch {
	case one == nil && more == nil:
		f.Evidence = "by closed form no setting keeps the budget, so none can be compared"
	case more == nil:
		f.Holds, f.Evidence = true, "no larger queue keeps the budget"
	case one == nil:
		f.Evidence = "no setting with q = 1 keeps the budget"
	default:
		ratio := one.Predicted.UpdateS / more.Predicted.UpdateS
		f.Holds = ratio <= 1+tie && !newest
		f.Evidence = fmt.Sprintf("within the budget the best with q = 1 takes %.3f of the time of the best with a larger queue, by closed form", ratio)
	}
	if newest {
		f.Evidence += fmt.Sprintf("; of all that was simulated, newest first with q = %s does best", plain(chosen.QueueFactor))
	}
	return f
}

// sideFinding: prefer rollout-bound.
func (s *search) sideFinding() Finding {
	c := &s.plan.Recommended
	m := s.problem.Machine
	response := m.TrainTokensPerSPerGPU * s.eval.tokens / (s.eval.tokens + m.PromptTokens)
	rollout := float64(c.SlotsPerReplica) * s.eval.slotSpeed(float64(c.SlotsPerReplica)) / float64(m.GPUsPerReplica)
	beta := response / rollout
	critical := theory.BetaCritical(max(c.QueueFactor, 1))
	f := Finding{Name: "rollout_bound", Rule: "at the same speed prefer the rollout-bound side", Holds: beta >= critical,
		Fails: "where a train GPU is far slower than a rollout GPU: β* = c_T/c_R below β_crit(q), 0.5 at q = 1 and 0.067 at q = 2"}
	f.Evidence = fmt.Sprintf("β* = %.0f/%.0f tokens/s = %.3g, β_crit(%s) = %.3g; the recommended setting is %s", response, rollout, beta, plain(max(c.QueueFactor, 1)), critical, c.regime())
	return f
}

// tailFinding: watch the tail.
func (s *search) tailFinding() Finding {
	p := s.problem
	group := p.Document.Rollout.GroupSize
	tail := p.Lengths.TailMultiplier(group)
	f := Finding{Name: "tail", Rule: "watch the tail: the length cap is its lever", Holds: tail > 1.05,
		Fails: "where lengths are nearly equal, or where truncated rollouts are the ones that are right"}
	f.Evidence = fmt.Sprintf("M = %.2f", tail)
	for _, q := range []float64{0.95, 0.9, 0.8} {
		limit := p.Lengths.Quantile(q)
		capped, truncated := p.Lengths.Capped(limit)
		if limit < p.Lengths.Quantile(1) {
			f.Evidence += fmt.Sprintf("; M(%d tokens) = %.2f with %.0f %% truncated", limit, capped.TailMultiplier(group), 100*truncated)
		}
	}
	return f
}

// batchFinding: trade batch against staleness.
func (s *search) batchFinding() Finding {
	chosen := s.plan.Recommended.BatchRollouts
	f := Finding{Name: "batch_against_staleness", Rule: "a larger batch reaches a lower staleness at a slower noise-adjusted update",
		Fails: "where the batch is held to its smallest useful size, or where noise does not fall with its root"}
	smaller := s.bestOf(func(c *Candidate) bool { return c.BatchRollouts < chosen })
	larger := s.leastStale(func(c *Candidate) bool { return c.BatchRollouts >= 2*chosen })
	own := s.leastStale(func(c *Candidate) bool { return c.BatchRollouts == chosen })
	f.Holds = larger != nil && own != nil && larger.Predicted.StalenessMean < own.Predicted.StalenessMean
	f.Evidence = fmt.Sprintf("batch %d is recommended", chosen)
	if f.Holds {
		f.Evidence += fmt.Sprintf("; the freshest within a tenth of its utilization has staleness %.2f, with batch %d %.2f at %.2f times the update time",
			own.Predicted.StalenessMean, larger.BatchRollouts, larger.Predicted.StalenessMean, larger.Predicted.UpdateS/own.Predicted.UpdateS)
	}
	if smaller == nil {
		f.Evidence += "; no smaller one keeps the budget"
	}
	return f
}

// leastStale is the freshest predicted setting that uses the GPUs as the
// recommended one does and qualifies, nil for none.
func (s *search) leastStale(qualifies func(*Candidate) bool) *Candidate {
	at := &s.plan.Recommended
	rho := at.Best().Utilization
	var found *Candidate
	for i := range s.ranked {
		c := &s.ranked[i]
		if c.Predicted == nil || c.RolloutGPUs != at.RolloutGPUs || c.TrainGPUs != at.TrainGPUs || math.Abs(c.Predicted.Utilization/rho-1) > 0.1 || !qualifies(c) {
			continue
		}
		if found == nil || c.Predicted.StalenessMean < found.Predicted.StalenessMean {
			found = c
		}
	}
	return found
}

// Mode is the advice on verl's four modes.
type Mode struct {
	// Number is 1 to 4 and Name verl's name for it.
	Number int    `json:"mode"`
	Name   string `json:"name"`
	// Settings are its knobs, Why what speaks for it here.
	Settings string `json:"settings"`
	Why      string `json:"why"`
}

// smallGPUs is the size up to which verl advises its first mode.
const smallGPUs = 16

// mode advises: 1 small and stable, 2 throughput without staleness, 3 and 4 large.
func (s *search) mode() {
	budget, m := s.problem.stalenessBudget(), s.problem.Machine
	tail := s.plan.Workload.TailMultiplier
	switch {
	case m.GPUs <= smallGPUs && !s.plan.Async.Pays:
		s.plan.Mode = Mode{1, "on-policy pipeline", "trigger_parameter_sync_step 1, staleness_threshold 0",
			fmt.Sprintf("small (%d GPUs) and asynchrony gains less than a tenth: the stable choice", m.GPUs)}
	case budget < 1:
		s.plan.Mode = Mode{2, "stream off-policy pipeline", "trigger_parameter_sync_step 4, staleness_threshold 0",
			fmt.Sprintf("the budget of %s leaves no groups from before the last sync: throughput without that staleness", plain(budget))}
	case tail > 1.5:
		s.plan.Mode = Mode{4, "async stream with partial rollout", "trigger_parameter_sync_step 4, staleness_threshold 0.5, partial_rollout true",
			fmt.Sprintf("large, and with M = %.2f a sync that waits for what is in flight waits for stragglers: they are interrupted and resumed", tail)}
	default:
		s.plan.Mode = Mode{3, "async stream with staleness", "trigger_parameter_sync_step 4, staleness_threshold 0.5, partial_rollout false",
			fmt.Sprintf("large, and with M = %.2f little is gained by interrupting rollouts at a sync", tail)}
	}
}
