package experiment

import (
	"fmt"
	"math"
	"strings"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/attribution"
	"github.com/headway-rl/headway/observe/estimate"
	"github.com/headway-rl/headway/observe/metrics"
	"github.com/headway-rl/headway/observe/report"
)

// Automatic warm-up.
const (
	// warmupTries is how often a simulation whose window still holds its transient is
	// made again with a longer warm-up.
	warmupTries = 3
	// warmupShare bounds an automatic warm-up, in measured steps.
	warmupShare = 8
	// versionScale is the least staleness that a drift is measured by: what is below
	// half a version may move by more than a share of itself.
	versionScale = 0.5
)

// Warmup says what was left out at the beginning of a simulation.
type Warmup struct {
	// Steps is the number of train steps left out, Automatic that the document did not say it.
	Steps     int  `json:"steps"`
	Automatic bool `json:"automatic"`
	// Tries is how many warm-ups were tried, each longer than the one before.
	Tries int `json:"tries"`
	// ClosedFormSteps is how many steps the queue needs to settle by the closed form.
	ClosedFormSteps float64 `json:"closed_form_steps"`
	// DetectedSteps is where MSER-5 sees the transient of staleness and period end, from
	// the first step on.
	DetectedSteps int `json:"detected_steps"`
}

// Unsettled says why one mean has not settled.
type Unsettled struct {
	// Figure is staleness, pqs, iqs or period_s.
	Figure string `json:"figure"`
	// Cause is short, transient, trend or correlated.
	Cause string `json:"cause"`
	// Why says it in a sentence.
	Why string `json:"why"`
	// MoreSteps is about how many more measured steps it takes; null where the series
	// shows no end.
	MoreSteps *float64 `json:"more_steps"`
	cause     estimate.Cause
}

// causeNames are the causes in JSON.
var causeNames = map[estimate.Cause]string{estimate.Short: "short", estimate.Transient: "transient", estimate.Trend: "trend", estimate.Correlated: "correlated"}

// Confidence holds 95 % intervals of means; null where the window is too short for one.
type Confidence struct {
	StalenessMean      *[2]float64 `json:"staleness_mean_95"`
	PQSMean            *[2]float64 `json:"pqs_mean_95"`
	IQSMean            *[2]float64 `json:"iqs_mean_95"`
	TokenStalenessMean *[2]float64 `json:"token_staleness_mean_95"`
	PeriodS            *[2]float64 `json:"period_s_mean_95"`
	TrainerIdleRatio   *[2]float64 `json:"trainer_idle_ratio_95"`
	// Method is batch means, of Batches batches of BatchSteps train steps each for the
	// staleness. IndependentSteps is how many independent steps that mean is worth; null
	// where every step is the same.
	Method           string   `json:"method"`
	Batches          int      `json:"batches"`
	BatchSteps       int      `json:"batch_steps"`
	IndependentSteps *float64 `json:"independent_steps"`
}

// Settling is what the series of a simulation says of its means.
type Settling struct {
	confidence Confidence
	Unsettled  []Unsettled
}

// settled reports whether every mean has.
func (j Settling) settled() bool { return len(j.Unsettled) == 0 }

// drifts reports whether what has not settled moves, so that a longer warm-up may help.
func (j Settling) drifts() bool {
	for _, u := range j.Unsettled {
		if u.cause == estimate.Transient || u.cause == estimate.Trend {
			return true
		}
	}
	return false
}

// SettlingOf looks at the steps of the measured window.
func SettlingOf(steps []metrics.Step) Settling {
	column := func(f func(*metrics.Step) float64) []float64 {
		x := make([]float64, len(steps))
		for i := range steps {
			x[i] = f(&steps[i])
		}
		return x
	}
	staleness := column(func(s *metrics.Step) float64 { return s.Staleness })
	periods := column(func(s *metrics.Step) float64 { return float64(s.PeriodNS) / 1e9 })
	tokens := column(func(s *metrics.Step) float64 { return float64(s.Tokens) })
	scale := math.Max(estimate.OfSeries(staleness).Mean, versionScale)
	var j Settling
	figure := func(name, what string, x []float64, scale float64) estimate.Settling {
		v := estimate.SettlingOf(x, scale)
		if !v.OK() {
			j.Unsettled = append(j.Unsettled, describe(name, what, x, v))
		}
		return v
	}
	first := figure("staleness", "the mean staleness", staleness, scale)
	j.confidence = Confidence{
		StalenessMean: bounds(first.Interval),
		PQSMean:       bounds(figure("pqs", "the pre-queue staleness", column(func(s *metrics.Step) float64 { return s.PQS }), scale).Interval),
		IQSMean:       bounds(figure("iqs", "the in-queue staleness", column(func(s *metrics.Step) float64 { return s.IQS }), scale).Interval),
		TokenStalenessMean: bounds(estimate.OfRatio(
			column(func(s *metrics.Step) float64 { return s.TokenStaleness * float64(s.Tokens) }), tokens)),
		PeriodS: bounds(figure("period_s", "the train period", periods, 0).Interval),
		TrainerIdleRatio: bounds(estimate.OfRatio(
			column(func(s *metrics.Step) float64 { return s.TrainerIdle * float64(s.PeriodNS) / 1e9 }), periods)),
		Method: "batch means", Batches: first.Interval.Batches, BatchSteps: first.Interval.BatchSize,
	}
	if !math.IsInf(first.Independent, 0) && first.Independent > 0 {
		j.confidence.IndependentSteps = &first.Independent
	}
	return j
}

// bounds are the ends of an interval, nil for none.
func bounds(v estimate.Interval) *[2]float64 {
	if !v.Known() || math.IsNaN(v.Half) {
		return nil
	}
	return &[2]float64{v.Low(), v.High()}
}

// describe says why a mean has not settled.
func describe(name, what string, x []float64, v estimate.Settling) Unsettled {
	u := Unsettled{Figure: name, Cause: causeNames[v.Cause], cause: v.Cause}
	if !math.IsNaN(v.More) {
		more := math.Ceil(v.More)
		u.MoreSteps = &more
	}
	n := len(x)
	switch v.Cause {
	case estimate.Short:
		u.Why = fmt.Sprintf("%s of the %s measured steps cannot be told to have settled: at least %d", what, report.Count(int64(n)), estimate.ValuesMin)
	case estimate.Transient:
		u.Why = fmt.Sprintf("%s is still in its transient as the %d measured steps begin", what, n)
	case estimate.Trend:
		u.Why = fmt.Sprintf("%s drifts by %s over the %d measured steps, around %s", what, signed(v.Drift), n, report.Figure(v.Interval.Mean, 3))
	case estimate.Correlated:
		u.Why = fmt.Sprintf("%s wanders so slowly that %d steps are worth only %s independent ones: %s ± %s", what, n,
			report.Figure(v.Independent, 0), report.Figure(v.Interval.Mean, 3), report.Figure(v.Interval.Half, 3))
	}
	return u
}

// signed prints a difference with its sign.
func signed(v float64) string {
	if v < 0 {
		return report.Figure(v, 3)
	}
	return "+" + report.Figure(v, 3)
}

// Window are the steps after a warm-up.
func Window(steps []metrics.Step, warmup int) []metrics.Step {
	for i := range steps {
		if int(steps[i].Step) > warmup {
			return steps[i:]
		}
	}
	return nil
}

// detected is where the transients of staleness and period end, in steps.
func detected(steps []metrics.Step) int {
	x, p := make([]float64, len(steps)), make([]float64, len(steps))
	for i := range steps {
		x[i], p[i] = steps[i].Staleness, float64(steps[i].PeriodNS)
	}
	return max(estimate.Warmup(x).Steps, estimate.Warmup(p).Steps)
}

// settledRun is a simulation with what is to be thought of its means.
type settledRun struct {
	sim.Result
	Settling
	warmup Warmup
	// attribution says where its staleness came from.
	attribution attribution.Summary
	// tried counts the events of every simulation that was made for it.
	tried int64
}

// Progress shows how far a simulation is.
type Progress interface {
	// Watch has a simulation tell its steps.
	Watch(cfg *sim.Config)
	// Clear takes away the line that Watch shows.
	Clear()
}

// settle simulates until the measured window is free of the beginning's transient.
// An explicit warm-up is kept as it is. An automatic one begins with the default,
// or the closed form's settling time where that is longer, and grows while the
// window still drifts. observe, if not nil, is told of the last simulation alone.
func settle(c Case, settlingSteps float64, show Progress, observe func(*sim.Config) error) (settledRun, error) {
	var run settledRun
	run.warmup = Warmup{Steps: c.Document.Steps.Warmup, Automatic: c.automatic, ClosedFormSteps: settlingSteps}
	most := max(warmupShare*c.Document.Steps.Measured, run.warmup.Steps)
	if c.automatic && settlingSteps > float64(run.warmup.Steps) && settlingSteps <= float64(most) {
		run.warmup.Steps = int(math.Ceil(settlingSteps))
	}
	direct := !c.automatic // nothing is tried: the first simulation is the last
	for {
		run.warmup.Tries++
		if err := run.once(c, show, observe, direct); err != nil {
			return run, err
		}
		next := min(max(2*run.warmup.Steps, run.warmup.DetectedSteps), most)
		if direct || run.settled() || !run.drifts() || run.warmup.Tries == warmupTries || next <= run.warmup.Steps {
			break
		}
		run.warmup.Steps = next
	}
	if direct || observe == nil {
		return run, nil
	}
	return run, run.once(c, show, observe, true)
}

// once simulates with the present warm-up.
func (run *settledRun) once(c Case, show Progress, observe func(*sim.Config) error, observed bool) error {
	cfg, err := Devices(c)
	if err != nil {
		return err
	}
	cfg.Warmup = run.warmup.Steps
	if observed && observe != nil {
		if err := observe(&cfg); err != nil {
			return err
		}
	}
	attributed := attribution.New(cfg.Loop)
	attributed.Warmup = loop.Version(cfg.Warmup)
	cfg.Beside = attributed
	if show != nil {
		show.Watch(&cfg)
		defer show.Clear()
	}
	run.Result, err = sim.Run(cfg)
	if err != nil {
		return err
	}
	run.attribution = attributed.Summary()
	run.tried += run.Events
	run.Settling = SettlingOf(Window(run.Series, cfg.Warmup))
	run.warmup.DetectedSteps = detected(run.Series)
	return nil
}

// Refusal is the error about means that have not settled.
func Refusal(d config.Config, doc *Simulation) error {
	return failure.Run(refusalHint(d, doc), "not settled: %s", WhyUnsettled(doc.Unsettled))
}

// WhyUnsettled says why means have not settled. Where the mean staleness has not, its
// two parts say no more.
func WhyUnsettled(figures []Unsettled) string {
	var whys []string
	for _, u := range figures {
		if figures[0].Figure == "staleness" && (u.Figure == "pqs" || u.Figure == "iqs") {
			continue
		}
		whys = append(whys, u.Why)
		if u.cause == estimate.Short {
			break // for all of them alike
		}
	}
	return strings.Join(whys, "; ")
}

// hopeless is how many steps no one will wait for.
const hopeless = 1e8

// changing is the key that has the workload change over the run, and the train step
// at which it stops; "" for none.
func changing(d config.Config) (key string, until int) {
	if drift, err := d.ChangeModel(); err == nil && !drift.Off() {
		key, until = "rollout.drift", d.Rollout.Drift.Begin+d.Rollout.Drift.Steps
	}
	if solve := d.Modelled.Solve; solve.Kind == "logistic" && solve.From != solve.To && solve.Begin+solve.Steps > until {
		key, until = "modelled.solve", solve.Begin+solve.Steps
	}
	return key, until
}

// refusalHint says what to set.
func refusalHint(d config.Config, doc *Simulation) string {
	const instead = "; --accept-unsettled prints the means of this window all the same"
	more, endless, drifts := 0.0, false, false
	for _, u := range doc.Unsettled {
		if u.MoreSteps == nil {
			endless = true
		} else {
			more = math.Max(more, *u.MoreSteps)
		}
		drifts = drifts || u.cause == estimate.Transient || u.cause == estimate.Trend
	}
	w := doc.Warmup
	if key, until := changing(d); until > w.Steps {
		return fmt.Sprintf("the workload itself changes until step %s (%s): --set steps.warmup=%d measures it from there on%s", report.Count(int64(until)), key, until, instead)
	}
	if w.ClosedFormSteps > float64(w.Steps+int(doc.Steps)) {
		more, endless, drifts = math.Max(more, w.ClosedFormSteps-float64(w.Steps)), false, true
	}
	warmup, measured := estimate.Rounded(float64(w.Steps)+more), estimate.Rounded(math.Max(float64(doc.Steps), more))
	switch {
	case more >= hopeless:
		return fmt.Sprintf("it takes some %s train steps, which no run has: a smaller queue, or a utilization further from 1, settles%s", report.Count(estimate.Rounded(more)), instead)
	case endless && more == 0:
		return "the steps show no end of the drift: something grows as long as it runs, or fills for very long" + instead
	case drifts && w.Automatic:
		return fmt.Sprintf("about %s steps more should do: --set steps.warmup=%d --set steps.measured=%d%s", report.Count(int64(more)), warmup, measured, instead)
	case drifts:
		return fmt.Sprintf("about %s steps more should do: --set steps.measured=%d, and --set steps.warmup=%d or null for an automatic one%s",
			report.Count(int64(more)), measured, warmup, instead)
	}
	return fmt.Sprintf("about %s steps more should do: --set steps.measured=%d%s",
		report.Count(int64(more)), estimate.Rounded(float64(doc.Steps)+more), instead)
}
