package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/headway-rl/headway/observe/attribution"
	"github.com/headway-rl/headway/observe/report"
)

// First names the setting to run and its figures, then the alternatives.
func (p *Plan) First() report.Answer {
	c := &p.Recommended
	a := report.Answer{Verdict: p.verdict(), Rest: "--full has levers, frontier and reasons, --write FILE the document.", Kept: 2}
	do := "Run " + c.words() + "."
	if !p.Met {
		do = "The closest: " + c.words() + "."
	}
	a.Advice = append(a.Advice, report.Advice{Do: do, Buys: p.gives(), Why: p.bindingText()})
	for _, short := range p.Shortfall {
		a.Notes = append(a.Notes, short.Text)
	}
	if text := p.teachersText(); text != "" {
		a.Notes = append(a.Notes, text)
	}
	if text := p.nextText(); text != "" {
		a.Notes = append(a.Notes, text)
	}
	if text := p.uncertainText(); text != "" {
		a.Notes = append(a.Notes, text)
	}
	if text := p.sizeText(); text != "" {
		a.Notes = append(a.Notes, text+".")
	}
	a.Notes = append(a.Notes, p.worthKnowing()...)
	if p.Assumed != "" {
		a.Notes = append(a.Notes, report.Capital(p.Assumed)+".")
	}
	for _, alternative := range p.Alternatives {
		a.Advice = append(a.Advice, report.Advice{Do: "Or " + alternative.Name + ": " + alternative.words(), Buys: alternative.Text})
	}
	for _, w := range p.Warnings {
		a.Notes = append(a.Notes, w+".")
	}
	return a
}

// verdict is whether asynchrony pays on these GPUs for this workload.
func (p *Plan) verdict() string {
	budget := p.budgetText()
	if p.Assumed != "" {
		budget += " (assumed)"
	}
	text := fmt.Sprintf("%s, %s tokens a response; budget: %s.", p.machine(), report.Figure(p.Workload.MeanTokens, 0), budget)
	switch {
	case !p.Met:
		return "NO SETTING KEEPS THE BUDGET. " + text
	case p.Async.Pays:
		return fmt.Sprintf("Asynchrony pays: %.2f times as fast as synchronous. %s", p.Async.Speedup, text)
	case p.Async.Speedup > 0:
		return fmt.Sprintf("Async will not pay: %.2f times as fast as synchronous. %s", p.Async.Speedup, text)
	}
	return text
}

// words are a setting in few.
func (s Setting) words() string {
	text := fmt.Sprintf("%d rollout + %d train GPUs, batch %d, queue %s", s.RolloutGPUs, s.TrainGPUs, s.BatchRollouts, s.Rule())
	if s.QueueFactor > 0 {
		text += " q " + plain(s.QueueFactor)
	}
	text += fmt.Sprintf(", %d × %d slots", s.Replicas, s.SlotsPerReplica)
	if s.SyncEvery > 1 {
		text += fmt.Sprintf(", a sync every %d steps", s.SyncEvery)
	}
	return text
}

// gives are the figures that the recommended setting is for.
func (p *Plan) gives() string {
	f := p.Recommended.Best()
	parts := []string{fmt.Sprintf("staleness %s (p95 %d)", report.Figure(f.StalenessMean, 2), f.StalenessP95), fmt.Sprintf("an update every %s s", report.Figure(f.PeriodS, 1))}
	if p.priced() {
		cost := fmt.Sprintf("%s %s a step", report.Figure(f.CostPerStep, 2), p.Prices.Currency)
		if p.PriceAssumed {
			cost += fmt.Sprintf(" at an assumed %s a GPU hour (prices.gpu_hour)", plain(p.Prices.GPUHour))
		}
		parts = append(parts, cost)
	}
	if f.WasteShare >= 0.0005 {
		parts = append(parts, report.Share(f.WasteShare)+" of groups dropped")
	}
	return strings.Join(parts, ", ")
}

// bindingWords say what a binding side means.
var bindingWords = map[string]string{
	"train": "the trainer binds", "sync": "weight syncs bind", "rollout": "generation binds", "admission": "admission binds, for the budget's sake",
	"environment": "the environment binds", "verifier": "the verifier binds", "scorer": "scorers bind", "sandbox": "sandboxes bind", "prefill": "reading prompts binds", "validation": "evaluations bind",
}

// bindingText says what binds the recommended setting, as its simulation has it; "" where it was not simulated.
func (p *Plan) bindingText() string {
	s := p.Recommended.Simulated
	if s == nil || s.Engines == nil {
		return ""
	}
	sides := attribution.Binding(s.Binding, *s.Engines)
	words := cmp.Or(bindingWords[s.Binding], s.Binding+" binds")
	if len(sides) > 1 {
		words = "the rule and " + strings.TrimSuffix(strings.TrimSuffix(words, " binds"), " bind") + " bind"
	}
	return fmt.Sprintf("%s: engines %s, trainer %s", words, longestWait(s.Engines), longestWait(s.Trainer))
}

// longestWait says what somebody waited for the longest, and for how much of the time, in the words of headway simulate.
func longestWait(idle *attribution.Idle) string {
	longest := slices.MaxFunc(idle.Reasons(), func(a, b attribution.Reason) int { return cmp.Compare(a.Share, b.Share) })
	if longest.Share < 0.005 {
		return "never idle"
	}
	return longest.Name + " " + percent(longest.Share)
}
