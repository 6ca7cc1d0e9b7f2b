package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/command"
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/observe/report"
	"github.com/headway-rl/headway/predict/experiment"
	"github.com/headway-rl/headway/predict/hardware"
	"github.com/headway-rl/headway/predict/plan"
	"github.com/headway-rl/headway/predict/schedule"
)

// planCmd searches the settings of a run before a GPU is rented.
type planCmd struct {
	judgement
	File      string   `arg:"" optional:"" help:"A document with hardware, workload, prices, budget and search; without one a built-in example."`
	Set       []string `name:"set" sep:"none" placeholder:"KEY=VALUE" help:"Override a key of FILE by its dotted path. Repeatable."`
	Model     string   `placeholder:"NAME" help:"The model: hardware.model."`
	GPU       string   `name:"gpu" placeholder:"NAME" help:"The kind of GPU: hardware.gpu."`
	GPUs      string   `name:"gpus" placeholder:"N" help:"GPUs for rollout and training together: hardware.gpus."`
	Budget    string   `placeholder:"N" help:"Largest mean staleness in versions: budget.staleness_mean."`
	BudgetP95 string   `name:"budget-p95" placeholder:"N" help:"Largest 95 % quantile of staleness: budget.staleness_p95."`
	Prefer    string   `placeholder:"WHAT" help:"Optimise within the budget: speed (default) or cost. search.prefer."`
	planWork
	Finalists string   `placeholder:"N" help:"Settings simulated at the end: search.finalists."`
	Measured  []string `sep:"none" placeholder:"RUN" help:"Take speeds, lengths and sync time from a run directory, its trace, or a document of measured keys. Repeatable."`
	Calibrate []string `sep:"none" hidden:"" help:"Earlier name of --measured."`
	Write     string   `placeholder:"FILE" help:"Write the recommended setting as a new document to simulate, predict and examine. Its engines are the built-in toy: run and serve refuse it. docs/plan.md says what to change for your cluster."`
	HTML      string   `name:"html" placeholder:"OUT" help:"Write the plan as a new page with the frontier to explore."`
	Schedules bool     `help:"Compare schedules at the recommended split instead: synchronous, one step off, streamed, fully async, partial rollout."`
	Presets   bool     `help:"List the models and GPUs that are known instead, with their sources."`
}

// planWork describes the work: the flags are those of headway predict.
type planWork struct {
	MeanTokens   string `placeholder:"N" help:"Nominal mean length of a response: modelled.length.mean_tokens."`
	Tailness     string `placeholder:"T" help:"Tail of the lengths, 0 (all the same) to 100: modelled.length.tailness."`
	CapTokens    string `placeholder:"N" help:"Longest response: modelled.length.cap_tokens."`
	PromptTokens string `placeholder:"N" help:"Mean length of a prompt: hardware.prompt_tokens."`
	Group        string `placeholder:"S" help:"Rollouts of one prompt: rollout.group_size."`
}

// describesWork reports whether anything of the work was given.
func (c *planCmd) describesWork() bool { return c.planWork != planWork{} || len(c.Measured) > 0 }

// Run plans and prints.
func (c *planCmd) Run(application *app.Process) error {
	if len(c.Calibrate) > 0 {
		return renamedFlag("plan --calibrate")
	}
	if c.Write != "" && (c.Presets || c.Schedules) {
		return failure.Usage("headway plan without --schedules and --presets writes the document", "--write writes the plan's setting, and something else is asked for")
	}
	if c.Presets {
		return c.presets(application)
	}
	if err := c.paths(); err != nil {
		return err
	}
	problem, err := c.problem(application)
	if err != nil {
		return err
	}
	show := &planProgress{command.NewStatusLine(application)}
	problem.Progress = show.update
	made, err := plan.Make(&problem)
	show.Clear()
	if err != nil {
		return err
	}
	if c.File == "" && !c.describesWork() {
		made.Warnings = append([]string{fmt.Sprintf("the work is the built-in example's, responses of %s tokens: --mean-tokens, --cap-tokens, --tailness, --prompt-tokens, --group or a FILE describe yours",
			report.Figure(made.Workload.MeanTokens, 0))}, made.Warnings...)
	}
	made.PriceAssumed = c.File == "" && !slices.ContainsFunc(c.Set, func(set string) bool {
		return strings.HasPrefix(set, "prices.gpu_hour=") || strings.HasPrefix(set, "prices=")
	})
	if c.File == "" && c.Budget == "" && c.BudgetP95 == "" && !slices.ContainsFunc(c.Set, func(set string) bool { return strings.HasPrefix(set, "budget") }) {
		made.Assumed = fmt.Sprintf("no budget was given: the built-in example's mean staleness of at most %s versions is taken; --budget sets another", report.Figure(made.Budget.StalenessMean, 0))
	}
	if c.Schedules {
		err = c.schedules(application, &problem, made)
	} else if err = c.print(application, made, made.First(), made.Text); err == nil {
		err = c.files(application, &problem, made)
	}
	if err == nil && !made.Met {
		err = failure.Run("relax the bound it names, or give more GPUs", "no setting keeps the budget")
	}
	return err
}

// problem resolves the document and what its GPUs can do.
func (c *planCmd) problem(application *app.Process) (plan.Problem, error) {
	raw, err := c.document(application)
	if err != nil {
		return plan.Problem{}, err
	}
	return experiment.PlanProblem(raw, func(w config.Warning) { fmt.Fprintf(application.Stderr, "warning: %s\n", w) })
}

// document reads FILE, or the example, and applies what flags and calibrations say.
func (c *planCmd) document(application *app.Process) (config.Config, error) {
	var raw config.Config
	var err error
	if c.File == "" {
		raw, err = config.Parse("built-in example", plan.Example)
	} else {
		raw, err = config.Read(c.File)
	}
	if err != nil {
		return raw, err
	}
	var overrides []config.Override
	for _, run := range c.Measured {
		keys, err := measuredOf(application, run)
		if err != nil {
			return raw, err
		}
		overrides = append(overrides, keys...)
	}
	for _, flag := range []struct{ name, key, value string }{
		{"--model", "hardware.model", c.Model}, {"--gpu", "hardware.gpu", c.GPU}, {"--gpus", "hardware.gpus", c.GPUs},
		{"--budget", "budget.staleness_mean", c.Budget}, {"--budget-p95", "budget.staleness_p95", c.BudgetP95},
		{"--prefer", "search.prefer", c.Prefer}, {"--finalists", "search.finalists", c.Finalists},
		{"--mean-tokens", "modelled.length.mean_tokens", c.MeanTokens}, {"--tailness", "modelled.length.tailness", c.Tailness}, {"--cap-tokens", "modelled.length.cap_tokens", c.CapTokens},
		{"--prompt-tokens", "hardware.prompt_tokens", c.PromptTokens}, {"--group", "rollout.group_size", c.Group},
	} {
		if flag.value != "" {
			overrides = append(overrides, config.Override{Flag: flag.name, Text: flag.key + "=" + flag.value})
		}
	}
	for _, text := range c.Set {
		overrides = append(overrides, config.Override{Text: text})
	}
	return raw.SetWith(overrides...)
}

// paths refuses, before anything is searched, files that exist or cannot be made.
func (c *planCmd) paths() error {
	if c.Write != "" && c.Write == c.HTML {
		return failure.Usage("name two files", "--write and --html both name %s", c.Write)
	}
	for _, f := range []struct{ flag, path string }{{"--write", c.Write}, {"--html", c.HTML}} {
		if f.path == "" {
			continue
		}
		file, err := createFile(f.flag, f.path)
		if err != nil {
			return err
		}
		if err := errors.Join(file.Close(), os.Remove(f.path)); err != nil {
			return failure.Usage("name a file in a folder that can be written to", "%s: %w", f.flag, err)
		}
	}
	return nil
}

// files writes what --write and --html ask for.
func (c *planCmd) files(application *app.Process, problem *plan.Problem, made *plan.Plan) error {
	if c.Write != "" {
		text, err := problem.Written(&made.Recommended)
		if err != nil {
			return err
		}
		if err := os.WriteFile(c.Write, text, 0o644); err != nil {
			return failure.Usage("name a file in a folder that can be written to", "--write: %w", err)
		}
		fmt.Fprintf(application.Stderr, "%s is written\n", c.Write)
	}
	if c.HTML == "" {
		return nil
	}
	if err := writeWhole(c.HTML, func(w io.Writer) error { return made.HTML(w) }); err != nil {
		return failure.Usage("name a file in a folder that can be written to", "--html: %w", err)
	}
	fmt.Fprintf(application.Stderr, "%s is written\n", c.HTML)
	return nil
}

// schedules compares the schedules at the recommended split.
func (c *planCmd) schedules(application *app.Process, problem *plan.Problem, made *plan.Plan) error {
	at := &made.Recommended
	about := []string{fmt.Sprintf("%d rollout + %d train GPUs, batch %d, %d slots a replica: the plan's recommended setting.", at.RolloutGPUs, at.TrainGPUs, at.BatchRollouts, at.SlotsPerReplica)}
	for _, note := range made.Machine.Notes {
		about = append(about, report.Capital(note)+".")
	}
	return planSchedules(application, plan.Schedules(problem, at), schedulesOptions{JSON: c.JSON, HTML: c.HTML, Columns: command.Columns(application), About: about})
}

// presets lists models and GPUs.
func (c *planCmd) presets(application *app.Process) error {
	if c.JSON {
		return printJSON(application.Stdout, map[string]any{"models": hardware.Models(), "gpus": hardware.GPUs()})
	}
	models := report.Table{Header: []string{"model", "parameters", "active", "source"}}
	for _, m := range hardware.Models() {
		models.Rows = append(models.Rows, []string{m.Name, fmt.Sprintf("%.3g B", m.Parameters/1e9), fmt.Sprintf("%.3g B", m.Active()/1e9), m.Source})
	}
	gpus := report.Table{Header: []string{"GPU", "memory GB", "GB/s", "bf16 TFLOP/s", "source"}}
	for _, g := range hardware.GPUs() {
		gpus.Rows = append(gpus.Rows, []string{g.Name, fmt.Sprintf("%.0f", g.MemoryBytes/(1<<30)), fmt.Sprintf("%.0f", g.MemoryBytesPerS/1e9), fmt.Sprintf("%.0f", g.BF16/1e12), g.Source})
	}
	_, err := fmt.Fprintf(application.Stdout, "%s\n%s", models, gpus)
	return err
}

// planProgress tells on stderr how far a plan is: in place on a terminal, now and
// then elsewhere.
type planProgress struct{ command.StatusLine }

// update is called from one goroutine at a time.
func (p *planProgress) update(stage string, done, all int) {
	if p.Due() || p.Terminal && done == all {
		p.Show(fmt.Sprintf("%s: %d of %d", stage, done, all))
	}
}

// schedulesOptions is how a comparison of schedules is printed.
type schedulesOptions struct {
	// JSON prints one document instead of tables; HTML names a page to write, "" for none.
	JSON bool
	HTML string
	// Columns of the terminal, 0 where there is none.
	Columns int
	// About says what is compared and where its figures come from, a sentence each.
	About []string
}

// planSchedules compares the schedules of a workload and prints them.
func planSchedules(a *app.Process, in schedule.Input, o schedulesOptions) error {
	comparison, err := schedule.Compare(in)
	if err != nil {
		return failure.Usage("change the document's keys that this comes from", "schedules: %w", err)
	}
	if o.HTML != "" {
		page := func(w io.Writer) error { return schedule.HTML(w, comparison, o.About) }
		if err := writeWhole(o.HTML, page); err != nil {
			return failure.Usage("name a file in a folder that can be written to", "--html: %w", err)
		}
		fmt.Fprintf(a.Stderr, "%s is written\n", o.HTML)
	}
	if o.JSON {
		return printJSON(a.Stdout, comparison)
	}
	for _, line := range o.About {
		if _, err := fmt.Fprint(a.Stdout, report.Indented("", line, o.Columns)); err != nil {
			return err
		}
	}
	return schedule.Text(a.Stdout, comparison, o.Columns)
}
