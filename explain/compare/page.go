package compare

import (
	"fmt"
	"slices"
	"strings"

	"github.com/headway-rl/headway/observe/attribution"
	"github.com/headway-rl/headway/observe/metrics"
	"github.com/headway-rl/headway/observe/report"
)

// comparedLinesMax is how many runs one picture shows.
const comparedLinesMax = 8

// Page is the comparison as a page.
func (doc *Comparison) Page() report.Document {
	names := doc.header()[1:]
	d := report.Document{Title: "Runs side by side: " + strings.Join(names, ", "),
		Summary: "Means are over train steps after each run's warm-up, with 95 % intervals by batch means.", Warnings: doc.Warnings}
	for i, run := range doc.Runs {
		if i == comparedLinesMax {
			break
		}
		if f, ok := run.Figures["staleness_mean"]; ok {
			value := report.Figure(f.Value, 3)
			if f.Interval95 != nil {
				value += " ± " + report.Figure(halfWide(f.Interval95), 3)
			}
			d.Headline = append(d.Headline, report.Row{Name: "staleness, " + run.Name, Value: value})
		}
	}
	if s := doc.split(); len(s.Drawings) > 0 {
		d.Sections = append(d.Sections, s)
	}
	d.Sections = append(d.Sections, doc.curves())
	for i, t := range doc.tables() {
		title := t.Title
		t.Title = ""
		d.Sections = append(d.Sections, report.Section{ID: fmt.Sprintf("table-%d", i+1), Title: title, Tables: []report.Table{t}})
	}
	return d
}

// split draws where staleness and idle time come from.
func (doc *Comparison) split() report.Section {
	names := make([]string, attribution.Sources)
	for s := range attribution.Sources {
		names[s] = s.String()
	}
	var stacks, trainer, engines []report.Stack
	idle := func(name string, i attribution.Idle) report.Stack {
		return report.Stack{Name: name, Parts: []float64{i.Starved, i.Syncing, i.Validating, i.Paused, i.Blocked}}
	}
	for _, run := range doc.Runs {
		if run.Attribution == nil {
			continue
		}
		parts := make([]float64, attribution.Sources)
		for s := range parts {
			for _, p := range run.Attribution.Parts {
				if p.Source == names[s] {
					parts[s] = p.Versions
				}
			}
		}
		stacks = append(stacks, report.Stack{Name: run.Name, Parts: parts})
		trainer, engines = append(trainer, idle(run.Name, run.Attribution.Trainer)), append(engines, idle(run.Name, run.Attribution.Engines))
	}
	section := report.Section{ID: "sources", Title: "Where staleness and idle time come from"}
	if len(stacks) == 0 {
		return section
	}
	waits := []string{"starved", "syncing", "validating", "paused", "blocked"}
	section.Drawings = []report.Drawing{report.Stacked("split", "Staleness by source, in versions", "versions", names, stacks)}
	for _, picture := range []struct {
		id, title string
		stacks    []report.Stack
	}{{"trainer-idle", "Trainer idle, as a share of the time", trainer}, {"engines-idle", "Engines idle, as a share of the time", engines}} {
		if slices.ContainsFunc(picture.stacks, func(s report.Stack) bool { return slices.Max(s.Parts) >= 0.0005 }) {
			section.Drawings = append(section.Drawings, report.Stacked(picture.id, picture.title, "of the time", waits, picture.stacks))
		}
	}
	return section
}

// curves are the series of the runs that have one.
func (doc *Comparison) curves() report.Section {
	section := report.Section{ID: "curves", Title: "Over the run"}
	for _, c := range []struct {
		id, title, label string
		of               func(*metrics.Step) float64
	}{
		{"reward", "Reward", "mean of the batch", func(s *metrics.Step) float64 { return s.Reward }},
		{"staleness", "Staleness", "policy versions", func(s *metrics.Step) float64 { return s.Staleness }},
		{"period", "Train period", "seconds", func(s *metrics.Step) float64 { return float64(s.PeriodNS) / 1e9 }},
		{"trainer", "Trainer idle", "share of the period", func(s *metrics.Step) float64 { return s.TrainerIdle }},
		{"rollout", "Rollout engines idle", "share of the period", func(s *metrics.Step) float64 { return s.RolloutIdle }},
	} {
		p := report.Plot{ID: c.id, Title: c.title, XLabel: "train step", YLabel: c.label}
		var said []string
		for _, run := range doc.Runs {
			if len(run.series) == 0 || len(p.Series) == comparedLinesMax {
				continue
			}
			s := report.Series{Name: run.Name}
			for i := range run.series {
				s.X, s.Y = append(s.X, float64(run.series[i].Step)), append(s.Y, c.of(&run.series[i]))
			}
			said = append(said, fmt.Sprintf("%s: from %s to %s", run.Name, report.Figure(s.Y[0], 3), report.Figure(s.Y[len(s.Y)-1], 3)))
			p.Series = append(p.Series, s)
		}
		p.Description = strings.Join(said, "; ") + "."
		section.Plots = append(section.Plots, p)
	}
	if len(doc.Runs) > comparedLinesMax {
		section.Text = []string{fmt.Sprintf("The pictures show the first %d runs.", comparedLinesMax)}
	}
	return section
}
