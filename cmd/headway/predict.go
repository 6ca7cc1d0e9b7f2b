package main

import (
	"math"
	"strings"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/command"
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/loop/workload"
	"github.com/headway-rl/headway/predict/experiment"
	"github.com/headway-rl/headway/predict/theory"
)

// predictCmd answers by closed forms, before anything runs. It takes either a
// document or flags: where a document says everything, --set changes it.
type predictCmd struct {
	judgement
	File string   `arg:"" optional:"" help:"A document; its sections modelled, rollout, train, queue, sync and filter are used."`
	Set  []string `name:"set" sep:"none" placeholder:"KEY=VALUE" help:"Override a key of FILE by its dotted path. Repeatable."`

	ClosedForm bool `help:"Never simulate what no closed form covers; leave it unknown."`

	predictFlags
}

// predictFlags are a setting without a document. Pointers tell what was given.
type predictFlags struct {
	Concurrency    *float64 `placeholder:"C" help:"Slots that generate at once, in rollouts."`
	Batch          *float64 `placeholder:"B" help:"Rollouts of one train step."`
	Group          *int     `placeholder:"S" help:"Rollouts of one prompt (default 8)."`
	QueueFactor    *float64 `placeholder:"Q" help:"Queue capacity over batch, at least 1 (default 1)."`
	Utilization    *float64 `placeholder:"RHO" help:"Rollout over train throughput; below 1 the trainer waits."`
	TailMultiplier *float64 `placeholder:"M" help:"Mean longest of a group over mean length; instead of --tailness."`
	MeanTokens     *float64 `placeholder:"N" help:"Nominal mean of a lognormal length (default 1400); with --tailness."`
	Tailness       *float64 `placeholder:"T" help:"Tail of the lognormal, 0 (all the same) to 100."`
	CapTokens      *int     `placeholder:"N" help:"Longest response (default: no cap); with --tailness."`
	Policy         *string  `placeholder:"NAME" help:"Queue policy: drop (default), max, block, or synchronous for that schedule; a FILE takes the others too."`
	MaxStaleness   *int     `placeholder:"N" help:"Staleness budget of --policy max, in versions."`
	Select         *string  `placeholder:"NAME" help:"Selection order: oldest (default), newest, oldest-version, fresh."`
	Start          *string  `placeholder:"NAME" help:"Start order: stream (default), gang."`
	StepTime       *float64 `placeholder:"S" help:"The train step alone, in seconds; makes periods absolute."`
	SyncTime       *float64 `placeholder:"S" help:"Time of a weight sync, in seconds; needs --step-time."`
	SyncMode       *string  `placeholder:"NAME" help:"Weight sync: in_flight (default), pause, restart, drain."`
	SyncTrainer    *string  `placeholder:"NAME" help:"Trainer during a sync: free (default), blocked."`
	SyncEvery      *int     `placeholder:"N" help:"Train steps per sync (default 1)."`
	Acceptance     *float64 `placeholder:"A" help:"Share of groups that are not filtered (default 1)."`
	Budget         *int     `placeholder:"N" help:"Also report the share of groups staler than N versions."`
	SpeedRatio     *float64 `placeholder:"B" help:"Tokens/s of a train GPU over those of a rollout GPU, to price a split (default 1)."`
}

// Run predicts and prints.
func (c *predictCmd) Run(application *app.Process) error {
	in, why, err := c.input()
	if err != nil {
		return err
	}
	in = in.WithDefaults()
	stop := command.Working(application, "simulating")
	a, err := experiment.AnswerTo(in, why, c.ClosedForm, func() (config.Config, error) { return c.document(in) })
	stop()
	if err != nil {
		return err
	}
	err = c.print(application, a, a.First(in), func(columns int) string { return a.Text(in, columns) })
	if err == nil && a.Simulated != nil && !a.Simulated.Settled {
		return failure.Run("headway simulate with a larger steps.measured, or --accept-unsettled", "not settled after %d simulated train steps: %s", a.Simulated.Steps, a.Simulated.Why)
	}
	return err
}

// document is what a simulation of the command line simulates.
func (c *predictCmd) document(in theory.Input) (config.Config, error) {
	if c.File == "" && len(c.Set) == 0 {
		return experiment.DocumentOf(in, c.lengthSpec(), c.Tailness != nil)
	}
	d, err := config.Load(c.File, c.Set...)
	if err != nil {
		return d, err
	}
	return d.ForSimulation()
}

// input is the setting of the command line, and why no closed form covers it.
func (c *predictCmd) input() (in theory.Input, why string, err error) {
	given := c.given()
	if c.File == "" && len(c.Set) == 0 {
		in, err = c.fromFlags()
		return in, "", err
	}
	if len(given) > 0 {
		return in, "", failure.Usage("change keys of the document by --set KEY=VALUE",
			"%s cannot stand beside a document, which says it already", strings.Join(given, ", "))
	}
	document, err := config.Load(c.File, c.Set...)
	if err != nil {
		return in, "", err
	}
	if in, err = experiment.Input(document); err != nil {
		return in, "", err
	}
	set(&in.BudgetVersions, c.Budget)
	set(&in.SpeedRatio, c.SpeedRatio)
	why, in, err = experiment.Covered(document, in)
	return in, why, err
}

// given lists the flags that say what a document says too.
func (f *predictFlags) given() []string {
	var names []string
	for _, flag := range []struct {
		name  string
		given bool
	}{
		{"--concurrency", f.Concurrency != nil}, {"--batch", f.Batch != nil}, {"--group", f.Group != nil},
		{"--queue-factor", f.QueueFactor != nil}, {"--utilization", f.Utilization != nil},
		{"--tail-multiplier", f.TailMultiplier != nil}, {"--mean-tokens", f.MeanTokens != nil},
		{"--tailness", f.Tailness != nil}, {"--cap-tokens", f.CapTokens != nil},
		{"--policy", f.Policy != nil}, {"--max-staleness", f.MaxStaleness != nil}, {"--select", f.Select != nil},
		{"--start", f.Start != nil}, {"--step-time", f.StepTime != nil}, {"--sync-time", f.SyncTime != nil},
		{"--sync-mode", f.SyncMode != nil}, {"--sync-trainer", f.SyncTrainer != nil},
		{"--sync-every", f.SyncEvery != nil}, {"--acceptance", f.Acceptance != nil},
	} {
		if flag.given {
			names = append(names, flag.name)
		}
	}
	return names
}

// fromFlags builds the setting that the flags describe.
func (f *predictFlags) fromFlags() (theory.Input, error) {
	var missing []string
	for _, flag := range []struct {
		name  string
		given bool
	}{
		{"--concurrency", f.Concurrency != nil}, {"--batch", f.Batch != nil}, {"--utilization", f.Utilization != nil},
		{"--tail-multiplier or --tailness", f.TailMultiplier != nil || f.Tailness != nil},
	} {
		if !flag.given {
			missing = append(missing, flag.name)
		}
	}
	if len(missing) > 0 {
		return theory.Input{}, failure.Usage("headway predict --help lists the flags; a FILE instead says everything",
			"missing %s", strings.Join(missing, ", "))
	}
	in := theory.Input{GroupSize: 8}
	set(&in.ConcurrencyRollouts, f.Concurrency)
	set(&in.BatchRollouts, f.Batch)
	set(&in.GroupSize, f.Group)
	set(&in.Utilization, f.Utilization)
	set(&in.TailMultiplier, f.TailMultiplier)
	set(&in.Policy, f.Policy)
	set(&in.MaxStaleness, f.MaxStaleness)
	set(&in.Select, f.Select)
	set(&in.Start, f.Start)
	set(&in.StepS, f.StepTime)
	set(&in.SyncTimeS, f.SyncTime)
	set(&in.SyncMode, f.SyncMode)
	set(&in.SyncTrainer, f.SyncTrainer)
	set(&in.BudgetVersions, f.Budget)
	set(&in.SpeedRatio, f.SpeedRatio)
	in = in.WithDefaults()
	// After the defaults, so that a zero that was typed is refused as such.
	set(&in.QueueFactor, f.QueueFactor)
	set(&in.Acceptance, f.Acceptance)
	set(&in.SyncEvery, f.SyncEvery)
	if err := f.refuseZeros(in); err != nil {
		return in, experiment.FlagError(err)
	}
	if err := f.refusePairs(in); err != nil {
		return in, err
	}
	return in, f.lengths(&in)
}

// refusePairs refuses flags that no run could have together.
func (f *predictFlags) refusePairs(in theory.Input) error {
	groups := in.BatchRollouts / float64(in.GroupSize)
	switch {
	case in.GroupSize > 0 && groups != math.Trunc(groups):
		return failure.Usage("choose a multiple of --group", "--batch %g is not a whole number of groups of %d", in.BatchRollouts, in.GroupSize)
	case in.Policy == theory.PolicyMax && f.MaxStaleness == nil:
		return failure.Usage("give the budget by --max-staleness N", "--policy max needs a staleness budget")
	case in.Policy != theory.PolicyMax && f.MaxStaleness != nil:
		return failure.Usage("add --policy max, or ask for the share over a budget by --budget", "--max-staleness is the budget of --policy max, and the policy is %s", in.Policy)
	}
	return nil
}

// refuseZeros validates what a default would silently replace.
func (f *predictFlags) refuseZeros(in theory.Input) error {
	for _, flag := range []struct {
		field string
		zero  bool
		want  string
	}{
		{"queue_factor", in.QueueFactor == 0, "at least 1"},
		{"acceptance", in.Acceptance == 0, "a share above 0 and up to 1"},
		{"sync_every", in.SyncEvery == 0, "at least 1"},
		{"tail_multiplier", f.TailMultiplier != nil && *f.TailMultiplier == 0, "at least 1"},
		{"step_time", f.StepTime != nil && *f.StepTime == 0, "seconds above 0"},
		{"speed_ratio", f.SpeedRatio != nil && *f.SpeedRatio == 0, "above 0"},
	} {
		if flag.zero {
			return &workload.FieldError{Field: flag.field, Value: 0, Allowed: flag.want}
		}
	}
	return nil
}

// lengths builds the length distribution that the flags describe, if they do.
func (f *predictFlags) lengths(in *theory.Input) error {
	if f.Tailness == nil {
		if f.MeanTokens != nil || f.CapTokens != nil {
			return failure.Usage("add --tailness, 0 for lengths that are all the same", "--mean-tokens and --cap-tokens describe a length distribution, which needs --tailness too")
		}
		return nil
	}
	lengths, err := f.lengthSpec().Build()
	if err != nil {
		return experiment.FlagError(err)
	}
	in.Lengths = lengths
	return nil
}

// lengthSpec is the lognormal that the flags describe.
func (f *predictFlags) lengthSpec() workload.LengthSpec {
	spec := workload.LengthSpec{Kind: workload.KindLognormal, MeanTokens: 1400}
	set(&spec.MeanTokens, f.MeanTokens)
	set(&spec.Tailness, f.Tailness)
	set(&spec.CapTokens, f.CapTokens)
	return spec
}

// set copies a flag's value where it was given.
func set[T any](target *T, flag *T) {
	if flag != nil {
		*target = *flag
	}
}
