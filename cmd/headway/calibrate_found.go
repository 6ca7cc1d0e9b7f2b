package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/calibrate"
	"github.com/headway-rl/headway/app/command"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/internal/printable"
	measure "github.com/headway-rl/headway/predict/calibrate"
)

// find makes constants of what people have: pages of running servers, and runs' logs.
func (c *calibrateCmd) find(ctx context.Context, application *app.Process) error {
	line := command.NewStatusLine(application)
	told := func(share float64, text string) {
		if line.Due() {
			line.Show(fmt.Sprintf("%3.0f %%  %s", 100*share, text))
		}
	}
	found, err := c.sources(ctx, told)
	if err == nil {
		found, err = calibrate.Moves(ctx, found.Assume(), func(name string) { told(1, "predicting how far it moves: "+name) })
	}
	line.Clear()
	if err != nil {
		return err
	}
	if c.Out != "" {
		if err := os.WriteFile(c.Out, found.Document(), 0o644); err != nil {
			return failure.Run("", "%w", err)
		}
	}
	if c.JSON {
		return printJSON(application.Stdout, found)
	}
	return c.printFound(application.Stdout, found)
}

// sources reads all that is named. Of a constant that both know, the servers' own pages come first.
func (c *calibrateCmd) sources(ctx context.Context, told func(float64, string)) (found measure.Findings, err error) {
	if len(c.Metrics) > 0 {
		if found, err = c.pages(ctx, told); err != nil {
			return found, err
		}
	}
	if c.Log != "" {
		log, err := calibrate.Log(ctx, c.Log, c.From, c.LogName, told)
		if err != nil {
			return found, err
		}
		found = found.Join(log)
	}
	return found, nil
}

// pages reads servers' pages, and keeps them where that was asked for.
func (c *calibrateCmd) pages(ctx context.Context, told func(float64, string)) (measure.Findings, error) {
	scrape := calibrate.Scrape{From: c.Metrics, For: c.For, Every: c.Every, KeyFile: c.KeyFile, Told: told}
	if c.Keep == "" {
		return calibrate.Pages(ctx, scrape)
	}
	kept, err := createFile("--keep", c.Keep)
	if err != nil {
		return measure.Findings{}, err
	}
	scrape.Keep = kept
	found, err := calibrate.Pages(ctx, scrape)
	err = errors.Join(err, kept.Close())
	if info, statErr := os.Stat(c.Keep); statErr == nil && info.Size() == 0 {
		err = errors.Join(err, os.Remove(c.Keep)) // no page came
	}
	return found, err
}

// printFound prints for people.
func (c *calibrateCmd) printFound(out io.Writer, f measure.Findings) error {
	parts := []string{strings.Join(f.Of, ", ") + "\n", f.Table(true).String()}
	if t := f.Table(false); len(t.Rows) > 0 {
		parts = append(parts, t.String())
	}
	parts = append(parts, strings.Join(f.FindingSentences(), "\n")+"\n")
	if len(f.Notes) > 0 {
		parts = append(parts, "! "+strings.Join(f.Notes, "\n! ")+"\n")
	}
	if c.Out != "" {
		parts = append(parts, fmt.Sprintf("Written to %s:\n  headway simulate %s\n  headway plan PLAN.yaml --measured %s\n", c.Out, printable.Word(c.Out), printable.Word(c.Out)))
	}
	_, err := fmt.Fprint(out, strings.Join(parts, "\n"))
	return err
}
