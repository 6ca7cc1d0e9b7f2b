package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/observe/report"
)

// versionCmd prints which program this is.
type versionCmd struct {
	output
}

// build describes the running binary, from what the Go toolchain recorded.
type build struct {
	// Version is the module's version, "(devel)" when built from a checkout
	// without one.
	Version string `json:"version"`
	// Revision is the commit it was built from, "" when unknown.
	Revision string `json:"revision"`
	// Modified says that the checkout had uncommitted changes.
	Modified bool `json:"modified"`
	// Go is the toolchain's version.
	Go string `json:"go"`
	// Platform is the operating system and processor, as GOOS/GOARCH.
	Platform string `json:"platform"`
}

// currentBuild reads the running binary's own description.
func currentBuild() build {
	current := build{Version: "(unknown)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return current
	}
	if info.Main.Version != "" {
		current.Version = info.Main.Version
	}
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			current.Revision = setting.Value
		case "vcs.modified":
			current.Modified = setting.Value == "true"
		}
	}
	return current
}

// Run prints the version.
func (c *versionCmd) Run(application *app.Process) error {
	current := currentBuild()
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
