package report

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

//go:embed *.html.tmpl
var templates embed.FS

// page is the parsed template; a bad one is a bug that any use would show.
var page = template.Must(template.New("report.html.tmpl").Funcs(template.FuncMap{
	"figure": Figure,
	"count":  Count,
}).ParseFS(templates, "report.html.tmpl", "shared.html.tmpl"))

// HTML prints the report as one file that needs nothing else.
func HTML(w io.Writer, run Run) error {
	pictures, err := drawn(Plots(run))
	if err != nil {
		return err
	}
	histogram, err := drawn(histogramPlot(run))
	if err != nil {
		return err
	}
	biased, err := drawn(biasPlots(run.Bias))
	if err != nil {
		return err
	}
	offPolicy, comparison := offPolicyTable(run.OffPolicy), comparisonTable(run)
	comparison.Title = "" // the heading is its title
	var text bytes.Buffer
	err = page.Execute(&text, map[string]any{
		"Run":         run,
		"Comparison":  comparison,
		"Compared":    comparisonTitle,
		"Dominance":   run.dominance(),
		"Ledger":      ledgerTitle(run),
		"Control":     controlTitle + ofWindow(run),
		"Attribution": attributionTitle + ofWindow(run),
		"Idle":        idleTitle + ofWindow(run),
		"Waste":       wasteTitle + ofWindow(run),
		"Partial":     partialTitle + ofWindow(run),
		"Pictures":    pictures,
		"Histogram":   histogram,
		"Bias":        biasTables(run.Bias),
		"BiasPlots":   biased,
		"OffPolicy":   Table{Header: offPolicy.Header, Rows: offPolicy.Rows}, // the heading is its title
	})
	if err != nil {
		return err
	}
	_, err = w.Write(printable(text.Bytes()))
	return err
}

// printable replaces what no document may hold, control characters and broken
// UTF-8, which a model may well have said.
func printable(text []byte) []byte {
	return bytes.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r == 0x7f {
			return utf8.RuneError
		}
		return r
	}, text)
}

// picture is a plot ready for the page.
type picture struct {
	Plot
	Drawing template.HTML
}

// drawn renders plots, leaving out those without a single point.
func drawn(plots []Plot) ([]picture, error) {
	var pictures []picture
	for _, p := range plots {
		if p.isEmpty() {
			continue
		}
		svg, err := p.SVG()
		if err != nil {
			return nil, err
		}
		// The SVG is our own renderer's; the texts in it were escaped.
		pictures = append(pictures, picture{p, template.HTML(svg)})
	}
	return pictures, nil
}

// isEmpty reports whether nothing would be seen.
func (p Plot) isEmpty() bool {
	return !slices.ContainsFunc(p.Series, func(s Series) bool { return len(s.points()) > 0 })
}

// Plots are the pictures of a run over its train steps.
func Plots(run Run) []Plot {
	over := func(name string, of func(Step) float64) Series {
		series := Series{Name: name}
		for _, step := range run.Steps {
			series.X, series.Y = append(series.X, float64(step.Step)), append(series.Y, of(step))
		}
		return series.smoothed()
	}
	accuracy := Series{Name: "held-out accuracy"}
	for _, point := range run.Accuracy {
		accuracy.X, accuracy.Y = append(accuracy.X, float64(point.Step)), append(accuracy.Y, point.Value)
	}
	plots := []Plot{
		{ID: "reward", Title: "Reward and held-out accuracy", YLabel: "mean of the batch", Series: []Series{
			over("reward", func(s Step) float64 { return s.Reward }), accuracy}},
		{ID: "staleness", Title: "Staleness", YLabel: "policy versions", Series: []Series{
			over("staleness", func(s Step) float64 { return s.Staleness }),
			over("before the queue (PQS)", func(s Step) float64 { return s.PQS }),
			over("in the queue (IQS)", func(s Step) float64 { return s.IQS })}},
		{ID: "idle", Title: "Idle time", YLabel: "share of wall time", YMax: 1, Series: []Series{
			over("trainer", func(s Step) float64 { return s.TrainerIdle }),
			over("rollout engines", func(s Step) float64 { return s.RolloutIdle })}},
		{ID: "clip", Title: "Clip fraction", YLabel: "share of tokens", Series: []Series{
			over("outside the band", func(s Step) float64 { return s.ClipFraction })}},
		{ID: "tokens", Title: "Generation speed", YLabel: "tokens per second", Series: []Series{
			over("tokens/s", func(s Step) float64 { return s.TokensPerS })}},
	}
	for i := range plots {
		plots[i].XLabel = "train step"
		plots[i].Description = describe(plots[i])
	}
	return plots
}

// smoothMax is how many points a series over train steps has at most: more of them draw a band, not a line.
const smoothMax = 60

// smoothed is the series with means over runs of steps in place of more points than can be told apart.
func (s Series) smoothed() Series {
	width := (len(s.X) + smoothMax - 1) / smoothMax
	if width < 2 {
		return s
	}
	out := Series{Name: s.Name}
	for from := 0; from < len(s.X); from += width {
		to := min(from+width, len(s.X))
		sum, known := 0.0, 0
		for _, y := range s.Y[from:to] {
			if !math.IsNaN(y) {
				sum, known = sum+y, known+1
			}
		}
		mean := Unknown
		if known > 0 {
			mean = sum / float64(known)
		}
		out.X, out.Y = append(out.X, s.X[to-1]), append(out.Y, mean)
	}
	return out
}

// histogramPlot is the picture of staleness, measured beside simulated.
func histogramPlot(run Run) []Plot {
	p := Plot{ID: "histogram", Title: "Staleness of trained groups", XLabel: "staleness in policy versions", YLabel: "share of groups", Bars: true}
	for _, source := range []struct {
		name   string
		counts []int64
	}{{"measured", run.Measured}, {"simulated", run.Simulated}} {
		var total int64
		for _, count := range source.counts {
			total += count
		}
		if total == 0 {
			continue
		}
		series := Series{Name: source.name}
		for k, count := range source.counts {
			series.X, series.Y = append(series.X, float64(k)), append(series.Y, float64(count)/float64(total))
		}
		p.Series = append(p.Series, series)
	}
	p.Description = describe(p)
	return []Plot{p}
}

// describe says in words what a picture shows: each series' first and last
// value, or for bars its most frequent one.
func describe(p Plot) string {
	var parts []string
	for _, series := range p.Series {
		points := series.points()
		if len(points) == 0 {
			continue
		}
		if p.Bars {
			most := 0
			for k := range points {
				if points[k].Y > points[most].Y {
					most = k
				}
			}
			parts = append(parts, fmt.Sprintf("%s: most often %s (%s of groups)", series.Name, Figure(points[most].X, 0), Share(points[most].Y)))
			continue
		}
		last := points[len(points)-1]
		parts = append(parts, fmt.Sprintf("%s: from %s to %s at step %s", series.Name, Figure(points[0].Y, 3), Figure(last.Y, 3), Figure(last.X, 0)))
	}
	return strings.Join(parts, "; ") + "."
}
