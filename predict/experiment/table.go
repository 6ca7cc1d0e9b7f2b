package experiment

import (
	"fmt"
	"io"

	"github.com/headway-rl/headway/observe/metrics"
	"github.com/headway-rl/headway/observe/report"
)

// gridTable is a grid's settings beside their closed forms.
func gridTable(points []*Point, accept bool) report.Table {
	table := report.Table{Title: report.Counted(len(points), "setting") + ", " + report.Counted(int64(points[0].Seeds), "seed") + " each"}
	for _, o := range points[0].set {
		table.Header = append(table.Header, o.key)
	}
	table.Header = append(table.Header, "staleness", "± 95 %", "closed form", "PQS", "IQS", "p95", "period s", "closed form", "trainer idle", "rollout idle")
	for _, p := range points {
		var row []string
		for _, o := range p.set {
			row = append(row, o.value)
		}
		mark := ""
		switch {
		case p.failed != nil:
			table.Rows = append(table.Rows, append(row, "failed"))
			continue
		case !p.Settled && !accept:
			table.Rows = append(table.Rows, append(row, "–", "", p.Predicted.StalenessMean.Format(3), "not settled"))
			continue
		case !p.Settled:
			mark = " *"
		}
		row = append(row, report.Figure(p.Staleness.mean, 3)+mark, halfWidth(p.Staleness), p.Predicted.StalenessMean.Format(3),
			report.Figure(p.averages["pqs_mean"], 3), report.Figure(p.averages["iqs_mean"], 3),
			fmt.Sprint(metrics.Quantile(p.histogram, 0.95)),
			report.Figure(p.PeriodS.mean, 2), p.Predicted.PeriodS.Format(2),
			report.Share(p.averages["trainer_idle_ratio"]), report.Share(p.averages["rollout_idle_ratio"]))
		table.Rows = append(table.Rows, row)
	}
	return table
}

// WriteTable prints a grid's settings for a terminal.
func WriteTable(w io.Writer, points []*Point, accept bool) error {
	if _, err := gridTable(points, accept).WriteTo(w); err != nil {
		return err
	}
	for _, p := range points {
		if accept && p.failed == nil && !p.Settled {
			_, err := fmt.Fprintln(w, "* not settled")
			return err
		}
	}
	return nil
}

// halfWidth prints half an interval, "–" for none.
func halfWidth(m pointMean) string {
	if m.Interval == nil {
		return "–"
	}
	return report.Figure((m.Interval[1]-m.Interval[0])/2, 3)
}
