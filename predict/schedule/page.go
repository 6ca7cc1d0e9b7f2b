package schedule

import (
	"fmt"
	"io"

	"github.com/headway-rl/headway/observe/report"
)

// HTML writes the comparison as a page of one file. About says what was compared,
// a sentence each, and where its figures come from.
func HTML(w io.Writer, c Comparison, about []string) error {
	base := c.Rows[0]
	headline := []report.Row{
		{Name: "synchronous, shared GPUs", Value: seconds(base.Parts.StepS) + " s", Note: "a batch"},
	}
	for _, r := range c.Rows {
		if r.Name == c.Conclusion.Best {
			headline = append(headline,
				report.Row{Name: string(r.Name), Value: seconds(r.Parts.StepS) + " s", Note: "a batch"},
				report.Row{Name: "speed-up", Value: ratio(r.Speedup), Note: "of the step"},
				report.Row{Name: "staleness", Value: report.Figure(r.StalenessMean, 2), Note: fmt.Sprintf("batches on average, p95 %s", report.Figure(r.StalenessP95, 2))})
		}
	}
	d := report.Document{
		Title: "Schedules side by side", Summary: c.Conclusion.Text, Headline: headline,
		Sections: []report.Section{
			{ID: "gantt", Title: "What is busy when", Text: []string{"The last batches of every schedule, on one scale of time. The area is the share of slots that hold a rollout; below it the trainer, with the old log-probs where it recomputes them, and weight syncs or the hand-over of shared GPUs."},
				Drawings: []report.Drawing{{Title: "Engines, trainer and sync", SVG: SVG(c), Wide: true}}},
			{ID: "steps", Title: "Step time, throughput and staleness", Findings: c.Findings, Tables: []report.Table{untitled(stepsTable(c))},
				Plots:    []report.Plot{partsPlot(c)},
				Captions: []string{"Step time and staleness of the schedules: the lower left is better."}},
			{ID: "parts", Title: "What a step is made of", Tables: []report.Table{partsTable(c), gainTable(c)}, Details: method()},
			{ID: "input", Title: "What was compared", Text: about},
		},
	}
	return report.DocumentHTML(w, d)
}

// untitled drops a table's title where a heading says the same.
func untitled(t report.Table) report.Table {
	t.Title = ""
	return t
}

// partsPlot sets step time against staleness.
func partsPlot(c Comparison) report.Plot {
	p := report.Plot{ID: "frontier", Title: "Step time against staleness", Description: "One mark a schedule.",
		XLabel: "mean staleness, in batches", YLabel: "seconds a batch"}
	for _, r := range drawnRows(c) {
		p.Series = append(p.Series, report.Series{Name: string(r.Name), X: []float64{r.StalenessMean}, Y: []float64{r.Parts.StepS}, Marks: true})
		p.YMax = max(p.YMax, 1.1*r.Parts.StepS)
		p.XMax = max(p.XMax, 1.1*r.StalenessMean)
	}
	p.XMin = -0.05 * p.XMax
	return p
}

// method says how the figures are made.
func method() []string {
	return []string{
		"Every schedule is simulated through the loop that runs it, on the same draws of lengths. A batch is the same number of groups everywhere, also where it is trained in several pieces; staleness is in batches, versions divided by the pieces.",
		"Work is what generating the trained tokens takes with every slot busy, tail what generation takes beyond it because slots are empty, and resumed rollouts fill their cache again. Overlap is what runs beside something else: training hides work first, then the tail. The effects are differences of these parts and add up to the gain.",
		"The closed forms: synchronous, the barrier of the batch plus log-probs, update and sync; one step off, the longer of barrier and training, plus sync; streamed, each piece after its groups and the piece before; async, the longer of barrier and training, plus sync; with partial rollouts, the pieces after the groups that a bound on groups ahead lets be ready; queue-drop, the longest of work, training and sync.",
	}
}
