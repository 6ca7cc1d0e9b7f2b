package diagnosis

import (
	"math"

	"github.com/headway-rl/headway/explain/foreign"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/attribution"
	"github.com/headway-rl/headway/observe/estimate"
	"github.com/headway-rl/headway/observe/metrics"
	"github.com/headway-rl/headway/predict/theory"
)

// measured is a figure of the judged window, with its half interval (0 for none).
type measured struct {
	value, half float64
	known       bool
}

func known(v float64) measured {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return measured{}
	}
	return measured{value: v, known: true}
}

// ofInterval is the figure of an interval, unknown where there is no mean.
func ofInterval(v estimate.Interval) measured {
	m := known(v.Mean)
	if m.known && v.Known() && !math.IsNaN(v.Half) {
		m.half = v.Half
	}
	return m
}

// or is the figure, or otherwise where it is not known.
func (m measured) or(otherwise float64) float64 {
	if m.known {
		return m.value
	}
	return otherwise
}

// facts is what is known of a run, ours or another's. Figures that are not known say so.
type facts struct {
	options  *Options
	run      string
	source   string
	settled  Settled
	fitted   Fitted
	warnings []string

	staleness, pqs, iqs, p95, stalenessMax measured
	period, trainerIdle, rolloutIdle       measured
	// Shares of groups, or of rollouts where a log counts those: dropped for room or staleness, filtered,
	// failed, at the length cap.
	dropped, filtered, failed, truncated measured
	clip, ess                            measured
	// Off-policy figures per step, for what persists.
	logRatios []float64

	in theory.Input
	// unfit says why no closed form can be asked, "" where in is one.
	unfit     string
	predicted theory.Prediction
	// uncovered says why the closed form does not hold, "" where it does.
	uncovered string

	attribution *attribution.Summary
	drift       []Drift
	asynchrony  *Asynchrony
	again       *resimulator
	model       *model

	own *own         // nil for a foreign log
	log *foreign.Log // nil for ours
}

// own is what only our traces say.
type own struct {
	*observer
	summary metrics.Summary
	steps   []metrics.Step // of the window
	rows    []row          // of the window
}

// facts draws up what an observer saw.
func (o *observer) facts(options *Options) *facts {
	s := o.recorder.Summary()
	w := &own{observer: o, summary: s, steps: windowSteps(o.recorder.Steps, o.from), rows: o.tally.windowOf(o.from)}
	f := &facts{options: options, run: options.Run, source: sourceOf(o.header.Source), own: w}
	if split := o.attribution.Summary(); split.Groups > 0 {
		f.attribution = &split
	}
	f.staleness = ofInterval(estimate.OfSeries(column(w.steps, func(p *metrics.Step) float64 { return p.Staleness })))
	f.pqs = ofInterval(estimate.OfSeries(column(w.steps, func(p *metrics.Step) float64 { return p.PQS })))
	f.iqs = ofInterval(estimate.OfSeries(column(w.steps, func(p *metrics.Step) float64 { return p.IQS })))
	periods := column(w.steps, func(p *metrics.Step) float64 { return float64(p.PeriodNS) / 1e9 })
	f.period = ofInterval(estimate.OfSeries(periods))
	f.p95, f.stalenessMax = known(float64(s.Staleness.P95)), known(float64(s.Staleness.Max))
	f.trainerIdle, f.rolloutIdle = known(s.TrainerIdleRatio), known(s.RolloutIdleRatio)
	w.shares(f)
	w.learned(f)
	w.fit(f)
	f.predict()
	f.drift = w.drifts()
	return f
}

// windowSteps are the steps after a version.
func windowSteps(steps []metrics.Step, from loop.Version) []metrics.Step {
	for i := range steps {
		if steps[i].Step > from {
			return steps[i:]
		}
	}
	return nil
}

// sourceOf is a trace's source in the report's words.
func sourceOf(source string) string {
	if source == "live" {
		return "run"
	}
	return source
}

// shares of what became of the groups.
func (w *own) shares(f *facts) {
	e := w.summary.Waste.GroupsEnded
	all := float64(e.Trained + e.Evicted + e.Discarded + e.Filtered + e.Pruned + e.Cancelled + e.Failed)
	if all == 0 {
		return
	}
	f.dropped = known(float64(e.Evicted+e.Discarded) / all)
	f.filtered = known(float64(e.Filtered) / all)
	f.failed = known(float64(e.Failed) / all)
	f.truncated = known(w.summary.Length.TruncatedShare)
}

// learned averages what the trainer said.
func (w *own) learned(f *facts) {
	var clip, ess, n float64
	for i := range w.rows {
		if r := &w.rows[i]; r.learned {
			clip, ess, n = clip+r.clip, ess+r.ess, n+1
			f.logRatios = append(f.logRatios, r.logRatio)
		}
	}
	if n > 0 {
		f.clip, f.ess = known(clip/n), known(ess/n)
	}
}

// configured, logged and inferred are figures with their origin; what is no number is not known.
func configured(v float64, from string) foreign.Figure { return figure(v, foreign.Configured, from) }
func logged(v float64, from string) foreign.Figure     { return figure(v, foreign.Logged, from) }
func inferred(v float64, from string) foreign.Figure   { return figure(v, foreign.Inferred, from) }

func figure(v float64, origin foreign.Origin, from string) foreign.Figure {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return foreign.Figure{}
	}
	return foreign.Figure{Value: v, Origin: origin, From: from}
}

// fit estimates the model's quantities of a run of ours.
func (w *own) fit(f *facts) {
	s, rules := w.summary, w.header.Loop.WithDefaults()
	batch := float64(rules.BatchGroups * rules.GroupSize)
	trained := column(w.steps, func(p *metrics.Step) float64 { return float64(p.TrainNS) / 1e9 })
	latency := s.Latency
	outside := latency.SandboxWaitS + latency.SandboxStartS + latency.ToolWaitS + latency.ToolS + latency.EnvironmentS + latency.VerifierWaitS + latency.VerifierS + latency.ScorerWaitS + latency.ScorerS
	stepIs := "from the lease to the version"
	if rules.TrainerAsks { // it is busy whenever it is there and does not ask
		stepIs = "a train period less the time in which the trainer asked in vain or was absent; its own work between steps is in it"
	}
	f.fitted = Fitted{
		Concurrency:    configured(float64(rules.Concurrency()), "slots of all engines"),
		Batch:          configured(batch, "train.batch"),
		GroupSize:      configured(float64(rules.GroupSize), "rollout.group_size"),
		QueueFactor:    configured(float64(rules.QueueGroups)/float64(rules.BatchGroups), "queue capacity over batch"),
		TailMultiplier: logged(s.TailMultiplier, "longest rollout of a group over the mean, in time"),
		Utilization:    logged(s.Utilization, "rollouts finished a second over rollouts a busy trainer consumes"),
		Acceptance:     logged(s.Acceptance, "ready groups that no filter took"),
		StepS:          logged(s.StepS.Mean, stepIs),
		StepVariation:  logged(variation(trained), "standard deviation of the train step over its mean"),
	}
	if s.SyncS.Mean > 0 {
		f.fitted.SyncS = logged(s.SyncS.Mean, "from a version to its being served by every engine")
	}
	if latency.DecodeS > 0 {
		f.fitted.EnvironmentRatio = logged(outside/latency.DecodeS, "time outside the engine over decoding")
	}
	if len(w.steps) > 0 {
		span := int64(1e9 * s.PeriodS.Mean)
		c := w.tally.arrivals.variation(w.steps[0].TimeNS-w.steps[0].PeriodNS, span)
		f.fitted.VariationArrivals = inferred(c, "root of variance over mean of the groups ready in a period")
	}
	if f.in, f.unfit = MeasuredInput(rules, s); f.options.Uncovered != nil && w.documented && f.unfit == "" {
		document := w.document
		if f.source != "simulation" {
			document = document.Real()
		}
		f.unfit = f.options.Uncovered(document)
	}
}

// variation is the standard deviation over the mean; NaN for less than two values.
func variation(x []float64) float64 {
	if len(x) < 2 {
		return math.NaN()
	}
	mean, squares := 0.0, 0.0
	for _, v := range x {
		mean += v / float64(len(x))
	}
	for _, v := range x {
		squares += (v - mean) * (v - mean)
	}
	return math.Sqrt(squares/float64(len(x)-1)) / mean
}

// predict asks the closed form at the measured inputs.
func (f *facts) predict() {
	if f.uncovered = f.unfit; f.unfit != "" {
		return
	}
	p, err := theory.Predict(f.in)
	switch {
	case err != nil:
		f.uncovered = err.Error()
	case !p.Covered:
		f.uncovered = p.Reason.Sentence()
	}
	f.predicted = p
}
