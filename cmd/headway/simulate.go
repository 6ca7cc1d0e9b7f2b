package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/workload"
	"github.com/headway-rl/headway/observe/attribution"
	"github.com/headway-rl/headway/observe/bias"
	"github.com/headway-rl/headway/observe/metrics"
	"github.com/headway-rl/headway/predict/theory"
)

// simulateCmd runs a document in virtual time.
type simulateCmd struct {
	output
	timelineOptions
	File   string   `arg:"" optional:"" help:"The document; its rollout, train, queue, sync, filter and steps sections are used."`
	Set    []string `name:"set" sep:"none" placeholder:"KEY=VALUE" help:"Override a key of FILE by its dotted path. Repeatable."`
	Seeds  int      `default:"1" placeholder:"N" help:"Simulate N seeds, from the document's on; intervals are then over seeds."`
	Grid   []string `sep:"none" placeholder:"KEY=V1,V2" help:"Simulate every value of a key, all combinations if repeated, on all cores. A value may be a range: 0.3..3/0.1, 16..1024x2, 0.5..2#7."`
	Out    string   `placeholder:"FILE" help:"Stream a grid's results to a new FILE.csv or FILE.parquet, a row a setting."`
	HTML   string   `name:"html" placeholder:"FILE" help:"Write a grid as a self-contained page: lines, maps and a table."`
	Resume bool     `help:"Go on with an interrupted grid's FILE.csv."`
	Yes    bool     `help:"Start what takes long, or much memory, without asking."`
	Accept bool     `name:"accept-unsettled" help:"Report means that have not settled, marked, instead of refusing them."`
	Bias   bool     `help:"Compare what is trained with what is started: by length, environment time, prompt, level, and length against order in a batch."`
	Trace  string   `placeholder:"OUT" help:"Write the trace of a single simulation to a new file; headway replay reads it."`
}

// Help explains what the flags together are for; the command line prints it after the flags.
func (c *simulateCmd) Help() string {
	return `A simulation leaves its beginning out: steps.warmup train steps where the document says
so, else as many as it takes until the measured steps no longer drift, 300 at least. Means
come with 95 % intervals: by batch means over the measured steps or, with --seeds, over
seeds. A mean that has not settled is refused, with exit code 1 and what to set.

  headway simulate FILE                                    one setting
  headway simulate FILE --seeds 8                          intervals over seeds
  headway simulate FILE --grid train.utilization=0.3..3/0.1 --grid queue.factor=1,2,4
  headway simulate FILE --grid rollout.concurrency=64..4096x2 --out sweep.csv

Ranges of a grid: FROM..TO/STEP adds STEP, FROM..TOxFACTOR multiplies by FACTOR,
FROM..TO#N takes N values evenly spaced. docs/simulate.md has every column of --out.`
}

// simulateHint is how a wrong command line is put right.
const simulateHint = "headway simulate --help lists the flags"

// Run simulates and prints.
func (c *simulateCmd) Run(application *app.Process) error {
	if c.Seeds == 1 && len(c.Grid) == 0 && c.Out == "" && c.HTML == "" {
		return c.single(application)
	}
	if c.Trace != "" || c.Timeline != "" {
		return failure.Usage(simulateHint, "--trace and --timeline are of one simulation, and --seeds and --grid make several")
	}
	return c.several(application)
}

// affordable refuses a grid that would take long, unless it is asked for by --yes.
func (c *simulateCmd) affordable(application *app.Process, g *grid) error {
	if c.Yes {
		return nil
	}
	long := g.long(application.Now)
	if long == "" {
		return nil
	}
	narrower := "--yes starts it all the same; fewer values or a smaller steps.measured shorten it"
	if c.Out == "" {
		narrower = "--yes --out FILE.csv starts it all the same; fewer values or a smaller steps.measured shorten it"
	}
	return failure.Usage(narrower, "%s", long)
}

// single makes one simulation and prints it.
func (c *simulateCmd) single(application *app.Process) error {
	began := application.Now()
	if c.Resume {
		return failure.Usage(simulateHint, "--resume goes on with a grid that was written by --out")
	}
	cases, err := c.cases()
	if err != nil {
		return err
	}
	warn(application, cases[0].document.Warnings())
	if takes := costly(cases[0].document); takes != "" && !c.Yes {
		return failure.Usage("--yes starts it all the same; fewer slots or a smaller steps.measured take less", "%s", takes)
	}
	files, err := c.files()
	if err != nil {
		return err
	}
	prediction, err := expect(cases[0].document, cases[0].setting)
	if err != nil {
		return errors.Join(absurd(err), files.End(err))
	}
	doc, err := simulateExpecting(cases[0], prediction, files.recorder(), newStepProgress(application))
	if err != nil {
		return err
	}
	doc.took(application.Now().Sub(began).Seconds())
	var refused error
	if !doc.Settled && !c.Accept {
		refused = refusal(cases[0].document, &doc)
	}
	switch {
	case c.JSON:
		err = doc.writeJSON(application.Stdout, refused == nil)
	case refused == nil:
		err = doc.text(application.Stdout, cases[0].document)
		if err == nil && files.timeline != nil {
			_, err = fmt.Fprintln(application.Stdout, files.timeline.drawn())
		}
	}
	if err != nil {
		return err
	}
	return refused
}

// simulationFiles are what a simulation writes as it goes.
type simulationFiles struct {
	trace    *traceFile
	timeline *timelineFile
}

// files creates the files that are asked for, before anything is simulated.
func (c *simulateCmd) files() (f simulationFiles, err error) {
	if f.timeline, err = c.timelineOptions.create(); err != nil {
		return f, err
	}
	if c.Trace != "" {
		if f.trace, err = createTrace(c.Trace); err != nil {
			return f, errors.Join(err, f.timeline.end(err))
		}
	}
	return f, nil
}

// recorder is told of the simulation; nil where no file is asked for.
func (f simulationFiles) recorder() recorder {
	if f == (simulationFiles{}) {
		return nil
	}
	return f
}

// Watch has a simulation written.
func (f simulationFiles) Watch(cfg *sim.Config, document config.Config) error {
	f.timeline.watch(cfg, fmt.Sprintf("headway simulate, seed %d", document.Seed))
	return f.trace.watch(cfg, document)
}

// End ends the files of a simulation that ended with an error or nil.
func (f simulationFiles) End(failed error) error {
	return errors.Join(f.trace.end(failed), f.timeline.end(failed))
}

// simulateCase is one simulation to make.
type simulateCase struct {
	// Set are the overrides that make it, as KEY=VALUE, grid keys last.
	set      []override
	document config.Config
	// setting is what the closed form is asked.
	setting theory.Input
	// bias asks for the comparison of what is trained with what is started.
	bias bool
	// automatic: the document does not say how long the warm-up is.
	automatic bool
}

// cases resolves the simulations of a command line without a grid, one a seed.
func (c *simulateCmd) cases() ([]simulateCase, error) {
	g, err := c.grid()
	if err != nil {
		return nil, err
	}
	return g.cases()
}

// grid is every simulation that the command line asks for.
func (c *simulateCmd) grid() (*grid, error) {
	return newGrid(gridRequest{File: c.File, Set: c.Set, Keys: c.Grid, Seeds: c.Seeds, Bias: c.Bias})
}

// cases resolves every simulation of a grid, one a seed.
func (g *grid) cases() ([]simulateCase, error) {
	var cases []simulateCase
	for i := range g.simulations() {
		one, err := g.simulation(i)
		if err != nil {
			return nil, err
		}
		cases = append(cases, one)
	}
	return cases, nil
}

// simulation is what headway simulate --json prints.
type simulation struct {
	metrics.Summary
	// Series has a point a train step, warm-up included; see printSimulationJSON.
	Series any         `json:"series"`
	Ledger loop.Ledger `json:"ledger"`
	// Settled says that the means have; Unsettled which have not, and why.
	Settled   bool              `json:"settled"`
	Unsettled []unsettledFigure `json:"unsettled"`
	// Warmup is what was left out at the beginning.
	Warmup warmup `json:"warmup"`
	// Confidence holds the intervals of the means, in place of the summary's.
	Confidence confidence `json:"confidence"`
	// Predicted is the closed form of the same document, null where there is none.
	Predicted predicted `json:"predicted"`
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

// predicted is the closed form beside a simulation.
type predicted struct {
	StalenessMean theory.Figure `json:"staleness_mean"`
	PQS           theory.Figure `json:"pqs"`
	IQS           theory.Figure `json:"iqs"`
	PeriodS       theory.Figure `json:"period_s"`
	// CorrectedStalenessMean and CorrectedPeriodS hold near utilization 1, too.
	CorrectedStalenessMean theory.Figure `json:"corrected_staleness_mean"`
	CorrectedPeriodS       theory.Figure `json:"corrected_period_s"`
	Warnings               []string      `json:"warnings"`
}

// took says how long the simulation took, in seconds.
func (s *simulation) took(seconds float64) {
	s.WallS = seconds
	s.EventsPerS = float64(s.tried) / max(seconds, 1e-9)
}

func seconds(ns int64) float64 { return float64(ns) / 1e9 }

// warn prints what is doubtful about documents.
func warn(application *app.Process, warnings []config.Warning) {
	for _, w := range warnings {
		fmt.Fprintf(application.Stderr, "warning: %s\n", w)
	}
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
	simulation
}

// withoutMeans takes the means and what rests on them out.
func withoutMeans(doc simulation) simulationWithoutMeans {
	doc.Confidence = confidence{Method: doc.Confidence.Method}
	return simulationWithoutMeans{simulation: doc}
}

// keysOfInput are the document's keys behind the closed form's fields.
var keysOfInput = map[string]string{"concurrency": "rollout.concurrency", "batch": "train.batch", "group": "rollout.group_size", "queue_factor": "queue.factor",
	"utilization": "the utilization that train.utilization or the speeds of rollout and train come to", "step_time": "the train step that train.step_s, or utilization and speeds, come to",
	"sync_time": "sync.time_s", "acceptance": "filter.acceptance"}

// absurd names what no simulation could be of by the document's keys.
func absurd(err error) error {
	var field *workload.FieldError
	if errors.As(err, &field) && keysOfInput[field.Field] != "" {
		err = &workload.FieldError{Field: keysOfInput[field.Field], Value: field.Value, Allowed: field.Allowed}
	}
	return failure.Usage("headway config FILE prints every key as it was resolved", "%w", err)
}

// recorder writes a simulation down as it goes.
type recorder interface {
	// Watch has a simulation written, beside its other observers.
	Watch(cfg *sim.Config, document config.Config) error
	// End ends the files of a simulation that ended with an error or nil.
	End(failed error) error
}

// simulateExpecting makes one simulation with the closed form at hand. It has files
// written and progress shown where these are not nil.
func simulateExpecting(c simulateCase, prediction theory.Prediction, files recorder, show stepWatcher) (doc simulation, err error) {
	var observer *bias.Observer
	observe := func(cfg *sim.Config) error {
		if c.bias {
			observer = watchBias(cfg)
		}
		if files == nil {
			return nil
		}
		return files.Watch(cfg, c.document)
	}
	if files == nil && !c.bias {
		observe = nil
	}
	run, err := settle(c, prediction.SettlingSteps, show, observe)
	if files != nil {
		err = errors.Join(err, files.End(err))
	}
	if err != nil {
		return doc, simulationError(c.document, err)
	}
	doc = simulation{
		Summary: run.Summary, Attribution: run.attribution, Verl: verlMetrics(run.Summary), steps: run.Series, tried: run.tried, Ledger: run.Ledger, Events: run.Events,
		Settled: run.settled(), Unsettled: append([]unsettledFigure{}, run.unsettled...), Warmup: run.warmup, Confidence: run.confidence,
		Predicted: predicted{
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

// simulationError says what to do about a simulation that did not end.
func simulationError(d config.Config, err error) error {
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
	r := d.Rollout
	for _, failure := range []struct {
		key   string
		given bool
	}{
		{"rollout.tools.failure_rate", r.Tools.FailureRate > 0},
		{"rollout.sandbox.failure_rate", r.Sandbox.FailureRate > 0},
		{"rollout.sandbox.start_timeout_s", r.Sandbox.StartTimeoutS > 0},
		{"rollout.sandbox.mtbf_s", r.Sandbox.MTBFS > 0},
		{"train.failure_rate", d.Train.FailureRate > 0},
		{"failures.engine_mtbf_s", d.Failures.EngineMTBFS > 0},
		{"failures.engine_plan", len(d.Failures.EnginePlan) > 0},
	} {
		if failure.given {
			keys = append(keys, failure.key)
		}
	}
	return keys
}

// programName is what a trace says it was written by.
func programName() string { return "headway " + currentBuild().Version }
