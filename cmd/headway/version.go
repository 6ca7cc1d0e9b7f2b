package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/command"
	"github.com/headway-rl/headway/internal/licences"
	"github.com/headway-rl/headway/observe/report"
)

// origins says in words where a binary came from.
var origins = map[string]string{"wheel": "a Python wheel", "module": "go install", "checkout": "a checkout"}

// versionCmd prints which program this is.
type versionCmd struct {
	command.Output
	Licences bool `help:"Print the licences of everything that the program is made of, in full."`
}

// Run prints the version.
func (c *versionCmd) Run(application *app.Process) error {
	current := command.CurrentBuild()
	if c.Licences {
		return c.printLicences(application.Stdout)
	}
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
	fmt.Fprintf(application.Stdout, "from    %s\n", origins[current.Origin])
	fmt.Fprintf(application.Stdout, "go      %s %s\n", current.Go, current.Platform)
	return nil
}

// printLicences prints which licence each component has; as text the licences themselves follow.
func (c *versionCmd) printLicences(w io.Writer) error {
	components := licences.Components()
	if c.JSON {
		return printJSON(w, components)
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, part := range components {
		fmt.Fprintf(table, "%s\t%s\t%s\n", part.Name, part.Version, part.Licence)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n"+licences.Texts())
	return err
}

// printJSON writes one indented JSON document, the form every --json takes.
func printJSON(w io.Writer, document any) error {
	return report.JSON(w, document)
}
