package main

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/headway-rl/headway/internal/quoted"
)

// past are commands that a page quotes although the program has them no longer, with the reason.
var past = map[string]string{
	"docs/studies/hold-bound.md: headway study hold --lost": "a record of a study whose code only the commit has that the page names",
}

// TestQuotedCommands has the program's own parser read every command line that a page or the Makefile
// quotes, so that no page names a command, a flag or a file that is gone.
func TestQuotedCommands(t *testing.T) {
	const root = "../.."
	pages, err := quoted.Pages(root)
	if err != nil {
		t.Fatal(err)
	}
	parser, err := cli.Parser(&commands{}, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	used, read := map[string]bool{}, 0
	for _, path := range append(pages, "Makefile") {
		page, err := quoted.Read(root, path)
		if err != nil {
			t.Fatal(err)
		}
		for _, quote := range page.Code {
			if path == "docs/reference/commands.md" && quote.Whole {
				continue // the grammar prints these
			}
			for _, arguments := range commandLines(parser, quote) {
				read++
				if known := path + ": headway " + strings.Join(arguments, " "); past[known] != "" {
					used[known] = true
				} else if wrong := misquoted(t, arguments, quote.Whole); wrong != "" {
					t.Errorf("%s:%d: %s\n\t%s", path, quote.Line, quote.Text, wrong)
				}
			}
		}
	}
	for known := range past {
		if !used[known] {
			t.Errorf("%s is quoted no longer: take it out of past", known)
		}
	}
	if read < 100 {
		t.Errorf("only %d commands were found: are pages read?", read)
	}
}

// commandLines lists the arguments of every command of this program in a quote. Between back-quotes, pages leave
// the program's name out: `diagnose RUN --json`.
func commandLines(parser *kong.Kong, quote quoted.Quote) (lines [][]string) {
	named := func(name string) bool {
		return slices.ContainsFunc(parser.Model.Children, func(command *kong.Node) bool { return command.Name == name })
	}
	flagged := func(word string) bool { return strings.HasPrefix(word, "--") }
	for _, words := range quoted.Commands(quote.Text) {
		if arguments, is := quoted.Headway(words); is {
			lines = append(lines, arguments)
		} else if !quote.Whole && named(words[0]) && slices.ContainsFunc(words, flagged) {
			lines = append(lines, words)
		}
	}
	return lines
}

// misquoted says why a command line cannot be typed, "" if it can.
func misquoted(t *testing.T, arguments []string, whole bool) string {
	t.Helper()
	wrong, err := quoted.Misquoted("../..", arguments, whole, func() (*kong.Kong, error) { return cli.Parser(&commands{}, io.Discard, io.Discard) })
	if err != nil {
		t.Fatal(err)
	}
	return wrong
}

// A command that is wrong is found, and one that is right is not.
func TestMisquoted(t *testing.T) {
	for _, c := range []struct {
		line  string
		whole bool
		want  string // part of what is said; "" for nothing
	}{
		{"headway run --set preset=areal", true, ""},
		{"headway run --sett preset=areal", true, "--sett"},
		{"headway run --sett preset=areal", false, "--sett"},
		{"headway bogus", false, "bogus"},
		{"headway replay", false, ""},
		{"headway replay", true, "<run>"},
		{"headway simulate --trace", false, ""},
		{"headway run --seed N", true, ""},
		{"headway COMMAND --help", true, ""},
		{"headway simulate examples/simulation.yaml --seeds 2", true, ""},
		{"headway simulate examples/gone.yaml --seeds 2", true, "examples/gone.yaml"},
		{"headway simulate examples/NAME.yaml", true, ""},
		{"headway study hold", false, "study hold"},
		{"GOMAXPROCS=1 go run ./cmd/headway plan --no-such 2>&1 | tee out", true, "--no-such"},
		{"kubectl exec pod -- headway status --no-such", true, "--no-such"},
	} {
		arguments, is := quoted.Headway(quoted.Commands(c.line)[0])
		if !is {
			t.Errorf("%s: not found", c.line)
			continue
		}
		if got := misquoted(t, arguments, c.whole); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s (whole %v): %q, want %q", c.line, c.whole, got, c.want)
		}
	}
}
