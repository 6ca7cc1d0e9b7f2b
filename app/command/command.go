// Package command is the part of a command line that every program of the
// repository shares: parsing, exit codes, --json, interrupts, a status line.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"golang.org/x/term"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/internal/machine"
	"github.com/headway-rl/headway/observe/report"
)

// Program is a command line: a grammar of subcommands, each with a method
// Run(*app.Process) error.
type Program struct {
	// Name is the text before a subcommand in the help, such as headway.
	Name string
	// Description is the first line of the help.
	Description string
	// Grammar makes an empty grammar: a pointer to a struct with a field per
	// subcommand, in the order of the help. A grammar that kong refuses panics.
	Grammar func() any
}

// Output is embedded by every command that reports something. For people it
// prints tables; with --json one JSON document goes to standard output and
// nothing else does. An error before that document is one itself: see
// [failure.DocumentOf].
type Output struct {
	JSON bool `name:"json" help:"Print one JSON document instead of tables."`
}

// exitRequest unwinds Main when kong ends the process, as after --help. kong
// has no other way to say that parsing is over.
type exitRequest int

// Parser builds the parser of a grammar. kong panics through exitRequest
// instead of ending the process.
func (p Program) Parser(grammar any, stdout, stderr io.Writer) (*kong.Kong, error) {
	return kong.New(grammar,
		kong.Name(p.Name),
		kong.Description(p.Description),
		kong.Writers(stdout, stderr),
		kong.Exit(func(code int) { panic(exitRequest(code)) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
	)
}

// Main is the whole program behind a function. It parses the arguments (without the program's name),
// runs the selected command and returns the process's exit code. Without arguments it prints the
// help.
//
// With [UntilEOF] in the environment it ends as by SIGTERM when standard input ends.
func (p Program) Main(arguments []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if os.Getenv(UntilEOF) != "" {
		endWith(stdin)
	}
	return p.start(&app.Process{
		Stdin:      stdin,
		Stdout:     stdout,
		Stderr:     stderr,
		IsTerminal: isTerminal,
		Getenv:     os.Getenv,
		Now:        time.Now,
		Processor:  machine.ProcessorTime,
	}, arguments)
}

// start parses and runs one command line in the given process.
func (p Program) start(process *app.Process, arguments []string) (code int) {
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
	printed := &tally{to: process.Stdout}
	asJSON := slices.Contains(arguments, "--json") // before parsing, which may fail
	if asJSON {
		process.Stdout = printed
	}
	parser, err := p.Parser(p.Grammar(), process.Stdout, process.Stderr)
	if err != nil {
		// The grammar is fixed at compile time: a bad one is a bug.
		panic(err)
	}
	selected, err := parser.Parse(joined(arguments))
	if err != nil {
		err = failure.Usage(p.helpHint(parser, arguments), "%w", err)
	} else {
		err = selected.Run(process)
	}
	if err != nil {
		failure.Print(process.Stderr, err)
	}
	if err != nil && asJSON && printed.bytes == 0 {
		_ = report.JSON(process.Stdout, failure.DocumentOf(err, ExitCode(err))) // stderr has it, too
	}
	return ExitCode(err)
}

// tally counts what is written to standard output: an error is printed as JSON where no other document was.
type tally struct {
	to    io.Writer
	bytes int
}

// Write writes, and counts.
func (t *tally) Write(b []byte) (int, error) {
	n, err := t.to.Write(b)
	t.bytes += n
	return n, err
}

// joined puts a negative number and the flag before it into one argument: kong would take it for a short flag.
func joined(arguments []string) []string {
	var out []string
	for _, argument := range arguments {
		number := len(argument) > 1 && argument[0] == '-' && (argument[1] >= '0' && argument[1] <= '9' || argument[1] == '.')
		if last := len(out) - 1; number && last >= 0 && strings.HasPrefix(out[last], "--") && len(out[last]) > 2 && !strings.Contains(out[last], "=") {
			out[last] += "=" + argument
			continue
		}
		out = append(out, argument)
	}
	return out
}

// helpHint names the help that answers a command line that did not parse.
func (p Program) helpHint(parser *kong.Kong, arguments []string) string {
	for _, command := range parser.Model.Children {
		if command.Name == arguments[0] {
			return fmt.Sprintf("%s %s --help lists its flags", p.Name, command.Name)
		}
	}
	return p.Name + " --help lists the commands"
}

// usageFault is implemented by errors of other packages that blame the
// caller's input, such as a config that does not parse.
type usageFault interface {
	error
	// UsageFault is a marker without behaviour.
	UsageFault()
}

// ExitCode returns the exit code that an error stands for. It is the code of the failure in its
// chain, 2 when a usage fault is in it, 1 otherwise and 0 for nil.
func ExitCode(err error) int {
	if err == nil {
		return failure.ExitDone
	}
	if failed, is := errors.AsType[*failure.Error](err); is {
		return failed.Code
	}
	if _, is := errors.AsType[usageFault](err); is {
		return failure.ExitUsage
	}
	return failure.ExitFailure
}

// isTerminal reports whether a stream is a terminal.
func isTerminal(stream any) bool {
	if counted, is := stream.(*tally); is {
		stream = counted.to
	}
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// Widths of what is printed for people, in columns. Nothing is readable in fewer than ColumnsMin.
const (
	columnsDefault = 100
	ColumnsMin     = 32
)

// Columns is how wide standard output is: its terminal, else the variable COLUMNS, else 100.
func Columns(a *app.Process) int {
	columns := columnsDefault
	if n, err := strconv.Atoi(a.Getenv("COLUMNS")); err == nil && n > 0 {
		columns = n
	}
	if file, ok := a.Stdout.(*os.File); ok && a.IsTerminal(a.Stdout) {
		if n, _, err := term.GetSize(int(file.Fd())); err == nil && n > 0 {
			columns = n
		}
	}
	return max(columns, ColumnsMin)
}

// Interruptible returns a context that the first signal to end cancels. The
// caller calls the function when the work is over.
func Interruptible() (context.Context, context.CancelFunc) {
	return signal.NotifyContext(context.Background(), EndSignals()...)
}

// EndSignals are the signals that end a command in order. The end of its terminal is none of them where the command was
// started to outlive that, as by nohup.
func EndSignals() []os.Signal {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	return signals
}
