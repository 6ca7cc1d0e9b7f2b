package printable

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// FuzzText: a client's text is one line of valid text without a character that a terminal obeys, and no
// longer than the bound allows.
func FuzzText(f *testing.F) {
	f.Add("a\x1b[31m\nb\r\u202e\xff", 8)
	f.Add("é", 1)
	f.Fuzz(func(t *testing.T, text string, most int) {
		most = int(uint(most) % 1000)
		said := Text(text, most)
		if !utf8.ValidString(said) || len(said) > 10*most+40 {
			t.Errorf("%q is %d bytes of at most %d", said, len(said), most)
		}
		if i := strings.IndexFunc(said, func(c rune) bool { return c != '\t' && !unicode.IsPrint(c) }); i >= 0 {
			t.Errorf("%q has a character that does not print at %d", said, i)
		}
	})
}
