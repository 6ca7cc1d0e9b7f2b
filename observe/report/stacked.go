package report

import (
	"cmp"
	"fmt"
	"html"
	"strings"
)

// Stack is one bar of parts that add up, such as a run's staleness by source.
type Stack struct {
	// Name stands beside the bar; Parts are as many as the names of the picture, at least 0.
	Name  string
	Parts []float64
}

// Stacked draws bars of parts on one scale, one beneath the other, with a legend. unit names what
// the parts are of.
func Stacked(id, title, unit string, names []string, stacks []Stack) Drawing {
	const width, label, row, right = 560.0, 170.0, 26.0, 70.0
	most := 0.0
	for _, s := range stacks {
		most = max(most, total(s.Parts))
	}
	most = cmp.Or(most, 1)
	var b, said strings.Builder
	top := legendOf(&b, names, stacks)
	for i, s := range stacks {
		y := top + row*float64(i)
		fmt.Fprintf(&b, `<text x="%g" y="%g" text-anchor="end" style="font:11px system-ui,sans-serif;fill:var(--text,#333333)">%s</text>`, label-8, y+16, html.EscapeString(shortened(s.Name)))
		x := label
		fmt.Fprintf(&said, "%s: ", html.EscapeString(s.Name))
		for k, part := range s.Parts {
			if part <= 0 {
				continue
			}
			wide := (width - label - right) * part / most
			fmt.Fprintf(&b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%g" style="fill:var(--series-%d,%s);stroke:var(--background,#ffffff);stroke-width:0.7"><title>%s %s</title></rect>`,
				x, y+3, wide, row-8, k%seriesMax+1, fallbacks[k%seriesMax], html.EscapeString(names[k]), Figure(part, 3))
			fmt.Fprintf(&said, "%s %s, ", html.EscapeString(names[k]), Figure(part, 3))
			x += wide
		}
		fmt.Fprintf(&b, `<text x="%.1f" y="%g" style="font:11px system-ui,sans-serif;fill:var(--text,#333333)">%s</text>`, x+6, y+16, Figure(total(s.Parts), 3))
		said.WriteString("in all " + Figure(total(s.Parts), 3) + " " + html.EscapeString(unit) + ". ")
	}
	height := top + row*float64(len(stacks)) + 4
	svg := fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" role="img" aria-labelledby="%s-title %s-description"><title id="%s-title">%s</title><desc id="%s-description">%s</desc>%s</svg>`,
		width, height, id, id, id, html.EscapeString(title), id, said.String(), b.String())
	return Drawing{Title: title, SVG: svg}
}

func total(parts []float64) (sum float64) {
	for _, p := range parts {
		sum += p
	}
	return sum
}

// legendOf draws the names of the parts that some bar has, and returns how high that is.
func legendOf(b *strings.Builder, names []string, stacks []Stack) float64 {
	const width, letter, line = 560.0, 6.0, 18.0
	x, y := 4.0, 0.0
	for k, name := range names {
		seen := false
		for _, s := range stacks {
			seen = seen || k < len(s.Parts) && s.Parts[k] > 0
		}
		if !seen {
			continue
		}
		wide := 26 + letter*float64(len(name))
		if x > 4 && x+wide > width {
			x, y = 4, y+line
		}
		fmt.Fprintf(b, `<rect x="%g" y="%g" width="11" height="11" style="fill:var(--series-%d,%s)"/><text x="%g" y="%g" style="font:11px system-ui,sans-serif;fill:var(--text,#333333)">%s</text>`,
			x, y+3, k%seriesMax+1, fallbacks[k%seriesMax], x+16, y+13, html.EscapeString(name))
		x += wide
	}
	return y + line + 6
}
