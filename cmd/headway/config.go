package main

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/command"
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/observe/report"
)

// configCmd prints a document as the other commands understand it.
type configCmd struct {
	command.Output
	File    string   `arg:"" optional:"" help:"The document; without one everything is by default. Keys without a default are not printed: docs/reference/config.md lists every key."`
	Set     []string `name:"set" sep:"none" placeholder:"KEY=VALUE" help:"Override a key by its dotted path, such as train.batch=64; null takes it back. Repeatable."`
	Migrate bool     `help:"Print FILE with the present names of keys that an earlier version had, comments kept. Runs of blanks may become one."`
	From    string   `placeholder:"FRAMEWORK" help:"Print the document that says what FILE, a document of another framework, says: verl, whose .hydra/config.yaml or --cfg job it reads. Comments name the keys that each line comes from, and those that are left out."`
	Presets bool     `help:"List the presets instead: each framework's loop as keys of a document."`
}

// Run loads the document as run, simulate and predict would, and prints it with
// every default filled in.
func (c *configCmd) Run(application *app.Process) error {
	if c.Presets {
		return c.presets(application)
	}
	if c.From != "" {
		return c.translate(application)
	}
	if c.Migrate {
		return c.migrate(application)
	}
	resolved, err := config.Load(c.File, c.Set...)
	if err != nil {
		return err
	}
	warnOf(application, resolved)
	if c.JSON {
		return printJSON(application.Stdout, resolved)
	}
	_, err = application.Stdout.Write(resolved.YAML())
	return err
}

// migrate prints a document with its present keys, and which keys moved beside it.
func (c *configCmd) migrate(application *app.Process) error {
	if c.File == "" || len(c.Set) > 0 || c.JSON {
		return failure.Usage("headway config --migrate FILE", "--migrate rewrites the text of one document; --set and --json cannot stand beside it")
	}
	now, moved, err := config.MigrateFile(c.File)
	if errors.Is(err, fs.ErrNotExist) {
		return failure.Usage("give the path of a document: headway config --migrate FILE", "%w", err)
	}
	if err != nil {
		return err
	}
	for _, m := range moved {
		if m.New == "" {
			fmt.Fprintf(application.Stderr, "%s is gone: it was removed\n", m.Old)
			continue
		}
		fmt.Fprintf(application.Stderr, "%s is now %s\n", m.Old, m.New)
	}
	_, err = application.Stdout.Write(now)
	return err
}

// translate prints what a document of another framework says, and how many of its keys beside it.
func (c *configCmd) translate(application *app.Process) error {
	const remedy = "headway config --from verl FILE"
	if c.File == "" || len(c.Set) > 0 || c.JSON || c.Migrate || c.Presets {
		return failure.Usage(remedy, "--from translates one document; --set, --json, --migrate and --presets cannot stand beside it")
	}
	if c.From != "verl" {
		return failure.Usage(remedy, "--from %s: documents of verl are known", c.From)
	}
	translated, err := config.TranslateFile(c.From, c.File)
	if err != nil {
		return err
	}
	fmt.Fprintf(application.Stderr, "%d keys of %s are carried over, %d are not: the comments at the end name them\n", translated.Carried, c.File, translated.Left)
	_, err = application.Stdout.Write(translated.Text)
	return err
}

// presets lists what preset may be.
func (c *configCmd) presets(application *app.Process) error {
	if c.File != "" || len(c.Set) > 0 {
		return failure.Usage("headway config --set preset=NAME prints one", "--presets lists the presets; a document or --set cannot stand beside it")
	}
	if c.JSON {
		return printJSON(application.Stdout, config.Presets())
	}
	table := report.Table{Header: []string{"preset", "framework", "rule"}}
	for _, p := range config.Presets() {
		table.Rows = append(table.Rows, []string{p.Name, p.Framework, p.Summary})
	}
	_, err := table.WriteTo(application.Stdout)
	return err
}

// warnOf says what is doubtful about a document, beside the result.
func warnOf(application *app.Process, document config.Config) {
	for _, w := range document.Warnings() {
		fmt.Fprintf(application.Stderr, "warning: %s\n", w)
	}
}
