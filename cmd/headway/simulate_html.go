package main

import (
	"bufio"
	"errors"
	"os"

	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/observe/report"
	"github.com/headway-rl/headway/predict/experiment"
)

// createPage makes the file of a page, before anything is simulated; nil without a path.
func createPage(path string, g *experiment.Grid) (*os.File, error) {
	switch {
	case path == "":
		return nil, nil
	case g.Single():
		return nil, failure.Usage(experiment.FlagsHint, "--html %s: a page is of a grid: add --grid KEY=V1,V2", path)
	case g.Simulations() > experiment.ReportMax:
		return nil, failure.Usage("--out FILE.csv takes any number", "--html %s: a page holds at most %s simulations, this grid has %s", path, report.Count(experiment.ReportMax), report.Count(g.Simulations()))
	}
	return createFile("--html", path)
}

// writePage writes the page of a grid and closes its file; one that failed is removed.
func writePage(file *os.File, g *experiment.Grid, points []*experiment.Point, accept bool, failed error) error {
	if file == nil {
		return nil
	}
	if failed != nil || len(points) == 0 {
		return errors.Join(file.Close(), os.Remove(file.Name()))
	}
	w := bufio.NewWriter(file)
	return errors.Join(report.DocumentHTML(w, experiment.Page(g, points, accept)), w.Flush(), file.Close())
}
