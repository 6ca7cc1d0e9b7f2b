package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/command"
	"github.com/headway-rl/headway/cmd/lab/study"
	"github.com/headway-rl/headway/internal/failure"
)

// studyAccuracyCmd is the study of the theory against the simulator.
type studyAccuracyCmd struct {
	command.Output
	Out   string `placeholder:"DIR" help:"Write theory-accuracy.md and theory-accuracy.json into this folder; made if it is missing."`
	Small bool   `help:"About forty cells of the grid, in seconds."`
	Steps int    `placeholder:"N" help:"Train steps measured of a cell whose queue does not wander; 3000, or 1500 with --small, where not given. More where it does."`
	Seed  uint64 `default:"1" help:"Seed of every simulation."`
}

// Help says what is printed.
func (c *studyAccuracyCmd) Help() string {
	return "Simulates ρ 0.3 to 3, q 1, 2 and 5, tailness 0 to 90, C/B 0.5 to 4 and groups of 1 to 16. It prints the errors of the closed forms per regime, before and after each correction. The page docs/theory-accuracy.md is its result."
}

// Run simulates and prints.
func (c *studyAccuracyCmd) Run(a *app.Process) error {
	if c.Steps < 0 || c.Steps > 1_000_000 || c.Seed == 0 {
		return failure.Usage("go run ./cmd/lab study accuracy --help lists its flags", "--steps %d and --seed %d must be 1 to 1000000 and at least 1", c.Steps, c.Seed)
	}
	files := studyFiles{Out: c.Out}
	if err := files.folder(); err != nil {
		return err
	}
	ctx, stop := command.Interruptible()
	defer stop()
	show := newStudyProgress(a)
	result, err := study.RunAccuracy(ctx, study.AccuracyOptions{Small: c.Small, Steps: c.Steps, Seed: c.Seed}, show.update)
	show.Clear()
	if errors.Is(err, context.Canceled) {
		return failure.Run("--small takes seconds", "the study was interrupted")
	}
	if err != nil {
		return err
	}
	return c.print(a, &files, result, provenance(a, c.command()))
}

// command is what makes the figures again.
func (c *studyAccuracyCmd) command() string {
	text := "go run ./cmd/lab study accuracy"
	if c.Small {
		text += " --small"
	}
	if c.Steps > 0 {
		text += fmt.Sprintf(" --steps %d", c.Steps)
	}
	if c.Seed != 1 {
		text += fmt.Sprintf(" --seed %d", c.Seed)
	}
	return text
}

// print writes the document, to files or to stdout.
func (c *studyAccuracyCmd) print(a *app.Process, files *studyFiles, result study.Accuracy, from study.Provenance) error {
	markdown := func(w io.Writer) error { return study.AccuracyMarkdown(w, result, from) }
	document := struct {
		study.Provenance
		study.Accuracy
		Verdicts []study.ClaimCheck `json:"conclusions"`
	}{from, result, result.Checks()}
	return files.save(a, "theory-accuracy", c.JSON, document, markdown)
}
