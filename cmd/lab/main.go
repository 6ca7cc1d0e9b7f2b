// Command lab runs the scripted experiments behind the figures in docs, the same
// way every time. A user needs none of it: go run ./cmd/lab study, in a checkout.
package main

import (
	"os"

	"github.com/headway-rl/headway/app/command"
)

// labCommands is the command line's grammar.
type labCommands struct {
	Study studyCmd `cmd:"" help:"Run a scripted experiment, or list them."`
}

// lab is the command line of this program.
var lab = command.Program{
	Name:        "go run ./cmd/lab",
	Description: "Scripted experiments: how far the predictions are right, and what each rule is worth.",
	Grammar:     func() any { return &labCommands{} },
}

func main() {
	os.Exit(lab.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
