package main

import (
	"fmt"
	"io"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/command"
	"github.com/headway-rl/headway/observe/report"
)

// versionCmd prints which program this is.
type versionCmd struct {
	command.Output
}

// Run prints the version.
func (c *versionCmd) Run(application *app.Process) error {
	current := command.CurrentBuild()
	if c.JSON {
		return printJSON(application.Stdout, current)
	}
	fmt.Fprintf(application.Stdout, "headway %s\n", current.Version)
	if current.Revision != "" {
		suffix := ""
		if current.Modified {
			suffix = " with uncommitted changes"
		}
		fmt.Fprintf(application.Stdout, "commit  %s%s\n", current.Revision, suffix)
	}
	fmt.Fprintf(application.Stdout, "go      %s %s\n", current.Go, current.Platform)
	return nil
}

// printJSON writes one indented JSON document, the form every --json takes.
func printJSON(w io.Writer, document any) error {
	return report.JSON(w, document)
}
