package experiment

import (
	"fmt"
	"math"
	"strconv"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/loop/workload"
	"github.com/headway-rl/headway/predict/theory"
)

// What a prediction rests on.
const (
	basisClosedForm = "closed form"
	basisSimulation = "simulation"
)

// Answer is the output of headway predict --json: the closed forms, or a
// simulation's figures in their place where none holds.
type Answer struct {
	theory.Prediction
	// Basis is "closed form" or "simulation".
	Basis string `json:"basis"`
	// Simulated is the simulation behind basis "simulation".
	Simulated *SimulatedAnswer `json:"simulated,omitempty"`
	// Target is what the simulation expects of the document's target; absent without one.
	Target *TargetAnswer `json:"target,omitempty"`
}

// SimulatedAnswer says how much stands behind simulated figures.
type SimulatedAnswer struct {
	// Steps were measured, after WarmupSteps.
	Steps       int `json:"steps"`
	WarmupSteps int `json:"warmup_steps"`
	// Settled is false where the means still moved, or were worth too little: then there
	// are none, and Why says what moved.
	Settled bool   `json:"settled"`
	Why     string `json:"why,omitempty"`
	// StalenessMean95 is the 95 % confidence interval of the mean staleness; null where
	// there is none.
	StalenessMean95 *[2]float64 `json:"staleness_mean_95"`
	// TrainedOverSampledLength is below 1 where short rollouts are trained on more often.
	TrainedOverSampledLength float64 `json:"trained_over_sampled_length"`
	// Binding is what limits: rollout, train, sync, environment, sandbox, verifier, scorer or prefill.
	Binding string `json:"binding"`
	// DiscardedShare is the share of ready groups that are never trained on.
	DiscardedShare float64 `json:"discarded_share"`
}

// The size of such a simulation: enough for a mean within a few hundredths, in a
// fraction of a second.
const (
	answerRollouts = 1_500_000
	// answerRolloutsMax is for what has not settled in those.
	answerRolloutsMax = 8 * answerRollouts
	answerStepsMin    = 40
	answerStepsMax    = 4000
	answerWarmup      = 100
	// settlingTimes is how many times as long as the queue wanders a mean is taken over.
	settlingTimes = 50
	// answerHalf is the widest interval of a mean, to either side and relative to it.
	answerHalf = 0.1
)

// AnswerTo predicts by closed forms and simulates the document where they say nothing.
// The document is made when it is needed; closedOnly never simulates.
func AnswerTo(in theory.Input, why string, closedOnly bool, document func() (config.Config, error)) (Answer, error) {
	p, err := ExpectUnless(why, in)
	if err != nil {
		return Answer{}, FlagError(err)
	}
	a := Answer{Prediction: p, Basis: basisClosedForm}
	_, timed := p.Period.RelativeToStep.Value()
	if closedOnly || p.Covered && timed {
		return a, nil
	}
	d, err := document()
	if err != nil {
		return Answer{}, err
	}
	return a, a.simulate(d, in)
}

// simulate puts a short simulation in the place of what is unknown: a longer one
// where that has not settled, and none where that has not either.
func (a *Answer) simulate(d config.Config, in theory.Input) error {
	setting, err := Input(d)
	if err != nil {
		return err
	}
	c := Case{Document: d, Setting: setting, automatic: true}
	var run settledRun
	why := ""
	for _, rollouts := range []int{answerRollouts, answerRolloutsMax} {
		steps := answerStepsMax * (rollouts / answerRollouts)
		if wander := settlingTimes * a.SettlingSteps; wander < float64(answerRolloutsMax/d.Train.Batch) {
			steps = max(steps, int(wander))
		}
		c.Document.Steps.Measured = max(min(rollouts/d.Train.Batch, steps), answerStepsMin)
		c.Document.Steps.Warmup = min(answerWarmup, c.Document.Steps.Measured)
		if run, err = settle(c, a.SettlingSteps, nil, nil); err != nil {
			return StallError(d, err)
		}
		if why = unsure(run); why == "" {
			break
		}
	}
	a.Basis = basisSimulation
	a.unknown()
	a.Simulated = &SimulatedAnswer{Steps: c.Document.Steps.Measured, WarmupSteps: run.warmup.Steps, Settled: why == "", Why: why, Binding: run.Summary.Throughput.Binding}
	a.Warnings = append(a.Warnings, fmt.Sprintf("simulated instead, with the production loop: %d train steps after %d (headway simulate has more of it)", c.Document.Steps.Measured, run.warmup.Steps))
	if text := scorersText(d, setting); text != "" {
		a.Warnings = append(a.Warnings, text)
	}
	a.Target = answerTarget(run.Summary.Control)
	if why != "" {
		return nil
	}
	a.fill(run, in)
	under := []TargetLever(nil)
	if a.Levers, under, err = simulatedLevers(c.Document, setting, run.Summary); err != nil {
		return FlagError(err)
	}
	if a.Target != nil {
		a.Target.Levers = under
		a.Target.price(c.Document, setting, run.Summary)
	}
	a.Warnings = append(a.Warnings, leverBasis(a.Levers))
	return nil
}

// unsure says why a simulated mean is not to be printed, "" where it is.
func unsure(run settledRun) string {
	if !run.settled() {
		return WhyUnsettled(run.Unsettled)
	}
	mean := math.Max(run.Summary.Staleness.Mean, versionScale)
	if between := run.confidence.StalenessMean; between != nil && between[1]-between[0] > 2*answerHalf*mean {
		return fmt.Sprintf("the 95 %% interval of the mean staleness is %.3g to %.3g", between[0], between[1])
	}
	return ""
}

// unknown forgets what closed forms gave outside their range.
func (a *Answer) unknown() {
	p := &a.Prediction
	p.PQS, p.IQS, p.TokenStaleness, p.DroppedShare = theory.Figure{}, theory.Figure{}, theory.Figure{}, theory.Figure{}
	p.Staleness, p.Period, p.Corrected, p.Dominant = theory.Staleness{}, theory.PeriodFigures{}, theory.Corrected{}, ""
	p.Levers, p.Distribution = []theory.Lever{}, nil
}

// fill reads a simulation's figures as a prediction's.
func (a *Answer) fill(run settledRun, in theory.Input) {
	s := run.Summary
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
	// What was decoded says nothing of tools, verifiers and rules that wait.
	if s.Utilization > 0 {
		a.Utilization, a.Regime = s.Utilization, theory.TrainBound
		if s.Utilization*s.Acceptance < 1 {
			a.Regime = theory.RolloutBound
		}
	}
	a.Simulated.StalenessMean95 = run.confidence.StalenessMean
	if s.Length.SampledMeanTokens > 0 {
		a.Simulated.TrainedOverSampledLength = s.Length.TrainedMeanTokens / s.Length.SampledMeanTokens
	}
	if ready := float64(s.GroupsReady); ready > 0 {
		trained := 0.0
		for _, n := range s.Staleness.Histogram {
			trained += float64(n)
		}
		a.Simulated.DiscardedShare = math.Max(0, 1-trained/ready)
		a.DroppedShare = theory.Known(a.Simulated.DiscardedShare)
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

// DocumentOf is the document of a setting, for a simulation. Argument spec has its
// lengths; where they are not given, the lognormal of the setting's tail replaces
// it.
func DocumentOf(in theory.Input, spec workload.LengthSpec, given bool) (config.Config, error) {
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
	spec, err = lengthsFor(in, spec, given)
	if err != nil {
		return config.Config{}, err
	}
	put("modelled.length.kind", spec.Kind)
	number("modelled.length.mean_tokens", spec.MeanTokens)
	number("modelled.length.tailness", spec.Tailness)
	if spec.CapTokens > 0 {
		count("modelled.length.cap_tokens", float64(spec.CapTokens))
	}
	lengths, err := spec.Build()
	if err != nil {
		return config.Config{}, err
	}
	if in.StepS > 0 {
		number("modelled.train.step_s", in.StepS)
		number("modelled.decode_tokens_per_s", in.Utilization*in.BatchRollouts*lengths.Mean()/(in.ConcurrencyRollouts*in.StepS))
	} else {
		number("modelled.train.utilization", in.Utilization)
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
	number("modelled.sync.time_s", in.SyncTimeS)
	put("sync.mode", in.SyncMode)
	put("sync.trainer", in.SyncTrainer)
	count("sync.every", float64(in.SyncEvery))
	number("modelled.filter.acceptance", in.Acceptance)
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

// lengthsFor are the lognormal lengths of a setting, those of a bare tail multiplier
// included.
func lengthsFor(in theory.Input, spec workload.LengthSpec, given bool) (workload.LengthSpec, error) {
	if given {
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
		return spec, failure.Usage("give lengths by a document with modelled.length", "--tail-multiplier %g: no lognormal up to tailness 100 has it, and this setting has to be simulated", in.TailMultiplier)
	}
	return spec, nil
}
