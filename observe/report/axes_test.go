package report

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// An axis has a few round ticks within its ends, whatever its size.
func TestTicksAreRoundAndFew(t *testing.T) {
	for _, c := range []struct {
		low, high, most float64
		want            string
	}{
		{0, 1.05, 6, "0 0.2 0.4 0.6 0.8 1"},
		{-0.1, 2, 8, "0 0.5 1 1.5 2"},
		{1, 1200, 8, "200 400 600 800 1 000 1 200"},
		{-3, -1, 5, "-3 -2.5 -2 -1.5 -1"},
	} {
		var got []string
		for _, v := range ticksOf(c.low, c.high, c.most) {
			got = append(got, strings.ReplaceAll(tickLabel(v), "\u202f", " "))
		}
		if printed := strings.Join(got, " "); strings.Map(plainSpace, printed) != c.want {
			t.Errorf("%v to %v: ticks %q, want %q", c.low, c.high, printed, c.want)
		}
	}
	for exponent := -9; exponent < 12; exponent++ {
		for first := 1.0; first < 10; first += 0.7 {
			high := first * math.Pow(10, float64(exponent))
			if n := len(ticksOf(0, high, 8)); n < 4 || n > 9 {
				t.Errorf("0 to %g: %d ticks", high, n)
			}
		}
	}
}

func plainSpace(r rune) rune {
	if r == '\u00a0' || r == '\u2009' {
		return ' '
	}
	return r
}

// Nothing is drawn beyond axes that are fixed, and lines that leave them end at their edge.
func TestNothingIsDrawnBeyondTheAxes(t *testing.T) {
	p := Plot{ID: "p", XMin: 0, XMax: 10, YMin: 0, YMax: 10, Series: []Series{
		{X: []float64{-5, 5, 15}, Y: []float64{5, 25, 5}, Low: []float64{-5, 4, -5}, High: []float64{5, 40, 5}},
		{X: []float64{2, 20}, Y: []float64{5, 5}, Marks: true, Labels: []string{"here", "beyond"}},
		{X: []float64{-2, -1}, Y: []float64{5, 5}},
	}}
	drawing, err := p.SVG()
	if err != nil {
		t.Fatal(err)
	}
	f := p.frame()
	for _, at := range regexp.MustCompile(`[ML](-?[0-9.]+),(-?[0-9.]+)`).FindAllStringSubmatch(drawing[strings.Index(drawing, "</g>"):], -1) {
		x, _ := strconv.ParseFloat(at[1], 64)
		y, _ := strconv.ParseFloat(at[2], 64)
		if x < f.x.from-0.01 || x > f.x.to+0.01 || y < f.y.to-0.01 || y > f.y.from+0.01 {
			t.Errorf("a line goes to %s", at[0])
		}
	}
	if strings.Contains(drawing, "beyond") || !strings.Contains(drawing, ">here<") || strings.Contains(drawing, `d=""`) {
		t.Error("marks beyond the axes are drawn, or lines of no length")
	}
	from, to, seen := f.clip(point{-5, 5}, point{5, 5})
	if got := fmt.Sprint(from, to, seen); got != "{0 5} {5 5} true" {
		t.Errorf("a line from the left is clipped to %s", got)
	}
}
