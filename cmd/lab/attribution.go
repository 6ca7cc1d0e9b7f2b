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

// studyAttributionCmd is the study of what the named source of staleness is worth.
type studyAttributionCmd struct {
	command.Output
	Out   string `placeholder:"DIR" help:"Write attribution.md and attribution.json into this folder; made if it is missing."`
	Runs  int    `default:"200" placeholder:"N" help:"Random simulated runs."`
	Steps int    `default:"600" placeholder:"N" help:"Train steps measured of each, after its warm-up."`
	Seed  uint64 `default:"1" placeholder:"N" help:"Seed of the first run; the others follow it."`
}

// Help says what is printed.
func (c *studyAttributionCmd) Help() string {
	return "Draws runs at random (group, batch, slots, queue, policy, selection, sync, inner steps, hold, ρ, tails, environments) and attributes their staleness. It simulates each again without one source after the other, the rest held. The page docs/attribution.md says how a source is removed."
}

// Run simulates and prints.
func (c *studyAttributionCmd) Run(a *app.Process) error {
	if c.Runs < 1 || c.Runs > 100_000 || c.Steps < 1 || c.Steps > 1_000_000 || c.Seed == 0 {
		return failure.Usage("go run ./cmd/lab study attribution --help lists its flags", "--runs %d, --steps %d and --seed %d must be 1 to 100000, 1 to 1000000 and at least 1", c.Runs, c.Steps, c.Seed)
	}
	files := studyFiles{Out: c.Out}
	if err := files.folder(); err != nil {
		return err
	}
	ctx, stop := command.Interruptible()
	defer stop()
	show := newStudyProgress(a)
	result, err := study.RunAttribution(ctx, study.AttributionOptions{Runs: c.Runs, Steps: c.Steps, First: c.Seed}, show.update)
	show.Clear()
	if errors.Is(err, context.Canceled) {
		return failure.Run("--runs 20 takes seconds", "the study was interrupted")
	}
	if err != nil {
		return err
	}
	from := provenance(a, fmt.Sprintf("go run ./cmd/lab study attribution --runs %d --steps %d --seed %d", c.Runs, c.Steps, c.Seed))
	markdown := func(w io.Writer) error { return study.AttributionMarkdown(w, result, from) }
	document := struct {
		study.Provenance
		study.Attribution
	}{from, result}
	return files.save(a, "attribution", c.JSON, document, markdown)
}
