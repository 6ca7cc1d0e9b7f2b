package main

import (
	"fmt"
	"strings"

	"github.com/headway-rl/headway/observe/attribution"
	"github.com/headway-rl/headway/observe/report"
)

// attributionRows say where staleness comes from, the largest part marked; none where nothing was
// stale.
func attributionRows(a attribution.Summary) []report.Row {
	if a.Dominant == "" {
		return nil
	}
	var rows []report.Row
	for i, part := range a.Parts {
		if part.Versions == 0 {
			continue
		}
		value := fmt.Sprintf("%s  %s", report.Figure(part.Versions, 2), report.Share(part.Share))
		note := attribution.Source(i).Words()
		if part.Source == a.Dominant {
			note += " (the largest)"
		}
		rows = append(rows, report.Row{Name: strings.ReplaceAll(part.Source, "_", " "), Value: value, Note: note})
	}
	if a.Little.Mismatch > attribution.MismatchMax {
		rows = append(rows, report.Row{Name: "mismatch", Value: report.Share(a.Little.Mismatch),
			Note: "stamps and the updates that groups lived through do not agree: drops, wrong stamps or a buffer that is not counted"})
	}
	return rows
}

// idleRows say what both sides waited for.
func idleRows(a attribution.Summary) []report.Row {
	var rows []report.Row
	for _, side := range []struct {
		name string
		idle attribution.Idle
	}{{"trainer idle", a.Trainer}, {"engines idle", a.Engines}} {
		var parts []string
		for _, reason := range side.idle.Reasons() {
			if reason.Share > 0 {
				parts = append(parts, reason.Name+" "+report.Share(reason.Share))
			}
		}
		rows = append(rows, report.Row{Name: side.name, Value: report.Share(side.idle.Total), Note: strings.Join(parts, ", ")})
	}
	return rows
}

// namedRows are named figures as the rows of a table.
func namedRows(rows []report.Row) (table [][]string) {
	for _, row := range rows {
		table = append(table, []string{row.Name, row.Value, row.Note})
	}
	return table
}
