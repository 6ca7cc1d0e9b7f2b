package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/command"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/predict/experiment"
	"github.com/headway-rl/headway/predict/reproduce"
)

// reproduceCmd puts published measurements beside ours.
type reproduceCmd struct {
	command.Output
	Name     []string `arg:"" optional:"" help:"The cases to compute; all of them, and the figures, without one."`
	HTML     string   `name:"html" placeholder:"OUT" help:"Write a page with the figures, of one file."`
	Markdown string   `placeholder:"OUT" help:"Write the document that docs/reproduce.md is."`
	Quick    bool     `help:"Short simulations, in seconds: shows that everything works, and is no result."`
	List     bool     `help:"List the cases."`
	Cases    string   `placeholder:"FILE" help:"Answer a table of published runs instead, row by row: step time with an 80 % interval, its parts, staleness and waiting. Comma-separated, the first line names the columns."`
	// CalibrateOn is beside Cases alone.
	CalibrateOn []string `placeholder:"ID,…" help:"With --cases: rows whose measurements calibrate the others of their family."`
}

// Run computes and prints.
func (c *reproduceCmd) Run(a *app.Process) error {
	if c.List {
		return c.list(a)
	}
	if c.Cases != "" {
		return c.table(a)
	}
	if len(c.CalibrateOn) > 0 {
		return failure.Usage("add --cases FILE, the table that has the rows", "--calibrate-on names rows of a table, and --cases names none")
	}
	if err := c.filesWritable(); err != nil { // before minutes of simulation, not after
		return err
	}
	ctx, stop := command.Interruptible()
	defer stop()
	show := &caseProgress{StatusLine: command.NewStatusLine(a)}
	result, err := reproduce.Run(ctx, reproduce.Options{Quick: c.Quick, Simulation: experiment.DevicesOf, Said: show.update}, c.Name...)
	show.Clear()
	if err != nil {
		if errors.Is(err, context.Canceled) {
			return failure.Run("", "interrupted")
		}
		return err
	}
	if err := c.writeFiles(a, result.HTML, result.Markdown); err != nil {
		return err
	}
	if c.JSON {
		return printJSON(a.Stdout, result)
	}
	return result.Text(a.Stdout)
}

// filesWritable refuses files that the result could not be written to.
func (c *reproduceCmd) filesWritable() error {
	for _, file := range []struct{ flag, path string }{{"--html", c.HTML}, {"--markdown", c.Markdown}} {
		if err := writable(file.path); err != nil {
			return failure.Usage("name a file in a folder that can be written to", "%s %s: %w", file.flag, file.path, err)
		}
	}
	return nil
}

// writeFiles writes the result to the files that were asked for.
func (c *reproduceCmd) writeFiles(a *app.Process, html, markdown func(io.Writer) error) error {
	for _, file := range []struct {
		flag, path string
		fill       func(io.Writer) error
	}{{"--html", c.HTML, html}, {"--markdown", c.Markdown, markdown}} {
		if file.path == "" {
			continue
		}
		if err := writeWhole(file.path, file.fill); err != nil {
			return failure.Run("", "%s: %w", file.flag, err)
		}
		fmt.Fprintf(a.Stderr, "%s is written\n", file.path)
	}
	return nil
}

// list prints what there is.
func (c *reproduceCmd) list(a *app.Process) error {
	names, what := reproduce.Names()
	if c.JSON {
		return printJSON(a.Stdout, names)
	}
	for i, name := range names {
		if _, err := fmt.Fprintf(a.Stdout, "%-20s %s\n", name, what[i]); err != nil {
			return err
		}
	}
	return nil
}

// writable reports whether a file can be made there; "" is no file.
func writable(path string) error {
	if path == "" {
		return nil
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return errors.New("it is a folder")
	}
	file, err := os.CreateTemp(filepath.Dir(path), ".headway-*")
	if err != nil {
		return err
	}
	return errors.Join(file.Close(), os.Remove(file.Name()))
}

// writeWhole makes a file, whole or not at all; one that exists is replaced.
func writeWhole(path string, fill func(io.Writer) error) error {
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	err = errors.Join(fill(file), file.Chmod(0o644), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return nil
}

// caseProgress says on stderr what is being simulated: in place on a terminal, a
// line a case elsewhere.
type caseProgress struct {
	command.StatusLine
	name string
}

// update is called as simulations end.
func (p *caseProgress) update(name string, done, all int) {
	if !p.Terminal {
		if name, _, _ = strings.Cut(name, ":"); name != p.name {
			p.name = name
			fmt.Fprintf(p.App.Stderr, "simulating %s\n", name)
		}
		return
	}
	if p.Due() {
		p.Show(fmt.Sprintf("%s: %d of %d simulations", name, done, all))
	}
}
