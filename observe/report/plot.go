package report

import (
	"bytes"
	"fmt"
	"html"
	"image/color"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Plot is one picture of lines over train steps, or of bars over whole numbers.
type Plot struct {
	// ID names the picture within a document; letters, digits and dashes.
	ID string
	// Title says what is seen; it is the picture's accessible name.
	Title string
	// Description says in a sentence what the picture shows, for those who do not
	// see it.
	Description string
	// XLabel and YLabel name the axes, with units.
	XLabel, YLabel string
	// YMin and YMax fix the vertical axis where YMax > YMin; else it fits.
	YMin, YMax float64
	// Tall gives the picture more height, for what is not a course over time.
	Tall bool
	// Bars draws bars instead of lines.
	Bars bool
	// XMin and XMax fix the horizontal axis where XMax > XMin; else it fits.
	XMin, XMax float64
	// Series are drawn in order, at most eight with a colour of their own.
	Series []Series
}

// Series is one line, or the bars of one colour.
type Series struct {
	// Name in the legend.
	Name string
	// X and Y are as long as each other. Values of Y that are not finite are left out.
	X, Y []float64
	// Low and High, if given, are the ends of a band around Y, drawn where both are finite. With Marks
	// they are the ends of an upright line through each point.
	Low, High []float64
	// Marks draws points instead of a line, such as measurements beside a formula.
	Marks bool
	// Labels, if given, name the points of Marks, one each.
	Labels []string
	// Like, from 1, gives the series the colour of that series of the plot and leaves it out of the
	// legend. The measurements of a line use it. 0 is a colour of its own.
	Like int
}

// Size of a picture in SVG units; it scales to its place.
const (
	plotWidth    = 560
	plotHeight   = 240
	tallHeight   = 380
	legendHeight = 22
	// labelMargin keeps half a label at the axis's end within the picture.
	labelMargin = 12
	// pointsMax bounds a line: more points than pixels are averaged.
	pointsMax = 560
)

// seriesMax is how many series can be told apart.
const seriesMax = 8

// Series have a colour, which the page's style decides, and a dash, so that they
// can be told apart without colour. Marker colours are what the renderer is
// given; the finished SVG has style variables in their place.
var (
	markers = [seriesMax]color.RGBA{{1, 1, 1, 255}, {2, 2, 2, 255}, {3, 3, 3, 255}, {4, 4, 4, 255},
		{5, 5, 5, 255}, {6, 6, 6, 255}, {7, 7, 7, 255}, {8, 8, 8, 255}}
	bandMarkers = [seriesMax]color.RGBA{{21, 21, 21, 255}, {22, 22, 22, 255}, {23, 23, 23, 255}, {24, 24, 24, 255},
		{25, 25, 25, 255}, {26, 26, 26, 255}, {27, 27, 27, 255}, {28, 28, 28, 255}}
	fallbacks = [seriesMax]string{"#2563eb", "#c2410c", "#0f766e", "#7e22ce", "#a16207", "#be185d", "#475569", "#4d7c0f"}
	dashes    = [seriesMax][]vg.Length{nil, {5, 2}, {1.5, 2}, {8, 2, 2, 2}, {12, 3}, {3, 3}, {8, 2, 2, 2, 2, 2}, {1, 3}}
	axisColor = color.RGBA{10, 10, 10, 255}
	gridColor = color.RGBA{11, 11, 11, 255}
)

// SVG renders the picture as one SVG element: it can stand in a page or, as a
// file, on its own.
func (p Plot) SVG() (string, error) {
	own := 0
	for _, series := range p.Series {
		if series.Like == 0 {
			own++
		}
	}
	if own > seriesMax {
		return "", fmt.Errorf("plot %s: %d series: at most %d can be told apart", p.ID, own, seriesMax)
	}
	picture := p.frame()
	var err error
	if p.Bars {
		err = p.bars(picture)
	} else {
		err = p.lines(picture)
	}
	if err != nil {
		return "", fmt.Errorf("plot %s: %w", p.ID, err)
	}
	p.scale(picture)
	canvas := vgsvg.New(plotWidth, vg.Length(p.height()))
	picture.Draw(draw.New(canvas))
	var raw bytes.Buffer
	if _, err := canvas.WriteTo(&raw); err != nil {
		return "", fmt.Errorf("plot %s: %w", p.ID, err)
	}
	return p.dress(raw.String())
}

// height is the picture's without its legend, in SVG units.
func (p Plot) height() int {
	if p.Tall {
		return tallHeight
	}
	return plotHeight
}

// frame makes the axes.
func (p Plot) frame() *plot.Plot {
	picture := plot.New()
	picture.BackgroundColor = nil
	picture.X.Label.Text, picture.Y.Label.Text = p.XLabel, p.YLabel
	for _, axis := range []*plot.Axis{&picture.X, &picture.Y} {
		axis.Color, axis.Tick.Color = axisColor, axisColor
		axis.Tick.Marker = plainTicks{}
		for _, style := range []*text.Style{&axis.Label.TextStyle, &axis.Tick.Label} {
			style.Font.Variant = "Sans"
			style.Font.Size = 10
		}
	}
	grid := plotter.NewGrid()
	grid.Vertical.Color = nil
	grid.Horizontal.Color, grid.Horizontal.Width = gridColor, 0.5
	picture.Add(grid)
	return picture
}

// plainTicks are the default ticks with numbers as the rest of the report has
// them.
type plainTicks struct{}

// Ticks implements plot.Ticker.
func (plainTicks) Ticks(low, high float64) []plot.Tick {
	ticks := plot.DefaultTicks{}.Ticks(low, high)
	for i, tick := range ticks {
		if tick.Label != "" {
			ticks[i].Label = tickLabel(tick.Value)
		}
	}
	return ticks
}

// tickLabel prints a tick's value without digits that say nothing.
func tickLabel(value float64) string {
	if math.Abs(value) >= 1000 {
		return Figure(value, 0)
	}
	return strconv.FormatFloat(math.Round(value*1e6)/1e6, 'g', -1, 64)
}

// lines adds one line per series.
func (p Plot) lines(picture *plot.Plot) error {
	for i, series := range p.Series {
		if band := series.band(); len(band) > 0 && !series.Marks {
			area, err := plotter.NewPolygon(band)
			if err != nil {
				return err
			}
			area.Color, area.LineStyle.Width = bandMarkers[p.colour(i)], 0
			picture.Add(area)
		}
	}
	for i, series := range p.Series {
		points := series.points()
		if len(points) == 0 {
			continue
		}
		if series.Marks {
			if err := p.marks(picture, i, points); err != nil {
				return err
			}
			continue
		}
		if len(points) == 1 { // a line needs two ends
			points = append(points, points[0])
		}
		line, err := plotter.NewLine(points)
		if err != nil {
			return err
		}
		line.Color, line.Width, line.Dashes = markers[p.colour(i)], 1.4, dashes[p.colour(i)]
		picture.Add(line)
	}
	return nil
}

// band is the outline of a series' band: its lower ends, then its upper ones back.
func (s Series) band() plotter.XYs {
	var low, high plotter.XYs
	for i := range min(len(s.Low), len(s.High)) {
		if l, h := s.Low[i], s.High[i]; !math.IsNaN(l-h) && !math.IsInf(l-h, 0) {
			low, high = append(low, plotter.XY{X: s.X[i], Y: l}), append(high, plotter.XY{X: s.X[i], Y: h})
		}
	}
	if len(low) < 2 {
		return nil
	}
	slices.Reverse(high)
	return append(low, high...)
}

// points drops what is not finite and averages neighbours down to what a
// picture can show.
func (s Series) points() plotter.XYs {
	var points plotter.XYs
	for i, y := range s.Y {
		if !math.IsNaN(y) && !math.IsInf(y, 0) {
			points = append(points, plotter.XY{X: s.X[i], Y: y})
		}
	}
	if len(points) <= pointsMax {
		return points
	}
	thinned := make(plotter.XYs, pointsMax)
	for i := range thinned {
		from, to := i*len(points)/pointsMax, (i+1)*len(points)/pointsMax
		var sum plotter.XY
		for _, point := range points[from:to] {
			sum.X, sum.Y = sum.X+point.X, sum.Y+point.Y
		}
		n := float64(to - from)
		thinned[i] = plotter.XY{X: sum.X / n, Y: sum.Y / n}
	}
	return thinned
}

// bars adds one group of bars per whole number.
func (p Plot) bars(picture *plot.Plot) error {
	longest := 1
	for _, series := range p.Series {
		longest = max(longest, len(series.Y))
	}
	room := (plotWidth - 60) / float64(longest) * 0.8
	width := vg.Length(min(room/float64(max(len(p.Series), 1)), 40))
	for i, series := range p.Series {
		values := make(plotter.Values, len(series.Y))
		for k, y := range series.Y {
			if !math.IsNaN(y) && !math.IsInf(y, 0) {
				values[k] = y
			}
		}
		if len(values) == 0 {
			continue
		}
		chart, err := plotter.NewBarChart(values, width)
		if err != nil {
			return err
		}
		chart.Color, chart.LineStyle.Width = markers[i], 0
		chart.Offset = width * vg.Length(float64(i)-float64(len(p.Series)-1)/2)
		picture.Add(chart)
	}
	// Ticks on whole numbers, as many as fit.
	step := longest/20 + 1
	var ticks []plot.Tick
	for k := 0; k < longest; k += step {
		ticks = append(ticks, plot.Tick{Value: float64(k), Label: fmt.Sprint(k)})
	}
	picture.X.Tick.Marker = plot.ConstantTicks(ticks)
	picture.X.Min, picture.X.Max = -0.5, float64(longest)-0.5
	return nil
}

// scale sets the vertical axis: as asked, else from zero where nothing is below,
// so that small changes look small, with room above the highest point.
func (p Plot) scale(picture *plot.Plot) {
	if p.XMax > p.XMin {
		picture.X.Min, picture.X.Max = p.XMin, p.XMax
	}
	if p.YMax > p.YMin {
		picture.Y.Min, picture.Y.Max = p.YMin, p.YMax
		return
	}
	if picture.Y.Min >= 0 {
		picture.Y.Min = 0
	}
	if picture.Y.Max <= picture.Y.Min {
		picture.Y.Max = picture.Y.Min + 1
	}
	picture.Y.Max += (picture.Y.Max - picture.Y.Min) / 20
}

// legend names the series above the picture, in as many lines as it takes.
func (p Plot) legend() (drawing string, lines int) {
	const sample, letter = 22, 5.6 // widths in SVG units, the letter's on average
	var text strings.Builder
	x, line := 4.0, 0
	for i, series := range p.Series {
		if series.Like > 0 {
			continue
		}
		width := sample + 24 + letter*float64(utf8.RuneCountInString(series.Name))
		if i > 0 && x+width-24 > plotWidth+labelMargin {
			x, line = 4, line+1
		}
		// Lines count from the first, whose top is at 0 here and above the picture in the end.
		top := float64(legendHeight * line)
		kind := p.colour(i)
		colour := fmt.Sprintf("var(--series-%d,%s)", kind+1, fallbacks[kind])
		switch {
		case series.Marks:
			text.WriteString(p.shape(i).svg(x+sample/2, top+11, colour))
		case p.Bars:
			fmt.Fprintf(&text, `<rect x="%g" y="%g" width="10" height="10" style="fill:%s"/>`, x+sample-12, top+6, colour)
		default:
			dash := "none"
			if len(dashes[kind]) > 0 {
				dash = strings.Trim(fmt.Sprint(dashes[kind]), "[]")
			}
			fmt.Fprintf(&text, `<path d="M%g,%gh%d" style="fill:none;stroke:%s;stroke-width:1.6;stroke-dasharray:%s"/>`, x, top+11, sample, colour, dash)
		}
		fmt.Fprintf(&text, `<text x="%g" y="%g" style="font-family:system-ui,sans-serif;fill:var(--text,#333333);font-size:11px">%s</text>`,
			x+sample+5, top+14.5, html.EscapeString(series.Name))
		x += width
	}
	lines = line + 1
	return fmt.Sprintf(`<g transform="translate(0,%d)">%s</g>`, -lines*legendHeight, text.String()), lines
}

// dress turns the renderer's output into an element of a page: named for those
// who do not see it, in the page's font, and in colours its style decides.
func (p Plot) dress(raw string) (string, error) {
	begin := strings.Index(raw, "<svg")
	if begin < 0 {
		return "", fmt.Errorf("plot %s: the renderer made no SVG", p.ID)
	}
	open := strings.IndexByte(raw[begin:], '>') + begin
	id := html.EscapeString(p.ID)
	legend, lines := p.legend()
	head := fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 %d %d %d" role="img" aria-labelledby="%s-title %s-description">`+
		`<title id="%s-title">%s</title><desc id="%s-description">%s</desc>`,
		-lines*legendHeight, plotWidth+labelMargin, p.height()+lines*legendHeight, id, id, id, html.EscapeString(p.Title), id, html.EscapeString(p.Description)) + legend
	replacements := []string{
		"#0A0A0A", "var(--axis,#666666)",
		"#0B0B0B", "var(--grid,#dddddd)",
		"font-family:Liberation Sans;font-variant:normal;font-weight:normal;font-style:normal;",
		"font-family:system-ui,sans-serif;fill:var(--text,#333333);",
	}
	for i, fallback := range fallbacks {
		colour := fmt.Sprintf("var(--series-%d,%s)", i+1, fallback)
		replacements = append(replacements, fmt.Sprintf("#%02X%02X%02X", i+1, i+1, i+1), colour,
			fmt.Sprintf("#%02X%02X%02X", i+21, i+21, i+21), colour+";fill-opacity:0.16")
	}
	return head + strings.NewReplacer(replacements...).Replace(raw[open+1:]), nil
}
