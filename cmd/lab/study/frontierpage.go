package study

import (
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/headway-rl/headway/observe/report"
)

// frontierTitle of the study.
const frontierTitle = "The empirical frontier: staleness against train period"

// Plots are the frontier, and both of its figures by the split.
func (r FrontierResult) Plots() []report.Plot {
	var period, staleness, low, high, periodLow, periodHigh, devices []float64
	var labels []string
	for _, row := range r.Rows {
		p, s := row.Period.Live, row.Staleness.Live
		period, staleness = append(period, p.Mean), append(staleness, s.Mean)
		low, high = append(low, s.Mean-s.Half), append(high, s.Mean+s.Half)
		periodLow, periodHigh = append(periodLow, p.Mean-p.Half), append(periodHigh, p.Mean+p.Half)
		devices, labels = append(devices, float64(row.Split.Rollout)), append(labels, row.Split.String())
	}
	by := func(id, title, y string, of func(FrontierCurve) []float64, live, low, high []float64) report.Plot {
		return report.Plot{ID: id, Title: title, XLabel: "rollout devices", YLabel: y,
			Description: title + ", as predicted, as simulated and live.",
			Series: []report.Series{
				{Name: "predicted", X: r.Predicted.RolloutDevices, Y: of(r.Predicted)},
				{Name: "simulated", X: r.Simulated.RolloutDevices, Y: of(r.Simulated)},
				{Name: "live", X: devices, Y: live, Low: low, High: high, Marks: true}}}
	}
	return []report.Plot{
		{ID: "frontier", Title: "Staleness against train period, by rollout:train split", XLabel: "train period in s", YLabel: "mean staleness in versions", Tall: true,
			Description: "The frontier as predicted and as simulated, as lines through all splits, and the live runs as points, labelled by their splits: the lower branch of a period is one side's, the upper the other's.",
			Series: []report.Series{
				{Name: "predicted", X: r.Predicted.PeriodS, Y: r.Predicted.Staleness},
				{Name: "simulated", X: r.Simulated.PeriodS, Y: r.Simulated.Staleness},
				{Name: "live, rollout:train devices", X: period, Y: staleness, Low: low, High: high, Marks: true, Labels: labels}}},
		by("staleness", "Staleness by split", "versions", func(c FrontierCurve) []float64 { return c.Staleness }, staleness, low, high),
		by("period", "Train period by split", "s", func(c FrontierCurve) []float64 { return c.PeriodS }, period, periodLow, periodHigh),
	}
}

// FrontierMarkdown prints the study as a document.
func FrontierMarkdown(w io.Writer, r FrontierResult, from Provenance) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n%s\n\n", frontierTitle, from.line())
	for _, doubt := range r.Doubts() {
		fmt.Fprintf(&b, "**%s**\n\n", doubt)
	}
	fmt.Fprintf(&b, "%s [frontier.html](frontier.html) has the picture, and every run.\n\n", r.Verdict())
	for _, text := range r.method() {
		fmt.Fprintf(&b, "%s\n\n", text)
	}
	for _, t := range r.Tables() {
		if t.Title != "" {
			fmt.Fprintf(&b, "## %s\n\n", t.Title)
		}
		writeMarkdownTable(&b, t)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func writeMarkdownTable(b *strings.Builder, t report.Table) {
	fmt.Fprintf(b, "| %s |\n|%s\n", strings.Join(t.Header, " | "), strings.Repeat(" --- |", len(t.Header)))
	for _, row := range t.Rows {
		fmt.Fprintf(b, "| %s |\n", strings.Join(row, " | "))
	}
	b.WriteString("\n")
}

// FrontierHTML prints the study as one page that needs nothing else.
func FrontierHTML(w io.Writer, r FrontierResult, from Provenance) error {
	plots, tables := r.Plots(), r.Tables()
	runs := report.Table{Header: []string{"split", "seed", "period", "predicted", "staleness", "predicted", "PQS", "IQS", "ρ", "M", "mean length", "prediction"}}
	for _, run := range r.Runs {
		p := run.Prediction
		runs.Rows = append(runs.Rows, []string{run.Split.String(), fmt.Sprint(run.Seed), seconds(Estimate{run.Live.PeriodS, math.NaN()}), seconds(Estimate{p.Theory.PeriodS, math.NaN()}),
			fmt.Sprintf("%.3f ± %.3f", run.Live.Staleness, run.HalfInterval), report.Figure(p.Theory.Staleness, 3), report.Figure(run.PQS, 2), report.Figure(run.IQS, 2),
			report.Figure(run.Utilization, 3), report.Figure(run.Tail, 2), report.Figure(run.MeanTokens, 1), p.SHA256[:min(len(p.SHA256), 12)]})
	}
	return report.DocumentHTML(w, report.Document{
		Title: frontierTitle, Summary: r.Verdict(), Warnings: r.Doubts(),
		Sections: []report.Section{
			{ID: "frontier", Title: "The frontier", Plots: plots[:1], Tables: tables[:1],
				Captions: []string{"Up to ρ = 1 more rollout devices shorten the period and make what is trained more stale; beyond it the trainer binds, and every further rollout device lengthens the period again. Where a period is as long as the longest responses, staleness, which counts whole updates, goes in steps. Upright lines are intervals over the seeds."}},
			{ID: "by-split", Title: "By split", Plots: plots[1:]},
			{ID: "others", Title: "The devices, and other expectations", Tables: tables[1:]},
			{ID: "runs", Title: "Every run", Tables: []report.Table{runs}},
			{ID: "method", Title: "How it was made", Source: from.line(), Text: r.method()},
		},
	})
}
