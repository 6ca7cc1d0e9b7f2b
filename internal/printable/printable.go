// Package printable makes texts of others fit for a log, a terminal or a status. Those are of clients, engines,
// documents and paths.
package printable

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text makes somebody's text fit for one line of a log, a terminal or a status. It keeps at most
// so many bytes, and escapes as Go does what is no visible character and no tab. A terminal would obey control
// characters, and a newline would forge a line of the log.
func Text(text string, most int) string {
	cut := 0
	if len(text) > most {
		for most > 0 && !utf8.RuneStart(text[most]) {
			most--
		}
		cut, text = len(text)-most, text[:most]
	}
	var b strings.Builder
	for i := 0; i < len(text); {
		c, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case c == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case unicode.IsPrint(c), c == '\t':
			b.WriteRune(c)
		default:
			b.WriteString(strings.Trim(strconv.QuoteRune(c), "'"))
		}
		i += size
	}
	if cut > 0 {
		fmt.Fprintf(&b, "… (%d bytes more)", cut)
	}
	return b.String()
}

// Lines escapes a text as [Text] does, but keeps its lines, and all of its length.
func Lines(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = Text(line, len(line))
	}
	return strings.Join(lines, "\n")
}

// Message is a message as it stands in a log, which may hold the words of engines and workers. Characters that a terminal would
// obey are escaped. No line after the first looks like a message of its own.
func Message(text string) string {
	return strings.ReplaceAll(Lines(text), "\n", "\n    ")
}

// Word is a text as one word of a shell's command, without quotes where it needs none.
func Word(text string) string {
	plain := func(c rune) bool {
		return c < utf8.RuneSelf && (unicode.IsLetter(c) || unicode.IsDigit(c) || strings.ContainsRune("_-./:@%+,=", c))
	}
	if text != "" && strings.IndexFunc(text, func(c rune) bool { return !plain(c) }) < 0 {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
