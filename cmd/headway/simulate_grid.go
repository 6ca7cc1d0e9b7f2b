package main

import (
	"fmt"
	"io"
	"math"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/headway-rl/headway/report"
)

// axis is a key of a grid with its values.
type axis struct {
	key    string
	values []string
}

// gridMax bounds the simulations of one grid.
const gridMax = 100_000

// parseGrid reads every --grid KEY=V1,V2.
func parseGrid(grid []string) ([]axis, error) {
	var axes []axis
	size := 1
	for _, text := range grid {
		key, list, ok := strings.Cut(text, "=")
		values := splitValues(list)
		if !ok || key == "" || len(values) == 0 {
			return nil, usageError(simulateHint, "--grid %q: expected KEY=V1,V2 such as queue.factor=1,2,4", text)
		}
		for _, a := range axes {
			if a.key == key {
				return nil, usageError(simulateHint, "--grid %s is given twice: list its values in one, KEY=V1,V2", key)
			}
		}
		if size *= len(values); size > gridMax {
			return nil, usageError(simulateHint, "--grid: more than %d combinations", gridMax)
		}
		axes = append(axes, axis{key, values})
	}
	return axes, nil
}

// splitValues splits at commas outside of brackets, so that a value may be a
// list or an object in YAML.
func splitValues(list string) []string {
	var values []string
	depth, from := 0, 0
	for i, c := range list {
		switch c {
		case '[', '{':
			depth++
		case ']', '}':
			depth--
		case ',':
			if depth == 0 {
				values = append(values, strings.TrimSpace(list[from:i]))
				from = i + 1
			}
		}
	}
	values = append(values, strings.TrimSpace(list[from:]))
	for _, v := range values {
		if v == "" {
			return nil
		}
	}
	return values
}

// combinations lists the grid's points, the last key changing fastest; one empty point without keys.
func combinations(axes []axis) [][]override {
	points := [][]override{nil}
	for _, a := range axes {
		var next [][]override
		for _, p := range points {
			for _, v := range a.values {
				next = append(next, append(append([]override{}, p...), override{a.key, v}))
			}
		}
		points = next
	}
	return points
}

// gridRun is one simulation of several: its series left out, what makes it added.
type gridRun struct {
	Seed uint64            `json:"seed"`
	Set  map[string]string `json:"set"`
	simulation
	// The series and the clock are of single simulations.
	Series     *struct{} `json:"series,omitempty"`
	EventsPerS *struct{} `json:"events_per_s,omitempty"`
	WallS      *struct{} `json:"wall_s,omitempty"`
}

// gridPoint sums the seeds of one combination up.
type gridPoint struct {
	Set       map[string]string `json:"set"`
	Seeds     int               `json:"seeds"`
	Staleness pointMean         `json:"staleness"`
	PeriodS   pointMean         `json:"period_s"`
	Predicted predicted         `json:"predicted"`
	set       []override
	runs      []simulation
}

// pointMean is a mean over seeds and its standard error, 0 for a single seed.
type pointMean struct {
	Mean  float64 `json:"mean"`
	Error float64 `json:"standard_error"`
}

// several makes all simulations on all cores, and prints them in their order.
func (c *simulateCmd) several(application *app, began time.Time, cases []simulateCase) error {
	docs, err := simulateAll(application, cases)
	if err != nil {
		return err
	}
	var runs []gridRun
	var points []gridPoint
	events := int64(0)
	for i, doc := range docs {
		set := map[string]string{}
		for _, o := range cases[i].set {
			set[o.key] = o.value
		}
		runs = append(runs, gridRun{Seed: cases[i].document.Seed, Set: set, simulation: doc})
		if i%c.Seeds == 0 {
			points = append(points, gridPoint{Set: set, Seeds: c.Seeds, Predicted: doc.Predicted, set: cases[i].set})
		}
		p := &points[len(points)-1]
		p.runs = append(p.runs, doc)
		events += doc.Events
	}
	for i := range points {
		points[i].sum()
	}
	wall := application.Now().Sub(began).Seconds()
	if c.JSON {
		return printJSON(application.Stdout, struct {
			Points     []gridPoint `json:"points"`
			Runs       []gridRun   `json:"runs"`
			Events     int64       `json:"events"`
			EventsPerS float64     `json:"events_per_s"`
			WallS      float64     `json:"wall_s"`
		}{points, runs, events, float64(events) / max(wall, 1e-9), wall})
	}
	return printGrid(application.Stdout, points)
}

func (p *gridPoint) sum() {
	over := func(f func(*simulation) float64) pointMean {
		values := make([]float64, len(p.runs))
		for i := range p.runs {
			values[i] = f(&p.runs[i])
		}
		return meanOf(values)
	}
	p.Staleness = over(func(s *simulation) float64 { return s.Staleness.Mean })
	p.PeriodS = over(func(s *simulation) float64 { return s.PeriodS.Mean })
}

// meanOf returns the mean and its standard error.
func meanOf(values []float64) pointMean {
	n := float64(len(values))
	mean, squares := 0.0, 0.0
	for _, v := range values {
		mean += v / n
	}
	for _, v := range values {
		squares += (v - mean) * (v - mean)
	}
	if n < 2 {
		return pointMean{Mean: mean}
	}
	return pointMean{mean, math.Sqrt(squares / (n - 1) / n)}
}

// simulateAll makes the simulations on all cores. The error is the first one's in
// the order of the cases, whatever order they ended in.
func simulateAll(application *app, cases []simulateCase) ([]simulation, error) {
	docs, errs := make([]simulation, len(cases)), make([]error, len(cases))
	work, done := make(chan int), make(chan struct{})
	var wait sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(cases)) {
		wait.Go(func() {
			for i := range work {
				docs[i], errs[i] = simulate(cases[i], "", nil)
				docs[i].Series = nil
				done <- struct{}{}
			}
		})
	}
	go func() {
		for i := range cases {
			work <- i
		}
		close(work)
	}()
	show := newGridProgress(application, len(cases))
	for n := range cases {
		<-done
		show.update(n + 1)
	}
	show.end()
	wait.Wait()
	for i, err := range errs {
		if err != nil {
			return nil, fmt.Errorf("%s: %w", cases[i].name(), err)
		}
	}
	return docs, nil
}

// name says which simulation of several this is.
func (c *simulateCase) name() string {
	parts := []string{fmt.Sprintf("seed %d", c.document.Seed)}
	for _, o := range c.set {
		parts = append(parts, o.key+"="+o.value)
	}
	return strings.Join(parts, ", ")
}

// gridProgress counts simulations on stderr: in place on a terminal, now and then elsewhere.
type gridProgress struct {
	app      *app
	all      int
	terminal bool
	last     time.Time
}

func newGridProgress(application *app, all int) *gridProgress {
	return &gridProgress{app: application, all: all, terminal: application.IsTerminal(application.Stderr), last: application.Now()}
}

func (g *gridProgress) update(done int) {
	now := g.app.Now()
	switch {
	case g.terminal && (done == g.all || now.Sub(g.last) >= lineEvery/50):
		fmt.Fprintf(g.app.Stderr, "\r%d of %d simulations", done, g.all)
	case !g.terminal && now.Sub(g.last) >= lineEvery:
		fmt.Fprintf(g.app.Stderr, "%d of %d simulations\n", done, g.all)
	default:
		return
	}
	g.last = now
}

func (g *gridProgress) end() {
	if g.terminal {
		fmt.Fprint(g.app.Stderr, "\r\x1b[K")
	}
}

// printGrid prints a grid's points beside their closed forms.
func printGrid(w io.Writer, points []gridPoint) error {
	table := report.Table{Title: fmt.Sprintf("%d settings, %d seeds each", len(points), points[0].Seeds)}
	for _, o := range points[0].set {
		table.Header = append(table.Header, o.key)
	}
	table.Header = append(table.Header, "staleness", "± s.e.", "closed form", "PQS", "IQS", "p95", "period s", "closed form", "trainer idle", "rollout idle")
	for _, p := range points {
		var row []string
		for _, o := range p.set {
			row = append(row, o.value)
		}
		mean := func(f func(*simulation) float64) float64 {
			sum := 0.0
			for i := range p.runs {
				sum += f(&p.runs[i]) / float64(len(p.runs))
			}
			return sum
		}
		row = append(row, report.Figure(p.Staleness.Mean, 3), report.Figure(p.Staleness.Error, 3), p.Predicted.StalenessMean.Format(3),
			report.Figure(mean(func(s *simulation) float64 { return s.PQS.Mean }), 3),
			report.Figure(mean(func(s *simulation) float64 { return s.IQS.Mean }), 3),
			report.Figure(mean(func(s *simulation) float64 { return float64(s.Staleness.P95) }), 1),
			report.Figure(p.PeriodS.Mean, 2), p.Predicted.PeriodS.Format(2),
			report.Share(mean(func(s *simulation) float64 { return s.TrainerIdleRatio })),
			report.Share(mean(func(s *simulation) float64 { return s.RolloutIdleRatio })))
		table.Rows = append(table.Rows, row)
	}
	_, err := table.WriteTo(w)
	return err
}
