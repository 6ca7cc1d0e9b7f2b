package report

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"strings"
)

const (
	comparisonTitle  = "Predicted, measured and simulated"
	controlTitle     = "The target, and what was moved for it"
	attributionTitle = "Where staleness comes from, in versions and share"
	idleTitle        = "What both sides waited for"
)

// Text prints the end of a run for a terminal.
func Text(w io.Writer, run Run) error {
	var parts []string
	add := func(t Table) {
		if len(t.Rows) > 0 {
			parts = append(parts, t.String())
		}
	}
	if run.Summary != "" {
		parts = append(parts, oneLine(run.Summary)+"\n")
	}
	add(headlineTable(run.Headline))
	add(Table{Rows: healthRows(run)})
	add(comparisonTable(run))
	if sentence := run.dominance(); sentence != "" {
		parts = append(parts, sentence+"\n")
	}
	add(Table{Title: controlTitle + ofWindow(run), Rows: cells(run.Control)})
	add(Table{Title: attributionTitle + ofWindow(run), Rows: cells(run.Attribution)})
	add(Table{Title: idleTitle + ofWindow(run), Rows: cells(run.Idle)})
	add(Table{Title: "Throughput", Rows: cells(run.Throughput)})
	add(Table{Title: ledgerTitle(run), Rows: cells(run.Ledger)})
	add(Table{Title: wasteTitle + ofWindow(run), Rows: cells(run.Waste)})
	add(Table{Title: partialTitle + ofWindow(run), Rows: cells(run.Partial)})
	add(Table{Title: "Hold", Rows: cells(run.Hold)})
	offPolicy := offPolicyTable(run.OffPolicy)
	if run.OffPolicyNote != "" {
		offPolicy.Title += ": " + oneLine(run.OffPolicyNote)
	}
	add(offPolicy)
	for _, table := range biasTables(run.Bias) {
		add(table)
	}
	if run.Bias != nil && len(run.Bias.Conclusions) > 0 {
		parts = append(parts, strings.Join(run.Bias.Conclusions, ".\n")+".\n")
	}
	if len(run.Notes) > 0 {
		var notes strings.Builder
		for _, note := range run.Notes {
			notes.WriteString("! " + oneLine(note) + "\n")
		}
		parts = append(parts, notes.String())
	}
	add(Table{Rows: cells(run.Files)})
	_, err := io.WriteString(w, strings.Join(parts, "\n"))
	return err
}

// cells turns named figures into a table's rows.
func cells(rows []Row) [][]string {
	table := make([][]string, len(rows))
	for i, row := range rows {
		table[i] = []string{row.Name, row.Value}
		if row.Note != "" {
			table[i] = append(table[i], row.Note)
		}
	}
	return table
}

// comparisonTable sets measured staleness beside what was predicted; the columns
// nobody has a figure for are left out.
func comparisonTable(run Run) Table {
	sources := []struct {
		name  string
		value func(Comparison) float64
	}{
		{"measured", func(c Comparison) float64 { return c.Measured }},
		{"predicted before the run", func(c Comparison) float64 { return c.Predicted }},
		{"closed form, measured inputs", func(c Comparison) float64 { return c.Closed }},
		{"simulated", func(c Comparison) float64 { return c.Simulated }},
	}
	table := Table{Title: comparisonTitle, Header: []string{""}}
	for _, row := range run.Comparison {
		table.Rows = append(table.Rows, []string{row.Name})
	}
	for _, source := range sources {
		known := false
		for _, row := range run.Comparison {
			known = known || !math.IsNaN(source.value(row))
		}
		if !known {
			continue
		}
		table.Header = append(table.Header, source.name)
		for i, row := range run.Comparison {
			table.Rows[i] = append(table.Rows[i], Figure(source.value(row), 2))
		}
	}
	return table
}

// dominance says where most staleness comes from: of the attribution's sources where there is one, else
// of the two sides of the queue.
func (r *Run) dominance() string {
	if r.Source.Words == "" {
		return dominance(r.Dominant, r.QueueLever)
	}
	sentence := fmt.Sprintf("The largest source of a group's staleness is %s (%s), %s.", r.Source.Name, Share(r.Source.Share), r.Source.Words)
	if r.Source.Lever != "" {
		sentence += " " + r.Source.Lever + "."
	}
	return sentence
}

// dominance says where most staleness comes from, and what moves it; lever is what
// moves the wait in the queue, "" for what does where the queue's capacity bounds it.
func dominance(source, lever string) string {
	switch source {
	case "pqs":
		return "Most staleness arises before the queue (PQS), while groups are generated: concurrency over batch, and the tail of the lengths, move it."
	case "iqs":
		return "Most staleness arises in the queue (IQS), while ready groups wait: " + cmp.Or(lever, "the queue factor and the split between rollouts and training") + " move it."
	}
	return ""
}

// ledgerTitle says whether the ledger adds up.
func ledgerTitle(run Run) string {
	title := "Ledger of rollout attempts"
	if run.Window != "" {
		title += ", from the start"
	}
	if run.Balanced {
		return title + ": balanced"
	}
	return title + ": NOT BALANCED"
}

// Titles of what is counted over the window alone.
const (
	wasteTitle   = "What became of the tokens"
	partialTitle = "Partial rollouts"
)

// ofWindow ends a title by what its figures are of.
func ofWindow(run Run) string {
	if run.Window == "" {
		return ""
	}
	return ", " + run.Window
}
