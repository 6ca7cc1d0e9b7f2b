package report

import (
	"fmt"
	"strings"

	"github.com/headway-rl/headway/observe/attribution"
	"github.com/headway-rl/headway/observe/metrics"
)

// AttributionRows say where staleness comes from, the largest part marked; none where nothing was
// stale.
func AttributionRows(a attribution.Summary) []Row {
	if a.Dominant == "" {
		return nil
	}
	var rows []Row
	for i, part := range a.Parts {
		if part.Versions == 0 {
			continue
		}
		value := fmt.Sprintf("%s  %s", Figure(part.Versions, 2), Share(part.Share))
		note := attribution.Source(i).Label()
		if part.Source == a.Dominant {
			note += " (the largest)"
		}
		rows = append(rows, Row{Name: strings.ReplaceAll(part.Source, "_", " "), Value: value, Note: note})
	}
	if a.Little.Mismatch > attribution.MismatchMax {
		rows = append(rows, Row{Name: "mismatch", Value: Share(a.Little.Mismatch),
			Note: "stamps and the updates that groups lived through do not agree: drops, wrong stamps or a buffer that is not counted"})
	}
	return rows
}

// IdleRows say what both sides waited for.
func IdleRows(a attribution.Summary) []Row {
	var rows []Row
	for _, side := range []struct {
		name string
		idle attribution.Idle
	}{{"trainer idle", a.Trainer}, {"engines idle", a.Engines}} {
		var parts []string
		for _, reason := range side.idle.Reasons() {
			if reason.Share > 0 {
				parts = append(parts, reason.Name+" "+Share(reason.Share))
			}
		}
		rows = append(rows, Row{Name: side.name, Value: Share(side.idle.Total), Note: strings.Join(parts, ", ")})
	}
	return rows
}

// Cells are named figures as the rows of a table.
func Cells(rows []Row) (table [][]string) {
	for _, row := range rows {
		table = append(table, []string{row.Name, row.Value, row.Note})
	}
	return table
}

// WindowText says what is measured behind so many steps of warm-up.
func WindowText(warmup int) string {
	if warmup == 0 {
		return ""
	}
	return "after the warm-up"
}

// InterruptionRows are the effects of interruptions. The row on the environment's state says
// something only where there is an environment that takes time.
func InterruptionRows(s metrics.Summary, environment bool) []Row {
	if !environment {
		s.Partial.StateLagMean, s.Partial.StateLagMax = 0, 0
	}
	return PartialRows(s)
}
