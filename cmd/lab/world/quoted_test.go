package main

import (
	"io"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/headway-rl/headway/internal/quoted"
)

// TestQuotedCommands has this program's parser read every command line of it that a page or the Makefile quotes.
func TestQuotedCommands(t *testing.T) {
	const root = "../../.."
	pages, err := quoted.Pages(root)
	if err != nil {
		t.Fatal(err)
	}
	read := 0
	for _, path := range append(pages, "Makefile") {
		page, err := quoted.Read(root, path)
		if err != nil {
			t.Fatal(err)
		}
		for _, quote := range page.Code {
			for _, words := range quoted.Commands(quote.Text) {
				arguments, is := quoted.World(words)
				if !is || len(arguments) == 0 {
					continue
				}
				read++
				wrong, err := quoted.Misquoted(root, arguments, quote.Whole, func() (*kong.Kong, error) { return world.Parser(world.Grammar(), io.Discard, io.Discard) })
				if err != nil {
					t.Fatal(err)
				}
				if wrong != "" {
					t.Errorf("%s:%d: %s\n\t%s", path, quote.Line, quote.Text, wrong)
				}
			}
		}
	}
	if read < 3 {
		t.Errorf("%d commands were found, the Makefile alone has 3", read)
	}
}
