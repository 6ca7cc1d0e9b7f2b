// Command world runs the whole system under one seed: production planes, a broker, a trainer, workers, engines and
// receivers in one deterministic world, under faults. It builds the world's program and runs it, a process a seed.
package main

import (
	"os"

	"github.com/headway-rl/headway/app/command"
)

// grammar is that of the command line.
type grammar struct {
	Run      runCmd      `cmd:"" help:"Run one world: the plan that a seed draws, or a plan of a file."`
	Soak     soakCmd     `cmd:"" help:"Run many seeds on all cores, and go on where an earlier run was interrupted."`
	Check    checkCmd    `cmd:"" help:"Run the plans that are kept because they failed once, and some hundred seeds."`
	Shrink   shrinkCmd   `cmd:"" help:"Make a plan that fails smaller, as long as it fails by the same rule."`
	Twice    twiceCmd    `cmd:"" help:"Run every seed twice, and compare the answers: one seed has one order of everything."`
	Doctored doctoredCmd `cmd:"" help:"Put in one bug at a time, and run seeds until one finds it: how strong the check is."`
	Coverage coverageCmd `cmd:"" help:"Print which fault struck in which state, and which pairs are empty."`
}

// world is the command line of this program.
var world = command.Program{
	Name:        "go run ./cmd/lab/world",
	Description: "The whole system under one seed: planes, broker, trainer, workers, engines and receivers in one world, under faults.",
	Grammar:     func() any { return &grammar{} },
}

func main() {
	os.Exit(world.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
