package report

import (
	"io"
	"strings"
)

// notesMax is how many notes a brief report has.
const notesMax = 3

// Brief prints the end of a run on one screen of 80 columns: what was predicted and measured, notes, and where the rest is.
func Brief(w io.Writer, run Run) error {
	var parts []string
	add := func(t Table) {
		if len(t.Rows) > 0 {
			parts = append(parts, t.Fit(NarrowColumns))
		}
	}
	if run.Summary != "" {
		parts = append(parts, strings.Join(Wrap(oneLine(run.Summary), NarrowColumns), "\n")+"\n")
	}
	add(headlineTable(run.Headline))
	if run.Health != "" {
		parts = append(parts, Indented("queue: ", oneLine(run.Health), NarrowColumns))
	}
	var notes strings.Builder
	for i, note := range run.Notes {
		if i == notesMax {
			notes.WriteString("! " + Counted(len(run.Notes)-i, "more note") + " in the report\n")
			break
		}
		notes.WriteString(Indented("! ", oneLine(note), NarrowColumns))
	}
	if notes.Len() > 0 {
		parts = append(parts, notes.String())
	}
	add(Table{Rows: append(cells(run.Files), cells(run.Next)...)})
	_, err := io.WriteString(w, strings.Join(parts, "\n"))
	return err
}

// headlineTable has the first figures of a run, beside what was expected of them where anything was.
func headlineTable(rows []Row) Table {
	t := Table{Rows: cells(rows)}
	expected := false
	for _, row := range rows {
		expected = expected || row.Predicted != ""
	}
	if !expected {
		return t
	}
	t.Header = []string{"", "predicted", "measured"}
	for i, row := range rows {
		t.Rows[i] = append([]string{row.Name, row.Predicted}, t.Rows[i][1:]...)
	}
	return t
}

// healthRows are the line on the queue as a table's.
func healthRows(run Run) [][]string {
	if run.Health == "" {
		return nil
	}
	return [][]string{{"queue: " + run.Health}}
}
