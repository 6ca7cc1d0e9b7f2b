package compare

import (
	"context"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/headway-rl/headway/drive/replay"
	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/attribution"
	"github.com/headway-rl/headway/observe/metrics"
	"github.com/headway-rl/headway/predict/forecast"
)

// Run is one run of a comparison.
type Run struct {
	// Name is the path's last part, longer where others share it.
	Name string `json:"name"`
	Path string `json:"path"`
	// Source is live, simulation, or the framework whose log it is.
	Source  string `json:"source"`
	Program string `json:"program,omitempty"`
	// Ended: the run, or its log, came to its end.
	Ended bool  `json:"ended"`
	Steps int64 `json:"steps"`
	// Figures are by name; figures that were not measured are missing.
	Figures map[string]Figure `json:"figures"`
	// Attribution is null where the log does not allow any; Ledger likewise.
	Attribution *attribution.Summary `json:"attribution"`
	Ledger      *loop.Ledger         `json:"ledger"`
	// Control is how a target was kept, null without one.
	Control  *metrics.Control `json:"control"`
	Warnings []string         `json:"warnings"`
	// settings are its keys with their values, prediction what was expected before its first step.
	settings   map[string]string
	prediction forecast.Forecast
	task       string
	seed       string
	series     []metrics.Step
	foreign    bool
}

// Figure is one figure of one run.
type Figure struct {
	Value float64 `json:"value"`
	// Interval95 is by batch means, null where there is none.
	Interval95 *[2]float64 `json:"interval_95"`
	// Difference from the first run, with its interval for runs that have nothing in common but chance.
	Difference   *float64    `json:"difference"`
	Difference95 *[2]float64 `json:"difference_95"`
}

// Setting is a key in which runs differ.
type Setting struct {
	Key string `json:"key"`
	// Values are as many as runs; "" where a run does not say.
	Values []string `json:"values"`
}

// Comparison is what headway compare --json prints.
type Comparison struct {
	Runs     []*Run    `json:"runs"`
	Settings []Setting `json:"settings"`
	Warnings []string  `json:"warnings"`
}

// Runs reads all runs, and compares them. from is the framework of logs that are not
// ours; empty where it is found by their keys.
func Runs(ctx context.Context, paths []string, from string, show Meter) (*Comparison, error) {
	doc := &Comparison{Warnings: []string{}}
	for _, path := range paths {
		run, err := readRun(ctx, path, from, show)
		if err != nil {
			return nil, err
		}
		doc.Runs = append(doc.Runs, run)
		if ctx.Err() != nil {
			return nil, failure.Run("", "the comparison was interrupted")
		}
	}
	doc.name()
	doc.settings()
	doc.differences()
	doc.doubts()
	return doc, nil
}

// name gives every run the shortest end of its path that no other has.
func (doc *Comparison) name() {
	split := func(run *Run) []string {
		return strings.Split(filepath.Clean(run.Path), string(filepath.Separator))
	}
	end := func(parts []string, n int) string { return filepath.Join(parts[len(parts)-min(n, len(parts)):]...) }
	for i, run := range doc.Runs {
		parts := split(run)
		for n := 1; n <= len(parts); n++ {
			run.Name = end(parts, n)
			if !slices.ContainsFunc(doc.Runs, func(other *Run) bool { return other != run && end(split(other), n) == run.Name }) {
				break
			}
		}
		for _, before := range doc.Runs[:i] {
			if before.Name == run.Name { // the same path twice
				run.Name = fmt.Sprintf("%s (%d)", run.Name, i+1)
			}
		}
	}
}

// settings finds the keys in which runs differ. A key that only one kind of run has is
// no setting of the others.
func (doc *Comparison) settings() {
	keys := map[string]bool{}
	for _, run := range doc.Runs {
		for key := range run.settings {
			keys[key] = true
		}
	}
	doc.Settings = []Setting{}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		values := make([]string, len(doc.Runs))
		var said []string
		for i, run := range doc.Runs {
			values[i] = run.settings[key]
			if values[i] != "" || !run.foreign { // what a foreign log lacks is not known
				said = append(said, values[i])
			}
		}
		if len(slices.Compact(said)) > 1 {
			doc.Settings = append(doc.Settings, Setting{key, values})
		}
	}
}

// differences compares every run's figures with the first one's.
func (doc *Comparison) differences() {
	first := doc.Runs[0].Figures
	for _, run := range doc.Runs[1:] {
		for key, figure := range run.Figures {
			base, ok := first[key]
			if !ok {
				continue
			}
			by := figure.Value - base.Value
			figure.Difference = &by
			if figure.Interval95 != nil && base.Interval95 != nil {
				half := math.Hypot(halfWide(figure.Interval95), halfWide(base.Interval95))
				figure.Difference95 = &[2]float64{by - half, by + half}
			}
			run.Figures[key] = figure
		}
	}
}

func halfWide(interval *[2]float64) float64 { return (interval[1] - interval[0]) / 2 }

// doubts says what keeps runs from being comparable.
func (doc *Comparison) doubts() {
	differ := func(of func(*Run) string) (string, bool) {
		var said, values []string
		for _, run := range doc.Runs {
			if value := of(run); value != "" { // what a log does not say may be the same
				said, values = append(said, run.Name+" "+value), append(values, value)
			}
		}
		return strings.Join(said, ", "), len(slices.Compact(values)) > 1
	}
	for _, d := range []struct {
		of  func(*Run) string
		say string
	}{
		{func(r *Run) string { return r.task }, "the tasks are not the same (%s): lengths, rewards and times are those of other work"},
		{func(r *Run) string { return r.Source }, "the runs are not of one kind (%s): a simulation has modelled times, another framework its own clocks and counts"},
		{func(r *Run) string { return r.Program }, "the programs are not the same (%s): rules or measures may have changed between them"},
		{func(r *Run) string { return r.seed }, "the seeds are not the same (%s): part of every difference is chance, and intervals within one run do not hold all of it"},
	} {
		if text, found := differ(d.of); found {
			doc.Warnings = append(doc.Warnings, fmt.Sprintf(d.say, text))
		}
	}
	if text := doc.targets(); text != "" {
		doc.Warnings = append(doc.Warnings, text)
	}
	for _, run := range doc.Runs {
		for _, w := range run.Warnings {
			doc.Warnings = append(doc.Warnings, run.Name+": "+w)
		}
	}
}

// ofSeries are the figures of a run's own steps with their intervals.
func ofSeries(series []metrics.Step, warmup loop.Version) map[string]Figure {
	out := map[string]Figure{}
	for key, e := range replay.Estimates(replay.Resimulation{Result: sim.Result{Series: series}, Warmup: int(warmup)}, nil) {
		out[key] = Figure{Value: e.Mean, Interval95: e.Interval95}
	}
	return out
}
