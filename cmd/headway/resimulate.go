package main

import (
	"errors"
	"slices"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/command"
	"github.com/headway-rl/headway/explain/compare"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/predict/experiment"
)

// resimulateCmd says what a run would have been under other settings.
type resimulateCmd struct {
	command.Output
	Path string   `arg:"" name:"run" help:"A run directory, or a trace file."`
	Set  []string `name:"set" sep:"none" placeholder:"KEY=VALUE" help:"Change a key of the run's document, such as queue.factor=2, or a measured factor, such as times.train_step=0.5. Repeatable; in every arm."`
	Arm  []string `name:"arm" sep:"none" placeholder:"'KEY=VALUE KEY=VALUE'" help:"Another setting to compare, of one or more keys. Repeatable."`
	Grid []string `name:"grid" sep:"none" placeholder:"KEY=V1,V2" help:"Compare every value of a key, all combinations if repeated. A value may be a range, as of headway simulate."`
}

// Help explains what can be asked; the command line prints it after the flags.
func (c *resimulateCmd) Help() string {
	return `A resimulation takes a run's own rollouts and train steps through the production loop
under other settings. The same recorded group plays the same group in every arm, so that arms
differ by their settings alone. Each is compared with the run's own settings, resimulated.

  headway resimulate RUN                                        how well it reproduces the run
  headway resimulate RUN --set queue.factor=2
  headway resimulate RUN --arm queue.factor=2 --arm 'queue.policy=max queue.max_staleness=2'
  headway resimulate RUN --grid rollout.concurrency=64,128,256
  headway resimulate RUN --set times.train_step=0.5             twice as fast a trainer

Beside the keys of the document there are factors on measured times: times.train_step, times.decode
and times.environment. The key modelled.length.cap_tokens cuts responses.
The page docs/what-if.md has the assumptions, and docs/what-if-accuracy.md how near they came to runs.`
}

// Run resimulates and prints the result beside what the run measured.
func (c *resimulateCmd) Run(application *app.Process) error {
	sets, err := c.arms()
	if err != nil {
		return err
	}
	header, err := compare.Header(c.Path)
	if err != nil {
		return err
	}
	settings := make([]compare.WhatIf, len(sets))
	for i, set := range sets {
		if settings[i], err = compare.ParseWhatIf(header, set); err != nil {
			return err
		}
		if takes := experiment.Costly(settings[i].Document); takes != "" {
			return failure.Usage("choose fewer slots", "%s", takes)
		}
	}
	ctx, stop := command.Interruptible()
	defer stop()
	doc, err := compare.Resimulate(ctx, c.Path, header, settings, meterOf(application))
	if err != nil {
		return err
	}
	if err := doc.Refused(); err != nil {
		return err
	}
	if c.JSON {
		err = printJSON(application.Stdout, doc)
	} else {
		err = doc.Text(application.Stdout, command.Columns(application))
	}
	return errors.Join(err, doc.Verdict())
}

// arms are the settings asked for, each as its keys: those of --arm in every combination of --grid.
func (c *resimulateCmd) arms() ([][]string, error) {
	combined, all, err := experiment.Combinations(c.Grid, armsMax)
	if err != nil {
		return nil, err
	}
	if !all {
		return nil, failure.Usage("headway resimulate --help", "--grid: more than %d settings", armsMax)
	}
	given := make([][]string, 0, len(c.Arm))
	for _, arm := range c.Arm {
		keys := splitArm(arm)
		if len(keys) == 0 {
			return nil, failure.Usage("headway resimulate --help", "--arm %q: expected KEY=VALUE, or several of them with spaces between", arm)
		}
		given = append(given, keys)
	}
	if len(given) == 0 {
		given = [][]string{nil}
	}
	if len(given)*len(combined) > armsMax {
		return nil, failure.Usage("headway resimulate --help", "--arm and --grid make %d settings, at most %d", len(given)*len(combined), armsMax)
	}
	var sets [][]string
	for _, arm := range given {
		for _, keys := range combined {
			sets = append(sets, slices.Concat([]string{}, c.Set, arm, keys))
		}
	}
	return sets, nil
}

// armsMax bounds the settings of one comparison.
const armsMax = 1000

// splitArm splits at spaces outside of brackets and quotes.
func splitArm(text string) (keys []string) {
	depth, quote, from := 0, rune(0), -1
	for i, r := range text {
		switch {
		case quote != 0:
			if r == quote {
				quote = 0
			}
		case r == '"' || r == '\'':
			quote = r
		case r == '[' || r == '{':
			depth++
		case r == ']' || r == '}':
			depth--
		case r == ' ' && depth == 0:
			if from >= 0 {
				keys = append(keys, text[from:i])
			}
			from = -1
			continue
		}
		if from < 0 {
			from = i
		}
	}
	if from >= 0 {
		keys = append(keys, text[from:])
	}
	return keys
}
