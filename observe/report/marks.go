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
	scatter.GlyphStyle = draw.GlyphStyle{Color: markers[kind], Radius: vg.Length(2.4), Shape: draw.CircleGlyph{}}
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
