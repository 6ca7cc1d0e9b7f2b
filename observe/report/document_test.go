package report

import (
	"strings"
	"testing"
)

func TestDocumentHoldsItsSections(t *testing.T) {
	var b strings.Builder
	plot := Plot{ID: "near", Title: "Near balance", XLabel: "utilization", YLabel: "versions", Series: []Series{
		{Name: "closed form", X: []float64{0, 1, 2}, Y: []float64{1, 2, 3}},
		{Name: "closed form, simulated", X: []float64{0, 1}, Y: []float64{1.1, 2.1}, Low: []float64{1, 2}, High: []float64{1.2, 2.2}, Marks: true, Like: 1}}}
	err := DocumentHTML(&b, Document{Title: "T <b>", Warnings: []string{"too short"}, Sections: []Section{
		{ID: "a", Title: "A", Source: "someone, 2026", Text: []string{"one"}, Findings: []string{"found"}, Plots: []Plot{plot}, Captions: []string{"fixed: C"}, Drawings: []Drawing{{Title: "bars", Caption: "mine", SVG: "<svg><g/></svg>", Wide: true}},
			Tables: []Table{{Title: "t", Header: []string{"row", "x", "y", ""}, Rows: [][]string{{"r", "1", "a word", strings.Repeat("many words ", 6)}, {"s", "–"}}}}, Details: []string{"how"}},
		{ID: "b", Title: "B"}, {ID: "c", Title: "C"}}})
	if err != nil {
		t.Fatal(err)
	}
	page := b.String()
	for _, want := range []string{"T &lt;b&gt;", "too short", `href="#b"`, "someone, 2026", "<p>one</p>", "<li>found</li>", "fixed: C", "<svg><g/></svg>", "<p>mine</p>", "<td>1</td>", `<td class="words">a word</td>`, `<td class="words long">many`, "<p>how</p>", "<svg"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	for _, never := range []string{"<script", "http-equiv=\"refresh\"", "<link", "src="} {
		if strings.Contains(page, never) {
			t.Errorf("the page has %q: it must need nothing else", never)
		}
	}
}

// Marks have the colour of the line they belong to and no place in the legend.
func TestMarksAreLikeTheirLine(t *testing.T) {
	line := Series{Name: "first", X: []float64{0, 1}, Y: []float64{1, 2}}
	other := Series{Name: "second", X: []float64{0, 1}, Y: []float64{2, 3}}
	marks := Series{Name: "measured", X: []float64{0, 1}, Y: []float64{1, 2}, Marks: true, Like: 1}
	p := Plot{ID: "p", Title: "t", Series: []Series{line, marks, other}}
	drawing, err := p.SVG()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(drawing, ">measured<") {
		t.Error("the marks of a line are in the legend")
	}
	for i, want := range []int{0, 0, 1} {
		if got := p.colour(i); got != want {
			t.Errorf("series %d has colour %d, want %d", i, got, want)
		}
	}
	if strings.Contains(drawing, "--series-3") || !strings.Contains(drawing, "--series-2") {
		t.Error("the second line's colour is not the second")
	}
}
