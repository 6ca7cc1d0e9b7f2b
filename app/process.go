package app

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/headway-rl/headway/internal/printable"
)

// Process is the part of the operating system's process that a run may use.
// The command line binds it to the selected command; tests bind their own.
type Process struct {
	// Stdin, Stdout and Stderr are the process's streams. Results go to
	// Stdout, progress and messages to Stderr.
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
	// IsTerminal says whether a stream is a terminal a person looks at.
	IsTerminal func(stream any) bool
	// Getenv reads an environment variable, "" when it is unset.
	Getenv func(name string) string
	// Now is the only wall clock of the command line. Figures that depend on
	// it carry wall in their name.
	Now func() time.Time
	// Processor returns the processor time that this process has taken, of all its threads. Nil where the system does not tell.
	Processor func() time.Duration
}

// Messages are what the operator of a process is told that goes on for long. The zero value is ready.
type Messages struct{ mu sync.Mutex }

// Print prints a message on a line with the time, to the process's Stderr. It may be called by any goroutine.
func (m *Messages) Print(p *Process, format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	fmt.Fprintf(p.Stderr, "%s  %s\n", p.Now().Format(time.DateTime), printable.Message(fmt.Sprintf(format, args...)))
}

// Clock returns nanoseconds since now, going on at offset. It uses the monotonic clock, so that it never falls.
func (p *Process) Clock(offset int64) func() int64 {
	began := p.Now()
	return func() int64 { return offset + p.Now().Sub(began).Nanoseconds() }
}
