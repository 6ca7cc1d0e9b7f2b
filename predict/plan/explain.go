package plan

import (
	"fmt"
	"strings"

	"github.com/headway-rl/headway/observe/report"
	"github.com/headway-rl/headway/predict/theory"
)

// Hosted compares generating on rented GPUs with a hosted engine's price.
type Hosted struct {
	// PerMillionTokens is the hosted price of a million generated tokens. OwnPerMillionTokens is their cost on the rollout GPUs, idle time and waste included. Sandboxes cost the same either way and are in neither.
	PerMillionTokens    float64 `json:"hosted_per_million_tokens"`
	OwnPerMillionTokens float64 `json:"own_per_million_tokens"`
	// CostPerStep is a step's with hosted rollouts and the plan's own trainer and sandboxes, of as many generated tokens.
	CostPerStep float64 `json:"cost_per_step"`
	// Cheaper says that hosted generation is.
	Cheaper bool   `json:"cheaper"`
	Text    string `json:"text"`
}

// hosted compares prices where one was given.
func (s *search) hosted() error {
	prices := s.problem.Document.Prices
	if prices.HostedPerMillionTokens == 0 {
		return nil
	}
	c, f := &s.plan.Recommended, s.plan.Recommended.Best()
	generated := float64(c.BatchRollouts) * s.eval.tokens / max(1-f.WasteShare, 1e-9) // a step
	// Sandboxes run whoever generates: only the GPUs are saved.
	rollout := f.PeriodS / 3600 * s.problem.rolloutGPUsPerHour(c.Setting)
	h := &Hosted{PerMillionTokens: prices.HostedPerMillionTokens, OwnPerMillionTokens: 1e6 * rollout / generated}
	h.CostPerStep = f.CostPerStep - rollout + generated/1e6*prices.HostedPerMillionTokens
	h.Cheaper = h.PerMillionTokens < h.OwnPerMillionTokens
	word := "more expensive"
	if h.Cheaper {
		word = "cheaper"
	}
	h.Text = fmt.Sprintf("A million generated tokens costs %s %s on the rollout GPUs and %s hosted: hosted is %s (a step %s instead of %s), if it serves your own weights and syncs them as fast.",
		number(h.OwnPerMillionTokens), prices.Currency, number(h.PerMillionTokens), word, number(h.CostPerStep), number(f.CostPerStep))
	s.plan.Hosted = h
	return nil
}

// explain says what speaks for the recommended setting.
func (s *search) explain() {
	c, f := &s.plan.Recommended, s.plan.Recommended.Best()
	add := func(format string, args ...any) { s.plan.Why = append(s.plan.Why, fmt.Sprintf(format, args...)) }
	if !s.plan.Met {
		_, key := s.problem.excess(&f)
		add("No setting keeps the budget; this one comes closest, and misses budget.%s.", key)
	} else if s.plan.Prefer == "cost" {
		add("Of the settings that keep the budget it has the cheapest noise-adjusted update.")
	} else {
		add("Of the settings that keep the budget it has the fastest noise-adjusted update.")
	}
	limit := s.problem.Machine.StepLimit(float64(c.SlotsPerReplica))
	add("It is %s: %d replicas of %s decode up to %d rollouts at once, at %.0f tokens/s each with all slots at work (limit: %s); the trainer takes %.3g s for %d rollouts.",
		c.regime(), c.Replicas, report.Counted(s.problem.Machine.GPUsPerReplica, "GPU"), c.ConcurrencyRollouts, c.DecodeTokensPerS, limit, c.StepS, c.BatchRollouts)
	if text := s.plan.sizeText(); text != "" {
		add("%s.", text)
	}
	var binding []string
	for _, b := range s.plan.Binding {
		if b.Binds {
			binding = append(binding, fmt.Sprintf("%s (%.1f %% slower for it)", strings.ReplaceAll(b.Name, "_", " "), 100*(1/b.ObjectiveRatio-1)))
		}
	}
	if text := s.plan.bindingText(); text != "" {
		add("%s.", report.Capital(text))
	}
	if c.Predicted == nil {
		add("No constraint was relaxed under its rule: only settings with a closed form are ranked again.")
	} else if len(s.plan.Binding) == 0 {
		add("What binds is not ranked: by closed form no setting keeps the budget, only rules that were simulated do.")
	} else if len(binding) > 0 {
		add("What binds: %s.", strings.Join(binding, ", "))
	} else {
		add("No constraint binds by more than half a percent.")
	}
	if c.Predicted == nil && c.Simulated != nil {
		add("No closed form covers %s; its figures are simulated.", c.Rule())
	}
	if idle := c.GPUs(); idle < s.problem.Machine.GPUs {
		add("%d of %d GPUs are used: of what was compared nothing that uses more is faster by half a percent.", idle, s.problem.Machine.GPUs)
	}
	if c.Policy == theory.PolicyMax {
		add("Policy max discards what is slow: lengths trained on are off by %.1f %%.", 100*f.LengthBias)
	}
}

// compared says what one setting gives and costs against another.
func compared(f, at Figures, priced bool) string {
	parts := []string{
		fmt.Sprintf("staleness %.2f instead of %.2f", f.StalenessMean, at.StalenessMean),
		fmt.Sprintf("an update %s", change(f.UpdateS/at.UpdateS, "slower", "faster")),
	}
	if priced && at.CostPerUpdate > 0 {
		parts = append(parts, "and "+change(f.CostPerUpdate/at.CostPerUpdate, "more expensive", "cheaper"))
	}
	return strings.Join(parts, ", ")
}

// change words a ratio.
func change(ratio float64, more, less string) string {
	switch {
	case ratio > 1.005:
		return fmt.Sprintf("%.0f %% %s", 100*(ratio-1), more)
	case ratio < 0.995:
		return fmt.Sprintf("%.0f %% %s", 100*(1-ratio), less)
	}
	return "as " + strings.TrimSuffix(strings.TrimSuffix(less, "er"), "r")
}
