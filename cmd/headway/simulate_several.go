package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/observe/report"
)

// several makes all simulations of a grid on all cores, and reports them in their order.
func (c *simulateCmd) several(application *app.Process) error {
	began := application.Now()
	g, err := c.grid()
	if err != nil {
		return err
	}
	warnings, err := g.check()
	if err != nil {
		return err
	}
	if err := c.affordable(application, g); err != nil {
		return err
	}
	if c.Out == "" && g.simulations() > reportMax {
		return failure.Usage("--out FILE.csv or FILE.parquet takes any number", "%s simulations are more than can be printed at once (%s)",
			report.Count(g.simulations()), report.Count(reportMax))
	}
	if c.Resume && c.Out == "" {
		return failure.Usage(simulateHint, "--resume goes on with the file that --out names")
	}
	warn(application, warnings)
	if c.Out != "" {
		return c.stream(application, g, began)
	}
	return c.collect(application, g, began)
}

// runGrid makes the simulations of a grid behind those that were made earlier, and shows how far it is.
func runGrid(application *app.Process, g *grid, earlier tally, take func(*gridPoint) error) (tally, error) {
	show := newGridProgress(application, earlier.settings*g.seeds, g.simulations())
	defer show.clear()
	return g.run(earlier, show.update, take)
}

// collect keeps every result, and prints them together.
func (c *simulateCmd) collect(application *app.Process, g *grid, began time.Time) error {
	page, err := createPage(c.HTML, g)
	if err != nil {
		return err
	}
	var points []*gridPoint
	var runs []any
	count, err := runGrid(application, g, tally{}, func(p *gridPoint) error {
		points = append(points, p)
		if c.JSON {
			runs = append(runs, p.report(c.Accept)...)
		}
		p.forget()
		return nil
	})
	if err != nil {
		return err
	}
	if len(points) == 1 && points[0].Err() != nil {
		return errors.Join(points[0].Err(), writePage(page, g, points, c.Accept, points[0].Err()))
	}
	for _, p := range points {
		p.publish(c.Accept)
	}
	if err := writePage(page, g, points, c.Accept, nil); err != nil {
		return fmt.Errorf("--html %s: %w", c.HTML, err)
	}
	wall := application.Now().Sub(began).Seconds()
	if c.JSON {
		err = printJSON(application.Stdout, struct {
			Points     []*gridPoint `json:"points"`
			Runs       []any        `json:"runs"`
			Events     int64        `json:"events"`
			EventsPerS *float64     `json:"events_per_s"`
			WallS      float64      `json:"wall_s"`
		}{points, runs, count.events, eventRate(count.events, wall), wall})
	} else {
		err = writeGrid(application.Stdout, points, c.Accept)
	}
	return errors.Join(err, count.verdict(c.Accept))
}
