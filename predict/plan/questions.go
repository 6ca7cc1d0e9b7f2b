package plan

import (
	"fmt"
	"math"

	"github.com/headway-rl/headway/observe/report"
)

// Answer is a short answer to a question that people ask of a plan.
type Answer struct {
	// Question is one of next_engine, next_trainer, placement, lending, prefill, routing, sandboxes, judges, teachers, cells.
	Question string `json:"question"`
	// Value is the figure of it, in the unit that Unit names.
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	Text  string  `json:"text"`
}

// readingWorth is the share of engines' time from which other ways of reading prompts are worth a trial.
const readingWorth = 0.1

// gatewayS is the processor time of a token that a gateway passes on (docs/performance-gateway.md). cellCores are those that a
// process has for it: half of a machine's 16, so that tokens come on time.
const (
	gatewayS  = 61e-6
	cellCores = 8
)

// questions answers what people ask, from what the plan has found.
func (s *search) questions() {
	add := func(question string, value float64, unit, format string, args ...any) {
		s.plan.Answers = append(s.plan.Answers, Answer{question, value, unit, report.Capital(fmt.Sprintf(format, args...)) + "."})
	}
	for i, question := range []string{"next_engine", "next_trainer"} {
		if n := &s.plan.Next[i]; n.priced {
			add(question, n.NetPerHour, s.plan.Prices.Currency+" an hour", "%s (%s)", n.words(s.plan.Prices.Currency), n.Basis)
		} else {
			add(question, n.Speedup, "share of updates", "%s (%s)", n.words(""), n.Basis)
		}
	}
	s.placement(add)
	s.reading(add)
	s.services(add)
}

type answerer func(question string, value float64, unit, format string, args ...any)

// placement says whether both sides share GPUs, and whether the trainer should lend its own.
func (s *search) placement(add answerer) {
	a, c := &s.plan.Async, &s.plan.Recommended
	switch {
	case a.Speedup == 0:
		return
	case a.Pays:
		add("placement", a.Speedup, "times", "separate GPUs: an update is %.2f times as fast as on shared ones in turns", a.Speedup)
	default:
		add("placement", a.Speedup, "times", "shared GPUs in turns: separate ones are %.2f times as fast, and stale", a.Speedup)
	}
	if c.Simulated == nil || c.Simulated.Binding == "" {
		return
	}
	if idle := c.Simulated.TrainerIdleRatio; s.plan.Next[0].Speedup < bindsAt {
		add("lending", 0, "share of updates", "no lending: one more engine speeds nothing up, so that the trainer's idle GPUs (%s) have no work", percent(idle))
	} else {
		spare := math.Max(idle-s.problem.Machine.SwitchS/c.Simulated.PeriodS, 0)
		gain := math.Min(spare*float64(c.TrainGPUs)/float64(s.problem.Machine.GPUsPerReplica)*s.plan.Next[0].Speedup, 1)
		if gain < bindsAt {
			add("lending", 0, "share of updates", "no lending: the trainer is idle for %.1f s of a step, and to change over takes %.0f s", idle*c.Simulated.PeriodS, s.problem.Machine.SwitchS)
		} else {
			add("lending", gain, "share of updates", "lending the trainer's idle GPUs to rollouts gains at most %s, the change-over of %.0f s counted", percent(gain), s.problem.Machine.SwitchS)
		}
	}
}

// reading says what prompts take of the engines' time, and what of that a router spares that keeps a group together.
func (s *search) reading(add answerer) {
	m, c := &s.problem.Machine, &s.plan.Recommended
	if m.PrefillS <= 0 {
		return
	}
	active := float64(c.SlotsPerReplica)
	read := active * m.PrefillS / s.eval.tokens
	share := read / (m.StepS(active) + read)
	if share < readingWorth {
		add("prefill", share, "share of engines' time", "no engines for prefill alone: reading prompts takes %s of the engines' time", percent(share))
	} else {
		add("prefill", share, "share of engines' time", "reading prompts takes %s of the engines' time if no cache has them: simulate modelled.prefill.cache_tokens, then prefill apart (docs/serving.md)", percent(share))
	}
	group := float64(s.problem.Document.Rollout.GroupSize)
	spread := math.Min(float64(c.Replicas), group) // at most so many engines read a group's prompt
	prompt := s.problem.Document.Hardware.PromptTokens / m.PromptTokens
	gain := share * prompt * (spread - 1) / group
	if gain < bindsAt {
		add("routing", gain, "share of engines' time", "any router: keeping a group on one engine spares %.1f %% of the engines' time", 100*gain)
	} else {
		add("routing", gain, "share of engines' time", "a router that keeps a group on one engine spares at most %.1f %% of the engines' time, beside one that spreads", 100*gain)
	}
}

// services counts sandboxes, judges, scorers and cells by Little's law.
func (s *search) services(add answerer) {
	d, c, f := &s.problem.Document.Modelled, &s.plan.Recommended, s.plan.Recommended.Best()
	if f.PeriodS <= 0 {
		return
	}
	waste := math.Max(f.WasteShare, 1-s.eval.acceptance()) // which is in it, but for the synchronous closed form
	rate := float64(c.BatchRollouts) / f.PeriodS / math.Max(1-waste, 1e-9)
	running := math.Min(rate*(s.eval.tokens/c.DecodeTokensPerS+s.eval.meanS), float64(c.Concurrency()))
	if d.Sandbox.Start.MeanS > 0 || d.Sandbox.Limit > 0 || d.Tools.Calls > 0 || s.plan.Prices.CPUsPerSandbox > 0 {
		add("sandboxes", float64(c.Concurrency()), "sandboxes", "sandboxes: %.0f at work on average, one for each of %d slots at most, %.3g starts a second (docs/sandbox-count.md)", running, c.Concurrency(), rate)
	}
	if judge := d.Verifier.Time.MeanS; judge > 0 {
		busy := rate * judge
		need := math.Ceil(busy + 2*math.Sqrt(busy)) // two deviations of a Poisson number
		add("judges", need, "verdicts at once", "judges: %.3g verdicts at once on average, %.0f with room for chance", busy, need)
	}
	s.scoring(add, rate)
	tokens := rate * s.eval.tokens
	cores := tokens * gatewayS
	if cells := math.Ceil(cores/cellCores) - 1; cells < 1 {
		add("cells", 0, "cells", "no cell: %.0f tokens/s take %.2g cores of the control plane if all pass its gateway (docs/scale.md)", tokens, cores)
	} else {
		add("cells", cells, "cells", "%s beside the control plane's own: %.0f tokens/s take %.2g cores if all pass a gateway, %d in each process (docs/scale.md)",
			report.Counted(int(cells), "cell"), tokens, cores, cellCores)
	}
}

// nextText is the value of the next unit of either side, in a line or two.
func (p *Plan) nextText() string {
	if len(p.Next) < 2 {
		return ""
	}
	engine, trainer := &p.Next[0], &p.Next[1]
	text := report.Capital(engine.words(p.Prices.Currency)) + fmt.Sprintf("; next %s for training: %s", report.Counted(trainer.GPUs, "GPU"), signed(100*trainer.Speedup, 0, " %"))
	if trainer.priced {
		text += fmt.Sprintf(", %s, %s", signed(trainer.NetPerHour, 2, ""), signed(trainer.CostPer1000Change, 2, ""))
	}
	return text + "."
}

// answersText are all answers, and what to measure first.
func (p *Plan) answersText() []string {
	var list []string
	for _, a := range p.Answers {
		list = append(list, a.Text)
	}
	if text := p.uncertainText(); text != "" {
		list = append(list, text)
	}
	return list
}

// worthKnowing are answers that ask for a decision, beside those that have a line of their own.
func (p *Plan) worthKnowing() []string {
	var list []string
	for _, a := range p.Answers {
		if a.Question == "prefill" && a.Value >= readingWorth || a.Question == "cells" && a.Value > 0 || a.Question == "judges" {
			list = append(list, a.Text)
		}
	}
	return list
}
