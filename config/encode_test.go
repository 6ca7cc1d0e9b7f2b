package config

import (
	"strings"
	"testing"
)

// Any text of a document that is printed is read as the same.
func TestTextsComeBack(t *testing.T) {
	for _, text := range []string{"a", "1e3", "0x10", "1_000", "0o7", "~", "null", "true", "a: b", "- a", "#x", "a #b", " lead", "trail ", "a\nb", "a\nb\n", "a\n\n\n", "  lead\nx", "\n", "\na",
		"a\tb", "\ta", "a\rb", "a\r\nb", "a\u2028b", "a\u0085b", "\x01", "é", "'", "\"", "a'b\"c", "\\n", "{", "[", "*a", "&a", "!a", "%a", "@a", "`a", "|", ">", "a:", ":a", "?", "? a", "-", "--- a", "...",
		"<<", "=", ".5", "+5", "1:30", "2001-01-01", "inf", ".inf", "-.inf", ".nan", "0.1.2", "1.", "1E5", "x\n  y\n z", "x\n---\ny", "a\n\tb", "def f():\n\treturn 1\n", "if x:\n    y\n\n# c\nz",
		"trailing: \n  x", "\u00a0", "a\u200bb", "\ufeffx", "x\n...\ny", "a\n b: c\n", " \n x", "x \ny", "response.split('\t')[0] == answer"} {
		c := Config{}
		c.Environment.Verifier.Expression = text
		c.Sinks.Command = []string{"p", text}
		again, err := Parse("printed.yaml", c.YAML())
		if err != nil {
			t.Errorf("%q is printed, and refused: %v", text, err)
			continue
		}
		if got := again.Environment.Verifier.Expression; got != text {
			t.Errorf("%q came back as %q", text, got)
		}
		if got := again.Sinks.Command; len(got) != 2 || got[1] != text {
			t.Errorf("in a list %q came back as %q", text, got)
		}
	}
}

// A tab in a text without quotes would be lost.
func TestATabWantsQuotes(t *testing.T) {
	if _, err := Parse("run.yaml", []byte("model: {path: a\tb}\n")); err == nil || !strings.Contains(err.Error(), "run.yaml:1:") {
		t.Errorf("a tab without quotes: %v", err)
	}
	for _, fine := range []string{"model: {path: \"a\\tb\"}\n", "model: {path: 'a\tb'}\n", "model:\n  path: ab\t# with a comment\n"} {
		if _, err := Parse("run.yaml", []byte(fine)); err != nil {
			t.Errorf("%q: %v", fine, err)
		}
	}
}

// A section behind a dotted key of its own gives more keys.
func TestDottedKeysBeforeTheirSection(t *testing.T) {
	c, err := Parse("run.yaml", []byte("evaluate.every: 0\nevaluate:\n  prompts: 32\n"))
	if err == nil {
		c, err = c.Resolve()
	}
	if err != nil || c.Evaluate.Every != 0 || c.Evaluate.Prompts != 32 {
		t.Errorf("%+v, %v", c.Evaluate, err)
	}
}
