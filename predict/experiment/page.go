package experiment

import (
	"fmt"
	"html"
	"math"
	"strconv"
	"strings"

	"github.com/headway-rl/headway/observe/metrics"
	"github.com/headway-rl/headway/observe/report"
)

// gridPage is a grid as a page: lines over the first axis with numbers, a map over
// the first two axes, and a table.
type gridPage struct {
	g      *Grid
	accept bool
	points []*Point
	// x is the axis the lines run over, -1 where no axis has numbers.
	x int
}

// Sizes of a page.
const (
	// linesMax is how many lines a picture holds, mapsMax how many pairs of maps.
	linesMax = 8
	mapsMax  = 4
	// mapCells is up to how many values an axis of a map has, tableMax how many settings a table.
	mapCells = 60
	tableMax = 500
)

// Page is a grid as a page: lines, maps and a table. accept shows means that have not settled.
func Page(g *Grid, points []*Point, accept bool) report.Document {
	p := &gridPage{g: g, accept: accept, points: points, x: -1}
	for i := range g.axes {
		if g.axes[i].isNumeric() && g.axes[i].size > 1 {
			p.x = i
			break
		}
	}
	return p.document()
}

// Single reports whether a grid has no axes, so that it is one setting.
func (g *Grid) Single() bool { return len(g.axes) == 0 }

func (p *gridPage) document() report.Document {
	keys := make([]string, len(p.g.axes))
	for i, a := range p.g.axes {
		keys[i] = a.key
	}
	d := report.Document{
		Title: "Simulated: " + strings.Join(keys, " × "),
		Summary: fmt.Sprintf("%s with %s each, through the production loop in virtual time. Bands are 95 %% intervals of the mean: by batch means of one seed, by Student's t over several.",
			report.Counted(p.g.Settings, "setting"), report.Counted(p.g.Seeds, "seed")),
	}
	unsettled, failed := 0, 0
	for _, point := range p.points {
		switch {
		case point.failed != nil:
			failed++
		case !point.Settled:
			unsettled++
		}
	}
	if unsettled > 0 {
		what := "they are left out"
		if p.accept {
			what = "they are of their window alone"
		}
		d.Warnings = append(d.Warnings, fmt.Sprintf("The means of %s have not settled: %s.", report.Counted(unsettled, "setting"), what))
	}
	if failed > 0 {
		d.Warnings = append(d.Warnings, fmt.Sprintf("%s could not be simulated.", report.Counted(failed, "setting")))
	}
	if p.x >= 0 {
		d.Sections = append(d.Sections, p.lines())
	}
	if maps := p.maps(); len(maps.Drawings) > 0 {
		d.Sections = append(d.Sections, maps)
	}
	return report.Document{Title: d.Title, Summary: d.Summary, Warnings: d.Warnings, Sections: append(d.Sections, p.table())}
}

// quantity is what a picture shows of a setting; low and high may be NaN.
type quantity struct {
	id, title, label string
	of               func(*Point) (value, low, high float64)
}

// interval is a mean with the ends of its interval.
func interval(m pointMean) (value, low, high float64) {
	if m.Interval == nil {
		return m.mean, math.NaN(), math.NaN()
	}
	return m.mean, m.Interval[0], m.Interval[1]
}

// average is a column's.
func average(name string) func(*Point) (float64, float64, float64) {
	return func(p *Point) (float64, float64, float64) { return p.averages[name], math.NaN(), math.NaN() }
}

var quantities = []quantity{
	{"staleness", "Mean staleness", "policy versions", func(p *Point) (float64, float64, float64) { return interval(p.Staleness) }},
	{"period", "Train period", "seconds", func(p *Point) (float64, float64, float64) { return interval(p.PeriodS) }},
	{"p95", "Staleness, 95 % of groups at most", "policy versions", func(p *Point) (float64, float64, float64) {
		return float64(metrics.Quantile(p.histogram, 0.95)), math.NaN(), math.NaN()
	}},
	{"trainer-idle", "Trainer idle", "share of the time", average("trainer_idle_ratio")},
	{"rollout-idle", "Rollout slots idle", "share of slot time", average("rollout_idle_ratio")},
	{"wasted", "Tokens wasted", "share of those that ended", average("wasted_share")},
}

// lines draws every quantity over the first axis with numbers, a line for every
// combination of the others.
func (p *gridPage) lines() report.Section {
	var names []string
	byName := map[string][]*Point{}
	for _, point := range p.points {
		name := p.others(point, p.x, -1)
		if _, ok := byName[name]; !ok {
			names = append(names, name)
		}
		byName[name] = append(byName[name], point)
	}
	s := report.Section{ID: "lines", Title: "Over " + p.g.axes[p.x].key}
	if len(names) > linesMax { // some of them, evenly
		kept := make([]string, linesMax)
		for i := range kept {
			kept[i] = names[i*(len(names)-1)/(linesMax-1)]
		}
		s.Text = append(s.Text, fmt.Sprintf("%d of the %d combinations of the other keys are drawn.", linesMax, len(names)))
		names = kept
	}
	for _, q := range quantities {
		plot := report.Plot{ID: q.id, Title: q.title, Description: q.title + " over " + p.g.axes[p.x].key, XLabel: p.g.axes[p.x].key, YLabel: q.label}
		moves := false
		for _, name := range names {
			line := report.Series{Name: name}
			if name == "" {
				line.Name = "simulated"
			}
			for _, point := range byName[name] {
				value, low, high := math.NaN(), math.NaN(), math.NaN()
				if point.shown(p.accept) {
					value, low, high = q.of(point)
				}
				x, _ := strconv.ParseFloat(point.set[p.x].value, 64)
				line.X, line.Y = append(line.X, x), append(line.Y, value)
				line.Low, line.High = append(line.Low, low), append(line.High, high)
				moves = moves || value > 0
			}
			plot.Series = append(plot.Series, line)
		}
		if moves {
			s.Plots = append(s.Plots, plot)
		}
	}
	return s
}

// others names a setting by its keys but two.
func (p *gridPage) others(point *Point, a, b int) string {
	var parts []string
	for i, o := range point.set {
		if i != a && i != b && p.g.axes[i].size > 1 {
			parts = append(parts, o.key+" "+o.value)
		}
	}
	return strings.Join(parts, ", ")
}

// maps draws staleness and period over the first two axes, for the first few
// combinations of the others.
func (p *gridPage) maps() report.Section {
	s := report.Section{ID: "maps"}
	if len(p.g.axes) < 2 {
		return s
	}
	across, down := &p.g.axes[0], &p.g.axes[1]
	s.Title = across.key + " × " + down.key
	if across.size < 2 || down.size < 2 || across.size > mapCells || down.size > mapCells {
		return s
	}
	rest := int(p.g.Settings / across.size / down.size)
	for r := range min(rest, mapsMax) {
		cells := make([]*Point, 0, across.size*down.size)
		for i := range len(p.points) / rest {
			cells = append(cells, p.points[i*rest+r])
		}
		for _, q := range quantities[:2] {
			title := q.title + ", " + q.label
			if name := p.others(cells[0], 0, 1); name != "" {
				title += " · " + name
			}
			s.Drawings = append(s.Drawings, report.Drawing{Title: title, SVG: p.heat(q, cells, title), Wide: across.size > 12,
				Caption: "The stronger the colour, the more. Empty cells have no mean."})
		}
	}
	if rest > mapsMax {
		s.Text = append(s.Text, fmt.Sprintf("The first %d of %d combinations of the other keys.", mapsMax, rest))
	}
	return s
}

// heat is the map of one quantity: the first axis across, the second down.
func (p *gridPage) heat(q quantity, cells []*Point, title string) string {
	const cellW, cellH, left, bottom, top = 46, 26, 90, 46, 8
	across, down := &p.g.axes[0], &p.g.axes[1]
	low, high := math.Inf(1), math.Inf(-1)
	for _, point := range cells {
		if point.shown(p.accept) {
			v, _, _ := q.of(point)
			low, high = math.Min(low, v), math.Max(high, v)
		}
	}
	var b strings.Builder
	width, height := left+cellW*int(across.size)+8, top+cellH*int(down.size)+bottom
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d %d" role="img" aria-label="%s" font-family="system-ui, sans-serif" font-size="11" fill="var(--text)">`, width, height, html.EscapeString(title))
	for i, point := range cells {
		x, y := left+cellW*(i/int(down.size)), top+cellH*(int(down.size)-1-i%int(down.size))
		text, shade := "–", 0.0
		if point.shown(p.accept) {
			v, _, _ := q.of(point)
			text = brief(v)
			shade = 0.06
			if high > low {
				shade += 0.6 * (v - low) / (high - low)
			}
		}
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="%d" fill="var(--series-1)" fill-opacity="%.3f" stroke="var(--line)"><title>%s, %s: %s</title></rect>`,
			x, y, cellW, cellH, shade, html.EscapeString(across.key+" "+point.set[0].value), html.EscapeString(down.key+" "+point.set[1].value), text)
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle" pointer-events="none">%s</text>`, x+cellW/2, y+cellH/2+4, text)
	}
	label := func(x, y int, anchor, text string) {
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="%s" fill="var(--quiet)">%s</text>`, x, y, anchor, html.EscapeString(shorten(text, 13)))
	}
	for i := range across.size {
		label(left+cellW*int(i)+cellW/2, top+cellH*int(down.size)+16, "middle", across.at(i))
	}
	for i := range down.size {
		label(left-6, top+cellH*int(down.size-1-i)+cellH/2+4, "end", down.at(i))
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle">%s →   %s ↑</text></svg>`, left+cellW*int(across.size)/2, height-8, html.EscapeString(across.key), html.EscapeString(down.key))
	return b.String()
}

// brief prints a number in a cell's width.
func brief(v float64) string {
	switch {
	case math.Abs(v) >= 9999.5:
		return strconv.FormatFloat(v, 'g', 3, 64)
	case math.Abs(v) >= 99.95:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case math.Abs(v) >= 9.995:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

// shorten cuts a text to so many letters.
func shorten(text string, letters int) string {
	if runes := []rune(text); len(runes) > letters {
		return string(runes[:letters-1]) + "…"
	}
	return text
}

// table lists the settings.
func (p *gridPage) table() report.Section {
	t := gridTable(p.points[:min(len(p.points), tableMax)], p.accept)
	s := report.Section{ID: "settings", Title: "Settings", Tables: []report.Table{t}}
	if len(p.points) > tableMax {
		s.Text = append(s.Text, fmt.Sprintf("The first %d of %s; --out FILE.csv has all of them.", tableMax, report.Count(int64(len(p.points)))))
	}
	return s
}
