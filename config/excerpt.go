package config

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/headway-rl/headway/internal/printable"
)

// excerptColumns bounds how much of a line an excerpt shows: a document may have all on one line.
const excerptColumns = 100

// secret is a key that names a password or the like. A document should not hold one, and a log must not repeat it.
var secret = regexp.MustCompile(`(?i)(token|secret|passw(or)?d|api_?key|credentials?|authorization)["']?\s*:`)

// Detail is [Error.Error] with the line of the document below it, and a caret below the column. It is Error alone where
// the place is unknown or the line names a secret.
func (e *Error) Detail() string {
	if excerpt := e.excerpt(); excerpt != "" {
		return e.Error() + "\n" + excerpt
	}
	return e.Error()
}

// excerpt is the line of the document with a caret, "" where there is none to show.
func (e *Error) excerpt() string {
	lines := strings.Split(string(e.document), "\n")
	if e.Line < 1 || e.Line > len(lines) || e.Column < 1 {
		return ""
	}
	line := strings.ReplaceAll(strings.TrimRight(lines[e.Line-1], " \t\r"), "\t", " ")
	if line == "" || secret.MatchString(line) {
		return ""
	}
	before, from := cutAt([]rune(line), e.Column-1)
	before, from = hidden(before, from)
	number := fmt.Sprint(e.Line)
	return fmt.Sprintf("  %s | %s%s\n  %*s | %*s^", number, before, from, len(number), "", utf8.RuneCountInString(before), "")
}

// cutAt splits a line at a column, counted from 0. It leaves out what is too far away on either side.
func cutAt(line []rune, column int) (before, from string) {
	column = min(column, len(line))
	start, end := 0, len(line)
	if end > excerptColumns {
		start = max(0, column-excerptColumns/2)
		end = min(len(line), start+excerptColumns)
	}
	before, from = string(line[start:column]), string(line[column:end])
	if start > 0 {
		before = "…" + before
	}
	if end < len(line) {
		from += "…"
	}
	return before, from
}

// hidden returns both parts of a line without passwords of addresses and without what a terminal would obey. An address
// may begin in the first part and end in the second.
func hidden(before, from string) (string, string) {
	for _, at := range userinfo.FindAllStringIndex(before+from, -1) {
		if at[0] < len(before) && len(before) < at[1] {
			before, from = before[:at[0]], before[at[0]:]+from
		}
	}
	clean := func(part string) string {
		part = userinfo.ReplaceAllString(part, "://REDACTED@")
		return printable.Text(part, len(part))
	}
	return clean(before), clean(from)
}

// Detail renders the errors as [Errors.Error] does, each with its line of the document.
func (e Errors) Detail() string { return e.rendered((*Error).Detail) }

// in notes the document that the errors are about, so that they can show its lines.
func (e Errors) in(document []byte) Errors {
	for _, err := range e {
		err.document = document
	}
	return e
}
