package report

import (
	"io"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Table is a table of text: a title, one row of column names and the rows
// below it.
type Table struct {
	// Title stands above the table; "" for none.
	Title string
	// Header names the columns; empty for none.
	Header []string
	// Rows hold one cell per column; short rows are filled with empty cells.
	Rows [][]string
}

// columnGap separates columns in print.
const columnGap = "  "

// WriteTo prints the table for a terminal: the first column to the left, a
// column of figures to the right, two spaces between. It implements
// [io.WriterTo].
func (t Table) WriteTo(w io.Writer) (int64, error) {
	n, err := io.WriteString(w, t.String())
	return int64(n), err
}

// String is what WriteTo prints.
func (t Table) String() string { return t.Fit(0) }

// all are the header and the rows.
func (t Table) all() [][]string {
	if len(t.Header) > 0 {
		return append([][]string{t.Header}, t.Rows...)
	}
	return t.Rows
}

// print lays the table out with columns of these widths; cells of words are wrapped.
func (t Table) print(widths []int, figures []bool) string {
	var text strings.Builder
	if t.Title != "" {
		text.WriteString(t.Title + "\n")
	}
	for _, row := range t.all() {
		for _, line := range wrapRow(row, widths) {
			text.WriteString(printRow(line, widths, figures))
		}
	}
	return text.String()
}

// wrapRow breaks a row's cells into as many lines as the highest of them needs.
func wrapRow(row []string, widths []int) [][]string {
	lines := [][]string{make([]string, len(widths))}
	for i, cell := range row {
		cell = oneLine(cell)
		broken := []string{cell}
		if utf8.RuneCountInString(cell) > widths[i] {
			text := strings.TrimLeft(cell, " ")
			indent := cell[:len(cell)-len(text)]
			broken = Wrap(text, widths[i]-len(indent))
			for k := range broken {
				broken[k] = indent + broken[k]
			}
		}
		for k, part := range broken {
			if k == len(lines) {
				lines = append(lines, make([]string, len(widths)))
			}
			lines[k][i] = part
		}
	}
	return lines
}

// printRow is one line of a table.
func printRow(cells []string, widths []int, figures []bool) string {
	var line strings.Builder
	for i, cell := range cells {
		padding := strings.Repeat(" ", max(widths[i]-utf8.RuneCountInString(cell), 0))
		if i > 0 {
			line.WriteString(columnGap)
		}
		if figures[i] {
			line.WriteString(padding + cell)
		} else {
			line.WriteString(cell + padding)
		}
	}
	return strings.TrimRight(line.String(), " ") + "\n"
}

// columns measures every column and tells which hold figures.
func (t Table) columns(rows [][]string) (widths []int, figures []bool) {
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths, figures = append(widths, 0), append(figures, i > 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(oneLine(cell)))
		}
	}
	for _, row := range t.Rows {
		for i, cell := range row {
			figures[i] = figures[i] && isFigure(cell)
		}
	}
	return widths, figures
}

// isFigure reports whether a cell reads as a number, a share, a time or nothing.
func isFigure(cell string) bool {
	return cell == "" || strings.ContainsRune("0123456789+-–.<", []rune(cell)[0])
}

// oneLine keeps a cell on its line and free of control characters.
func oneLine(cell string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, cell)
}

// Figure prints a number with so many decimals, "–" when it is not known. A
// number so large that decimals say nothing loses them.
func Figure(value float64, decimals int) string {
	switch {
	case math.IsNaN(value) || math.IsInf(value, 0):
		return "–"
	case math.Abs(value) >= 1e15:
		return strconv.FormatFloat(value, 'g', 4, 64)
	case math.Abs(value) >= 1000:
		return Count(int64(math.Round(value)))
	}
	text := strconv.FormatFloat(value, 'f', decimals, 64)
	if strings.Trim(text, "-0.") == "" {
		text = strings.TrimPrefix(text, "-")
	}
	return text
}

// Share prints a ratio as a percentage, "–" when it is not known.
func Share(ratio float64) string {
	if math.IsNaN(ratio) || math.IsInf(ratio, 0) {
		return "–"
	}
	return Figure(100*ratio, 1) + " %"
}

// Count prints a whole number with its thousands set apart.
func Count(n int64) string {
	digits := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, digits = "-", digits[1:]
	}
	var groups []string
	for len(digits) > 3 {
		groups = append([]string{digits[len(digits)-3:]}, groups...)
		digits = digits[:len(digits)-3]
	}
	return sign + strings.Join(append([]string{digits}, groups...), " ")
}

// Plain takes control characters out of a text of others: a terminal obeys them.
func Plain(s string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsControl(c) || c == utf8.RuneError || unicode.Is(unicode.Bidi_Control, c) {
			return '?'
		}
		return c
	}, s)
}
