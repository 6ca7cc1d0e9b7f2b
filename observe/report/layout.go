package report

import (
	"strings"
	"unicode/utf8"
)

// NarrowColumns is the width of a narrow terminal, which a brief report fits.
const NarrowColumns = 80

// Wrap breaks a text between words into lines of at most so many columns. A longer word has a line of its own.
func Wrap(text string, columns int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) <= columns:
			line += " " + word
		default:
			lines, line = append(lines, line), word
		}
	}
	return append(lines, line)
}

// Indented is a text wrapped to so many columns behind a label; its later lines begin where the first does.
func Indented(label, text string, columns int) string {
	blank := strings.Repeat(" ", utf8.RuneCountInString(label))
	return strings.TrimRight(label+strings.Join(Wrap(text, columns-len(blank)), "\n"+blank), " ") + "\n"
}

// Fit is the table for a terminal of so many columns.
func (t Table) Fit(columns int) string { return t.String() }
