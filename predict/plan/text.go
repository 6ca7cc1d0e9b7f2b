package plan

import (
	"fmt"
	"strings"

	"github.com/headway-rl/headway/observe/report"
)

// frontierRows is how many of the frontier's settings a terminal shows.
const frontierRows = 10

// Text is the plan for a terminal of so many columns.
func (p *Plan) Text(columns int) string {
	w := &writer{columns: columns}
	w.paragraph("", p.summary())
	w.table(p.chosenTable())
	for _, why := range p.Why {
		w.paragraph("  ", why)
	}
	for _, short := range p.Shortfall {
		w.paragraph("  ! ", short.Text)
	}
	w.table(p.settingTable())
	w.table(p.alternativesTable())
	for _, text := range p.alternativesText() {
		w.paragraph("  ", text)
	}
	w.table(p.bindingFull())
	w.table(p.leversFull())
	for _, text := range p.leversHold() {
		w.paragraph("  ", text)
	}
	w.table(p.frontierTable())
	w.text.WriteString("\n")
	for _, text := range p.adviceText() {
		w.paragraph("", text)
	}
	w.text.WriteString("\nQuestions\n")
	for _, text := range p.answersText() {
		w.paragraph("  ", text)
	}
	w.text.WriteString("\nRules of thumb\n")
	for _, text := range p.findingsText() {
		w.paragraph("  ", text)
	}
	w.text.WriteString("\n")
	for _, text := range p.foundationsText() {
		w.paragraph("", text)
	}
	for _, n := range p.Machine.Notes {
		w.paragraph("  - ", n+".")
	}
	if p.Assumed != "" {
		w.paragraph("  ! ", report.Capital(p.Assumed)+".")
	}
	for _, n := range p.Warnings {
		w.paragraph("  ! ", n+".")
	}
	return w.text.String()
}

// writer lays out paragraphs and tables for a width.
type writer struct {
	text    strings.Builder
	columns int
}

// paragraph writes wrapped text behind a label.
func (w *writer) paragraph(label, text string) {
	w.text.WriteString(report.Indented(label, text, w.columns))
}

// table writes a table that has rows, apart from what is above it.
func (w *writer) table(t report.Table) {
	if len(t.Rows) > 0 {
		w.text.WriteString("\n" + t.Fit(w.columns))
	}
}

// budgetText lists the bounds.
func (p *Plan) budgetText() string {
	var parts []string
	add := func(set bool, text string, value any) {
		if set {
			parts = append(parts, fmt.Sprintf(text, value))
		}
	}
	add(p.Budget.StalenessMean > 0, "mean staleness ≤ %v", plain(p.Budget.StalenessMean))
	add(p.Budget.StalenessP95 > 0, "p95 of staleness ≤ %v", p.Budget.StalenessP95)
	add(p.Budget.StepS > 0, "an update every %v s", plain(p.Budget.StepS))
	add(p.Budget.CostPerStep > 0, "cost of a step ≤ %v", plain(p.Budget.CostPerStep))
	add(p.Budget.WasteShare > 0, "waste ≤ %v", report.Share(p.Budget.WasteShare))
	add(p.Budget.LengthBias > 0, "length bias ≤ %v", report.Share(p.Budget.LengthBias))
	if len(parts) == 0 {
		parts = append(parts, "none: everything is allowed")
	}
	return strings.Join(parts, ", ")
}

// chosenTable is the recommended setting with both answers.
func (p *Plan) chosenTable() report.Table {
	table := p.figuresTable()
	table.Title = "Recommended: " + p.Recommended.words()
	if !p.Met {
		table.Title = "The closest: " + p.Recommended.words()
	}
	return table
}

// priced reports whether anything has a price.
func (p *Plan) priced() bool { return p.Recommended.Best().CostPerStep > 0 }

// span prints an interval.
func span(i [2]float64, decimals int) string {
	return report.Figure(i[0], decimals) + " to " + report.Figure(i[1], decimals)
}

// frontierTable has settings that no other beats in both staleness and time.
func (p *Plan) frontierTable() report.Table {
	table := report.Table{Title: "Frontier (closed form): nothing ranked is both fresher and faster",
		Header: []string{"GPUs", "batch", "q", "slots", "sync", "ρ", "staleness", "p95", "t, s", "update, s", "dropped"}}
	if p.priced() {
		table.Header = append(table.Header, "cost/step")
	}
	indices := make([]int, len(p.Frontier))
	for i := range indices {
		indices[i] = i
	}
	for _, i := range spread(indices, frontierRows) {
		c := &p.Frontier[i]
		f := c.Predicted
		row := []string{fmt.Sprintf("%d+%d", c.RolloutGPUs, c.TrainGPUs), fmt.Sprint(c.BatchRollouts), plain(c.QueueFactor), fmt.Sprint(c.SlotsPerReplica), fmt.Sprint(c.SyncEvery),
			report.Figure(f.Utilization, 2), report.Figure(f.StalenessMean, 2), fmt.Sprint(f.StalenessP95), report.Figure(f.PeriodS, 1), report.Figure(f.UpdateS, 3), report.Share(f.WasteShare)}
		if p.priced() {
			row = append(row, report.Figure(f.CostPerStep, 2))
		}
		table.Rows = append(table.Rows, row)
	}
	return table
}
