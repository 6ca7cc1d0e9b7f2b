package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/observe/report"
	"github.com/headway-rl/headway/predict/experiment"
)

// several makes all simulations of a grid on all cores, and reports them in their order.
func (c *simulateCmd) several(application *app.Process) error {
	began := application.Now()
	g, err := c.grid()
	if err != nil {
		return err
	}
	warnings, err := g.Check()
	if err != nil {
		return err
	}
	if err := c.affordable(application, g); err != nil {
		return err
	}
	if c.Out == "" && g.Simulations() > experiment.ReportMax {
		return failure.Usage("--out FILE.csv or FILE.parquet takes any number", "%s simulations are more than can be printed at once (%s)",
			report.Count(g.Simulations()), report.Count(experiment.ReportMax))
	}
	if c.Resume && c.Out == "" {
		return failure.Usage(experiment.FlagsHint, "--resume goes on with the file that --out names")
	}
	warn(application, warnings)
	if c.Out != "" {
		return c.stream(application, g, began)
	}
	return c.collect(application, g, began)
}

// runGrid makes the simulations of a grid behind those that were made earlier, and shows how far it is.
func runGrid(application *app.Process, g *experiment.Grid, earlier experiment.Tally, take func(*experiment.Point) error) (experiment.Tally, error) {
	show := newGridProgress(application, earlier.Settings*g.Seeds, g.Simulations())
	defer show.Clear()
	return g.Run(earlier, show.update, take)
}

// collect keeps every result, and prints them together.
func (c *simulateCmd) collect(application *app.Process, g *experiment.Grid, began time.Time) error {
	page, err := createPage(c.HTML, g)
	if err != nil {
		return err
	}
	var points []*experiment.Point
	var runs []any
	count, err := runGrid(application, g, experiment.Tally{}, func(p *experiment.Point) error {
		points = append(points, p)
		if c.JSON {
			runs = append(runs, p.Runs(c.Accept)...)
		}
		p.Forget()
		return nil
	})
	if err != nil {
		return err
	}
	if len(points) == 1 && points[0].Err() != nil {
		return errors.Join(points[0].Err(), writePage(page, g, points, c.Accept, points[0].Err()))
	}
	for _, p := range points {
		p.Publish(c.Accept)
	}
	if err := writePage(page, g, points, c.Accept, nil); err != nil {
		return fmt.Errorf("--html %s: %w", c.HTML, err)
	}
	wall := application.Now().Sub(began).Seconds()
	if c.JSON {
		err = printJSON(application.Stdout, struct {
			Points     []*experiment.Point `json:"points"`
			Runs       []any               `json:"runs"`
			Events     int64               `json:"events"`
			EventsPerS *float64            `json:"events_per_s"`
			WallS      float64             `json:"wall_s"`
		}{points, runs, count.Events, eventRate(count.Events, wall), wall})
	} else {
		err = experiment.WriteTable(application.Stdout, points, c.Accept)
	}
	return errors.Join(err, count.Verdict(c.Accept))
}
