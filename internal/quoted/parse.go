package quoted

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Wrong reads every command line of one program that a page of the repository at root, or its Makefile, quotes. The
// function of has the arguments of a line that is the program's. Wrong returns how many it has read, and those that
// cannot be typed, each with its page, its line and the reason.
func Wrong(root string, of func(words []string) ([]string, bool), parser func() (*kong.Kong, error)) (read int, wrong []string, err error) {
	pages, err := Pages(root)
	if err != nil {
		return 0, nil, err
	}
	for _, path := range append(pages, "Makefile") {
		page, err := Read(root, path)
		if err != nil {
			return 0, nil, err
		}
		for _, quote := range page.Code {
			for _, words := range Commands(quote.Text) {
				arguments, is := of(words)
				if !is {
					continue
				}
				read++
				reason, err := Misquoted(root, arguments, quote.Whole, parser)
				if err != nil {
					return 0, nil, err
				}
				if reason != "" {
					wrong = append(wrong, fmt.Sprintf("%s:%d: %s\n\t%s", path, quote.Line, quote.Text, reason))
				}
			}
		}
	}
	return read, wrong, nil
}

// Misquoted says why a command line cannot be typed, "" if it can. One that is not whole may lack
// arguments, and the value of its last flag.
// Paths in it are below root. The parser is made anew for every trial, because kong keeps values in its grammar.
func Misquoted(root string, arguments []string, whole bool, parser func() (*kong.Kong, error)) (string, error) {
	var failed error
	for _, value := range []string{"", "1", "1s"} { // what a placeholder may stand for
		filled := filledIn(arguments, value)
		err := parsed(parser, filled, whole)
		if err != nil && !whole && parsed(parser, append(slices.Clone(filled), "1"), false) == nil {
			err = nil
		}
		if failed == nil || err == nil {
			failed = err
		}
		if err == nil {
			break
		}
	}
	if failed != nil {
		return failed.Error(), nil
	}
	folders, err := Folders(root)
	if err != nil {
		return "", err
	}
	for _, argument := range arguments {
		for _, path := range Paths(argument, folders) {
			if _, err := os.Stat(filepath.Join(root, path)); err != nil {
				return "there is no " + path, nil
			}
		}
	}
	return "", nil
}

// filledIn puts a value where a placeholder stands; "" leaves them.
func filledIn(arguments []string, value string) (out []string) {
	for i, argument := range arguments {
		switch {
		case i == 0 && argument == "COMMAND":
			argument = "run"
		case value != "" && strings.HasPrefix(argument, "--") && Placeholder(argument):
			flag, _, _ := strings.Cut(argument, "=")
			argument = flag + "=" + value
		case value != "" && Placeholder(argument):
			argument = value
		}
		out = append(out, argument)
	}
	return out
}

// parsed reads a command line by the grammar, without running it. Where it is not whole, or asks
// for help, only what it has is read.
func parsed(grammar func() (*kong.Kong, error), arguments []string, whole bool) error {
	parser, err := grammar()
	if err != nil {
		return err
	}
	trace, err := kong.Trace(parser, arguments)
	if err := cmp.Or(err, trace.Error); err != nil {
		return err
	}
	for _, part := range trace.Path {
		if part.Positional != nil && part.Positional.Tag.Hidden { // it takes names that are no command's
			return fmt.Errorf("%s: no such command", strings.Join(arguments, " "))
		}
	}
	if whole && !slices.Contains(arguments, "--help") && len(arguments) > 0 {
		_, err = parser.Parse(arguments)
	}
	return err
}
