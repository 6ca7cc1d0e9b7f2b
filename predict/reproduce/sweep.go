package reproduce

import (
	"context"

	"github.com/headway-rl/headway/observe/metrics"
	"github.com/headway-rl/headway/predict/theory"
)

// sweep is one line of a figure by the closed form, and points by the simulator.
type sweep struct {
	name string
	// line is the closed form; empty for points alone.
	x, y []float64
	// at are the settings of the points, place their x and value their y; of gives x from
	// the simulation instead of place, where the figure has a simulated figure there.
	at    []setting
	place []float64
	of    func(i int, s metrics.Summary) float64
	value func(i int, s metrics.Summary) float64
}

// picture is a figure to be simulated.
type picture struct {
	figure Figure
	sweeps []sweep
}

// draw simulates all points of all pictures at once and returns the figures.
func (o Options) draw(ctx context.Context, name string, pictures []picture) ([]Figure, error) {
	var settings []setting
	for _, p := range pictures {
		for _, s := range p.sweeps {
			settings = append(settings, s.at...)
		}
	}
	l := o.length()
	l.seeds = min(l.seeds, 3)
	summaries, err := o.simulateFor(ctx, name, settings, l)
	if err != nil {
		return nil, err
	}
	var figures []Figure
	next := 0
	for _, p := range pictures {
		for _, s := range p.sweeps {
			if len(s.x) > 0 {
				p.figure.Curves = append(p.figure.Curves, Curve{Name: s.name, X: s.x, Y: s.y})
			}
			if len(s.at) > 0 {
				p.figure.Curves = append(p.figure.Curves, s.points(summaries[next:next+len(s.at)]))
				next += len(s.at)
			}
		}
		figures = append(figures, p.figure)
	}
	return figures, nil
}

// points are the simulated points of a sweep. A setting that stalled has none.
func (s sweep) points(runs [][]metrics.Summary) Curve {
	c := Curve{Name: s.name, Points: true}
	for i := range s.at {
		y := over(runs[i], func(m metrics.Summary) float64 { return s.value(i, m) })
		if !y.Known() {
			continue
		}
		x := 0.0
		if s.of != nil {
			x = over(runs[i], func(m metrics.Summary) float64 { return s.of(i, m) }).Mean
		} else {
			x = s.place[i]
		}
		if y.Seeds == 1 { // the others stalled: a point without an interval
			y.Low, y.High = y.Mean, y.Mean
		}
		c.X, c.Y, c.Low, c.High = append(c.X, x), append(c.Y, y.Mean), append(c.Low, y.Low), append(c.High, y.High)
	}
	return c
}

// closedStaleness is the published closed form of a setting.
func closedStaleness(s setting) float64 {
	return theory.PreQueue(float64(s.slots), float64(s.batch), s.lengths.TailMultiplier(s.group), s.rho) + theory.InQueue(s.queue, s.rho)
}

// between are n values from low to high, both included.
func between(low, high float64, n int) []float64 {
	values := make([]float64, n)
	for i := range values {
		values[i] = low + (high-low)*float64(i)/float64(n-1)
	}
	return values
}

// mapped is the line of a function over x.
func mapped(x []float64, of func(x float64) float64) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = of(v)
	}
	return y
}
