package report

import (
	"fmt"
	"math"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
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
type shape []vg.Point

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

// DrawGlyph implements draw.GlyphDrawer.
func (s shape) DrawGlyph(c *draw.Canvas, style draw.GlyphStyle, at vg.Point) {
	if s == nil {
		draw.CircleGlyph{}.DrawGlyph(c, style, at)
		return
	}
	var path vg.Path
	for i, corner := range s {
		to := at.Add(corner.Scale(style.Radius))
		if i == 0 {
			path.Move(to)
		} else {
			path.Line(to)
		}
	}
	path.Close()
	c.SetColor(style.Color)
	c.Fill(path)
}

// svg is the mark in a legend, at a place there.
func (s shape) svg(x, y float64, colour string) string {
	const radius = 3
	if s == nil {
		return fmt.Sprintf(`<circle cx="%g" cy="%g" r="%d" style="fill:%s"/>`, x, y, radius, colour)
	}
	var corners []string
	for _, c := range s {
		corners = append(corners, fmt.Sprintf("%g,%g", x+radius*float64(c.X), y-radius*float64(c.Y)))
	}
	return fmt.Sprintf(`<polygon points="%s" style="fill:%s"/>`, strings.Join(corners, " "), colour)
}

// marks draws a series' points, and an upright line through each from Low to High.
func (p Plot) marks(picture *plot.Plot, i int, points plotter.XYs) error {
	series, kind := p.Series[i], p.colour(i)
	for k := range min(len(series.Low), len(series.High), len(series.X)) {
		low, high := series.Low[k], series.High[k]
		if math.IsNaN(low-high) || math.IsInf(low-high, 0) {
			continue
		}
		line, err := plotter.NewLine(plotter.XYs{{X: series.X[k], Y: low}, {X: series.X[k], Y: high}})
		if err != nil {
			return err
		}
		line.Color, line.Width = markers[kind], 1
		picture.Add(line)
	}
	scatter, err := plotter.NewScatter(points)
	if err != nil {
		return err
	}
	scatter.GlyphStyle = draw.GlyphStyle{Color: markers[kind], Radius: vg.Length(2.4), Shape: p.shape(i)}
	picture.Add(scatter)
	return series.label(picture)
}

// label writes the points' names beside them.
func (s Series) label(picture *plot.Plot) error {
	named := plotter.XYLabels{}
	for i, name := range s.Labels[:min(len(s.Labels), len(s.Y))] {
		if y := s.Y[i]; !math.IsNaN(y) && !math.IsInf(y, 0) {
			named.XYs, named.Labels = append(named.XYs, plotter.XY{X: s.X[i], Y: y}), append(named.Labels, name)
		}
	}
	if len(named.Labels) == 0 {
		return nil
	}
	labels, err := plotter.NewLabels(named)
	if err != nil {
		return err
	}
	for i := range labels.TextStyle {
		labels.TextStyle[i].Font.Variant = "Sans"
		labels.TextStyle[i].Font.Size = 10
	}
	labels.Offset = vg.Point{X: 5, Y: 4}
	picture.Add(labels)
	return nil
}
