// Command headway runs, simulates, predicts and replays fully asynchronous
// reinforcement learning of language models around one deterministic loop.
//
// This package only wires: every subcommand is a kong struct in a file of its own. Its Run method
// builds its parts from the other packages, binds them to the app's streams and prints. Nothing here
// decides anything a run depends on.
package main

import (
	"io"
	"os"
	"slices"

	"github.com/headway-rl/headway/app/command"
)

// commands is the command line's grammar: one field per subcommand, in the
// order the help lists them.
type commands struct {
	Run        runCmd        `cmd:"" help:"Train: loop, engines, environment, trainer, queue and weight sync in one process."`
	Init       initCmd       `cmd:"" help:"Write a document, a trainer and an environment to begin with into a new directory."`
	Predict    predictCmd    `cmd:"" help:"Predict staleness and period by closed forms."`
	Plan       planCmd       `cmd:"" help:"Search split, batch, queue, concurrency and rules under a budget, before a GPU is rented."`
	Doctor     doctorCmd     `cmd:"" help:"Say what is wrong with a document before it costs anything."`
	Simulate   simulateCmd   `cmd:"" help:"Simulate a document in virtual time, with the loop that runs it."`
	Replay     replayCmd     `cmd:"" help:"Take a recorded run through the loop again: identical, or the first difference."`
	View       viewCmd       `cmd:"" help:"Show a run in a browser: queue, staleness, timeline, rollouts."`
	Resimulate resimulateCmd `cmd:"" help:"Say what a run would have been under other settings, from its own times."`
	Compare    compareCmd    `cmd:"" help:"Put runs side by side: settings, staleness and its sources, idle time, throughput."`
	Diagnose   diagnoseCmd   `cmd:"" help:"Say where a run's staleness and idle time come from, and how much each change would buy, for our runs and other frameworks'."`
	Calibrate  calibrateCmd  `cmd:"" help:"Measure an engine's speed by its load, and write what simulate and plan read."`
	Workload   workloadCmd   `cmd:"" help:"Describe recorded sessions of agents or servers, and write them in another format."`
	Study      movedStudyCmd `cmd:"" hidden:"" passthrough:"" help:"Say where the scripted experiments are."`
	Reproduce  reproduceCmd  `cmd:"" help:"Put published measurements beside ours: tables, figures, and open questions."`
	Serve      serveCmd      `cmd:"" help:"Run the control plane: a trainer, engines and environment workers of yours connect."`
	Cell       cellCmd       `cmd:"" help:"Play on engines of a run in a process beside its control plane."`
	Receive    receiveCmd    `cmd:"" help:"Bring versions to a stage of an engine on this node, and have it switch."`
	Status     statusCmd     `cmd:"" help:"Show the state of a control plane: version, queue, trainer, engines, and the part it waits for."`
	Top        topCmd        `cmd:"" help:"Follow a control plane in the terminal."`
	Runs       runsCmd       `cmd:"" help:"List the runs of a folder: state, steps, age, size, reward."`
	Clean      cleanCmd      `cmd:"" help:"Remove old runs, after asking."`
	Weights    weightsCmd    `cmd:"" help:"List, verify, compare and prune the published versions of a run."`
	RestoreLog restoreLogCmd `cmd:"" help:"Write the damaged log of a control plane anew from its mirror."`
	Config     configCmd     `cmd:"" help:"Print a document with every default filled in."`
	Completion completionCmd `cmd:"" help:"Complete commands, flags, keys and runs in bash, zsh or fish."`
	Complete   completeCmd   `cmd:"" hidden:"" passthrough:"" help:"Print what the last word may become."`
	Version    versionCmd    `cmd:"" help:"Print the version of this program."`
}

// cli is that of this binary.
var cli = command.Program{
	Name:        "headway",
	Description: "Fully asynchronous reinforcement learning: run it, simulate it, predict it, replay it.",
	Grammar:     func() any { return &commands{} },
}

// Main runs the program and returns its exit code.
func Main(arguments []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return cli.Main(usual(arguments), stdin, stdout, stderr)
}

// usual turns two forms that other programs have into ours: `--version`, and `help` with or without a command.
func usual(arguments []string) []string {
	if len(arguments) == 0 {
		return arguments
	}
	rest := slices.Clone(arguments[1:])
	switch arguments[0] {
	case "--version":
		return append([]string{"version"}, rest...)
	case "help":
		return append(rest, "--help")
	}
	return arguments
}

func main() {
	os.Exit(Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
