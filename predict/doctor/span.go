package doctor

import (
	"fmt"
	"math"
	"slices"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/loop"
)

const (
	keyMeasured = "steps.measured"
	keySteps    = "trainer.steps"
	keyEvaluate = "modelled.evaluate.occupies"
	keyDrift    = "rollout.drift.length_factor"
	keyLosses   = "failures.engine_plan"
	keyMTBF     = "modelled.failures.engine_mtbf_s"
)

// stoppedMuch is the share of time from which on evaluations, or lost engines, are a finding.
const stoppedMuch = 0.1

var spanChecks = []check{
	{Kind{
		Code: "run-too-short", Severities: []Severity{Warning}, Keys: []string{keyMeasured, keySteps},
		When:  "the queue needs more steps to settle than a simulation measures, or a run has: its figures are those of its start",
		Known: "closed form: about (q−1)²·G steps near ρ = 1, a few staleness times elsewhere",
	}, (*examination).runTooShort},
	{Kind{
		Code: "evaluation-stops", Severities: []Severity{Warning}, Keys: []string{keyEvaluate},
		When:  "evaluations take more than 10 % of the time of the engines or the trainer that they stop",
		Known: "arithmetic on the modelled times: `modelled.evaluate.time_s`, or what its prompts take in all slots, against `every` train periods of t_step·max(1, 1/ρ)",
	}, (*examination).evaluationStops},
	{Kind{
		Code: "drift-crosses", Severities: []Severity{Warning, Info}, Keys: []string{keyDrift},
		When:  "responses grow or shrink over the run: a warning where that takes it across ρ = 1, and what binds changes sides",
		Known: "arithmetic: with a constant train step, ρ in rollouts falls as lengths grow, capped as they are; with `step_by: tokens` both sides slow alike",
	}, (*examination).driftCrosses},
	{Kind{
		Code: "engines-lost", Severities: []Severity{Error, Warning}, Keys: []string{keyLosses, keyMTBF},
		When:  "every engine is lost for good: an error; engines are gone for more than 10 % of the time: a warning",
		Known: "arithmetic: losses with `down_s` 0 over all engines; down time against down time and the time between losses",
	}, (*examination).enginesLost},
}

func (e *examination) runTooShort() {
	p, ok := e.predict()
	if !ok || e.rules.Policy != loop.PolicyDrop || !e.plain() {
		return
	}
	for _, window := range []struct {
		key, what string
		steps     int
	}{{keyMeasured, "steps measured", e.document.Steps.Measured}, {keySteps, "steps of a run", e.document.Trainer.Steps}} {
		if float64(window.steps) >= p.SettlingSteps {
			continue
		}
		f := e.add(Warning, window.key, ClosedForm)
		f.What = fmt.Sprintf("%d %s are fewer than the %s the queue needs to settle", window.steps, window.what, short(p.SettlingSteps))
		f.Why = fmt.Sprintf("at an effective ρ of %s and q = %s the queue's stock wanders that long before it has been everywhere", short(p.Utilization), short(e.setting.QueueFactor))
		f.Do = fmt.Sprintf("%s of several times %.0f, or a smaller queue.factor, which settles with (q−1)²", window.key, p.SettlingSteps)
		f.Figures = Figures{{"settling_steps", p.SettlingSteps}, {"steps", float64(window.steps)}}
	}
}

// roughPeriodS is t_step·max(1, 1/ρ), where the document gives speeds.
func (e *examination) roughPeriodS() (seconds float64, ok bool) {
	if e.setting == nil || !(e.setting.StepS > 0) || !(e.setting.Utilization > 0) {
		return 0, false
	}
	return e.setting.StepS * max(1, 1/e.setting.Utilization), true
}

func (e *examination) evaluationStops() {
	period, ok := e.roughPeriodS()
	v := e.document.Evaluate
	if !ok || v.Every == 0 || e.document.Modelled.Evaluate.Occupies != "engines" && e.document.Modelled.Evaluate.Occupies != "trainer" {
		return
	}
	time := e.document.Modelled.Evaluate.TimeS
	if time == 0 {
		rate := float64(e.rules.Concurrency()) * e.setting.DecodeTokensPerS / e.setting.Lengths.Mean()
		time = float64(v.Prompts) / rate
	}
	share := time / (time + float64(v.Every)*period)
	if share <= stoppedMuch {
		return
	}
	f := e.add(Warning, keyEvaluate, Arithmetic)
	f.What = fmt.Sprintf("evaluations stop the %s in about %s of the time", e.document.Modelled.Evaluate.Occupies, percent(share))
	f.Why = fmt.Sprintf("one takes about %s s, after every %s of %s s", short(time), plural(float64(v.Every), "train period"), short(period))
	f.Do = fmt.Sprintf("evaluate.every of at least %.0f, fewer evaluate.prompts, or engines of their own", math.Ceil(time*(1/stoppedMuch-1)/period))
	f.Figures = Figures{{"stopped_share", share}, {"evaluation_s", time}, {"period_s", period}}
}

func (e *examination) driftCrosses() {
	d := e.document.Rollout.Drift
	if d.Steps == 0 || d.LengthFactor == 0 || d.LengthFactor == 1 || e.setting == nil || e.document.Modelled.Train.StepBy == "tokens" {
		return
	}
	before := e.setting.Utilization * e.document.Modelled.Filter.Acceptance
	lengths := e.setting.Lengths.Distribution()
	limit := math.Inf(1)
	if e.document.Modelled.Length.CapTokens > 0 {
		limit = float64(e.document.Modelled.Length.CapTokens)
	}
	mean := 0.0
	for i := range lengths.Len() {
		tokens, p := lengths.At(i)
		mean += p * min(tokens*d.LengthFactor, limit)
	}
	growth := mean / e.setting.Lengths.Mean()
	after := before / growth
	severity := Info
	if (before-1)*(after-1) < 0 {
		severity = Warning
	}
	f := e.add(severity, keyDrift, Arithmetic)
	f.What = fmt.Sprintf("responses become %s times as long: ρ goes from %s to %s", short(growth), short(before), short(after))
	f.Why = "engines finish fewer rollouts a second, and the train step's time stays"
	if severity == Warning {
		f.Why += "; the run changes from one side of ρ = 1 to the other, and with it what a GPU more on either side buys"
		f.Do = "choose the split for the lengths at the end, or check both ends with rollout.drift left out"
	}
	f.Figures = Figures{{"length_ratio", growth}, {"utilization_before", before}, {"utilization_after", after}}
}

func (e *examination) enginesLost() {
	forGood := func(engine config.Engine) bool {
		return slices.ContainsFunc(e.document.Failures.EnginePlan, func(l config.EngineLoss) bool { return l.Engine == engine.Name && l.DownS == 0 && l.BackStep == 0 })
	}
	engines := e.document.Engines
	if len(engines) > 0 && !slices.ContainsFunc(engines, func(engine config.Engine) bool { return !forGood(engine) }) {
		f := e.add(Error, keyLosses, Arithmetic)
		f.What = fmt.Sprintf("all %s are lost for good: the run stands still from then on", plural(float64(len(engines)), "engine"))
		f.Why = "a loss with down_s 0 does not end, and no engine is left to generate"
		f.Do = "down_s above 0 for one of them, or an engine that is not lost"
		f.Figures = Figures{{"engines", float64(len(engines))}}
	}
	mtbf, down := e.document.Modelled.Failures.EngineMTBFS, e.document.Modelled.Failures.EngineDownS
	if mtbf == 0 || down/(mtbf+down) <= stoppedMuch {
		return
	}
	f := e.add(Warning, keyMTBF, Arithmetic)
	f.What = fmt.Sprintf("engines are gone for %s of the time", percent(down/(mtbf+down)))
	f.Why = fmt.Sprintf("each is lost every %s s on average, and gone for %s s", short(mtbf), short(down))
	f.Do = "more slots by as much, or a faster restart; the rollouts in flight start again each time"
	f.Figures = Figures{{"gone_share", down / (mtbf + down)}}
}
