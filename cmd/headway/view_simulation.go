package main

import (
	"errors"
	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/internal/failure"
	"os"
	"path/filepath"
	"strings"
)

// isDocument reports whether a path names a document, which is simulated to be shown.
func isDocument(path string) bool {
	suffix := strings.ToLower(filepath.Ext(path))
	return suffix == ".yaml" || suffix == ".yml"
}

// simulated simulates a document once, and returns its trace, in a directory of its own that remove takes away.
func (c *viewCmd) simulated(a *app.Process) (path string, remove func(), err error) {
	simulate := simulateCmd{File: c.Path, Set: c.Set, Seeds: 1}
	cases, err := simulate.cases()
	if err != nil {
		return "", nil, err
	}
	warn(a, cases[0].document.Warnings())
	if takes := costly(cases[0].document); takes != "" {
		return "", nil, failure.Usage("headway simulate --yes --trace OUT makes it all the same, and headway view OUT shows it", "%s", takes)
	}
	prediction, err := expect(cases[0].document, cases[0].setting)
	if err != nil {
		return "", nil, absurd(err)
	}
	dir, err := os.MkdirTemp("", "headway-view-")
	if err != nil {
		return "", nil, err
	}
	remove = func() { os.RemoveAll(dir) }
	path = filepath.Join(dir, strings.TrimSuffix(filepath.Base(c.Path), filepath.Ext(c.Path))+".ndjson")
	file, err := createTrace(path)
	if err == nil {
		_, err = simulateExpecting(cases[0], prediction, simulationFiles{trace: file}, newStepProgress(a))
	}
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	return path, remove, nil
}
