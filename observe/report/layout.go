package report

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Widths of print, in columns.
const (
	// NarrowColumns is the width that an [Answer] fits.
	NarrowColumns = 80
	// cellMin is the least width that a column of words is squeezed to.
	cellMin = 12
	// figureMax is the width from which a column that begins with digits is taken for words.
	figureMax = 24
)

// Wrap breaks a text between words into lines of at most so many columns. A longer word has a line of its own.
// No columns mean one line. Colours of a terminal take no room.
func Wrap(text string, columns int) []string {
	var lines []string
	line, used := "", 0
	for _, word := range strings.Fields(text) {
		wide := printedWidth(word)
		switch {
		case line == "":
			line, used = word, wide
		case columns <= 0 || used+1+wide <= columns:
			line, used = line+" "+word, used+1+wide
		default:
			lines = append(lines, line)
			line, used = word, wide
		}
	}
	return append(lines, line)
}

// Indented is a text wrapped to so many columns behind a label; its later lines begin where the first does.
func Indented(label, text string, columns int) string {
	blank := strings.Repeat(" ", printedWidth(label))
	lines := Wrap(text, max(columns-len(blank), cellMin))
	return strings.TrimRight(label+strings.Join(lines, "\n"+blank), " ") + "\n"
}

// printedWidth counts the characters that a terminal shows of a text without control characters but colours.
func printedWidth(text string) int {
	width, coloured := 0, false
	for _, r := range text {
		switch {
		case r == '\x1b':
			coloured = true
		case coloured:
			coloured = r != 'm'
		default:
			width++
		}
	}
	return width
}

// Fit is the table for a terminal of so many columns; 0 for no limit. Columns of words are wrapped first. A table
// that is still too wide is cut into parts below each other, each with the first column.
func (t Table) Fit(columns int) string {
	widths, figures := t.columns(t.all())
	if columns <= 0 || max(tableWidth(widths), printedWidth(t.Title)) <= columns {
		return t.print(widths, figures)
	}
	for i := range figures {
		figures[i] = figures[i] && widths[i] <= figureMax
	}
	if len(t.Title) > columns {
		t.Title = strings.Join(Wrap(t.Title, columns), "\n")
	}
	t.squeeze(widths, figures, columns)
	if tableWidth(widths) <= columns {
		return t.print(widths, figures)
	}
	return t.parts(widths, columns)
}

// squeeze takes columns from the widest column of words until the table fits or nothing is left to take.
func (t Table) squeeze(widths []int, figures []bool, columns int) {
	for over := tableWidth(widths) - columns; over > 0; over-- {
		widest := -1
		for i := range widths {
			if !figures[i] && widths[i] > max(cellMin, t.longestWord(i)) && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return
		}
		widths[widest]--
	}
}

// longestWord is the width of the longest word of a column: narrower it would be broken.
func (t Table) longestWord(column int) int {
	longest := 0
	for _, row := range t.all() {
		if column < len(row) {
			for _, word := range strings.Fields(row[column]) {
				longest = max(longest, utf8.RuneCountInString(word))
			}
		}
	}
	return longest
}

// parts prints as many columns at a time as fit beside the first.
func (t Table) parts(widths []int, columns int) string {
	var texts []string
	for from := 1; from < len(widths); {
		to, used := from, widths[0]
		for to < len(widths) && (to == from || used+len(columnGap)+widths[to] <= columns) {
			used += len(columnGap) + widths[to]
			to++
		}
		part := Table{Header: cut(t.Header, from, to)}
		for _, row := range t.Rows {
			part.Rows = append(part.Rows, cut(row, from, to))
		}
		if from == 1 {
			part.Title = t.Title
		}
		if to == len(widths) && from == 1 { // a single column beside the first, which nothing makes fit
			return t.print(widths, make([]bool, len(widths)))
		}
		texts = append(texts, part.Fit(columns))
		from = to
	}
	return strings.Join(texts, "\n")
}

// cut is the first cell of a row with those of some columns.
func cut(row []string, from, to int) []string {
	if len(row) == 0 {
		return nil
	}
	return append(row[:1:1], row[min(from, len(row)):min(to, len(row))]...)
}

// tableWidth is the width of a table with columns of these widths.
func tableWidth(widths []int) int {
	sum := len(columnGap) * max(len(widths)-1, 0)
	for _, w := range widths {
		sum += w
	}
	return sum
}

// Capital is a text as a sentence begins. A Greek letter stays: it is a name.
func Capital(text string) string {
	first, size := utf8.DecodeRuneInString(text)
	if !unicode.IsLower(first) || unicode.Is(unicode.Greek, first) {
		return text
	}
	return string(unicode.ToUpper(first)) + text[size:]
}
