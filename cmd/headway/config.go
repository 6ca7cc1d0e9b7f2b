package main

import (
	"github.com/headway-rl/headway/config"
)

// configCmd prints a document as the other commands understand it.
type configCmd struct {
	output
	File string   `arg:"" optional:"" help:"The document; without one everything is by default."`
	Set  []string `name:"set" sep:"none" placeholder:"KEY=VALUE" help:"Override a key by its dotted path, such as train.batch=64; null takes it back. Repeatable."`
}

// Run loads the document as run, simulate and predict would, and prints it with
// every default filled in.
func (c *configCmd) Run(application *app) error {
	resolved, err := config.Load(c.File, c.Set...)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(application.Stdout, resolved)
	}
	_, err = application.Stdout.Write(resolved.YAML())
	return err
}
