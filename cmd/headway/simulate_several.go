package main

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"time"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/observe/metrics"
	"github.com/headway-rl/headway/observe/report"
)

// reportMax is how many simulations are printed as tables or as one JSON document;
// more are streamed to a file.
const reportMax = 10_000

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
	if len(points) == 1 && points[0].failed != nil {
		return errors.Join(points[0].failed, writePage(page, g, points, c.Accept, points[0].failed))
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

// tally counts what became of a grid's settings.
type tally struct {
	settings, unsettled, failed int64
	events                      int64
	// firstUnsettled and firstFailed say what was first.
	firstUnsettled, firstFailed string
}

// add counts a setting.
func (t *tally) add(p *gridPoint) {
	t.settings++
	t.events += p.events
	switch {
	case p.failed != nil:
		if t.failed++; t.failed == 1 {
			t.firstFailed = fmt.Sprintf("%s: %v", p.name(), p.failed)
		}
	case !p.Settled:
		if t.unsettled++; t.unsettled == 1 {
			t.firstUnsettled = fmt.Sprintf("%s: %s", p.name(), p.Why)
		}
	}
}

// addRow counts a setting that was simulated before, by its row in a file: settled is
// empty where it could not be simulated.
func (t *tally) addRow(name, settled, note string) {
	t.settings++
	switch settled {
	case "":
		if t.failed++; t.failed == 1 {
			t.firstFailed = name + ": " + note
		}
	case "false":
		if t.unsettled++; t.unsettled == 1 {
			t.firstUnsettled = name + ": " + note
		}
	}
}

// verdict is the error about settings without means, nil if all have them.
func (t *tally) verdict(accept bool) error {
	var errs []error
	if t.failed > 0 {
		errs = append(errs, failure.Run("", "%s of %s could not be simulated, the first: %s", report.Count(t.failed), report.Counted(t.settings, "setting"), t.firstFailed))
	}
	if t.unsettled > 0 && !accept {
		errs = append(errs, failure.Run("simulate more steps, --set steps.measured=N; --accept-unsettled reports their means all the same",
			"%s of %s not settled and without a mean, the first: %s", report.Count(t.unsettled), report.Counted(t.settings, "setting"), t.firstUnsettled))
	}
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}

// trial is one simulation that was tried.
type trial struct {
	one simulateCase
	doc simulation
	err error
}

// run makes the grid's simulations behind the settings that were made earlier, counts
// on from these, tells how many are made, and hands every setting over in order. A
// simulation that fails is part of its setting; the error is that of taking a setting.
func (g *grid) run(earlier tally, made func(done int64), take func(*gridPoint) error) (tally, error) {
	count, from := earlier, earlier.settings
	var point *gridPoint
	err := inOrder(from*g.seeds, g.simulations(), runtime.GOMAXPROCS(0), g.make, func(i int64, m trial) error {
		if i%g.seeds == 0 {
			point = newGridPoint(g, i/g.seeds)
		}
		point.add(m)
		made(i + 1)
		if (i+1)%g.seeds != 0 {
			return nil
		}
		point.finish()
		count.add(point)
		return take(point)
	})
	return count, err
}

// make makes one simulation.
func (g *grid) make(i int64) trial {
	one, prediction, err := g.expected(i / g.seeds)
	one.document.Seed += uint64(i % g.seeds)
	if err != nil {
		return trial{one: one, err: err}
	}
	doc, err := simulateExpecting(one, prediction, nil, nil)
	doc.steps = nil // a grid keeps no series
	return trial{one, doc, err}
}

// inOrder makes the values from a number up to another on several workers, and takes
// them in order. What is made and not taken yet is bounded, however unequal the
// makings are. It ends with the first error of taking, after what is under way.
func inOrder[T any](from, to int64, workers int, produce func(int64) T, take func(int64, T) error) error {
	type job struct {
		i    int64
		done chan T
	}
	const aheadPerWorker = 16
	jobs, waiting := make(chan job), make(chan job, aheadPerWorker*workers)
	stop := make(chan struct{})
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for j := range jobs {
				j.done <- produce(j.i)
			}
		})
	}
	group.Go(func() {
		defer close(waiting)
		defer close(jobs)
		for i := from; i < to; i++ {
			j := job{i, make(chan T, 1)}
			select {
			case waiting <- j:
			case <-stop:
				return
			}
			select {
			case jobs <- j:
			case <-stop:
				return
			}
		}
	})
	var err error
	for i := from; i < to && err == nil; i++ {
		j := <-waiting
		err = take(i, <-j.done)
	}
	close(stop)
	group.Wait()
	return err
}

// gridTable is a grid's settings beside their closed forms.
func gridTable(points []*gridPoint, accept bool) report.Table {
	table := report.Table{Title: report.Counted(len(points), "setting") + ", " + report.Counted(int64(points[0].Seeds), "seed") + " each"}
	for _, o := range points[0].set {
		table.Header = append(table.Header, o.key)
	}
	table.Header = append(table.Header, "staleness", "± 95 %", "closed form", "PQS", "IQS", "p95", "period s", "closed form", "trainer idle", "rollout idle")
	for _, p := range points {
		var row []string
		for _, o := range p.set {
			row = append(row, o.value)
		}
		mark := ""
		switch {
		case p.failed != nil:
			table.Rows = append(table.Rows, append(row, "failed"))
			continue
		case !p.Settled && !accept:
			table.Rows = append(table.Rows, append(row, "–", "", p.Predicted.StalenessMean.Format(3), "not settled"))
			continue
		case !p.Settled:
			mark = " *"
		}
		row = append(row, report.Figure(p.Staleness.mean, 3)+mark, halfWidth(p.Staleness), p.Predicted.StalenessMean.Format(3),
			report.Figure(p.averages["pqs_mean"], 3), report.Figure(p.averages["iqs_mean"], 3),
			fmt.Sprint(metrics.Quantile(p.histogram, 0.95)),
			report.Figure(p.PeriodS.mean, 2), p.Predicted.PeriodS.Format(2),
			report.Share(p.averages["trainer_idle_ratio"]), report.Share(p.averages["rollout_idle_ratio"]))
		table.Rows = append(table.Rows, row)
	}
	return table
}

// writeGrid prints a grid's settings for a terminal.
func writeGrid(w io.Writer, points []*gridPoint, accept bool) error {
	if _, err := gridTable(points, accept).WriteTo(w); err != nil {
		return err
	}
	for _, p := range points {
		if accept && p.failed == nil && !p.Settled {
			_, err := fmt.Fprintln(w, "* not settled")
			return err
		}
	}
	return nil
}

// halfWidth prints half an interval, "–" for none.
func halfWidth(m pointMean) string {
	if m.Interval == nil {
		return "–"
	}
	return report.Figure((m.Interval[1]-m.Interval[0])/2, 3)
}
