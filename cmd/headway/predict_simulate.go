package main

import (
	"fmt"
	"math"
	"strconv"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/metrics"
	"github.com/headway-rl/headway/sim"
	"github.com/headway-rl/headway/theory"
	"github.com/headway-rl/headway/workload"
)

// What a prediction rests on.
const (
	basisClosedForm = "closed form"
	basisSimulation = "simulation"
)

// answer is what headway predict --json prints: the closed forms, or what a
// simulation gave in their place where none holds.
type answer struct {
	theory.Prediction
	// Basis is "closed form" or "simulation".
	Basis string `json:"basis"`
	// Simulated is the simulation behind basis "simulation".
	Simulated *simulatedAnswer `json:"simulated,omitempty"`
}

// simulatedAnswer says how much stands behind simulated figures.
type simulatedAnswer struct {
	// Steps were measured, after WarmupSteps.
	Steps       int `json:"steps"`
	WarmupSteps int `json:"warmup_steps"`
	// StalenessMean95 is the 95 % confidence interval of the mean staleness.
	StalenessMean95 [2]float64 `json:"staleness_mean_95"`
	// TrainedOverSampledLength is below 1 where short rollouts are trained on more often.
	TrainedOverSampledLength float64 `json:"trained_over_sampled_length"`
	// Binding is what limits: rollout, train, sync, environment, sandbox, judge or prefill.
	Binding string `json:"binding"`
	// DiscardedShare is the share of ready groups that are never trained on.
	DiscardedShare float64 `json:"discarded_share"`
}

// The size of such a simulation: enough for a mean within a few hundredths, in a
// fraction of a second.
const (
	answerRollouts  = 1_500_000
	answerStepsMin  = 40
	answerStepsMax  = 4000
	answerWarmupMax = 2000
)

// answerTo predicts by closed forms and simulates the document where they say nothing.
// The document is made when it is needed; closedOnly never simulates.
func answerTo(in theory.Input, why string, closedOnly bool, document func() (config.Config, error)) (answer, error) {
	p, err := expectUnless(why, in)
	if err != nil {
		return answer{}, predictUsage(err)
	}
	a := answer{Prediction: p, Basis: basisClosedForm}
	_, mean := p.Staleness.Mean.Value()
	_, timed := p.Period.RelativeToStep.Value()
	if closedOnly || mean && timed {
		return a, nil
	}
	d, err := document()
	if err != nil {
		return answer{}, err
	}
	return a, a.simulate(d, in)
}

// simulate puts a short simulation in the place of what is unknown.
func (a *answer) simulate(d config.Config, in theory.Input) error {
	batch := d.Train.Batch
	d.Steps.Warmup = int(math.Min(math.Max(2*a.SettlingSteps, 100), answerWarmupMax))
	d.Steps.Measured = min(max(answerRollouts/batch, answerStepsMin), answerStepsMax)
	d.Steps.Warmup = min(d.Steps.Warmup, max(d.Steps.Measured, answerStepsMin))
	setting, err := predictInput(d)
	if err != nil {
		return err
	}
	cfg, err := simulationConfig(simulateCase{document: d, setting: setting})
	if err != nil {
		return err
	}
	res, err := sim.Run(cfg)
	if err != nil {
		return simulationError(d, err)
	}
	a.Basis = basisSimulation
	a.fill(res.Summary, in)
	a.Simulated.WarmupSteps = d.Steps.Warmup
	if a.Levers, err = simulatedLevers(d, setting, res.Summary); err != nil {
		return predictUsage(err)
	}
	a.Warnings = append(a.Warnings, fmt.Sprintf("simulated instead, with the production loop: %d train steps after %d (headway simulate has more of it)", d.Steps.Measured, d.Steps.Warmup), leverBasis(a.Levers))
	return nil
}

// fill reads a simulation's figures as a prediction's.
func (a *answer) fill(s metrics.Summary, in theory.Input) {
	a.PQS, a.IQS = theory.Known(s.PQS.Mean), theory.Known(s.IQS.Mean)
	a.Staleness.Mean = theory.Known(s.Staleness.Mean)
	a.Staleness.P50, a.Staleness.P95, a.Staleness.P99 = theory.Known(float64(s.Staleness.P50)), theory.Known(float64(s.Staleness.P95)), theory.Known(float64(s.Staleness.P99))
	if in.BudgetVersions > 0 {
		a.Staleness.ShareAboveBudget = theory.Known(shareAbove(s.Staleness.Histogram, in.BudgetVersions))
	}
	a.TokenStaleness = theory.Known(s.TokenStaleness.Mean)
	if in.StepS > 0 {
		a.Period.S = theory.Known(s.PeriodS.Mean)
	}
	if s.StepS.Mean > 0 {
		a.Period.RelativeToStep = theory.Known(s.PeriodS.Mean / s.StepS.Mean)
	}
	a.Dominant = s.Dominant
	// What was decoded says nothing of tools, judges and rules that wait.
	if s.Utilization > 0 {
		a.Utilization, a.Regime = s.Utilization, theory.TrainBound
		if s.Utilization*s.Acceptance < 1 {
			a.Regime = theory.RolloutBound
		}
	}
	a.Simulated = &simulatedAnswer{Steps: int(s.Steps), StalenessMean95: s.Confidence.StalenessMean95, Binding: s.Throughput.Binding}
	if s.Length.SampledMeanTokens > 0 {
		a.Simulated.TrainedOverSampledLength = s.Length.TrainedMeanTokens / s.Length.SampledMeanTokens
	}
	if ready := float64(s.GroupsReady); ready > 0 {
		trained := 0.0
		for _, n := range s.Staleness.Histogram {
			trained += float64(n)
		}
		a.Simulated.DiscardedShare = math.Max(0, 1-trained/ready)
	}
}

// shareAbove is the share of a histogram by versions that is above a budget.
func shareAbove(histogram []int64, budget int) float64 {
	all, above := 0.0, 0.0
	for k, n := range histogram {
		all += float64(n)
		if k > budget {
			above += float64(n)
		}
	}
	return above / math.Max(all, 1)
}

// documentOf is the document that says what the flags say, for a simulation.
func (f *predictFlags) document(in theory.Input) (config.Config, error) {
	raw, err := config.Read("")
	if err != nil {
		return config.Config{}, err
	}
	var overrides []config.Override
	put := func(key, value string) {
		overrides = append(overrides, config.Override{Flag: "the flags", Text: key + "=" + value})
	}
	count := func(key string, value float64) { put(key, strconv.FormatFloat(math.Round(value), 'f', -1, 64)) }
	number := func(key string, value float64) { put(key, strconv.FormatFloat(value, 'g', -1, 64)) }

	count("rollout.concurrency", in.ConcurrencyRollouts)
	count("rollout.group_size", float64(in.GroupSize))
	count("train.batch", in.BatchRollouts)
	put("rollout.start", in.Start)
	spec, err := f.lengthsFor(in)
	if err != nil {
		return config.Config{}, err
	}
	put("rollout.length.kind", spec.Kind)
	number("rollout.length.mean_tokens", spec.MeanTokens)
	number("rollout.length.tailness", spec.Tailness)
	if spec.CapTokens > 0 {
		count("rollout.length.cap_tokens", float64(spec.CapTokens))
	}
	lengths, err := spec.Build()
	if err != nil {
		return config.Config{}, err
	}
	if in.StepS > 0 {
		number("train.step_s", in.StepS)
		number("rollout.decode_tokens_per_s", in.Utilization*in.BatchRollouts*lengths.Mean()/(in.ConcurrencyRollouts*in.StepS))
	} else {
		number("train.utilization", in.Utilization)
	}
	if in.Policy == theory.PolicySynchronous {
		put("schedule", "synchronous")
	} else {
		put("queue.policy", in.Policy)
		put("queue.select", in.Select)
		number("queue.factor", in.QueueFactor)
		if in.Policy == theory.PolicyMax {
			count("queue.max_staleness", float64(in.MaxStaleness))
		}
	}
	number("sync.time_s", in.SyncTimeS)
	put("sync.mode", in.SyncMode)
	put("sync.trainer", in.SyncTrainer)
	count("sync.every", float64(in.SyncEvery))
	number("filter.acceptance", in.Acceptance)
	changed, err := raw.SetWith(overrides...)
	if err != nil {
		return config.Config{}, err
	}
	if changed, err = changed.Resolve(); err != nil {
		return config.Config{}, err
	}
	return changed.ForSimulation()
}

// tailnessSteps of halving an interval of 100: a tailness to a thousandth.
const tailnessSteps = 17

// lengthsFor are the lognormal lengths that flags describe, those of a bare
// multiplier included.
func (f *predictFlags) lengthsFor(in theory.Input) (workload.LengthSpec, error) {
	spec := f.lengthSpec()
	if f.Tailness != nil {
		return spec, nil
	}
	low, high := 0.0, 100.0
	for range tailnessSteps {
		spec.Tailness = (low + high) / 2
		built, err := spec.Build()
		if err != nil {
			return spec, err
		}
		if built.TailMultiplier(in.GroupSize) < in.TailMultiplier {
			low = spec.Tailness
		} else {
			high = spec.Tailness
		}
	}
	if high == 100 {
		return spec, usageError("give lengths by a document with rollout.length", "--tail-multiplier %g: no lognormal up to tailness 100 has it, and this setting has to be simulated", in.TailMultiplier)
	}
	return spec, nil
}
