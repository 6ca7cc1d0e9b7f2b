package cases

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/headway-rl/headway/observe/report"
)

// Text prints the result: how far answers are off by family, decisions, and every row.
func (r Result) Text(w io.Writer, columns int) error {
	var out strings.Builder
	for _, line := range r.headline() {
		out.WriteString(strings.Join(report.Wrap(line, columns), "\n") + "\n")
	}
	for _, t := range r.tables() {
		out.WriteString("\n" + t.Fit(columns))
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// headline says in three sentences how good the answers are.
func (r Result) headline() []string {
	answered, measured := 0, 0
	for _, a := range r.Rows {
		if a.Step != nil {
			answered++
			if a.Measured != nil {
				measured++
			}
		}
	}
	lines := []string{fmt.Sprintf("%d of %d rows are answered, %d of them have a measurement.", answered, len(r.Rows), measured)}
	for _, s := range r.Families {
		if s.Family != "all" {
			continue
		}
		line := fmt.Sprintf("Grade %s: the median error is %s over %d rows, %s of measurements lie within the 80 %% interval.", s.Grades, percent(s.Median), s.N, percent(s.Covered))
		if s.Calibrated != nil {
			line += fmt.Sprintf(" Calibrated: %s over %d.", percent(s.Calibrated.Median), s.Calibrated.N)
		}
		lines = append(lines, line)
	}
	if d := r.Decisions; d.N > 0 {
		lines = append(lines, fmt.Sprintf("Of %d choices between two rows, %d are called right (%s).", d.N, d.Right, percent(d.Share)))
	}
	return append(lines, r.notSimulated()...)
}

// notSimulated says how many asynchronous rows have no staleness, by the reason.
func (r Result) notSimulated() []string {
	rows := map[string]int{}
	for _, a := range r.Rows {
		if a.NotSimulated != "" {
			rows[a.NotSimulated]++
		}
	}
	var lines []string
	for _, why := range slices.Sorted(maps.Keys(rows)) {
		lines = append(lines, fmt.Sprintf("Staleness and waiting are missing of %s: %s.", report.Counted(rows[why], "asynchronous row"), why))
	}
	return lines
}

// tables are the result, the summary first.
func (r Result) tables() []report.Table {
	var out []report.Table
	if len(r.Families) > 0 {
		out = append(out, r.FamilyTable())
	}
	if r.Decisions.N > 0 {
		out = append(out, r.DecisionTable())
	}
	out = append(out, r.RowTable())
	if parts := r.partTable(); len(parts.Rows) > 0 {
		out = append(out, parts)
	}
	if refused := r.refusedTable(); len(refused.Rows) > 0 {
		out = append(out, refused)
	}
	return out
}

// FamilyTable is how far answers are off, by family and grade.
func (r Result) FamilyTable() report.Table {
	header := []string{"family", "grade", "n", "median", "worst", "bias", "in 80 %", "high/low", "score", "calibrated", "n", "in 80 %"}
	width := 9
	if len(r.CalibratedOn) > 0 {
		width = len(header)
	}
	t := report.Table{Title: "Errors by family", Header: header[:width]}
	for _, s := range r.Families {
		row := []string{s.Family, s.Grades, fmt.Sprint(s.N), percent(s.Median), percent(s.Worst), signed(s.Bias), percent(s.Covered), fmt.Sprintf("%.2f", s.Ratio), fmt.Sprintf("%.2f", s.Score), "–", "", ""}
		if c := s.Calibrated; c != nil {
			row[9], row[10], row[11] = percent(c.Median), fmt.Sprint(c.N), percent(c.Covered)
		}
		t.Rows = append(t.Rows, row[:width])
	}
	return t
}

// DecisionTable is every choice between two rows, called right or wrong.
func (r Result) DecisionTable() report.Table {
	d := r.Decisions
	t := report.Table{Title: fmt.Sprintf("Choices: %d of %d right. \"Always asynchronous\": %d of %d. \"More GPUs are faster\": %d of %d.", d.Right, d.N, d.AsyncRight, d.AsyncN, d.MoreRight, d.MoreN),
		Header: []string{"choice", "first", "second", "measured", "predicted", ""}}
	for _, p := range d.Pairs {
		mark := "right"
		if !p.Right {
			mark = "wrong"
		}
		t.Rows = append(t.Rows, []string{p.Choice, p.A, p.B, fmt.Sprintf("×%.2f", p.Measured), fmt.Sprintf("×%.2f", p.Predicted), mark})
	}
	return t
}

const rowTitle = "Rows, in seconds"

// RowTable is every row that is answered.
func (r Result) RowTable() report.Table {
	t := report.Table{Title: rowTitle, Header: []string{"row", "grade", "figure", "measured", "predicted", "80 %", "error", "calibrated", "staleness", "waits"}}
	for _, a := range r.Rows {
		if a.Step == nil {
			continue
		}
		row := []string{a.ID, a.Grade, a.Figure, "–", short(a.Step.Predicted), short(a.Step.Low) + " to " + short(a.Step.High), "–", "–", "–", "–"}
		if a.Measured != nil {
			row[3], row[6] = short(*a.Measured), signed(a.Step.Predicted / *a.Measured - 1)
		}
		switch {
		case a.Reference:
			row[7] = "reference"
		case a.Calibrated != nil:
			row[7] = short(a.Calibrated.Predicted)
		}
		if a.Staleness != nil {
			row[8] = fmt.Sprintf("%.2f", *a.Staleness)
		}
		if a.WaitShare != nil {
			row[9] = percent(*a.WaitShare)
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// partTable is what each step is made of.
func (r Result) partTable() report.Table {
	t := report.Table{Title: "Parts of a step, in seconds, some of which run beside others", Header: []string{"row", "generation", "training", "log-probs", "sync", "tokens/s/GPU"}}
	for _, a := range r.Rows {
		if a.Figure != "step_s" || a.Parts == nil {
			continue
		}
		rate := "–"
		if a.TokensPerSAndGPU != nil {
			rate = short(*a.TokensPerSAndGPU)
		}
		t.Rows = append(t.Rows, []string{a.ID, short(a.Parts.Generation), short(a.Parts.Training), short(a.Parts.LogProbs), short(a.Parts.Sync), rate})
	}
	return t
}

func (r Result) refusedTable() report.Table {
	t := report.Table{Title: "No answer, and inputs assumed", Header: []string{"row", "why"}}
	for _, a := range r.Rows {
		if a.Step == nil {
			t.Rows = append(t.Rows, []string{a.ID, a.Reason})
		} else if len(a.Assumed) > 0 {
			t.Rows = append(t.Rows, []string{a.ID, "assumed: " + strings.Join(a.Assumed, "; ")})
		}
	}
	return t
}

// HTML prints the result as one page that needs nothing else.
func (r Result) HTML(w io.Writer) error {
	d := report.Document{Title: "Predicted and measured steps", Summary: strings.Join(r.headline(), " "),
		Sections: []report.Section{{ID: "errors", Title: "How far off", Plots: []report.Plot{r.plot()},
			Captions: []string{"Predicted over measured, by the measured time. 1 is right; bars are 80 % intervals. What is above 2 is drawn at 2."}, Tables: []report.Table{r.FamilyTable()}}}}
	if r.Decisions.N > 0 {
		d.Sections = append(d.Sections, report.Section{ID: "choices", Title: "Choices", Tables: []report.Table{r.DecisionTable()}})
	}
	rest := r.tables()
	first := slices.IndexFunc(rest, func(t report.Table) bool { return t.Title == rowTitle })
	d.Sections = append(d.Sections, report.Section{ID: "rows", Title: "Rows", Tables: rest[first:]})
	return report.DocumentHTML(w, d)
}

// familiesShown have marks of their own; those of the rest are alike.
const familiesShown = 7

// plot is predicted over measured by family.
func (r Result) plot() report.Plot {
	p := report.Plot{ID: "errors", Title: "Predicted over measured", Description: "How far each row's prediction is from its measurement.", XLabel: "measured, log₁₀ s", YLabel: "predicted / measured", YMin: 0, YMax: 2}
	place := map[string]int{}
	for _, a := range r.Rows {
		if a.Step == nil || a.Measured == nil {
			continue
		}
		k, ok := place[a.Family]
		if !ok {
			name := cmp.Or(a.Family, "no family")
			if k = min(len(p.Series), familiesShown); k == familiesShown {
				name = "others"
			}
			place[a.Family] = k
			if k == len(p.Series) {
				p.Series = append(p.Series, report.Series{Name: name, Marks: true})
			}
		}
		s := &p.Series[k]
		m := *a.Measured
		s.X, s.Y = append(s.X, math.Log10(m)), append(s.Y, math.Min(a.Step.Predicted/m, 2))
		s.Low, s.High = append(s.Low, math.Min(a.Step.Low/m, 2)), append(s.High, math.Min(a.Step.High/m, 2))
	}
	return p
}

// Markdown prints the result's tables as a document.
func (r Result) Markdown(w io.Writer) error {
	var out strings.Builder
	for _, line := range r.headline() {
		out.WriteString(line + "\n\n")
	}
	for _, t := range r.tables() {
		out.WriteString(MarkdownTable(t))
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// MarkdownTable is a table with its title.
func MarkdownTable(t report.Table) string {
	var out strings.Builder
	out.WriteString("**" + t.Title + "**\n\n")
	cells := func(row []string) string {
		return "| " + strings.ReplaceAll(strings.Join(row, "\x00"), "|", "\\|") + " |\n"
	}
	out.WriteString(strings.ReplaceAll(cells(t.Header), "\x00", " | "))
	out.WriteString("|" + strings.Repeat(" --- |", len(t.Header)) + "\n")
	for _, row := range t.Rows {
		out.WriteString(strings.ReplaceAll(cells(row), "\x00", " | "))
	}
	return out.String() + "\n"
}

func percent(v float64) string { return fmt.Sprintf("%.0f %%", 100*v) }

func signed(v float64) string { return strings.ReplaceAll(fmt.Sprintf("%+.0f %%", 100*v), "-", "−") }

// short is a time with three digits.
func short(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// Table lists the constants with their spreads.
func (f Fitted) Table() report.Table {
	t := report.Table{Title: "Constants", Header: []string{"constant", "what it is", "guess", "all runs", "±"}}
	var names []string
	for name := range f.Families {
		names = append(names, name)
	}
	slices.Sort(names)
	t.Header = append(t.Header, names...)
	for i, c := range table {
		row := []string{c.Name, c.What, fmt.Sprintf("%.3g", c.Prior), fmt.Sprintf("%.3g", f.Values[i]), percent(f.Spreads[i])}
		for _, name := range names {
			row = append(row, fmt.Sprintf("%.3g", f.Families[name].Values[i]))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}
