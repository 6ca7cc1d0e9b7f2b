package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/command"
	"github.com/headway-rl/headway/cmd/lab/study"
	"github.com/headway-rl/headway/internal/failure"
)

// studyControlCmd is the study of the controller.
type studyControlCmd struct {
	studyFiles
	Seeds int      `placeholder:"N" help:"Seeds of every arm, the same for all; one gives no interval. Default 20, with --live 3."`
	Drift []string `placeholder:"NAME" help:"Drifts: lengths, tools, solve, engines, step. Default all."`
	World []string `placeholder:"NAME" help:"Worlds: rollout-bound, rollout-bound-crowded, train-bound, train-bound-crowded. Default all."`
	Goal  []string `placeholder:"GOAL" help:"Goals: a mean staleness such as 2, or rollouts:SHARE:VERSIONS or tokens:SHARE:VERSIONS such as tokens:0.95:4. Default 2, 3.5 and tokens:0.95:4; with --live 2.5 and tokens:0.95:4."`
	// Live and what follows are of live runs.
	Live      bool `help:"Judge it in live runs of embedded engines, and in simulations of the same documents."`
	Simulated bool `help:"With --live: the simulations alone."`
}

// Help says what is compared.
func (c *studyControlCmd) Help() string {
	return "Runs the controller in simulation, under drifting lengths, tool calls, solve rates, engines and step times. Beside it run fixed settings (the best at the start, and with hindsight) and prime-rl's AIMD. AReaL's bound (η the goal, and the best η at the start) and an oracle that re-plans with perfect knowledge run too. The figures are the share of steps that hold the goal, throughput over the oracle's, and oscillation. The page docs/studies/control.md describes each arm."
}

// options reads the flags.
func (c *studyControlCmd) options() (study.ControlOptions, error) {
	if c.Seeds == 0 {
		c.Seeds = controlSeeds
		if c.Live {
			c.Seeds = controlLiveSeeds
		}
	}
	opt := study.ControlOptions{Seeds: c.Seeds, Quick: c.Quick}
	if c.Seeds < 1 || c.Seeds > 1000 {
		return opt, failure.Usage("go run ./cmd/lab study control --help lists its flags", "--seeds is %d, want 1 to 1000", c.Seeds)
	}
	var err error
	drifts := study.ControlDrifts
	if c.Live {
		drifts = study.ControlLiveDrifts
	}
	if opt.Drifts, err = named("--drift", c.Drift, drifts, func(d study.ControlDrift) string { return d.Name }); err != nil {
		return opt, err
	}
	if len(c.World) > 0 {
		if opt.Worlds, err = named("--world", c.World, study.ControlWorlds, func(w study.ControlWorld) string { return w.Name }); err != nil {
			return opt, err
		}
	}
	for _, text := range c.Goal {
		goal, err := study.ParseControlGoal(text)
		if err != nil {
			return opt, failure.Usage("--goal 2, or --goal tokens:0.95:4", "--goal: %w", err)
		}
		if !slices.Contains(opt.Goals, goal) {
			opt.Goals = append(opt.Goals, goal)
		}
	}
	return opt, nil
}

// named picks those that are asked for, in the order of all; none asked for is all of them.
func named[T any](flag string, wanted []string, all []T, name func(T) string) (picked []T, err error) {
	var names []string
	for _, one := range all {
		names = append(names, name(one))
		if len(wanted) == 0 || slices.Contains(wanted, name(one)) {
			picked = append(picked, one)
		}
	}
	for _, w := range wanted {
		if !slices.Contains(names, w) {
			return nil, failure.Usage("they are "+strings.Join(names, ", "), "%s: there is none named %q", flag, w)
		}
	}
	return picked, nil
}

// plansFile holds what was searched for the oracle.
const plansFile = "oracle.jsonl"

// keep opens what is finished in the study's folder: simulations of this program, and the oracle's searches, which
// another controller leaves as they are. Nil without a folder.
func (c *studyControlCmd) keep() (kept, plans *study.Kept, err error) {
	if kept, err = c.kept(); err != nil || kept == nil {
		return nil, nil, err
	}
	ground, err := study.ControlGround()
	if err != nil {
		return nil, nil, errors.Join(err, kept.Close())
	}
	plans, err = study.OpenKept(filepath.Join(c.Out, plansFile), ground)
	if errors.Is(err, study.ErrOtherProgram) {
		err = failure.Usage("delete the file to search anew: the simulations under fixed settings have changed since", "%w", err)
	}
	if err != nil {
		return nil, nil, errors.Join(err, kept.Close())
	}
	return kept, plans, nil
}

// command is the study's command line.
func (c *studyControlCmd) command() string {
	text := fmt.Sprintf("go run ./cmd/lab study control --seeds %d", c.Seeds)
	if c.Live {
		text = fmt.Sprintf("go run ./cmd/lab study control --live --seeds %d", c.Seeds)
	}
	if c.Simulated {
		text += " --simulated"
	}
	for _, f := range []struct {
		name   string
		values []string
	}{{"--drift", c.Drift}, {"--world", c.World}, {"--goal", c.Goal}} {
		for _, v := range f.values {
			text += " " + f.name + " " + v
		}
	}
	if c.Quick {
		text += " --quick"
	}
	return text
}

// Seeds of the study where none are asked for.
const (
	controlSeeds     = 20
	controlLiveSeeds = 3
)

// Run simulates and prints.
func (c *studyControlCmd) Run(a *app.Process) error {
	opt, err := c.options()
	if err != nil {
		return err
	}
	if c.Simulated && !c.Live {
		return failure.Usage("--live --simulated, or neither", "--simulated is of --live: without that all is simulated")
	}
	if c.Live {
		return c.judgeLive(a, opt)
	}
	ctx, stop := command.Interruptible()
	defer stop()
	kept, plans, err := c.keep()
	if err != nil {
		return err
	}
	show := newStudyProgress(a)
	result, err := study.Control(ctx, opt, study.Simulator{Progress: show.update, Kept: kept, Plans: plans})
	show.Clear()
	if err = errors.Join(err, kept.Close(), plans.Close()); errors.Is(err, context.Canceled) {
		return failure.Run(c.goOn(), "the study was interrupted")
	}
	if err != nil {
		return err
	}
	from := provenance(a, c.command())
	markdown := func(w io.Writer) error { return study.ControlMarkdown(w, result, from) }
	document := struct {
		study.Provenance
		study.ControlResult
	}{from, result}
	if c.Out != "" {
		if err := c.write("control.html", func(w io.Writer) error { return study.ControlHTML(w, result, from) }); err != nil {
			return err
		}
	}
	return c.save(a, "control", c.JSON, document, markdown)
}
