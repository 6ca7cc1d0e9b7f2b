package report

import (
	"bytes"
	"fmt"
	"html"
	"html/template"
	"io"
	"math"
	"strings"
)

// armsPage is the parsed template of the comparison page.
var armsPage = template.Must(template.New("arms.html.tmpl").ParseFS(templates, "arms.html.tmpl", "shared.html.tmpl"))

// ArmsText prints a comparison for a terminal.
func ArmsText(w io.Writer, arms Arms) error {
	result := Compare(arms)
	var b strings.Builder
	b.WriteString(oneLine(arms.Title) + "\n")
	if arms.Summary != "" {
		b.WriteString(oneLine(arms.Summary) + "\n")
	}
	b.WriteString(basis(result) + "\n\n")
	for _, warning := range result.Warnings {
		b.WriteString("! " + oneLine(warning) + "\n")
	}
	if len(result.Warnings) > 0 {
		b.WriteString("\n")
	}
	b.WriteString(armsTable(result).String())
	if t := differenceTable(result); len(t.Rows) > 0 {
		b.WriteString("\n" + t.String())
	}
	for i, note := range arms.Notes {
		if i == 0 {
			b.WriteString("\n")
		}
		b.WriteString("! " + oneLine(note) + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// ArmsHTML prints a comparison as one file that needs nothing else.
func ArmsHTML(w io.Writer, arms Arms) error {
	result := Compare(arms)
	overview, err := drawn(curvePlots(result))
	if err != nil {
		return err
	}
	single, err := drawn(armPlots(result))
	if err != nil {
		return err
	}
	var text bytes.Buffer
	err = armsPage.Execute(&text, map[string]any{
		"Arms":        arms,
		"Basis":       basis(result),
		"Warnings":    result.Warnings,
		"Table":       armsTable(result),
		"Differences": differenceTable(result),
		"Intervals":   intervalPictures(result),
		"Overview":    overview,
		"Single":      single,
		"Runs":        runsTable(arms),
	})
	if err != nil {
		return err
	}
	_, err = w.Write(printable(text.Bytes()))
	return err
}

// basis says what the comparison rests on.
func basis(r ArmsResult) string {
	seeds := make([]string, len(r.Seeds))
	for i, seed := range r.Seeds {
		seeds[i] = fmt.Sprint(seed)
	}
	named := "no seeds"
	switch {
	case len(seeds) == 1:
		named = "one seed: " + seeds[0]
	case len(seeds) > 1:
		named = fmt.Sprintf("%d seeds: %s", len(seeds), strings.Join(seeds, ", "))
	}
	text := fmt.Sprintf("%d arms, every run %s s of wall time, %s.", len(r.Arms), Figure(r.WallS, 0), named)
	if len(seeds) > 1 {
		text += " Means with 95 % intervals over the seeds (Student's t)."
	}
	return text
}

// printed is an estimate as a cell: the mean and half its interval's width.
func (m measure) printed(e Estimate, ok bool) string {
	if !ok {
		return "–"
	}
	if e.Interval95 == nil {
		return m.print(e.Mean)
	}
	return m.print(e.Mean) + " ± " + m.print(e.Interval95[1]-e.Mean)
}

// armsTable has a row an arm and a column a figure that some arm has.
func armsTable(r ArmsResult) Table {
	t := Table{Header: []string{"arm"}}
	for _, arm := range r.Arms {
		t.Rows = append(t.Rows, []string{arm.Name})
	}
	for _, m := range measures {
		if !r.has(m) {
			continue
		}
		t.Header = append(t.Header, m.name)
		for i, arm := range r.Arms {
			e, ok := arm.Figures[m.key]
			t.Rows[i] = append(t.Rows[i], m.printed(e, ok))
		}
	}
	return t
}

func (r ArmsResult) has(m measure) bool {
	for _, arm := range r.Arms {
		if _, ok := arm.Figures[m.key]; ok {
			return true
		}
	}
	return false
}

// differenceTable has the differences from the first arm, seed by seed; empty without two
// common seeds.
func differenceTable(r ArmsResult) Table {
	if len(r.Arms) < 2 {
		return Table{}
	}
	t := Table{Title: "Difference from " + r.Arms[0].Name + ", seed by seed; * where the 95 % interval leaves out 0, as one in twenty does by chance", Header: []string{"arm"}}
	for _, arm := range r.Arms[1:] {
		t.Rows = append(t.Rows, []string{arm.Name})
	}
	for _, m := range measures[:5] {
		known := false
		for _, arm := range r.Arms[1:] {
			known = known || arm.Figures[m.key].Difference95 != nil
		}
		if !known {
			continue
		}
		t.Header = append(t.Header, m.name)
		for i, arm := range r.Arms[1:] {
			e := arm.Figures[m.key]
			cell := "–"
			if e.Difference95 != nil {
				sign, star := "", ""
				if *e.Difference > 0 {
					sign = "+"
				}
				if e.Difference95[0] > 0 || e.Difference95[1] < 0 {
					star = " *"
				}
				cell = sign + m.print(*e.Difference) + " ± " + m.print(e.Difference95[1]-*e.Difference) + star
			}
			t.Rows[i] = append(t.Rows[i], cell)
		}
	}
	if len(t.Header) == 1 {
		return Table{}
	}
	return t
}

// runsTable lists every run.
func runsTable(arms Arms) Table {
	t := Table{Header: []string{"arm", "seed", "wall, s"}}
	var kept []measure
	for _, m := range measures {
		for _, arm := range arms.Arms {
			if len(values(arm, m)) > 0 {
				kept = append(kept, m)
				t.Header = append(t.Header, m.name)
				break
			}
		}
	}
	t.Header = append(t.Header, "")
	for _, arm := range arms.Arms {
		for _, run := range arm.Runs {
			row := []string{arm.Name, fmt.Sprint(run.Seed), Figure(run.WallS, 1)}
			for _, m := range kept {
				row = append(row, m.print(m.value(run)))
			}
			note := ""
			if run.Failed != "" {
				note = "failed: " + run.Failed
			}
			t.Rows = append(t.Rows, append(row, note))
		}
	}
	return t
}

// series of an arm's curve with its band.
func (a ArmResult) series() Series {
	s := Series{Name: a.Name}
	for _, p := range a.Curve {
		low, high := math.NaN(), math.NaN()
		if p.Interval95 != nil {
			low, high = max(p.Interval95[0], 0), min(p.Interval95[1], 1)
		}
		s.X, s.Y = append(s.X, p.TimeS), append(s.Y, p.Mean)
		s.Low, s.High = append(s.Low, low), append(s.High, high)
	}
	return s
}

// curvePlots show all arms' curves together, as many to a picture as can be told apart.
func curvePlots(r ArmsResult) []Plot {
	var plots []Plot
	for from := 0; from < len(r.Arms); from += seriesMax {
		p := Plot{ID: fmt.Sprintf("curves-%d", from), Title: "Held-out accuracy against wall time, all arms", XLabel: "wall time in seconds", YLabel: "held-out accuracy",
			YMax: 1, XMax: r.WallS}
		for _, arm := range r.Arms[from:min(from+seriesMax, len(r.Arms))] {
			s := arm.series()
			s.Low, s.High = nil, nil
			p.Series = append(p.Series, s)
		}
		p.Description = describeCurves(p)
		plots = append(plots, p)
	}
	return plots
}

// armPlots show every arm's curve with its interval, beside the first arm's.
func armPlots(r ArmsResult) []Plot {
	var plots []Plot
	for i, arm := range r.Arms {
		p := Plot{ID: fmt.Sprintf("arm-%d", i), Title: arm.Name, XLabel: "wall time in seconds", YLabel: "held-out accuracy", YMax: 1, XMax: r.WallS, Series: []Series{arm.series()}}
		if i > 0 {
			first := r.Arms[0].series()
			first.Low, first.High = nil, nil
			p.Series = append(p.Series, first)
		}
		p.Description = describeCurves(p)
		plots = append(plots, p)
	}
	return plots
}

func describeCurves(p Plot) string {
	var parts []string
	for _, s := range p.Series {
		if n := len(s.Y); n > 0 {
			parts = append(parts, fmt.Sprintf("%s: %s after %s s", s.Name, Figure(s.Y[n-1], 3), Figure(s.X[n-1], 0)))
		}
	}
	return strings.Join(parts, "; ") + "."
}

// intervalPictures set the arms' means and intervals on one scale for each of the figures
// a reader compares first.
func intervalPictures(r ArmsResult) []picture {
	var pictures []picture
	for _, m := range measures[:5] {
		if r.has(m) {
			p := Plot{ID: "interval-" + strings.ReplaceAll(m.key, "_", "-"), Title: Capital(m.name)}
			pictures = append(pictures, picture{p, template.HTML(intervalSVG(r, m, p))})
		}
	}
	return pictures
}

// intervalSVG draws a row an arm: a dot at the mean, a line through its interval. The texts
// in it are escaped.
func intervalSVG(r ArmsResult, m measure, p Plot) string {
	const width, label, row, right = 560.0, 170.0, 24.0, 96.0
	low, high := 0.0, 0.0
	for _, arm := range r.Arms {
		if e, ok := arm.Figures[m.key]; ok {
			low, high = min(low, e.Mean), max(high, e.Mean)
			if e.Interval95 != nil {
				low, high = min(low, e.Interval95[0]), max(high, e.Interval95[1])
			}
		}
	}
	if high <= low {
		high = low + 1
	}
	x := func(v float64) float64 { return label + (width-label-right)*(v-low)/(high-low) }
	var b, said strings.Builder
	height := row*float64(len(r.Arms)) + 8
	for i, arm := range r.Arms {
		y := row*float64(i) + row/2 + 4
		e, ok := arm.Figures[m.key]
		fmt.Fprintf(&b, `<text x="%g" y="%g" text-anchor="end" style="font:11px system-ui,sans-serif;fill:var(--text,#333333)">%s</text>`, label-8, y+4, html.EscapeString(shortened(arm.Name)))
		fmt.Fprintf(&b, `<path d="M%.1f,%.1fH%.1f" style="stroke:var(--grid,#dddddd);stroke-width:0.5"/>`, label, y, width-right)
		fmt.Fprintf(&said, "%s: %s; ", html.EscapeString(arm.Name), m.printed(e, ok))
		if !ok {
			continue
		}
		if e.Interval95 != nil {
			fmt.Fprintf(&b, `<path d="M%.1f,%.1fH%.1f" style="stroke:var(--series-1,#2563eb);stroke-width:2.5"/>`, x(e.Interval95[0]), y, x(e.Interval95[1]))
		}
		fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="4" style="fill:var(--series-1,#2563eb)"/>`, x(e.Mean), y)
		fmt.Fprintf(&b, `<text x="%g" y="%g" style="font:11px system-ui,sans-serif;fill:var(--text,#333333)">%s</text>`, width-right+8, y+4, m.printed(e, true))
	}
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" role="img" aria-labelledby="%s-title %s-description"><title id="%s-title">%s</title><desc id="%s-description">%s</desc>%s</svg>`,
		width, height, p.ID, p.ID, p.ID, html.EscapeString(p.Title), p.ID, said.String(), b.String())
}

// shortened keeps a name within its place.
func shortened(name string) string {
	const most = 26
	if letters := []rune(oneLine(name)); len(letters) > most {
		return string(letters[:most-1]) + "…"
	}
	return oneLine(name)
}
