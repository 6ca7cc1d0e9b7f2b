package report

import (
	"math"

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

// shape is how a mark is drawn: in the picture, and in the legend as a path around 0, filled or a line.
type shape struct {
	glyph draw.GlyphDrawer
	path  string
	line  bool
}

// shapes tell marks apart that have a colour of their own, without the colour.
var shapes = [seriesMax]shape{
	{draw.CircleGlyph{}, "M-3,0a3,3 0 1,0 6,0a3,3 0 1,0 -6,0z", false},
	{draw.BoxGlyph{}, "M-3,-3h6v6h-6z", false},
	{draw.PyramidGlyph{}, "M0,-4L3.5,2.5h-7z", false},
	{draw.RingGlyph{}, "M-3,0a3,3 0 1,0 6,0a3,3 0 1,0 -6,0z", true},
	{draw.SquareGlyph{}, "M-3,-3h6v6h-6z", true},
	{draw.TriangleGlyph{}, "M0,-4L3.5,2.5h-7z", true},
	{draw.PlusGlyph{}, "M-3.5,0h7M0,-3.5v7", true},
	{draw.CrossGlyph{}, "M-3,-3l6,6M-3,3l6,-6", true},
}

// shape is that of a series' marks. Those of a series that is like another are circles.
func (p Plot) shape(i int) shape {
	if p.Series[i].Like > 0 {
		return shapes[0]
	}
	return shapes[p.colour(i)]
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
	scatter.GlyphStyle = draw.GlyphStyle{Color: markers[kind], Radius: vg.Length(2.4), Shape: p.shape(i).glyph}
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
