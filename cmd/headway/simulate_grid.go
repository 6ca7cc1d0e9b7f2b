package main

import (
	"sync"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/predict/theory"
)

// grid is every simulation of a command line: all combinations of the axes' values,
// the last axis changing fastest, each with every seed. Without axes it is one
// setting. Settings are worked out one by one, so that a grid may be large.
type grid struct {
	raw   config.Config
	set   []config.Override
	axes  []axis
	seeds int64
	// settings is the number of combinations.
	settings int64
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
	one        simulateCase
	prediction theory.Prediction
	err        error
}

// recentMax bounds what is kept: a setting with its tables of lengths takes some
// hundred kilobytes.
const recentMax = 32

// gridRequest is what a command line asks of a grid.
type gridRequest struct {
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

// newGrid reads a command line without resolving any setting.
func newGrid(r gridRequest) (*grid, error) {
	if r.Seeds < 1 || r.Seeds > seedsMax {
		return nil, failure.Usage(simulateHint, "--seeds %d: expected 1 to %d", r.Seeds, seedsMax)
	}
	axes, err := parseGrid(r.Keys)
	if err != nil {
		return nil, err
	}
	raw, err := config.Read(r.File)
	if err != nil {
		return nil, err
	}
	g := &grid{raw: raw, axes: axes, seeds: int64(r.Seeds), settings: 1, bias: r.Bias, keys: r.Keys}
	for _, text := range r.Set {
		g.set = append(g.set, config.Override{Text: text})
	}
	for _, a := range axes {
		if g.settings > sizeMax/a.size/g.seeds {
			return nil, failure.Usage(simulateHint, "--grid: more combinations than can be counted")
		}
		g.settings *= a.size
	}
	return g, nil
}

// seedsMax bounds --seeds, so that a mistyped number does not run for ever.
const seedsMax = 100_000

// simulations is how many the grid makes.
func (g *grid) simulations() int64 { return g.settings * g.seeds }

// override is one key of a grid at one value.
type override struct{ key, value string }

// overrides are the grid's keys at one setting.
func (g *grid) overrides(setting int64) []override {
	set := make([]override, len(g.axes))
	for i := len(g.axes) - 1; i >= 0; i-- {
		a := &g.axes[i]
		set[i] = override{a.key, a.at(setting % a.size)}
		setting /= a.size
	}
	return set
}

// expected is a setting with what the closed form says of it.
func (g *grid) expected(setting int64) (simulateCase, theory.Prediction, error) {
	e := g.shared(setting)
	e.once.Do(func() {
		if e.one, e.err = g.resolve(setting); e.err != nil {
			return
		}
		if e.prediction, e.err = expect(e.one.document, e.one.setting); e.err != nil {
			e.err = absurd(e.err)
		}
	})
	return e.one, e.prediction, e.err
}

// shared is the place of a setting's expectation, the same for all its seeds as long
// as it is kept.
func (g *grid) shared(setting int64) *expectation {
	if g.seeds == 1 {
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
func (g *grid) resolve(setting int64) (simulateCase, error) {
	one, err := g.document(setting)
	if err == nil {
		one.setting, err = predictInput(one.document)
	}
	return one, err
}

// document is the document of one setting.
func (g *grid) document(setting int64) (simulateCase, error) {
	set := g.overrides(setting)
	all := g.set[:len(g.set):len(g.set)]
	for _, o := range set {
		all = append(all, config.Override{Flag: "--grid", Text: o.key + "=" + o.value})
	}
	changed, err := g.raw.SetWith(all...)
	if err != nil {
		return simulateCase{}, err
	}
	document, err := changed.Resolve()
	if err == nil {
		document, err = document.ForSimulation()
	}
	// A document that says 0 keeps it; where nothing is said, a default took its place.
	automatic := changed.Steps.Warmup == 0 && document.Steps.Warmup != 0
	return simulateCase{set: set, document: document, bias: g.bias, automatic: automatic}, err
}

// simulation is one simulation of the grid: a setting with a seed, seeds changing fastest.
func (g *grid) simulation(i int64) (simulateCase, error) {
	one, err := g.resolve(i / g.seeds)
	one.document.Seed += uint64(i % g.seeds)
	return one, err
}

// How much is checked before the first simulation.
const (
	// checkedMax is up to how many settings, or values of an axis, all are.
	checkedMax = 4096
	// modelsMax is for how many of these the models of lengths and times are built, too.
	modelsMax = 128
)

// check resolves settings before anything is simulated: all of them or, in a large
// grid, the values of every axis beside the first values of the others. A setting
// that is only found to be wrong later becomes a row that says so. The warnings about
// what was checked are returned, each once.
func (g *grid) check() ([]config.Warning, error) {
	var warnings []config.Warning
	said := map[config.Warning]bool{}
	checked := 0
	look := func(setting int64) error {
		one, err := g.document(setting)
		if err != nil {
			return err
		}
		if checked++; checked <= modelsMax {
			if _, err := predictInput(one.document); err != nil {
				return err
			}
		}
		for _, w := range one.document.Warnings() {
			if !said[w] {
				said[w] = true
				warnings = append(warnings, w)
			}
		}
		return nil
	}
	if g.settings <= checkedMax {
		for i := range g.settings {
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

// cases resolves every simulation of a grid, one a seed.
func (g *grid) cases() ([]simulateCase, error) {
	var cases []simulateCase
	for i := range g.simulations() {
		one, err := g.simulation(i)
		if err != nil {
			return nil, err
		}
		cases = append(cases, one)
	}
	return cases, nil
}
