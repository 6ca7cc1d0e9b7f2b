package main

import (
	"errors"
	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/predict/experiment"
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
	warn(a, cases[0].Document.Warnings())
	if takes := experiment.Costly(cases[0].Document); takes != "" {
		return "", nil, failure.Usage("headway simulate --yes --trace OUT makes it all the same, and headway view OUT shows it", "%s", takes)
	}
	prediction, err := experiment.Expect(cases[0].Document, cases[0].Setting)
	if err != nil {
		return "", nil, experiment.KeyError(err)
	}
	dir, err := os.MkdirTemp("", "headway-view-")
	if err != nil {
		return "", nil, err
	}
	remove = func() { os.RemoveAll(dir) }
	path = filepath.Join(dir, strings.TrimSuffix(filepath.Base(c.Path), filepath.Ext(c.Path))+".ndjson")
	file, err := createTrace(path)
	if err == nil {
		_, err = experiment.Simulate(cases[0], prediction, simulationFiles{trace: file}, newStepProgress(a))
	}
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	return path, remove, nil
}
