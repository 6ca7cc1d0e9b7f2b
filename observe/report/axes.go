package report

import (
	"fmt"
	"html"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// lettering is the style of numbers and names within a picture.
const lettering = "font-family:system-ui,sans-serif;fill:var(--text,#333333);font-size:10px"

// axis places values between two ends of a picture.
type axis struct {
	low, high float64 // values at the ends
	from, to  float64 // where the ends are, in SVG units
	ticks     []float64
}

// at is where a value is.
func (a axis) at(v float64) float64 { return a.from + (v-a.low)/(a.high-a.low)*(a.to-a.from) }

// reach is what a picture's values cover: an empty one has its low end above its high one.
func (a *axis) reach(v float64) {
	if !math.IsNaN(v) && !math.IsInf(v, 0) {
		a.low, a.high = min(a.low, v), max(a.high, v)
	}
}

// close widens an axis that reaches nothing, or a single value, and sets its ticks: about as many as asked for.
func (a *axis) close(ticks float64) {
	if a.low > a.high {
		a.low, a.high = 0, 1
	}
	if a.low == a.high {
		a.low, a.high = a.low-1, a.high+1
	}
	a.ticks = ticksOf(a.low, a.high, ticks)
}

// ticksOf are the multiples of 1, 2 or 5 times a power of ten between two values, some most of them at most.
func ticksOf(low, high, most float64) (ticks []float64) {
	step := math.Pow(10, math.Floor(math.Log10((high-low)/most)))
	for _, factor := range []float64{2, 2.5, 2} { // 1, 2, 5, 10
		if (high-low)/step > most {
			step *= factor
		}
	}
	for k := math.Ceil(low/step - 1e-9); k*step <= high+step*1e-9; k++ {
		ticks = append(ticks, k*step+0) // not -0
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

// frame is the part of a picture that values are drawn in.
type frame struct{ x, y axis }

// frame fits the axes around what is drawn, or takes those that are asked for.
func (p Plot) frame() frame {
	f := frame{x: axis{low: math.Inf(1), high: math.Inf(-1)}, y: axis{low: math.Inf(1), high: math.Inf(-1)}}
	for _, s := range p.Series {
		for _, at := range append(s.points(), s.band()...) {
			f.x.reach(at.X)
			f.y.reach(at.Y)
		}
	}
	if p.Bars {
		f.x.low, f.x.high = -0.5, float64(p.longest())-0.5
	} else if p.XMax > p.XMin {
		f.x.low, f.x.high = p.XMin, p.XMax
	}
	// The vertical axis begins at zero where nothing is below, so that small changes look small, with room above the
	// highest point.
	switch {
	case p.YMax > p.YMin:
		f.y.low, f.y.high = p.YMin, p.YMax
	case f.y.low <= f.y.high:
		f.y.low = min(f.y.low, 0)
		if f.y.high <= f.y.low {
			f.y.high = f.y.low + 1
		}
		f.y.high += (f.y.high - f.y.low) / 20
	}
	f.x.close(8)
	f.y.close(p.height() / 45)
	if p.Bars { // ticks on whole numbers, as many as fit
		f.x.ticks = nil
		for k := 0; k < p.longest(); k += p.longest()/20 + 1 {
			f.x.ticks = append(f.x.ticks, float64(k))
		}
	}
	widest := 0
	for _, v := range f.y.ticks {
		widest = max(widest, utf8.RuneCountInString(tickLabel(v)))
	}
	f.x.from, f.x.to = 26+5.6*float64(widest), plotWidth-6
	f.y.from, f.y.to = p.height()-32, 6
	return f
}

// holds reports whether a point is within the frame.
func (f frame) holds(at point) bool {
	return at.X >= f.x.low && at.X <= f.x.high && at.Y >= f.y.low && at.Y <= f.y.high
}

// grid draws a line across at each tick of the vertical axis.
func (f frame) grid(b *strings.Builder) {
	for _, v := range f.y.ticks {
		fmt.Fprintf(b, `<path d="M%.2f,%.2fH%.2f" style="fill:none;stroke:var(--grid,#dddddd);stroke-width:0.5"/>`, f.x.from, f.y.at(v), f.x.to)
	}
}

// axes draws both, with their ticks and names.
func (f frame) axes(b *strings.Builder, x, y string) {
	text := func(x, y float64, more, words string) {
		fmt.Fprintf(b, `<text x="%.2f" y="%.2f" %s style="%s">%s</text>`, x, y, more, lettering, html.EscapeString(words))
	}
	path := fmt.Sprintf("M%.2f,%.2fV%.2fH%.2f", f.x.from, f.y.to, f.y.from, f.x.to)
	for _, v := range f.x.ticks {
		path += fmt.Sprintf("M%.2f,%.2fv4", f.x.at(v), f.y.from)
		text(f.x.at(v), f.y.from+14, `text-anchor="middle"`, tickLabel(v))
	}
	for _, v := range f.y.ticks {
		path += fmt.Sprintf("M%.2f,%.2fh-4", f.x.from, f.y.at(v))
		text(f.x.from-6, f.y.at(v)+3.5, `text-anchor="end"`, tickLabel(v))
	}
	fmt.Fprintf(b, `<path d="%s" style="fill:none;stroke:var(--axis,#666666);stroke-width:0.5"/>`, path)
	text((f.x.from+f.x.to)/2, f.y.from+28, `text-anchor="middle"`, x)
	middle := (f.y.from + f.y.to) / 2
	text(10, middle, fmt.Sprintf(`text-anchor="middle" transform="rotate(-90 10 %.2f)"`, middle), y)
}

// path is a line through points, as far as it is within the frame.
func (f frame) path(points []point) string {
	var b strings.Builder
	var pen point
	for i := 1; i < len(points); i++ {
		from, to, seen := f.clip(points[i-1], points[i])
		if !seen {
			continue
		}
		if b.Len() == 0 || from != pen {
			fmt.Fprintf(&b, "M%.2f,%.2f", f.x.at(from.X), f.y.at(from.Y))
		}
		fmt.Fprintf(&b, "L%.2f,%.2f", f.x.at(to.X), f.y.at(to.Y))
		pen = to
	}
	return b.String()
}

// outline are the corners of a polygon, as far as that is within the frame.
func (f frame) outline(polygon []point) string {
	for side := range sides {
		var rest []point
		for i, b := range polygon {
			a := polygon[(i+len(polygon)-1)%len(polygon)]
			within, next := f.within(side, a), f.within(side, b)
			if (within < 0) != (next < 0) {
				rest = append(rest, between(a, b, within/(within-next)))
			}
			if next >= 0 {
				rest = append(rest, b)
			}
		}
		polygon = rest
	}
	var corners []string
	for _, at := range polygon {
		corners = append(corners, fmt.Sprintf("%.2f,%.2f", f.x.at(at.X), f.y.at(at.Y)))
	}
	return strings.Join(corners, " ")
}

// sides of a frame.
const sides = 4

// within is how far a point is on the inner side of a side of the frame, negative beyond it.
func (f frame) within(side int, at point) float64 {
	return [sides]float64{at.X - f.x.low, f.x.high - at.X, at.Y - f.y.low, f.y.high - at.Y}[side]
}

// between is the point at a share of the way from one to another.
func between(a, b point, share float64) point {
	return point{a.X + share*(b.X-a.X), a.Y + share*(b.Y-a.Y)}
}

// clip is the part of a line between two points that is within the frame.
func (f frame) clip(a, b point) (from, to point, seen bool) {
	first, last := 0.0, 1.0
	for side := range sides {
		switch at, next := f.within(side, a), f.within(side, b); {
		case at < 0 && next < 0:
			return a, b, false
		case at < 0:
			first = max(first, at/(at-next))
		case next < 0:
			last = min(last, at/(at-next))
		}
	}
	from, to = a, b
	if first > 0 {
		from = between(a, b, first)
	}
	if last < 1 {
		to = between(a, b, last)
	}
	return from, to, first <= last
}
