package compare

import (
	"fmt"
	"slices"
	"strings"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/attribution"
	"github.com/headway-rl/headway/observe/report"
	"github.com/headway-rl/headway/predict/forecast"
)

// comparedRows are the figures of a comparison, in groups, in the order in which they are printed.
var comparedRows = []struct {
	title string
	rows  []comparedRow
}{
	{"Learning", []comparedRow{
		{"reward, last tenth", "reward", report.Decimals(3)},
		{"clip fraction", "clip_fraction", report.Share}, {"mean log-ratio", "mean_log_ratio", report.Decimals(4)}, {"effective sample", "effective_sample_size", report.Share},
	}},
	{"Staleness, in versions", []comparedRow{
		{"mean", "staleness_mean", report.Decimals(3)}, {"p95", "staleness_p95", report.Decimals(0)}, {"largest", "staleness_max", report.Decimals(0)},
		{"pre-queue (PQS)", "pqs", report.Decimals(3)}, {"in-queue (IQS)", "iqs", report.Decimals(3)}, {"of tokens", "token_staleness", report.Decimals(3)},
	}},
	{"Time", []comparedRow{
		{"train period, s", "period_s", report.Decimals(4)}, {"train step, s", "step_s", report.Decimals(4)}, {"trainer idle", "trainer_idle_ratio", report.Share}, {"rollout idle", "rollout_idle_ratio", report.Share},
	}},
	{"Throughput", []comparedRow{
		{"production, rollouts/s", "production_rollouts_per_s", report.Decimals(1)}, {"not filtered, rollouts/s", "effective_rollouts_per_s", report.Decimals(1)}, {"trained, rollouts/s", "consumption_rollouts_per_wall_s", report.Decimals(1)},
		{"trained, tokens/s", "tokens_per_s", report.Decimals(0)}, {"utilization ρ", "utilization", report.Decimals(2)}, {"acceptance", "acceptance", report.Share}, {"tokens never trained", "wasted_share", report.Share},
		{"tail multiplier", "tail_multiplier", report.Decimals(2)}, {"tokens a rollout", "sampled_mean_tokens", report.Decimals(1)}, {"tokens a trained one", "trained_mean_tokens", report.Decimals(1)},
	}},
}

type comparedRow struct {
	name, key string
	print     func(float64) string
}

// header names the columns.
func (doc *Comparison) header() []string {
	header := []string{""}
	for _, run := range doc.Runs {
		header = append(header, run.Name)
	}
	return header
}

// tables are the comparison's, with the settings first.
func (doc *Comparison) tables() []report.Table {
	settings := report.Table{Title: "Settings that differ", Header: doc.header()}
	for _, s := range doc.Settings {
		settings.Rows = append(settings.Rows, append([]string{s.Key}, dashes(s.Values)...))
	}
	var tables []report.Table
	if len(settings.Rows) > 0 {
		tables = append(tables, settings)
	}
	for _, group := range comparedRows {
		t := report.Table{Title: group.title, Header: doc.header()}
		for _, row := range group.rows {
			if cells, any := doc.cells(row); any {
				t.Rows = append(t.Rows, append([]string{row.name}, cells...))
			}
		}
		if len(t.Rows) > 0 {
			tables = append(tables, t)
		}
	}
	if t := doc.controlled(); len(t.Rows) > 0 {
		tables = append(tables, t)
	}
	return append(tables, doc.more()...)
}

// cells are a figure of all runs.
func (doc *Comparison) cells(row comparedRow) (cells []string, any bool) {
	for _, run := range doc.Runs {
		f, ok := run.Figures[row.key]
		if !ok {
			cells = append(cells, "–")
			continue
		}
		any = true
		cell := row.print(f.Value)
		if f.Interval95 != nil {
			cell += " ± " + row.print(halfWide(f.Interval95))
		}
		cells = append(cells, cell)
	}
	return cells, any
}

// more are the tables that not every figure has a row in.
func (doc *Comparison) more() (tables []report.Table) {
	for _, t := range []report.Table{doc.changed(), doc.predicted(), doc.sources(), doc.idle("Trainer idle, by what it waited for", func(a *attribution.Summary) attribution.Idle { return a.Trainer }),
		doc.idle("Engines idle, by what they waited for", func(a *attribution.Summary) attribution.Idle { return a.Engines }), doc.ledger()} {
		if len(t.Rows) > 0 {
			tables = append(tables, t)
		}
	}
	return tables
}

// changed are the differences from the first run that have an interval.
func (doc *Comparison) changed() report.Table {
	t := report.Table{Title: "Difference from " + doc.Runs[0].Name + " (~ not told from chance)", Header: append([]string{""}, doc.header()[2:]...)}
	for _, group := range comparedRows {
		for _, row := range group.rows {
			cells, known := []string{row.name}, false
			for _, run := range doc.Runs[1:] {
				f := run.Figures[row.key]
				if f.Difference == nil || f.Difference95 == nil {
					cells = append(cells, "–")
					continue
				}
				known = true
				cell := report.Signed(*f.Difference, row.print) + " ± " + row.print(halfWide(f.Difference95))
				if f.Difference95[0] <= 0 && f.Difference95[1] >= 0 {
					cell += " ~"
				}
				cells = append(cells, cell)
			}
			if known {
				t.Rows = append(t.Rows, cells)
			}
		}
	}
	return t
}

// predicted sets what was expected before the first step beside what was measured.
func (doc *Comparison) predicted() report.Table {
	t := report.Table{Title: "Predicted before the run → measured", Header: doc.header()}
	for _, row := range []struct {
		name, key string
		of        func(*forecast.Forecast) *float64
		print     func(float64) string
	}{
		{"staleness, mean", "staleness_mean", func(p *forecast.Forecast) *float64 { return p.StalenessMean }, report.Decimals(2)},
		{"train period, s", "period_s", func(p *forecast.Forecast) *float64 { return p.PeriodS }, report.Decimals(4)},
	} {
		cells, known := []string{row.name}, false
		for _, run := range doc.Runs {
			expected := row.of(&run.prediction)
			measured, ok := run.Figures[row.key]
			if expected == nil || !ok {
				cells = append(cells, "–")
				continue
			}
			known = true
			cells = append(cells, row.print(*expected)+" → "+row.print(measured.Value))
		}
		if known {
			t.Rows = append(t.Rows, cells)
		}
	}
	return t
}

// sources splits every run's staleness.
func (doc *Comparison) sources() report.Table {
	t := report.Table{Title: "Where staleness comes from, in versions", Header: doc.header()}
	for s := range attribution.Sources {
		cells, any := []string{s.String()}, false
		for _, run := range doc.Runs {
			cell := "–"
			if run.Attribution != nil {
				for _, part := range run.Attribution.Parts {
					if part.Source == s.String() {
						cell = fmt.Sprintf("%s (%s)", report.Figure(part.Versions, 3), report.Share(part.Share))
						any = any || part.Versions > 0
					}
				}
			}
			cells = append(cells, cell)
		}
		if any {
			t.Rows = append(t.Rows, cells)
		}
	}
	return t
}

// idle splits idle time.
func (doc *Comparison) idle(title string, of func(*attribution.Summary) attribution.Idle) report.Table {
	t := report.Table{Title: title, Header: doc.header()}
	for _, row := range []struct {
		name string
		of   func(attribution.Idle) float64
	}{
		{"starved", func(i attribution.Idle) float64 { return i.Starved }}, {"syncing", func(i attribution.Idle) float64 { return i.Syncing }},
		{"validating", func(i attribution.Idle) float64 { return i.Validating }}, {"paused", func(i attribution.Idle) float64 { return i.Paused }},
		{"blocked", func(i attribution.Idle) float64 { return i.Blocked }},
	} {
		cells, any := []string{row.name}, false
		for _, run := range doc.Runs {
			if run.Attribution == nil {
				cells = append(cells, "–")
				continue
			}
			share := row.of(of(run.Attribution))
			any = any || share >= 0.0005
			cells = append(cells, report.Share(share))
		}
		if any {
			t.Rows = append(t.Rows, cells)
		}
	}
	return t
}

// ledger says how every run's rollout attempts ended.
func (doc *Comparison) ledger() report.Table {
	t := report.Table{Title: "Rollout attempts, by how they ended", Header: doc.header()}
	for _, row := range []struct {
		name string
		of   func(*loop.Ledger) int64
	}{
		{"admitted", func(l *loop.Ledger) int64 { return l.Admitted }}, {"trained", func(l *loop.Ledger) int64 { return l.Trained }}, {"evicted", func(l *loop.Ledger) int64 { return l.Evicted }},
		{"discarded", func(l *loop.Ledger) int64 { return l.Discarded }}, {"filtered", func(l *loop.Ledger) int64 { return l.Filtered }}, {"pruned", func(l *loop.Ledger) int64 { return l.Pruned }},
		{"cancelled", func(l *loop.Ledger) int64 { return l.Cancelled }}, {"failed", func(l *loop.Ledger) int64 { return l.Failed }},
	} {
		cells, any := []string{row.name}, false
		for _, run := range doc.Runs {
			if run.Ledger == nil {
				cells = append(cells, "–")
				continue
			}
			n := row.of(run.Ledger)
			any = any || n > 0
			cells = append(cells, report.Count(n))
		}
		if any {
			t.Rows = append(t.Rows, cells)
		}
	}
	return t
}

// Text are the tables of the comparison for a terminal of so many columns, its warnings first.
func (doc *Comparison) Text(columns int) string {
	var b strings.Builder
	for _, w := range doc.Warnings {
		b.WriteString(report.Indented("! ", w, columns))
	}
	for i, t := range doc.tables() {
		if i > 0 || len(doc.Warnings) > 0 {
			b.WriteString("\n")
		}
		b.WriteString(t.Fit(columns))
	}
	return b.String()
}

func dashes(values []string) []string {
	out := slices.Clone(values)
	for i := range out {
		if out[i] == "" {
			out[i] = "–"
		}
	}
	return out
}
