package experiment

import (
	"errors"
	"strings"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/attribution"
	"github.com/headway-rl/headway/observe/bias"
	"github.com/headway-rl/headway/observe/metrics"
	"github.com/headway-rl/headway/predict/theory"
)

// watchBias has a simulation compare what it trains with what it starts, beside
// whatever observes it already. Lengths are known as rollouts start, so that what
// is cancelled counts too.
func watchBias(cfg *sim.Config) *bias.Observer {
	observer := bias.NewObserver(cfg.Loop, bias.Options{Warmup: loop.Version(cfg.Warmup), Known: func(a loop.Action) (int32, int64) {
		r := cfg.Work.Rollout(sim.Rollout{Group: a.Group, Sample: a.Sample, Attempt: a.Attempt, Level: a.Level, Prompt: a.Prompt, Version: a.Version})
		return r.Tokens, r.EnvironmentNS
	}})
	observe := cfg.Observe
	cfg.Observe = func(ev loop.Event, generateNS, environmentNS int64, actions []loop.Action) {
		observer.Observe(ev, metrics.Measured{EnvironmentNS: environmentNS}, actions)
		if observe != nil {
			observe(ev, generateNS, environmentNS, actions)
		}
	}
	return observer
}

// Simulation is what headway simulate --json prints.
type Simulation struct {
	metrics.Summary
	// Series has a point a train step, warm-up included.
	Series any         `json:"series"` // printSimulationJSON writes it
	Ledger loop.Ledger `json:"ledger"`
	// Settled says that the means have; Unsettled which have not, and why.
	Settled   bool        `json:"settled"`
	Unsettled []Unsettled `json:"unsettled"`
	// Warmup is what was left out at the beginning.
	Warmup Warmup `json:"warmup"`
	// Confidence holds the intervals of the means, in place of the summary's.
	Confidence Confidence `json:"confidence"`
	// Predicted is the closed form of the same document, null where there is none.
	Predicted Predicted `json:"predicted"`
	// Events are rollout completions and train-step ends, warm-up included.
	Events     int64   `json:"events"`
	EventsPerS float64 `json:"events_per_s"`
	WallS      float64 `json:"wall_s"`
	// Attribution says where every version of staleness, and the idle time of both sides, came from; see
	// docs/attribution.md.
	Attribution attribution.Summary `json:"attribution"`
	// Bias compares what was trained with what was started, where that was asked.
	Bias *bias.Report `json:"bias,omitempty"`
	// Verl are figures of the measured window under verl's names.
	Verl map[string]float64 `json:"verl"`
	// steps is the series, tried the events of all warm-ups that were tried.
	steps []metrics.Step
	tried int64
}

// Predicted is the closed form beside a simulation.
type Predicted struct {
	StalenessMean theory.Figure `json:"staleness_mean"`
	PQS           theory.Figure `json:"pqs"`
	IQS           theory.Figure `json:"iqs"`
	PeriodS       theory.Figure `json:"period_s"`
	// CorrectedStalenessMean and CorrectedPeriodS hold near utilization 1, too.
	CorrectedStalenessMean theory.Figure `json:"corrected_staleness_mean"`
	CorrectedPeriodS       theory.Figure `json:"corrected_period_s"`
	Warnings               []string      `json:"warnings"`
}

// Took says how long the simulation took, in seconds.
func (s *Simulation) Took(seconds float64) {
	s.WallS = seconds
	s.EventsPerS = float64(s.tried) / max(seconds, 1e-9)
}

// unmeasured is a mean that is not reported.
type unmeasured struct {
	Mean *float64 `json:"mean"`
}

// simulationWithoutMeans is a simulation whose means have not settled: the figures
// that are means of the window's steps are null, whatever else there is stays.
type simulationWithoutMeans struct {
	Staleness      unmeasured `json:"staleness"`
	PQS            unmeasured `json:"pqs"`
	IQS            unmeasured `json:"iqs"`
	TokenStaleness unmeasured `json:"token_staleness"`
	PeriodS        unmeasured `json:"period_s"`
	Simulation
}

// withoutMeans takes the means and what rests on them out.
func withoutMeans(doc Simulation) simulationWithoutMeans {
	doc.Confidence = Confidence{Method: doc.Confidence.Method}
	return simulationWithoutMeans{Simulation: doc}
}

// Recorder writes a simulation down as it goes.
type Recorder interface {
	// Watch has a simulation written, beside its other observers.
	Watch(cfg *sim.Config, document config.Config) error
	// End ends the files of a simulation that ended with an error or nil.
	End(failed error) error
}

// Simulate makes one simulation with the closed form at hand. It has files
// written and progress shown where these are not nil.
func Simulate(c Case, prediction theory.Prediction, files Recorder, show Progress) (doc Simulation, err error) {
	var observer *bias.Observer
	observe := func(cfg *sim.Config) error {
		if c.bias {
			observer = watchBias(cfg)
		}
		if files == nil {
			return nil
		}
		return files.Watch(cfg, c.Document)
	}
	if files == nil && !c.bias {
		observe = nil
	}
	run, err := settle(c, prediction.SettlingSteps, show, observe)
	if files != nil {
		err = errors.Join(err, files.End(err))
	}
	if err != nil {
		return doc, StallError(c.Document, err)
	}
	doc = Simulation{
		Summary: run.Summary, Attribution: run.attribution, Verl: metrics.VerlByName(run.Summary), steps: run.Series, tried: run.tried, Ledger: run.Ledger, Events: run.Events,
		Settled: run.settled(), Unsettled: append([]Unsettled{}, run.Unsettled...), Warmup: run.warmup, Confidence: run.confidence,
		Predicted: Predicted{
			StalenessMean: prediction.Staleness.Mean, PQS: prediction.PQS, IQS: prediction.IQS, PeriodS: prediction.Period.S,
			CorrectedStalenessMean: prediction.Corrected.Mean, CorrectedPeriodS: prediction.Corrected.Period.S,
			Warnings: append([]string{}, prediction.Warnings...),
		},
	}
	if observer != nil {
		compared := observer.Report()
		doc.Bias = &compared
	}
	return doc, nil
}

// StallError says what to do about a simulation that did not end.
func StallError(d config.Config, err error) error {
	if !errors.Is(err, sim.ErrStalled) {
		return err
	}
	if failing := simulatedFailures(d); len(failing) > 0 {
		return failure.Run("if failures stop it, make them rarer: "+strings.Join(failing, ", ")+"; a live run has none of these but its own", "%w", err)
	}
	return failure.Run("a live run with these settings would wait for ever, too", "%w", err)
}

// simulatedFailures are the keys of a document by which a simulation fails where a
// live run need not.
func simulatedFailures(d config.Config) (keys []string) {
	for _, failure := range []struct {
		key   string
		given bool
	}{
		{"modelled.tools.failure_rate", d.Modelled.Tools.FailureRate > 0},
		{"modelled.sandbox.failure_rate", d.Modelled.Sandbox.FailureRate > 0},
		{"modelled.sandbox.start_timeout_s", d.Modelled.Sandbox.StartTimeoutS > 0},
		{"modelled.sandbox.mtbf_s", d.Modelled.Sandbox.MTBFS > 0},
		{"modelled.train.failure_rate", d.Modelled.Train.FailureRate > 0},
		{"modelled.failures.engine_mtbf_s", d.Modelled.Failures.EngineMTBFS > 0},
		{"failures.engine_plan", len(d.Failures.EnginePlan) > 0},
	} {
		if failure.given {
			keys = append(keys, failure.key)
		}
	}
	return keys
}
