// Command headway runs, simulates, predicts and replays fully asynchronous
// reinforcement learning of language models around one deterministic loop.
//
// This package only wires: every subcommand is a kong struct in a file of its
// own whose Run method builds what it needs from the other packages, binds it
// to the app's streams and prints. Nothing here decides anything a run depends
// on.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/alecthomas/kong"
	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/internal/failure"
	"golang.org/x/term"
)

// commands is the command line's grammar: one field per subcommand, in the
// order the help lists them.
type commands struct {
	Run        runCmd        `cmd:"" help:"Train: loop, engines, environment, trainer, queue and weight sync in one process."`
	Predict    predictCmd    `cmd:"" help:"Predict staleness and period by closed forms."`
	Plan       planCmd       `cmd:"" help:"Search split, batch, queue, concurrency and rules under a budget, before a GPU is rented."`
	Doctor     doctorCmd     `cmd:"" help:"Say what is wrong with a document before it costs anything."`
	Simulate   simulateCmd   `cmd:"" help:"Simulate a document in virtual time, with the loop that runs it."`
	Replay     replayCmd     `cmd:"" help:"Take a recorded run through the loop again: identical, or the first difference."`
	View       viewCmd       `cmd:"" help:"Show a run in a browser: queue, staleness, timeline, rollouts."`
	Resimulate resimulateCmd `cmd:"" help:"Say what a run would have been under other settings, from its own times."`
	Compare    compareCmd    `cmd:"" help:"Put runs side by side: settings, staleness and its sources, idle time, throughput."`
	Diagnose   diagnoseCmd   `cmd:"" help:"Say where a run's staleness and idle time come from, and what each change would buy: ours or another framework's."`
	Calibrate  calibrateCmd  `cmd:"" help:"Measure an engine's speed by its load, and write what simulate and plan read."`
	Study      studyCmd      `cmd:"" help:"Run a scripted experiment, or list them."`
	Reproduce  reproduceCmd  `cmd:"" help:"Put published measurements beside ours: tables, figures, and what they leave open."`
	Serve      serveCmd      `cmd:"" help:"Run the control plane: a trainer, engines and environment workers of yours connect."`
	Receive    receiveCmd    `cmd:"" help:"Bring versions to a stage of an engine on this node, and have it switch."`
	Status     statusCmd     `cmd:"" help:"Show the state of a control plane: version, queue, trainer, engines, and what it waits for."`
	Top        topCmd        `cmd:"" help:"Follow a control plane in the terminal."`
	Weights    weightsCmd    `cmd:"" help:"List, verify, compare and prune the published versions of a run."`
	Config     configCmd     `cmd:"" help:"Print a document with every default filled in."`
	Completion completionCmd `cmd:"" help:"Print the completion script of a shell."`
	Version    versionCmd    `cmd:"" help:"Print the version of this program."`
}

// output is embedded by every command that reports something. For people it
// prints tables; with --json one JSON document goes to standard output and
// nothing else does.
type output struct {
	JSON bool `name:"json" help:"Print one JSON document instead of tables."`
}

// usageFault is implemented by errors of other packages that blame the
// caller's input, such as a config that does not parse.
type usageFault interface {
	error
	// UsageFault is a marker without behaviour.
	UsageFault()
}

// exitCode is the exit code an error stands for: the code of the failure in
// its chain, 2 when a usage fault is in it, 1 otherwise and 0 for nil.
func exitCode(err error) int {
	if err == nil {
		return failure.ExitDone
	}
	var failed *failure.Error
	if errors.As(err, &failed) {
		return failed.Code
	}
	var fault usageFault
	if errors.As(err, &fault) {
		return failure.ExitUsage
	}
	return failure.ExitFailure
}

// exitRequest unwinds Main when kong ends the process, as after --help. kong
// has no other way to say that parsing is over.
type exitRequest int

// newParser builds the parser of the command line. kong panics through
// exitRequest instead of ending the process.
func newParser(root *commands, stdout, stderr io.Writer) (*kong.Kong, error) {
	return kong.New(root,
		kong.Name("headway"),
		kong.Description("Fully asynchronous reinforcement learning: run it, simulate it, predict it, replay it."),
		kong.Writers(stdout, stderr),
		kong.Exit(func(code int) { panic(exitRequest(code)) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
	)
}

// Main is the whole program behind a function: it parses the arguments
// (without the program's name), runs the selected command and returns the
// process's exit code. Without arguments it prints the help.
func Main(arguments []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return start(&app.Process{
		Stdin:      stdin,
		Stdout:     stdout,
		Stderr:     stderr,
		IsTerminal: isTerminal,
		Getenv:     os.Getenv,
		Now:        time.Now,
	}, arguments)
}

// start parses and runs one command line in the given app.
func start(application *app.Process, arguments []string) (code int) {
	defer func() {
		if thrown := recover(); thrown != nil {
			request, ok := thrown.(exitRequest)
			if !ok {
				panic(thrown)
			}
			code = int(request)
		}
	}()
	if len(arguments) == 0 {
		arguments = []string{"--help"}
	}
	parser, err := newParser(&commands{}, application.Stdout, application.Stderr)
	if err != nil {
		// The grammar is fixed at compile time: a bad one is a bug.
		panic(err)
	}
	selected, err := parser.Parse(arguments)
	if err != nil {
		err = failure.Usage(helpHint(arguments), "%w", err)
	} else {
		err = selected.Run(application)
	}
	if err != nil {
		failure.Print(application.Stderr, err)
	}
	return exitCode(err)
}

// helpHint names the help that answers a command line that did not parse.
func helpHint(arguments []string) string {
	parser, err := newParser(&commands{}, io.Discard, io.Discard)
	if err == nil {
		for _, command := range parser.Model.Children {
			if command.Name == arguments[0] {
				return fmt.Sprintf("headway %s --help lists its flags", command.Name)
			}
		}
	}
	return "headway --help lists the commands"
}

// isTerminal says whether a stream is a terminal.
func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

func main() {
	os.Exit(Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
