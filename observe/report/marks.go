package report

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// colour is the place of a series' colour and dash: its own among those that have
// one, or that of the series it is like.
func (p Plot) colour(i int) int {
	if like := p.Series[i].Like; like > 0 && like <= len(p.Series) && like-1 != i {
		i = like - 1
	}
	own := 0
	for _, series := range p.Series[:i] {
		if series.Like == 0 {
			own++
		}
	}
	return min(own, seriesMax-1)
}

// shape is a filled mark: its corners around 0, upwards, in radii; none is a circle.
type shape []point

// shapes tell marks apart that have a colour of their own, without the colour.
var shapes = [seriesMax]shape{
	nil,
	{{X: -1, Y: -1}, {X: -1, Y: 1}, {X: 1, Y: 1}, {X: 1, Y: -1}},
	{{X: -1.2, Y: -1}, {X: 0, Y: 1.3}, {X: 1.2, Y: -1}},
	{{X: -1.4, Y: 0}, {X: 0, Y: 1.4}, {X: 1.4, Y: 0}, {X: 0, Y: -1.4}},
	{{X: -1.2, Y: 1}, {X: 1.2, Y: 1}, {X: 0, Y: -1.3}},
	{{X: -1.8, Y: -0.7}, {X: -1.8, Y: 0.7}, {X: 1.8, Y: 0.7}, {X: 1.8, Y: -0.7}},
	{{X: -1.4, Y: -1.2}, {X: -1.4, Y: 1.2}, {X: 1.4, Y: -1.2}, {X: 1.4, Y: 1.2}},
	{{X: -0.7, Y: -1.8}, {X: -0.7, Y: 1.8}, {X: 0.7, Y: 1.8}, {X: 0.7, Y: -1.8}},
}

// shape is that of a series' marks. Those of a series that is like another are circles.
func (p Plot) shape(i int) shape {
	if p.Series[i].Like > 0 {
		return nil
	}
	return shapes[p.colour(i)]
}

// svg is the mark at a place, of a radius in SVG units.
func (s shape) svg(x, y, radius float64, colour string) string {
	if s == nil {
		return fmt.Sprintf(`<circle cx="%.2f" cy="%.2f" r="%g" style="fill:%s"/>`, x, y, radius, colour)
	}
	var corners []string
	for _, c := range s {
		corners = append(corners, fmt.Sprintf("%.2f,%.2f", x+radius*c.X, y-radius*c.Y))
	}
	return fmt.Sprintf(`<polygon points="%s" style="fill:%s"/>`, strings.Join(corners, " "), colour)
}

// Radii of marks in the legend and in a picture.
const (
	legendRadius = 3
	markRadius   = 2.4
)

// marks draws a series' points, an upright line through each from Low to High, and the points' names beside them.
func (p Plot) marks(b *strings.Builder, f frame, i int, points []point) {
	series, colour := p.Series[i], p.stroke(i)
	for k := range min(len(series.Low), len(series.High), len(series.X)) {
		if low, high := series.Low[k], series.High[k]; !math.IsNaN(low-high) && !math.IsInf(low-high, 0) {
			if line := f.path([]point{{series.X[k], low}, {series.X[k], high}}); line != "" {
				fmt.Fprintf(b, `<path d="%s" style="fill:none;stroke:%s"/>`, line, colour)
			}
		}
	}
	for _, at := range points {
		if f.holds(at) {
			b.WriteString(p.shape(i).svg(f.x.at(at.X), f.y.at(at.Y), markRadius, colour))
		}
	}
	for k, name := range series.Labels[:min(len(series.Labels), len(series.Y))] {
		if at := (point{series.X[k], series.Y[k]}); f.holds(at) {
			fmt.Fprintf(b, `<text x="%.2f" y="%.2f" style="%s">%s</text>`, f.x.at(at.X)+5, f.y.at(at.Y)-4, lettering, html.EscapeString(name))
		}
	}
}
