package experiment

import (
	"sync"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/predict/theory"
)

// Grid is every simulation of a command line: all combinations of the axes' values,
// the last axis changing fastest, each with every seed. Without axes it is one
// setting. Settings are worked out one by one, so that a grid may be large.
type Grid struct {
	raw   config.Config
	set   []config.Override
	axes  []axis
	Seeds int64
	// Settings is the number of combinations.
	Settings int64
	bias     bool
	keys     []string // the axes as they were given

	// Seeds of a setting share its document and closed form: recent has those that were
	// asked for last, by setting.
	mu     sync.Mutex
	recent map[int64]*expectation
}

// expectation is a setting's document with its closed form.
type expectation struct {
	once       sync.Once
	one        Case
	prediction theory.Prediction
	err        error
}

// recentMax bounds what is kept: a setting with its tables of lengths takes some
// hundred kilobytes.
const recentMax = 32

// Request is what a command line asks of a grid.
type Request struct {
	// File is the document; empty for one of defaults.
	File string
	// Set overrides keys of it, as KEY=VALUE.
	Set []string
	// Keys are the axes, as KEY=VALUES.
	Keys []string
	// Seeds is how many seeds every setting has, at least 1.
	Seeds int
	// Bias compares what is trained with what is started.
	Bias bool
}

// NewGrid reads a command line without resolving any setting.
func NewGrid(r Request) (*Grid, error) {
	if r.Seeds < 1 || r.Seeds > seedsMax {
		return nil, failure.Usage(FlagsHint, "--seeds %d: expected 1 to %d", r.Seeds, seedsMax)
	}
	axes, err := parseGrid(r.Keys)
	if err != nil {
		return nil, err
	}
	raw, err := config.Read(r.File)
	if err != nil {
		return nil, err
	}
	g := &Grid{raw: raw, axes: axes, Seeds: int64(r.Seeds), Settings: 1, bias: r.Bias, keys: r.Keys}
	for _, text := range r.Set {
		g.set = append(g.set, config.Override{Text: text})
	}
	for _, a := range axes {
		if g.Settings > sizeMax/a.size/g.Seeds {
			return nil, failure.Usage(FlagsHint, "--grid: more combinations than can be counted")
		}
		g.Settings *= a.size
	}
	return g, nil
}

// seedsMax bounds --seeds, so that a mistyped number does not run for ever.
const seedsMax = 100_000

// Simulations is how many the grid makes.
func (g *Grid) Simulations() int64 { return g.Settings * g.Seeds }

// override is one key of a grid at one value.
type override struct{ key, value string }

// overrides are the grid's keys at one setting.
func (g *Grid) overrides(setting int64) []override {
	set := make([]override, len(g.axes))
	for i := len(g.axes) - 1; i >= 0; i-- {
		a := &g.axes[i]
		set[i] = override{a.key, a.at(setting % a.size)}
		setting /= a.size
	}
	return set
}

// expected is a setting with what the closed form says of it.
func (g *Grid) expected(setting int64) (Case, theory.Prediction, error) {
	e := g.shared(setting)
	e.once.Do(func() {
		if e.one, e.err = g.resolve(setting); e.err != nil {
			return
		}
		if e.prediction, e.err = Expect(e.one.Document, e.one.Setting); e.err != nil {
			e.err = KeyError(e.err)
		}
	})
	return e.one, e.prediction, e.err
}

// shared is the place of a setting's expectation, the same for all its seeds as long
// as it is kept.
func (g *Grid) shared(setting int64) *expectation {
	if g.Seeds == 1 {
		return new(expectation) // no one will ask again
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.recent[setting]
	if e == nil {
		if e = new(expectation); g.recent == nil || len(g.recent) >= recentMax {
			g.recent = map[int64]*expectation{}
		}
		g.recent[setting] = e
	}
	return e
}

// resolve is one setting, ready to be simulated.
func (g *Grid) resolve(setting int64) (Case, error) {
	one, err := g.document(setting)
	if err == nil {
		one.Setting, err = Input(one.Document)
	}
	return one, err
}

// document is the document of one setting.
func (g *Grid) document(setting int64) (Case, error) {
	set := g.overrides(setting)
	all := g.set[:len(g.set):len(g.set)]
	for _, o := range set {
		all = append(all, config.Override{Flag: "--grid", Text: o.key + "=" + o.value})
	}
	changed, err := g.raw.SetWith(all...)
	if err != nil {
		return Case{}, err
	}
	document, err := changed.Resolve()
	if err == nil {
		document, err = document.ForSimulation()
	}
	// A document that says 0 keeps it; where nothing is said, a default took its place.
	automatic := changed.Steps.Warmup == 0 && document.Steps.Warmup != 0
	return Case{set: set, Document: document, bias: g.bias, automatic: automatic}, err
}

// Case is one simulation of the grid, from 0 on: a setting with a seed, seeds changing fastest.
func (g *Grid) Case(i int64) (Case, error) {
	one, err := g.resolve(i / g.Seeds)
	one.Document.Seed += uint64(i % g.Seeds)
	return one, err
}

// How much is checked before the first simulation.
const (
	// checkedMax is up to how many settings, or values of an axis, all are.
	checkedMax = 4096
	// modelsMax is for how many of these the models of lengths and times are built, too.
	modelsMax = 128
)

// Check resolves settings before anything is simulated. In a large grid it takes
// the values of every axis beside the first values of the others, else all
// settings. A setting that is only found to be wrong later becomes a row that says
// so. The warnings about what was checked are returned, each once.
func (g *Grid) Check() ([]config.Warning, error) {
	var warnings []config.Warning
	said := map[config.Warning]bool{}
	checked := 0
	look := func(setting int64) error {
		one, err := g.document(setting)
		if err != nil {
			return err
		}
		if checked++; checked <= modelsMax {
			if _, err := Input(one.Document); err != nil {
				return err
			}
		}
		for _, w := range one.Document.Warnings() {
			if !said[w] {
				said[w] = true
				warnings = append(warnings, w)
			}
		}
		return nil
	}
	if g.Settings <= checkedMax {
		for i := range g.Settings {
			if err := look(i); err != nil {
				return nil, err
			}
		}
		return warnings, nil
	}
	stride := int64(1)
	for k := len(g.axes) - 1; k >= 0; k-- {
		size := g.axes[k].size
		for i := range min(size, checkedMax/int64(len(g.axes))) {
			if err := look(i * stride); err != nil {
				return nil, err
			}
		}
		if err := look((size - 1) * stride); err != nil {
			return nil, err
		}
		stride *= size
	}
	return warnings, nil
}
