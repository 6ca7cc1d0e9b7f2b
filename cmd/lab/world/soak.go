package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/command"
	"github.com/headway-rl/headway/cmd/lab/world/program"
	"github.com/headway-rl/headway/cmd/lab/world/soak"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/observe/report"
)

// soakCmd runs many seeds.
type soakCmd struct {
	Seeds    string        `required:"" placeholder:"A-B" help:"The seeds: 1-100000, or several ranges with commas."`
	For      time.Duration `placeholder:"TIME" help:"Begin no further seed after this time, such as 1h."`
	Ledger   string        `placeholder:"FILE" help:"The file that keeps count of what is done. Without it, there is one for each build in the user's cache folder."`
	Again    bool          `help:"Begin the ledger anew."`
	Failures string        `placeholder:"DIR" help:"The folder for the plans that fail: beside the ledger, unless given."`
	Most     int           `name:"failures-max" default:"100" placeholder:"N" help:"Begin no further seed after this many failures."`
	building
	limits
	command.Output
}

// soakReport is what soak says with --json.
type soakReport struct {
	*soak.Ledger
	// Complete says that all seeds that were asked for are done.
	Complete bool `json:"complete"`
	// Left counts the others.
	Left int64 `json:"left"`
	// File is the ledger's path.
	File string `json:"ledger"`
	// Ran, Counted and TookS are of this process alone.
	Ran     int64   `json:"ran"`
	Counted int64   `json:"counted"`
	TookS   float64 `json:"took_s"`
}

// Run runs the seeds that are not done.
func (c *soakCmd) Run(a *app.Process) error {
	ctx, stop := command.Interruptible()
	defer stop()
	seeds, err := soak.Parse(c.Seeds)
	if err != nil {
		return failure.Usage("", "--seeds: %w", err)
	}
	p, err := c.open(ctx, a, c.limits)
	if err != nil {
		return err
	}
	defer p.Close()
	ledger, path, err := c.count(p)
	if err != nil {
		return err
	}
	folder := c.Failures
	if folder == "" {
		folder = strings.TrimSuffix(path, ".json") + "-failures"
	}
	before, began := ledger.Totals, a.Now()
	if before.Seeds > 0 && !c.JSON {
		fmt.Fprintf(a.Stderr, "%s seeds are done already, by the ledger %s\n", report.Count(before.Seeds), path)
	}
	err = shown(ctx, a, soak.Soak{
		Run: runner(p), Seeds: seeds, Jobs: c.jobs(), For: c.For, FailuresMax: c.Most, Ledger: ledger, Path: path, Folder: folder, Now: a.Now,
	})
	r := soakReport{
		Ledger: ledger, Complete: seeds.Left(ledger.Done) == 0, Left: seeds.Left(ledger.Done), File: path,
		Ran: ledger.Totals.Seeds - before.Seeds, Counted: ledger.Totals.Counting - before.Counting, TookS: a.Now().Sub(began).Seconds(),
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	if c.JSON {
		if err := report.JSON(a.Stdout, r); err != nil {
			return err
		}
	} else {
		printSoak(a.Stdout, r)
	}
	return c.verdict(r, seeds, err)
}

// verdict is the error of a run that failed or is not complete.
func (c *soakCmd) verdict(r soakReport, seeds soak.Ranges, err error) error {
	if failed := r.failed(); failed != nil || err == nil {
		return failed
	}
	return failure.Run("the same command goes on from here", "interrupted with %s of %s seeds left", report.Count(r.Left), report.Count(seeds.Len()))
}

// failed is the error of the first seed that failed, nil if none did.
func (r soakReport) failed() error {
	if len(r.Failures) == 0 {
		return nil
	}
	first := r.Failures[0]
	return failure.Run(fmt.Sprintf("go run ./cmd/lab/world run %s shows it, and shrink makes it smaller", first.Script),
		"%s of %s failed, the first is %d: %s: %s", report.Counted(len(r.Failures), "seed"), report.Count(r.Totals.Seeds), first.Seed, first.Rule, first.Text)
}

// shown runs seeds to their end, with a line about how far they are.
func shown(ctx context.Context, a *app.Process, s soak.Soak) error {
	line := command.NewStatusLine(a)
	defer line.Clear()
	s.Progress = func(p soak.Progress) {
		if line.Due() {
			line.Show(progressText(p))
		}
	}
	return s.Start(ctx)
}

// count opens the ledger.
func (c *soakCmd) count(p *program.Program) (*soak.Ledger, string, error) {
	path := c.Ledger
	if path == "" {
		cache, err := program.Cache()
		if err != nil {
			return nil, "", err
		}
		path = filepath.Join(cache, "soak-"+p.Sum[:12]+".json")
	}
	if c.Again {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, "", err
		}
	}
	ledger, err := soak.Open(path, p.Sum)
	return ledger, path, err
}

// progressText is the line of a soak that is under way.
func progressText(p soak.Progress) string {
	s := max(p.Took.Seconds(), 1e-9)
	text := fmt.Sprintf("%s of %s seeds, %.1f a second, %.1f of them count, %d failed", report.Count(p.Totals.Seeds), report.Count(p.Wanted), float64(p.Ran)/s, float64(p.Counted)/s, p.Totals.Failed())
	if p.Left > 0 {
		text += ", " + report.Lasting(p.Left.Seconds()) + " left"
	}
	return text + "; " + counts(p.Totals.Faults)
}
