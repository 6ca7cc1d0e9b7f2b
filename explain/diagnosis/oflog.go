package diagnosis

import (
	"context"
	"fmt"
	"math"

	"github.com/headway-rl/headway/explain/foreign"
	"github.com/headway-rl/headway/loop/workload"
	"github.com/headway-rl/headway/observe/estimate"
	"github.com/headway-rl/headway/predict/theory"
)

// OfLog diagnoses a run of another framework by its log. Quantities that the log lacks are not judged, and named in the
// report's Log.
func OfLog(ctx context.Context, log *foreign.Log, options Options) (Report, error) {
	if len(log.Series) == 0 {
		return Report{}, fmt.Errorf("%w: the log of %s holds none", ErrEmpty, orRun(options.Run))
	}
	f := &facts{options: &options, run: options.Run, source: log.Framework, log: log}
	window := f.logWindow(log.Series)
	w := logWindow{window}
	w.measure(f)
	w.fit(f, log)
	f.predict()
	f.drift, f.asynchrony = w.drifts(), w.asynchrony(log.Settings)
	if f.settled.OK && f.uncovered != "" && !options.ClosedForms && log.Settings.Policy != theory.PolicySynchronous {
		options.progress("simulating what was fitted", 0)
		var err error
		if f.model, err = newModel(ctx, f); err != nil && err.Error() != f.uncovered { // which is said anyway
			f.warnings = append(f.warnings, err.Error())
		}
	}
	return f.report(ctx)
}

// logWindow is the judged part of a log, one entry a train step or several.
type logWindow struct{ steps []foreign.Step }

// notion is one figure of a step.
type notion func(*foreign.Step) foreign.Figure

// series are the values of a figure, those that are known, each weighed as it stands.
func (w logWindow) series(of notion) []float64 {
	var x []float64
	for i := range w.steps {
		if v := of(&w.steps[i]); v.Known() && !math.IsNaN(v.Value) && !math.IsInf(v.Value, 0) {
			x = append(x, v.Value)
		}
	}
	return x
}

// mean is a figure's mean over the window with its interval, weighed by the steps that an entry stands for.
func (w logWindow) mean(of notion) measured {
	var num, den []float64
	for i := range w.steps {
		s := &w.steps[i]
		if v := of(s); v.Known() && !math.IsNaN(v.Value) && !math.IsInf(v.Value, 0) {
			weight := float64(max(s.Steps, 1))
			num, den = append(num, weight*v.Value), append(den, weight)
		}
	}
	if len(num) == 0 {
		return measured{}
	}
	return ofInterval(estimate.OfRatio(num, den))
}

// figure is that mean as a fitted figure.
func (w logWindow) figure(of notion) foreign.Figure {
	m := w.mean(of)
	if !m.known {
		return foreign.Figure{}
	}
	for i := range w.steps {
		if v := of(&w.steps[i]); v.Known() {
			return foreign.Figure{Value: m.value, Origin: v.Origin, From: v.From}
		}
	}
	return foreign.Figure{}
}

// largest is a figure's maximum.
func (w logWindow) largest(of notion) measured {
	out := measured{}
	for _, v := range w.series(of) {
		if !out.known || v > out.value {
			out = known(v)
		}
	}
	return out
}

// Figures of a step.
func stalenessOf(s *foreign.Step) foreign.Figure { return s.StalenessMean }
func periodS(s *foreign.Step) foreign.Figure     { return s.PeriodS }
func filteredOf(s *foreign.Step) foreign.Figure  { return s.Filtered }

// logWindow chooses the window: after the transient, if the rest has settled.
func (f *facts) logWindow(steps []foreign.Step) []foreign.Step {
	all := logWindow{steps}
	staleness, periods := all.series(stalenessOf), all.series(periodS)
	begin := 0
	for _, x := range [][]float64{staleness, periods} {
		if len(x) == len(steps) {
			begin = max(begin, estimate.Warmup(x).Steps)
		}
	}
	judge := func(from int) Settled {
		w := logWindow{steps[from:]}
		v := judgeSeries(estimate.ValuesMin, w.series(stalenessOf), w.series(periodS))
		v.FromStep, v.Steps = stepBefore(steps, from), 0
		for i := range w.steps {
			v.Steps += max(w.steps[i].Steps, 1)
		}
		if rows := int64(len(w.steps)); rows > 0 && v.Steps > rows { // each row stands for several steps
			v.MoreSteps = v.MoreSteps * v.Steps / rows
			v.Why = fmt.Sprintf("%d rows of %d train steps each: %s", rows, v.Steps/rows, v.Why)
		}
		return v
	}
	f.settled = judge(begin)
	if len(staleness) == 0 && len(periods) == 0 {
		f.settled.OK, f.settled.MoreSteps = false, 0
		f.settled.Why = "the log says neither staleness nor period, so that nothing can be told to have settled"
		return steps
	}
	for _, share := range []float64{0.1, 0.25, 0.4, 0.5} {
		cut := begin + int(share*float64(len(steps)-begin))
		if f.settled.OK || len(steps)-cut < 2*estimate.ValuesMin {
			break
		}
		if v := judge(cut); v.OK {
			f.settled, begin = v, cut
		}
	}
	return steps[begin:]
}

// stepBefore is the step before an entry.
func stepBefore(steps []foreign.Step, at int) int64 {
	if at == 0 {
		return 0
	}
	return steps[at-1].Step
}

// measure fills in what the log says of its run.
func (w logWindow) measure(f *facts) {
	f.staleness, f.period = w.mean(stalenessOf), w.mean(periodS)
	f.pqs = w.mean(func(s *foreign.Step) foreign.Figure { return s.PQS })
	f.iqs = w.mean(func(s *foreign.Step) foreign.Figure { return s.IQS })
	f.stalenessMax = w.largest(func(s *foreign.Step) foreign.Figure { return s.StalenessMax })
	f.trainerIdle = w.mean(func(s *foreign.Step) foreign.Figure { return s.TrainerIdle })
	f.rolloutIdle = w.mean(func(s *foreign.Step) foreign.Figure { return s.RolloutIdle })
	f.clip = w.mean(func(s *foreign.Step) foreign.Figure { return s.ClipFraction })
	f.ess = w.mean(func(s *foreign.Step) foreign.Figure { return s.EffectiveSampleSize })
	f.logRatios = w.series(func(s *foreign.Step) foreign.Figure { return s.MeanLogRatio })
	f.truncated = w.mean(func(s *foreign.Step) foreign.Figure { return s.TruncatedShare })
	w.shares(f)
}

// shares of what became of the rollouts, all of one whole, so that they add up.
func (w logWindow) shares(f *facts) {
	trained := w.trained(f)
	all := trained.value
	for _, p := range []struct {
		into *measured
		of   notion
	}{{&f.dropped, func(s *foreign.Step) foreign.Figure { return s.Dropped }}, {&f.filtered, filteredOf}, {&f.failed, func(s *foreign.Step) foreign.Figure { return s.Failed }}} {
		*p.into = w.mean(p.of)
		all += p.into.or(0)
	}
	for _, share := range []*measured{&f.dropped, &f.filtered, &f.failed} {
		if !share.known || !trained.known || all <= 0 {
			*share = measured{}
			continue
		}
		*share = known(share.value / all)
	}
}

// trained is how many rollouts a step trains on.
func (w logWindow) trained(f *facts) measured {
	trained := w.mean(func(s *foreign.Step) foreign.Figure { return s.Trained })
	if !trained.known {
		trained = known(f.log.Settings.BatchRollouts.Value)
		trained.known = f.log.Settings.BatchRollouts.Known()
	}
	return trained
}

// fit estimates the model's quantities of a log.
func (w logWindow) fit(f *facts, log *foreign.Log) {
	s := log.Settings
	fit := Fitted{Concurrency: w.figure(func(s *foreign.Step) foreign.Figure { return s.InFlightRollouts }), Batch: s.BatchRollouts, GroupSize: s.GroupSize,
		TailMultiplier: w.figure(func(s *foreign.Step) foreign.Figure { return s.TailMultiplier }),
		StepS:          w.figure(func(s *foreign.Step) foreign.Figure { return s.TrainS }),
		SyncS:          w.figure(func(s *foreign.Step) foreign.Figure { return s.SyncS })}
	if !fit.Concurrency.Known() {
		fit.Concurrency = s.ConcurrencyRollouts
	}
	if !fit.Batch.Known() {
		fit.Batch = w.figure(func(s *foreign.Step) foreign.Figure { return s.Trained })
	}
	if !fit.StepS.Known() && f.period.known && f.trainerIdle.known {
		fit.StepS = inferred(f.period.value*(1-f.trainerIdle.value), "the period without the trainer's idle time")
	}
	if train := w.series(func(s *foreign.Step) foreign.Figure { return s.TrainS }); len(train) > 1 {
		each := math.Sqrt(float64(max(w.steps[0].Steps, 1))) // a row of several steps is their mean
		fit.StepVariation = logged(each*variation(train), "standard deviation of the train step over its mean")
	}
	if s.QueueRollouts.Known() && s.QueueRollouts.Value > 0 && fit.Batch.Value > 0 {
		fit.QueueFactor = foreign.Figure{Value: math.Max(s.QueueRollouts.Value/fit.Batch.Value, 1), Origin: s.QueueRollouts.Origin, From: "queue over batch: " + s.QueueRollouts.From}
	}
	if filtered, trained := w.mean(filteredOf), w.trained(f); filtered.known && trained.known && trained.value+filtered.value > 0 {
		fit.Acceptance = inferred(trained.value/(trained.value+filtered.value), "trained over trained and filtered")
	}
	tailOfRollouts(&fit, log.Rollouts)
	w.tailOfQuantile(&fit)
	f.options.given(&fit) // what follows rests on it
	fit.Utilization = w.utilization(f, &fit)
	f.options.given(&fit)
	f.fitted = fit
	f.in, f.unfit = f.logInput(s)
}

// utilization is ρ: what is produced over what a busy trainer consumes, or what the trainer's waits say of it.
func (w logWindow) utilization(f *facts, fit *Fitted) foreign.Figure {
	latency := w.mean(func(s *foreign.Step) foreign.Figure { return s.RolloutMeanS })
	switch {
	case fit.Concurrency.Known() && latency.or(0) > 0 && fit.StepS.Value > 0 && fit.Batch.Value > 0:
		return inferred(fit.Concurrency.Value/latency.value/(fit.Batch.Value/fit.StepS.Value), "(rollouts in flight / time of a rollout) / (batch / train step)")
	case f.period.known && fit.StepS.Value > 0 && fit.StepS.Value < 0.97*f.period.value:
		return inferred(fit.StepS.Value/f.period.value, "the train step over the period: the trainer waits")
	}
	return foreign.Figure{}
}

// tailOfRollouts fits what single rollouts say: M of times, and the environment's share.
func tailOfRollouts(fit *Fitted, rollouts []foreign.Rollout) {
	type group struct {
		n       int
		longest float64
	}
	groups := map[string]*group{}
	var all, n, environment, timed float64
	for i := range rollouts {
		r := &rollouts[i]
		if !r.StartS.Known() || !r.EndS.Known() || r.EndS.Value < r.StartS.Value {
			continue
		}
		took := r.EndS.Value - r.StartS.Value
		all, n = all+took, n+1
		if r.EnvironmentS.Known() {
			environment, timed = environment+r.EnvironmentS.Value, timed+took
		}
		g := groups[r.Group]
		if g == nil {
			g = &group{}
			groups[r.Group] = g
		}
		g.n, g.longest = g.n+1, math.Max(g.longest, took)
	}
	if timed > environment && environment > 0 {
		fit.EnvironmentRatio = inferred(environment/(timed-environment), "environment time over the rest of a rollout's")
	}
	size := int(fit.GroupSize.Value)
	longest, whole := 0.0, 0.0
	for _, g := range groups {
		if g.n == size && size > 1 {
			longest, whole = longest+g.longest, whole+1
		}
	}
	if !fit.TailMultiplier.Known() && whole >= 8 && all > 0 {
		fit.TailMultiplier = inferred(longest/whole/(all/n), "longest of whole groups over the mean, of single rollouts")
	}
}

// tailOfQuantile infers M from how far the slow rollouts are from the mean one, as if times were
// lognormal and siblings independent: where they share a prompt's length, it is less.
func (w logWindow) tailOfQuantile(fit *Fitted) {
	mean := w.mean(func(s *foreign.Step) foreign.Figure { return s.RolloutMeanS })
	slow := w.mean(func(s *foreign.Step) foreign.Figure { return s.RolloutP95S })
	size := int(fit.GroupSize.Value)
	if fit.TailMultiplier.Known() || size < 2 || !(mean.or(0) > 0) || !(slow.or(0) > mean.value) {
		return
	}
	const quantile = 1.645 // of the normal, at 95 %
	log := math.Log(slow.value / mean.value)
	if 2*log >= quantile*quantile {
		return // further out than a lognormal's 95 % can be
	}
	sigma := quantile - math.Sqrt(quantile*quantile-2*log) // ln(p95/mean) = 1.645σ − σ²/2
	times, err := workload.LengthSpec{Kind: workload.KindLognormal, MeanTokens: 10_000, Tailness: min(sigma/1.3*100, 100)}.Build()
	if err != nil {
		return
	}
	fit.TailMultiplier = inferred(times.TailMultiplier(size), "lognormal times of this p95 over mean, siblings independent: an upper bound")
}

// logInput is what a closed form is asked of a log.
func (f *facts) logInput(s foreign.Settings) (in theory.Input, unfit string) {
	fit := &f.fitted
	in = theory.Input{ConcurrencyRollouts: fit.Concurrency.Value, BatchRollouts: fit.Batch.Value, GroupSize: int(fit.GroupSize.Value), QueueFactor: fit.QueueFactor.Value,
		Utilization: fit.Utilization.Value, StepS: fit.StepS.Value, Acceptance: fit.Acceptance.Value, Policy: s.Policy,
		MaxStaleness: int(s.StalenessBudget.Value), SyncTimeS: fit.SyncS.Value, SyncEvery: int(math.Max(s.SyncEvery.Value, 1))}
	if in.GroupSize > 0 {
		in.TailMultiplier = min(max(fit.TailMultiplier.Value, 1), float64(in.GroupSize))
	}
	if fit.StepS.Value == 0 {
		in.SyncTimeS = 0
	}
	if s.Policy == theory.PolicyThreshold {
		in.StalenessThreshold = s.StalenessBudget.Value
	}
	for _, need := range []struct {
		what string
		v    foreign.Figure
	}{{"concurrency", fit.Concurrency}, {"batch", fit.Batch}, {"group size", fit.GroupSize}, {"utilization", fit.Utilization}, {"tail multiplier", fit.TailMultiplier}} {
		if !need.v.Known() {
			return in, fmt.Sprintf("the log does not say its %s (give it by --set)", need.what)
		}
	}
	if s.Policy == "" {
		return in, "the log does not say by which rule its queue goes"
	}
	if s.Policy == "bounded" || s.Policy == "replay" {
		unfit = fmt.Sprintf("policy %s has no closed form", s.Policy)
		in.Policy = theory.PolicyDrop
	}
	in = in.WithDefaults()
	if err := in.Validate(); err != nil {
		return in, fmt.Sprintf("the logged figures are none that a closed form takes: %v", err)
	}
	return in, unfit
}

// drifts are how the workload moved over the log.
func (w logWindow) drifts() []Drift {
	var list []Drift
	for _, d := range []struct {
		what string
		of   notion
	}{
		{driftLength, func(s *foreign.Step) foreign.Figure { return s.ResponseTokens }},
		{driftTail, func(s *foreign.Step) foreign.Figure { return s.TailMultiplier }},
		{driftSolve, func(s *foreign.Step) foreign.Figure { return s.SolveRate }},
		{driftTruncated, func(s *foreign.Step) foreign.Figure { return s.TruncatedShare }},
		{driftStaleness, stalenessOf},
		{driftReward, func(s *foreign.Step) foreign.Figure { return s.Reward }},
		{driftStep, func(s *foreign.Step) foreign.Figure { return s.TrainS }},
	} {
		each := 1.0
		if len(w.steps) > 0 {
			each = float64(max(w.steps[0].Steps, 1))
		}
		list = appendDrift(list, d.what, w.series(d.of), nil, each)
	}
	return list
}
