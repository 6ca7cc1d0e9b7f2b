package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/headway-rl/headway/bias"
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/metrics"
	"github.com/headway-rl/headway/sim"
	"github.com/headway-rl/headway/theory"
	"github.com/headway-rl/headway/trace"
)

// simulateCmd runs a document in virtual time.
type simulateCmd struct {
	output
	File  string   `arg:"" optional:"" help:"The document; its rollout, train, queue, sync, filter and steps sections are used."`
	Set   []string `name:"set" sep:"none" placeholder:"KEY=VALUE" help:"Override a key of FILE by its dotted path. Repeatable."`
	Seeds int      `default:"1" placeholder:"N" help:"Simulate N seeds, from the document's on."`
	Grid  []string `sep:"none" placeholder:"KEY=V1,V2" help:"Simulate every value of a key, all combinations if repeated, on all cores."`
	Bias  bool     `help:"Compare what is trained with what is started: by length, environment time, prompt, level, and length against order in a batch."`
	Trace string   `placeholder:"OUT" help:"Write the trace of a single simulation to a new file; headway replay reads it."`
}

// simulateHint is how a wrong command line is put right.
const simulateHint = "headway simulate --help lists the flags"

// Run simulates and prints.
func (c *simulateCmd) Run(application *app) error {
	began := application.Now()
	cases, err := c.cases()
	if err != nil {
		return err
	}
	warnOfCases(application, cases)
	if c.Seeds == 1 && len(c.Grid) == 0 {
		doc, err := simulate(cases[0], c.Trace, newStepProgress(application, cases[0].document.Steps))
		if err != nil {
			return err
		}
		doc.WallS = application.Now().Sub(began).Seconds()
		doc.EventsPerS = float64(doc.Events) / max(doc.WallS, 1e-9)
		if c.JSON {
			return printJSON(application.Stdout, doc)
		}
		return printSimulation(application.Stdout, cases[0], doc)
	}
	if c.Trace != "" {
		return usageError(simulateHint, "--trace %s: a trace is of one simulation, and --seeds and --grid make several", c.Trace)
	}
	return c.several(application, began, cases)
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
}

// override is one key of a grid at one value.
type override struct{ key, value string }

// cases resolves every simulation before the first one starts.
func (c *simulateCmd) cases() ([]simulateCase, error) {
	if c.Seeds < 1 || c.Seeds > seedsMax {
		return nil, usageError(simulateHint, "--seeds %d: expected 1 to %d", c.Seeds, seedsMax)
	}
	axes, err := parseGrid(c.Grid)
	if err != nil {
		return nil, err
	}
	raw, err := config.Read(c.File)
	if err != nil {
		return nil, err
	}
	var cases []simulateCase
	for _, set := range combinations(axes) {
		var overrides []config.Override
		for _, text := range c.Set {
			overrides = append(overrides, config.Override{Text: text})
		}
		for _, o := range set {
			overrides = append(overrides, config.Override{Flag: "--grid", Text: o.key + "=" + o.value})
		}
		changed, err := raw.SetWith(overrides...)
		if err != nil {
			return nil, err
		}
		document, err := changed.Resolve()
		if err == nil {
			document, err = document.ForSimulation()
		}
		if err != nil {
			return nil, err
		}
		setting, err := predictInput(document)
		if err != nil {
			return nil, err
		}
		first := document.Seed
		for i := range c.Seeds {
			document.Seed = first + uint64(i)
			cases = append(cases, simulateCase{set, document, setting, c.Bias})
		}
	}
	return cases, nil
}

// seedsMax bounds --seeds, so that a mistyped number does not exhaust memory.
const seedsMax = 100_000

// simulation is what headway simulate --json prints.
type simulation struct {
	metrics.Summary
	Series []seriesPoint `json:"series"`
	Ledger loop.Ledger   `json:"ledger"`
	// Predicted is the closed form of the same document, null where there is none.
	Predicted predicted `json:"predicted"`
	// Events are rollout completions and train-step ends, warm-up included.
	Events     int64   `json:"events"`
	EventsPerS float64 `json:"events_per_s"`
	WallS      float64 `json:"wall_s"`
	// Bias compares what was trained with what was started, where that was asked.
	Bias *bias.Report `json:"bias,omitempty"`
	// Verl are figures of the measured window under verl's names.
	Verl map[string]float64 `json:"verl"`
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

// seriesPoint is one train step of a series, units last.
type seriesPoint struct {
	Step           loop.Version `json:"step"`
	TimeS          float64      `json:"time_s"`
	PeriodS        float64      `json:"period_s"`
	TrainS         float64      `json:"train_s"`
	Staleness      float64      `json:"staleness"`
	PQS            float64      `json:"pqs"`
	IQS            float64      `json:"iqs"`
	StalenessMax   loop.Version `json:"staleness_max"`
	TokenStaleness float64      `json:"token_staleness"`
	Tokens         int64        `json:"trained_tokens"`
	TrainerIdle    float64      `json:"trainer_idle_ratio"`
	RolloutIdle    float64      `json:"rollout_idle_ratio"`
	QueueGroups    int          `json:"queue_groups"`
}

func series(steps []metrics.Step) []seriesPoint {
	points := make([]seriesPoint, len(steps))
	for i, s := range steps {
		points[i] = seriesPoint{
			Step: s.Step, TimeS: seconds(s.TimeNS), PeriodS: seconds(s.PeriodNS), TrainS: seconds(s.TrainNS),
			Staleness: s.Staleness, PQS: s.PQS, IQS: s.IQS, StalenessMax: s.StalenessMax, TokenStaleness: s.TokenStaleness,
			Tokens: s.Tokens, TrainerIdle: s.TrainerIdle, RolloutIdle: s.RolloutIdle, QueueGroups: s.QueueGroups,
		}
	}
	return points
}

func seconds(ns int64) float64 { return float64(ns) / 1e9 }

// warnOfCases says once what is doubtful about any of several documents.
func warnOfCases(application *app, cases []simulateCase) {
	said := map[config.Warning]bool{}
	for i := range cases {
		for _, w := range cases[i].document.Warnings() {
			if !said[w] {
				said[w] = true
				fmt.Fprintf(application.Stderr, "warning: %s\n", w)
			}
		}
	}
}

// simulate makes one simulation; a trace is written if a path is given, and
// progress shown if it is not nil.
func simulate(c simulateCase, tracePath string, show *stepProgress) (doc simulation, err error) {
	cfg, err := simulationConfig(c)
	if err != nil {
		return doc, err
	}
	finish := func(error) error { return nil }
	if tracePath != "" {
		if finish, err = traceSimulation(&cfg, c.document, tracePath); err != nil {
			return doc, err
		}
	}
	var observer *bias.Observer
	if c.bias {
		observer = watchBias(&cfg)
	}
	show.watch(&cfg)
	res, err := sim.Run(cfg)
	show.end()
	if err = errors.Join(err, finish(err)); err != nil {
		return doc, simulationError(err)
	}
	prediction, err := expect(c.document, c.setting)
	if err != nil {
		return doc, predictUsage(err)
	}
	doc = simulation{
		Summary: res.Summary, Verl: verlMetrics(res.Summary), Series: series(res.Series), Ledger: res.Ledger, Events: res.Events,
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
func simulationError(err error) error {
	if errors.Is(err, sim.ErrStalled) {
		return runError("a live run with these settings would wait for ever, too", "%w", err)
	}
	return err
}

// traceSimulation has a simulation written to a new file. The returned function
// ends the trace and closes the file; of a failed simulation it leaves no end.
func traceSimulation(cfg *sim.Config, document config.Config, path string) (func(error) error, error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return nil, usageError("name a file that does not exist yet", "--trace %s: the file exists, and nothing is overwritten", path)
	}
	if err != nil {
		return nil, usageError("name a file in an existing directory", "--trace: %w", err)
	}
	rules := cfg.Loop
	rules.TrainSteps = loop.Version(cfg.Warmup + cfg.Measured)
	buffered := bufio.NewWriterSize(file, 1<<20)
	w, err := trace.NewWriter(buffered, trace.Header{Program: programName(), Source: "simulation", Seed: document.Seed,
		Loop: rules, Config: string(document.YAML()), Warmup: loop.Version(cfg.Warmup)})
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	cfg.Observe = func(ev loop.Event, generateNS, environmentNS int64, actions []loop.Action) {
		w.Event(trace.Event{Event: ev, GenerateNS: generateNS, EnvironmentNS: environmentNS}, actions)
	}
	return func(failed error) error {
		if failed == nil {
			failed = w.End(nil)
		} else {
			failed = nil
		}
		if err := errors.Join(failed, buffered.Flush(), file.Close()); err != nil {
			return fmt.Errorf("--trace %s: %w", path, err)
		}
		return nil
	}, nil
}

// programName is what a trace says it was written by.
func programName() string { return "headway " + currentBuild().Version }
