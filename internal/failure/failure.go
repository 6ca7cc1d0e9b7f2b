package failure

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/headway-rl/headway/internal/printable"
)

// Exit codes of every command.
const (
	ExitDone    = 0 // the command did what it was asked
	ExitFailure = 1 // the run or the check failed
	ExitUsage   = 2 // bad arguments or a bad config, refused before anything ran
)

// Error is an error that a person reads. Code is the process's exit code. Message says where the
// fault is and its nature. Hint is the remedy ("" for none). Cause is the error underneath (nil for
// none), reachable by errors.Is and errors.As.
type Error struct {
	Code    int
	Message string
	Hint    string
	Cause   error
	// Said marks a failure that was printed already, before what follows from it.
	Said bool
}

// Error renders the message; [Print] prints the hint on a line of its own.
func (f *Error) Error() string { return f.Message }

// Unwrap returns the cause.
func (f *Error) Unwrap() error { return f.Cause }

// Usage is a failure of the caller: bad arguments or a bad config (exit
// code 2). A %w verb keeps its operand reachable.
func Usage(hint, format string, arguments ...any) error {
	return newFailure(ExitUsage, hint, format, arguments)
}

// Run is a failure of the run or the check (exit code 1).
func Run(hint, format string, arguments ...any) error {
	return newFailure(ExitFailure, hint, format, arguments)
}

func newFailure(code int, hint, format string, arguments []any) error {
	err := fmt.Errorf(format, arguments...)
	return &Error{Code: code, Message: err.Error(), Hint: hint, Cause: errors.Unwrap(err)}
}

// detailed is an error that can say more than its message, such as the line of a document.
type detailed interface {
	error
	Detail() string
}

// Print prints an error as every command does: the message first, the hint last. Between them stand the details
// of the first error in the chain that has some. It escapes what a terminal would obey.
func Print(stderr io.Writer, err error) {
	var failed *Error
	message := err.Error()
	if errors.As(err, &failed) && failed.Said {
		if message = strings.TrimPrefix(message, failed.Message); message == "" {
			return
		}
	}
	if more, is := errors.AsType[detailed](err); is {
		message = strings.Replace(message, more.Error(), more.Detail(), 1)
	}
	fmt.Fprintf(stderr, "headway: %s\n", printable.Lines(strings.TrimSpace(message)))
	if failed != nil && failed.Hint != "" {
		fmt.Fprintf(stderr, "  %s\n", printable.Lines(failed.Hint))
	}
}
