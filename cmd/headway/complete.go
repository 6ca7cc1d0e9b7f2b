package main

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/parts"
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/predict/hardware"
)

// completeCmd prints what the last of some words may become, for the scripts of completion.
type completeCmd struct {
	Words []string `arg:"" optional:"" passthrough:"" help:"The words of a command line, up to the cursor."`
}

// Run prints a candidate a line, and none where a file is expected.
func (c *completeCmd) Run(a *app.Process, parser *kong.Kong) error {
	words := c.Words
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	for _, candidate := range candidates(parser.Model.Node, words) {
		if _, err := fmt.Fprintln(a.Stdout, candidate); err != nil {
			return err
		}
	}
	return nil
}

// candidates are what the last of some words may become, which are those behind the program's name.
func candidates(command *kong.Node, words []string) (found []string) {
	if len(words) == 0 {
		words = []string{""}
	}
	var open *kong.Flag // which waits for its value
	arguments := 0
	for _, word := range words[:len(words)-1] {
		switch next := child(command, word); {
		case word == "=": // bash makes a word of it
		case open != nil:
			open = nil
		case strings.HasPrefix(word, "-"):
			open = flagOf(command, word)
		case next != nil && arguments == 0:
			command = next
		default:
			arguments++
		}
	}
	last := words[len(words)-1]
	switch name, _, given := strings.Cut(last, "="); {
	case open != nil:
		found = values(open.Value)
	case strings.HasPrefix(last, "--") && given:
		if flag := flagOf(command, name); flag != nil {
			for _, value := range values(flag.Value) {
				found = append(found, name+"="+value)
			}
		}
	case strings.HasPrefix(last, "-"):
		found = longFlags(command)
	default:
		if arguments == 0 {
			for _, next := range offered(command) {
				found = append(found, next.Name)
			}
		}
		if arguments < len(command.Positional) {
			found = append(found, values(command.Positional[arguments])...)
		}
	}
	return slices.DeleteFunc(found, func(candidate string) bool { return !strings.HasPrefix(candidate, strings.TrimPrefix(last, "=")) })
}

// child is a command's subcommand of a name, nil for none.
func child(command *kong.Node, name string) *kong.Node {
	for _, next := range offered(command) {
		if next.Name == name {
			return next
		}
	}
	return nil
}

// flagOf is a command's flag that takes a value, nil for none.
func flagOf(command *kong.Node, word string) *kong.Flag {
	for _, flag := range command.Flags {
		if "--"+flag.Name == word && !flag.IsBool() {
			return flag
		}
	}
	return nil
}

// values are what a flag or an argument may be, none where that is free or a file.
func values(of *kong.Value) (found []string) {
	placeholder := ""
	if of.Flag != nil {
		placeholder = of.Flag.PlaceHolder
	}
	switch {
	case of.Enum != "":
		return strings.FieldsFunc(of.Enum, func(r rune) bool { return r == ',' })
	case of.Name == "set", of.Name == "grid":
		document, _ := config.Load("") // the defaults are sound
		for _, leaf := range document.Leaves() {
			found = append(found, leaf.Key+"=")
		}
	case of.Name == "shell":
		return slices.Sorted(maps.Keys(scripts))
	case of.Name == "gpu":
		for _, gpu := range hardware.GPUs() {
			found = append(found, gpu.Name)
		}
	case of.Name == "model":
		for _, model := range hardware.Models() {
			found = append(found, model.Name)
		}
	case of.Name == "run", of.Name == "runs", placeholder == "RUN":
		documents, _ := filepath.Glob(filepath.Join(runsDir, "*", parts.ConfigFile)) // the pattern is sound
		for _, document := range documents {
			found = append(found, filepath.Dir(document))
		}
	}
	return found
}

// longFlags lists a command's own flags as they are typed.
func longFlags(command *kong.Node) []string {
	names := []string{"--help"}
	for _, flag := range command.Flags {
		if !flag.Hidden && flag.Name != "help" {
			names = append(names, "--"+flag.Name)
		}
	}
	return names
}

// offered are the commands that the help lists.
func offered(root *kong.Node) (commands []*kong.Node) {
	for _, command := range root.Children {
		if !command.Hidden && command.Type == kong.CommandNode {
			commands = append(commands, command)
		}
	}
	return commands
}
