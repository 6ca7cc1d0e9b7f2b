package main

import (
	"io"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/headway-rl/headway/internal/quoted"
)

// TestQuotedCommands has this program's parser read every command line of it that a page or the Makefile
// quotes, so that no page names a study or a flag that is gone.
func TestQuotedCommands(t *testing.T) {
	read, wrong, err := quoted.Wrong("../..", quoted.Lab, func() (*kong.Kong, error) { return lab.Parser(lab.Grammar(), io.Discard, io.Discard) })
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range wrong {
		t.Error(text)
	}
	if read < 20 {
		t.Errorf("only %d commands were found: are pages read?", read)
	}
}
