package main

import (
	"io"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/headway-rl/headway/internal/quoted"
)

// TestQuotedCommands has this program's parser read every command line of it that a page or the Makefile quotes.
func TestQuotedCommands(t *testing.T) {
	read, wrong, err := quoted.Wrong("../../..", named, func() (*kong.Kong, error) { return world.Parser(world.Grammar(), io.Discard, io.Discard) })
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range wrong {
		t.Error(text)
	}
	if read < 3 {
		t.Errorf("%d commands were found, the Makefile alone has 3", read)
	}
}

// named has the arguments of a line that names one of this program's commands.
func named(words []string) ([]string, bool) {
	arguments, is := quoted.World(words)
	return arguments, is && len(arguments) > 0
}
