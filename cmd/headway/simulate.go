package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/command"
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/observe/report"
	"github.com/headway-rl/headway/predict/experiment"
)

// simulateCmd runs a document in virtual time.
type simulateCmd struct {
	command.Output
	timelineOptions
	File   string   `arg:"" optional:"" help:"The document; its sections modelled, rollout, train, queue, sync, filter, prompts, failures and steps are used. Without one give at least --set modelled.train.utilization=0.9."`
	Set    []string `name:"set" sep:"none" placeholder:"KEY=VALUE" help:"Override a key of FILE by its dotted path. Repeatable."`
	Seeds  int      `default:"1" placeholder:"N" help:"Simulate N seeds, starting with the document's; intervals are then over seeds."`
	Grid   []string `sep:"none" placeholder:"KEY=V1,V2" help:"Simulate every value of a key, all combinations if repeated, on all cores. A value may be a range: 0.3..3/0.1, 16..1024x2, 0.5..2#7."`
	Out    string   `placeholder:"FILE" help:"Stream a grid's results to a new FILE.csv or FILE.parquet, one row per setting."`
	HTML   string   `name:"html" placeholder:"FILE" help:"Write a grid as a self-contained page: lines, maps and a table."`
	Resume bool     `help:"Go on with an interrupted grid's FILE.csv."`
	Yes    bool     `help:"Start what takes long, or much memory, without asking."`
	Accept bool     `name:"accept-unsettled" help:"Report means that have not settled, marked, instead of refusing them."`
	Bias   bool     `help:"Compare what is trained with what is started: by length, environment time, prompt, level, and length against order in a batch."`
	Trace  string   `placeholder:"OUT" help:"Write the trace of a single simulation to a new file, compressed where its name ends with .zst; headway replay reads both."`
}

// Help explains what the flags together are for; the command line prints it after the flags.
func (c *simulateCmd) Help() string {
	return `Warm-up steps are not counted. The key steps.warmup sets their number. Without it the
simulator chooses it, 300 at least, so that the measured steps no longer drift. Means come
with 95 % intervals: by batch means over the measured steps or, with --seeds, over seeds.
A mean that has not settled is refused, with exit code 1 and the setting to change.

  headway simulate FILE                                    one setting
  headway simulate FILE --seeds 8                          intervals over seeds
  headway simulate FILE --grid modelled.train.utilization=0.3..3/0.1 --grid queue.factor=1,2,4
  headway simulate FILE --grid rollout.concurrency=64..4096x2 --out sweep.csv

Ranges of a grid: FROM..TO/STEP adds STEP, FROM..TOxFACTOR multiplies by FACTOR,
FROM..TO#N takes N values evenly spaced. docs/reference/columns.md has every column of --out.`
}

// Run simulates and prints.
func (c *simulateCmd) Run(application *app.Process) error {
	if c.Seeds == 1 && len(c.Grid) == 0 && c.Out == "" && c.HTML == "" {
		return c.single(application)
	}
	if c.Trace != "" || c.Timeline != "" {
		return failure.Usage(experiment.FlagsHint, "--trace and --timeline are of one simulation, and --seeds and --grid make several")
	}
	return c.several(application)
}

// affordable refuses a grid that would take long, unless it is asked for by --yes.
func (c *simulateCmd) affordable(application *app.Process, g *experiment.Grid) error {
	if c.Yes {
		return nil
	}
	long := g.Long(application.Now)
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
		return failure.Usage(experiment.FlagsHint, "--resume goes on with a grid that was written by --out")
	}
	one, err := c.first()
	if err != nil {
		return err
	}
	warn(application, one.Document.Warnings())
	if takes := experiment.Costly(one.Document); takes != "" && !c.Yes {
		return failure.Usage("--yes starts it all the same; fewer slots or a smaller steps.measured take less", "%s", takes)
	}
	files, err := c.files()
	if err != nil {
		return err
	}
	prediction, err := experiment.Expect(one.Document, one.Setting)
	if err != nil {
		return errors.Join(experiment.KeyError(err), files.End(err))
	}
	doc, err := experiment.Simulate(one, prediction, files.recorder(), newStepProgress(application))
	if err != nil {
		return err
	}
	doc.Took(application.Now().Sub(began).Seconds())
	var refused error
	if !doc.Settled && !c.Accept {
		refused = experiment.Refusal(one.Document, &doc)
	}
	switch {
	case c.JSON:
		err = doc.WriteJSON(application.Stdout, refused == nil)
	case refused == nil:
		err = doc.Text(application.Stdout, one.Document)
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
func (f simulationFiles) recorder() experiment.Recorder {
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

// first resolves the first simulation of a command line.
func (c *simulateCmd) first() (experiment.Case, error) {
	g, err := c.grid()
	if err != nil {
		return experiment.Case{}, err
	}
	return g.Case(0)
}

// grid is every simulation that the command line asks for.
func (c *simulateCmd) grid() (*experiment.Grid, error) {
	return experiment.NewGrid(experiment.Request{File: c.File, Set: c.Set, Keys: c.Grid, Seeds: c.Seeds, Bias: c.Bias})
}

func seconds(ns int64) float64 { return float64(ns) / 1e9 }

// warn prints what is doubtful about documents.
func warn(application *app.Process, warnings []config.Warning) {
	for _, w := range warnings {
		fmt.Fprintf(application.Stderr, "warning: %s\n", w)
	}
}

// programName is what a trace says it was written by.
func programName() string { return "headway " + command.CurrentBuild().Version }

// several makes all simulations of a grid on all cores, and reports them in their order.
func (c *simulateCmd) several(application *app.Process) error {
	began := application.Now()
	g, err := c.grid()
	if err != nil {
		return err
	}
	warnings, err := g.Check()
	if err != nil {
		return err
	}
	if err := c.affordable(application, g); err != nil {
		return err
	}
	if c.Out == "" && g.Simulations() > experiment.ReportMax {
		return failure.Usage("--out FILE.csv or FILE.parquet takes any number", "%s simulations are more than can be printed at once (%s)",
			report.Count(g.Simulations()), report.Count(experiment.ReportMax))
	}
	if c.Bias && (c.Out != "" || !c.JSON) {
		return failure.Usage("leave --bias out, add --json without --out, or simulate one setting with one seed", "--bias is of one simulation, or of each in --json")
	}
	if c.Resume && c.Out == "" {
		return failure.Usage(experiment.FlagsHint, "--resume goes on with the file that --out names")
	}
	warn(application, warnings)
	if c.Out != "" {
		return c.stream(application, g, began)
	}
	return c.collect(application, g, began)
}

// runGrid makes the simulations of a grid behind those that were made earlier, and shows how far it is.
func runGrid(application *app.Process, g *experiment.Grid, earlier experiment.Tally, take func(*experiment.Point) error) (experiment.Tally, error) {
	show := &gridProgress{newTicker(application, "simulations", earlier.Settings*g.Seeds), g.Simulations()}
	defer show.Clear()
	return g.Run(earlier, show.update, take)
}

// gridReport is what headway simulate --json prints of a grid, or of several seeds.
type gridReport struct {
	// Points has one point a setting, in the order of the grid.
	Points []*experiment.Point `json:"points"`
	// Runs has every simulation, of every seed.
	Runs []any `json:"runs"`
	// Events of all simulations; EventsPerS is null where no time was seen to pass.
	Events     int64    `json:"events"`
	EventsPerS *float64 `json:"events_per_s"`
	WallS      float64  `json:"wall_s"`
}

// collect keeps every result, and prints them together.
func (c *simulateCmd) collect(application *app.Process, g *experiment.Grid, began time.Time) error {
	page, err := createPage(c.HTML, g)
	if err == nil && page != nil { // it can be made, and is at the end: an interrupt in between leaves nothing
		err = errors.Join(page.Close(), os.Remove(c.HTML))
	}
	if err != nil {
		return err
	}
	var points []*experiment.Point
	var runs []any
	count, err := runGrid(application, g, experiment.Tally{}, func(p *experiment.Point) error {
		points = append(points, p)
		if c.JSON {
			runs = append(runs, p.Runs(c.Accept)...)
		}
		p.Forget()
		return nil
	})
	if err != nil {
		return err
	}
	if len(points) == 1 && points[0].Err() != nil {
		return points[0].Err()
	}
	for _, p := range points {
		p.Publish(c.Accept)
	}
	if page, err = createPage(c.HTML, g); err != nil {
		return err
	}
	if err := writePage(page, g, points, c.Accept, nil); err != nil {
		return fmt.Errorf("--html %s: %w", c.HTML, err)
	}
	wall := application.Now().Sub(began).Seconds()
	if c.JSON {
		err = printJSON(application.Stdout, gridReport{points, runs, count.Events, eventRate(count.Events, wall), wall})
	} else {
		err = experiment.WriteTable(application.Stdout, points, c.Accept)
	}
	return errors.Join(err, count.Verdict(c.Accept))
}
