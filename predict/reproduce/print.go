package reproduce

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/headway-rl/headway/observe/report"
	"github.com/headway-rl/headway/predict/theory"
)

// printInterval prints a mean with half its interval's width.
func printInterval(i Interval, decimals int) string {
	if !i.Known() {
		return "–"
	}
	text := report.Figure(i.Mean, decimals)
	if !math.IsNaN(i.High) {
		// Half the width with a digit that shows that there is one.
		half := i.High - i.Mean
		for decimals < 4 && decimals > 0 && half < 0.5*math.Pow10(-decimals) && half > 0 {
			decimals++
		}
		text += " ± " + report.Figure(half, decimals)
	}
	return text
}

// trim prints a number without digits that say nothing.
func trim(value float64) string {
	return strconv.FormatFloat(math.Round(value*1e4)/1e4, 'f', -1, 64)
}

// signed prints a difference with its sign.
func signed(value float64, decimals int) string {
	text := report.Figure(value, decimals)
	if value > 0 && !strings.HasPrefix(text, "-") {
		return "+" + text
	}
	return text
}

// figureText prints a figure of a quantity, "–" where it is unknown.
func figureText(f theory.Figure, decimals int) string {
	value, ok := f.Value()
	if !ok {
		return "–"
	}
	return report.Figure(value, decimals)
}

// changeText prints a residual absolute and, in brackets, relative.
func changeText(absolute, relative theory.Figure, decimals int) string {
	a, ok := absolute.Value()
	if !ok {
		return "–"
	}
	text := signed(a, decimals)
	if r, ok := relative.Value(); ok {
		text += fmt.Sprintf(" (%s %%)", signed(100*r, 1))
	}
	return text
}

// decimals to print the quantity with.
func (q Quantity) decimals() int {
	switch q.Decimals {
	case 0:
		return 2
	case whole:
		return 0
	}
	return q.Decimals
}

// QuantityTable is a case's comparisons as a table. Columns that are empty in all of
// its rows are left out.
func (c Case) QuantityTable() Grid {
	header := []string{"row", "figure", "printed prediction", "measured", "closed form", "corrected", "simulated", "ours − measured", "closed form − printed", ""}
	var rows [][]string
	for _, q := range c.Quantities {
		d := q.decimals()
		a, r := q.Residual()
		pa, pr := q.PrintedResidual()
		note := q.Note
		if q.Basis != "" {
			note = strings.TrimSuffix(q.Basis+"; "+note, "; ")
		}
		if q.Missing != "" {
			note = strings.TrimSpace("not computable: " + q.Missing + ". " + note)
		}
		rows = append(rows, []string{q.Row, q.Name, figureText(q.Printed, d), figureText(q.Measured, d), figureText(q.Closed, d),
			figureText(q.Corrected, d), printInterval(q.Simulated, d), changeText(a, r, d), changeText(pa, pr, d), note})
	}
	return filled(Grid{Title: "Published beside ours", Header: header, Rows: rows})
}

// filled is the grid without columns in which no row has anything.
func filled(g Grid) Grid {
	out := Grid{Title: g.Title, Rows: make([][]string, len(g.Rows))}
	for k, name := range g.Header {
		used := false
		for _, row := range g.Rows {
			used = used || k < 2 || row[k] != "" && row[k] != "–"
		}
		if !used {
			continue
		}
		out.Header = append(out.Header, name)
		for i, row := range g.Rows {
			out.Rows[i] = append(out.Rows[i], row[k])
		}
	}
	return out
}

// CheckTable is the arithmetic of the printed figures done again.
func (c Case) CheckTable() Grid {
	g := Grid{Title: "Printed figures, done again from the printed inputs", Header: []string{"row", "figure", "printed", "redone", "difference", "rounding allows", "from", ""}}
	for _, k := range c.Checks {
		verdict := "agrees"
		if !k.Agrees() {
			verdict = "differs"
		}
		g.Rows = append(g.Rows, []string{k.Row, k.Name, trim(k.Printed), trim(k.Redone), signed(k.Redone-k.Printed, 3), trim(k.Rounding), k.How, verdict})
	}
	return g
}

// tables of a case, in order.
func (c Case) tables() []Grid {
	var grids []Grid
	if len(c.Quantities) > 0 {
		grids = append(grids, c.QuantityTable())
	}
	if len(c.Checks) > 0 {
		grids = append(grids, c.CheckTable())
	}
	return append(grids, c.Grids...)
}

// Overview is a line a case. It has the case's first figure in all rows, and how
// far ours is from the measured one where that is evidence. It says in how many
// rows it is no evidence and why, and how many figures are not computable.
func (r Result) Overview() Grid {
	g := Grid{Title: "Figures of ours beside measured ones", Header: []string{"case", "figure", "rows compared", "mean of |ours − measured|", "farthest", "which", "rows that are no evidence, and why", "not computable"}}
	for _, c := range r.Cases {
		n, missing, sum, most, which := 0, 0, 0.0, 0.0, ""
		var bases []string
		rows := map[string]int{} // by basis
		for _, q := range c.Quantities {
			if q.Missing != "" {
				missing++
			}
			_, relative := q.Residual()
			v, ok := relative.Value()
			if !ok || q.Name != c.Quantities[0].Name {
				continue
			}
			if q.Basis != "" {
				if rows[q.Basis]++; rows[q.Basis] == 1 {
					bases = append(bases, q.Basis)
				}
				continue
			}
			n++
			sum += math.Abs(v)
			if which == "" || math.Abs(v) > math.Abs(most) {
				most, which = v, q.Row
			}
		}
		name, mean, farthest := "", "–", "–"
		if len(c.Quantities) > 0 {
			name = c.Quantities[0].Name
		}
		if n > 0 {
			mean, farthest = report.Share(sum/float64(n)), signed(100*most, 1)+" %"
		}
		for i, basis := range bases {
			bases[i] = fmt.Sprintf("%d: %s", rows[basis], basis)
		}
		g.Rows = append(g.Rows, []string{c.Name, name, fmt.Sprint(n), mean, farthest, which, strings.Join(bases, "; "), fmt.Sprint(missing)})
	}
	return g
}

// textWidth is where lines of text break on a terminal.
const textWidth = 110

// folded breaks a text between words, its lines after the first behind an indent.
func folded(text, indent string) string {
	var b strings.Builder
	used := 0
	for i, word := range strings.Fields(text) {
		length := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case used+1+length > textWidth:
			b.WriteString("\n" + indent)
			used = 0
		default:
			b.WriteByte(' ')
			used++
		}
		b.WriteString(word)
		used += length
	}
	return b.String()
}

// quickNote warns of figures that are none.
const quickNote = "Quick: the simulations are too short for their figures to be results; they show that everything works."

// Text prints the result for a terminal.
func (r Result) Text(w io.Writer) error {
	var b strings.Builder
	if r.Quick {
		b.WriteString("! " + quickNote + "\n\n")
	}
	if len(r.Cases) > 1 {
		fmt.Fprintf(&b, "%s\n\n", report.Table(r.Overview()))
	}
	for i, c := range r.Cases {
		if i > 0 {
			b.WriteString("\n\n")
		}
		fmt.Fprintf(&b, "%s: %s\n%s\n", c.Name, c.Title, folded(c.Source, ""))
		for _, line := range c.Setup {
			fmt.Fprintf(&b, "  · %s\n", folded(line, "    "))
		}
		for _, g := range c.tables() {
			fmt.Fprintf(&b, "\n%s", report.Table(g))
		}
		for k, finding := range c.Findings {
			if k == 0 {
				b.WriteString("\n")
			}
			fmt.Fprintf(&b, "! %s\n", folded(finding, "  "))
		}
	}
	for i, f := range r.Figures {
		if i == 0 {
			b.WriteString("\nFigures (drawn by --html OUT, as data with --json):\n")
		}
		fmt.Fprintf(&b, "  %s: %s\n", f.Name, f.Title)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
