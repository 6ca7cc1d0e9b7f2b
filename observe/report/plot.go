package report

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
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

// Series have a colour, which the page's style decides, and a dash, so that they can be told apart without colour.
var (
	fallbacks = [seriesMax]string{"#2563eb", "#c2410c", "#0f766e", "#7e22ce", "#a16207", "#be185d", "#475569", "#4d7c0f"}
	dashes    = [seriesMax]string{"none", "5 2", "1.5 2", "8 2 2 2", "12 3", "3 3", "8 2 2 2 2 2", "1 3"}
)

// point is a place: of values in a series, or in SVG units in a picture.
type point struct{ X, Y float64 }

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
	f := p.frame()
	var b strings.Builder
	f.grid(&b)
	if p.Bars {
		p.bars(&b, f)
	} else {
		p.lines(&b, f)
	}
	f.axes(&b, p.XLabel, p.YLabel)
	return p.dress(b.String()), nil
}

// height is the picture's without its legend, in SVG units.
func (p Plot) height() float64 {
	if p.Tall {
		return tallHeight
	}
	return plotHeight
}

// stroke is the colour of a series, in the page's style.
func (p Plot) stroke(i int) string {
	kind := p.colour(i)
	return fmt.Sprintf("var(--series-%d,%s)", kind+1, fallbacks[kind])
}

// lines draws the bands, and over them a line or the marks of each series.
func (p Plot) lines(b *strings.Builder, f frame) {
	for i, series := range p.Series {
		if band := series.band(); len(band) > 0 && !series.Marks {
			if corners := f.outline(band); corners != "" {
				fmt.Fprintf(b, `<polygon points="%s" style="fill:%s;fill-opacity:0.16"/>`, corners, p.stroke(i))
			}
		}
	}
	for i, series := range p.Series {
		points := series.points()
		switch {
		case len(points) == 0:
		case series.Marks:
			p.marks(b, f, i, points)
		default:
			if len(points) == 1 { // a line needs two ends
				points = append(points, points[0])
			}
			if line := f.path(points); line != "" {
				fmt.Fprintf(b, `<path d="%s" style="fill:none;stroke:%s;stroke-width:1.4;stroke-dasharray:%s"/>`, line, p.stroke(i), dashes[p.colour(i)])
			}
		}
	}
}

// band is the outline of a series' band: its lower ends, then its upper ones back.
func (s Series) band() []point {
	var low, high []point
	for i := range min(len(s.Low), len(s.High)) {
		if l, h := s.Low[i], s.High[i]; !math.IsNaN(l-h) && !math.IsInf(l-h, 0) {
			low, high = append(low, point{X: s.X[i], Y: l}), append(high, point{X: s.X[i], Y: h})
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
func (s Series) points() []point {
	var points []point
	for i, y := range s.Y {
		if !math.IsNaN(y) && !math.IsInf(y, 0) {
			points = append(points, point{X: s.X[i], Y: y})
		}
	}
	if len(points) <= pointsMax {
		return points
	}
	thinned := make([]point, pointsMax)
	for i := range thinned {
		from, to := i*len(points)/pointsMax, (i+1)*len(points)/pointsMax
		var sum point
		for _, point := range points[from:to] {
			sum.X, sum.Y = sum.X+point.X, sum.Y+point.Y
		}
		n := float64(to - from)
		thinned[i] = point{X: sum.X / n, Y: sum.Y / n}
	}
	return thinned
}

// longest is the number of values of the longest series, 1 at least.
func (p Plot) longest() int {
	longest := 1
	for _, series := range p.Series {
		longest = max(longest, len(series.Y))
	}
	return longest
}

// bars draws one group of bars per whole number.
func (p Plot) bars(b *strings.Builder, f frame) {
	width := min((plotWidth-60)/float64(p.longest())*0.8/float64(max(len(p.Series), 1)), 40)
	for i, series := range p.Series {
		left := width * (float64(i) - float64(len(p.Series))/2)
		for k, y := range series.Y {
			if y = min(y, f.y.high); y > f.y.low { // not so where it is not a number
				top := f.y.at(y)
				fmt.Fprintf(b, `<path d="M%.2f,%.2fh%.2fV%.2fh%.2fZ" style="fill:%s"/>`, f.x.at(float64(k))+left, top, width, f.y.at(max(f.y.low, 0)), -width, p.stroke(i))
			}
		}
	}
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
		colour := p.stroke(i)
		switch {
		case series.Marks:
			text.WriteString(p.shape(i).svg(x+sample/2, top+11, legendRadius, colour))
		case p.Bars:
			fmt.Fprintf(&text, `<rect x="%g" y="%g" width="10" height="10" style="fill:%s"/>`, x+sample-12, top+6, colour)
		default:
			fmt.Fprintf(&text, `<path d="M%g,%gh%d" style="fill:none;stroke:%s;stroke-width:1.6;stroke-dasharray:%s"/>`, x, top+11, sample, colour, dashes[p.colour(i)])
		}
		fmt.Fprintf(&text, `<text x="%g" y="%g" style="font-family:system-ui,sans-serif;fill:var(--text,#333333);font-size:11px">%s</text>`,
			x+sample+5, top+14.5, html.EscapeString(series.Name))
		x += width
	}
	lines = line + 1
	return fmt.Sprintf(`<g transform="translate(0,%d)">%s</g>`, -lines*legendHeight, text.String()), lines
}

// dress makes a drawing an element of a page, named for those who do not see it.
func (p Plot) dress(drawing string) string {
	id := html.EscapeString(p.ID)
	legend, lines := p.legend()
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 %d %d %g" role="img" aria-labelledby="%s-title %s-description">`+
		`<title id="%s-title">%s</title><desc id="%s-description">%s</desc>%s%s</svg>`,
		-lines*legendHeight, plotWidth+labelMargin, p.height()+float64(lines*legendHeight), id, id, id, html.EscapeString(p.Title), id, html.EscapeString(p.Description), legend, drawing)
}
