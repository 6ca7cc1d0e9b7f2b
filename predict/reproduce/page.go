package reproduce

import (
	"io"

	"github.com/headway-rl/headway/observe/report"
)

// HTML prints the result as one page that needs nothing else.
func (r Result) HTML(w io.Writer) error {
	return report.DocumentHTML(w, r.document())
}

// document is the result as a page.
func (r Result) document() report.Document {
	d := report.Document{
		Title:   "Published measurements beside ours",
		Summary: "Figures are computed from what was published; where an input was not, what was assumed stands beside it. Where a figure is near to a measured one because an input was assumed for that, calibrated on it, or determines it, its row says so, and the overview sums no error of it up. Lines are closed forms, points are simulations through the loop that runs in production, with 95 % intervals over seeds.",
	}
	if r.Quick {
		d.Warnings = append(d.Warnings, quickNote)
	}
	if len(r.Cases) > 1 {
		d.Sections = append(d.Sections, report.Section{ID: "overview", Title: "Overview", Tables: []report.Table{report.Table(r.Overview())}})
	}
	if len(r.Figures) > 0 {
		s := report.Section{ID: "figures", Title: "What staleness depends on"}
		s.Plots, s.Captions = plots(r.Figures)
		d.Sections = append(d.Sections, s)
	}
	for _, c := range r.Cases {
		s := report.Section{ID: c.Name, Title: c.Title, Source: c.Source, Findings: c.Findings, Details: c.Setup}
		s.Plots, s.Captions = plots(c.Figures)
		for _, g := range c.tables() {
			s.Tables = append(s.Tables, report.Table(g))
		}
		d.Sections = append(d.Sections, s)
	}
	return d
}

// plots are pictures of figures: points in the colour of the line before them that
// has their name.
func plots(figures []Figure) (pictures []report.Plot, captions []string) {
	for _, f := range figures {
		p := report.Plot{ID: f.Name, Title: f.Title, Description: f.Caption, XLabel: f.XLabel, YLabel: f.YLabel,
			XMin: f.XRange[0], XMax: f.XRange[1], YMin: f.YRange[0], YMax: f.YRange[1], Bars: f.Bars}
		line := map[string]int{}
		for i, c := range f.Curves {
			s := report.Series{Name: c.Name, X: c.X, Y: c.Y, Low: c.Low, High: c.High, Marks: c.Points}
			if of, ok := line[c.Name]; ok && c.Points {
				s.Like = of
			} else {
				line[c.Name] = i + 1
			}
			p.Series = append(p.Series, s)
		}
		pictures, captions = append(pictures, p), append(captions, f.Caption)
	}
	return pictures, captions
}
