package experiment

import (
	"math"
	"strings"

	"github.com/headway-rl/headway/observe/estimate"
)

// Point sums the seeds of one setting up.
type Point struct {
	Set   map[string]string `json:"set"`
	Seeds int               `json:"seeds"`
	// Settled: the means of at least nine in ten seeds have settled. Why says what has not.
	Settled   bool      `json:"settled"`
	Why       string    `json:"unsettled,omitempty"`
	Error     string    `json:"error,omitempty"`
	Staleness pointMean `json:"staleness"`
	PeriodS   pointMean `json:"period_s"`
	Predicted Predicted `json:"predicted"`

	set       []override
	seed      uint64 // the first
	runs      []trial
	failed    error
	events    int64
	histogram []int64            // of trained groups by staleness, of all seeds
	averages  map[string]float64 // of the columns that are means over the seeds
	binding   string
}

// pointMean is a mean with its 95 % interval: over seeds by Student's t or, of one
// seed, by batch means. Mean is nil where it has not settled, Interval where there
// is none.
type pointMean struct {
	Mean     *float64    `json:"mean"`
	Error    float64     `json:"standard_error"`
	Interval *[2]float64 `json:"interval_95"`
	mean     float64
}

// settledShare of the seeds is the least that a setting needs to have settled: of
// many sound ones, chance refuses some.
const settledShare = 0.9

func newGridPoint(g *Grid, setting int64) *Point {
	p := &Point{Set: map[string]string{}, Seeds: int(g.Seeds), set: g.overrides(setting)}
	for _, o := range p.set {
		p.Set[o.key] = o.value
	}
	return p
}

// add takes the next seed.
func (p *Point) add(m trial) {
	if len(p.runs) == 0 {
		p.seed, p.Predicted = m.one.Document.Seed, m.doc.Predicted
	}
	if m.err != nil && p.failed == nil {
		p.failed = m.err
	}
	p.events += m.doc.Events
	for k, n := range m.doc.Staleness.Histogram {
		if k == len(p.histogram) {
			p.histogram = append(p.histogram, 0)
		}
		p.histogram[k] += n
	}
	p.runs = append(p.runs, m)
}

// finish works the means out, once every seed is in.
func (p *Point) finish() {
	if p.failed != nil {
		p.Error = p.failed.Error()
		return
	}
	settled := 0
	for i := range p.runs {
		if doc := &p.runs[i].doc; doc.Settled {
			settled++
		} else if p.Why == "" {
			p.Why = WhyUnsettled(doc.Unsettled)
		}
	}
	if p.Settled = float64(settled) >= settledShare*float64(len(p.runs)); p.Settled {
		p.Why = ""
	}
	p.Staleness = p.over(func(s *Simulation) (float64, *[2]float64) { return s.Staleness.Mean, s.Confidence.StalenessMean })
	p.PeriodS = p.over(func(s *Simulation) (float64, *[2]float64) { return s.PeriodS.Mean, s.Confidence.PeriodS })
	p.binding = p.runs[0].doc.Throughput.Binding
	p.averages = map[string]float64{}
	for i := range columns {
		if c := &columns[i]; c.average != nil {
			p.averages[c.name] = p.mean(c.average)
		}
	}
}

// over is a mean over the seeds with its interval.
func (p *Point) over(f func(*Simulation) (float64, *[2]float64)) pointMean {
	values := make([]float64, len(p.runs))
	var own *[2]float64
	for i := range p.runs {
		values[i], own = f(&p.runs[i].doc)
	}
	v := estimate.OfSeeds(values)
	m := pointMean{mean: v.Mean, Interval: own}
	if v.Known() {
		m.Interval = bounds(v)
		m.Error = standardError(values, v.Mean)
	}
	return m
}

// standardError is the standard deviation of a mean of independent values.
func standardError(values []float64, mean float64) float64 {
	squares := 0.0
	for _, v := range values {
		squares += (v - mean) * (v - mean)
	}
	n := float64(len(values))
	return math.Sqrt(squares / (n - 1) / n)
}

// mean is a figure's mean over the seeds.
func (p *Point) mean(f func(*Simulation) float64) float64 {
	sum := 0.0
	for i := range p.runs {
		sum += f(&p.runs[i].doc)
	}
	return sum / float64(len(p.runs))
}

// shown reports whether the setting's means are reported.
func (p *Point) shown(accept bool) bool { return p.failed == nil && (p.Settled || accept) }

// Publish sets the means that are reported.
func (p *Point) Publish(accept bool) {
	if !p.shown(accept) {
		p.Staleness, p.PeriodS = pointMean{}, pointMean{}
		return
	}
	staleness, period := p.Staleness.mean, p.PeriodS.mean
	p.Staleness.Mean, p.PeriodS.Mean = &staleness, &period
}

// name says which setting this is.
func (p *Point) name() string { return settingName(p.set) }

// settingName names a setting by its keys.
func settingName(set []override) string {
	parts := make([]string, 0, len(set))
	for _, o := range set {
		parts = append(parts, o.key+"="+o.value)
	}
	if len(parts) == 0 {
		return "the document"
	}
	return strings.Join(parts, ", ")
}

// gridRun is one simulation of several: its series left out, what makes it added.
type gridRun struct {
	Seed uint64            `json:"seed"`
	Set  map[string]string `json:"set"`
	Simulation
	// The series and the clock are of single simulations.
	Series     *struct{} `json:"series,omitempty"`
	EventsPerS *struct{} `json:"events_per_s,omitempty"`
	WallS      *struct{} `json:"wall_s,omitempty"`
}

// gridRunWithoutMeans is one whose means have not settled.
type gridRunWithoutMeans struct {
	Seed uint64            `json:"seed"`
	Set  map[string]string `json:"set"`
	simulationWithoutMeans
	Series     *struct{} `json:"series,omitempty"`
	EventsPerS *struct{} `json:"events_per_s,omitempty"`
	WallS      *struct{} `json:"wall_s,omitempty"`
}

// gridFailure is one that was not simulated to its end.
type gridFailure struct {
	Seed  uint64            `json:"seed"`
	Set   map[string]string `json:"set"`
	Error string            `json:"error"`
}

// Err says why the setting could not be simulated; nil where it was.
func (p *Point) Err() error { return p.failed }

// Forget leaves the single simulations out, so that memory does not grow with a grid.
func (p *Point) Forget() { p.runs = nil }

// Runs lists the setting's simulations for JSON.
func (p *Point) Runs(accept bool) []any {
	var runs []any
	for i := range p.runs {
		m := &p.runs[i]
		seed := m.one.Document.Seed
		switch {
		case m.err != nil:
			runs = append(runs, gridFailure{seed, p.Set, m.err.Error()})
		case m.doc.Settled || accept:
			runs = append(runs, gridRun{Seed: seed, Set: p.Set, Simulation: m.doc})
		default:
			runs = append(runs, gridRunWithoutMeans{Seed: seed, Set: p.Set, simulationWithoutMeans: withoutMeans(m.doc)})
		}
	}
	return runs
}
