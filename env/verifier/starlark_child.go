package verifier

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/headway-rl/headway/env/sandbox"
)

// starlarkName is the name by which this program is one that evaluates Starlark.
const starlarkName = "headway-starlark"

// memoryMax bounds what a process takes for a case beyond what it has at its start, in bytes.
const memoryMax = 256 << 20

// init takes over where the program was started as one that evaluates. It is an init, not a command,
// because what else the program initialises takes longer.
func init() {
	if len(os.Args) == 0 || filepath.Base(os.Args[0]) != starlarkName {
		return
	}
	if err := serveStarlark(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(exitBroken)
	}
	os.Exit(0)
}

// Exit codes of a process that evaluates. The Go runtime's own, for want of memory, is 2.
const (
	exitBroken = 1
	exitSpent  = 3
)

// evaluated is the answer to one case: a verdict, or the class of a failure and its text.
type evaluated struct {
	ID      string
	Verdict Verdict
	Class   sandbox.Class
	Error   string
}

// serveStarlark reads a program, then cases, one a line, and answers each.
func serveStarlark(from io.Reader, to io.Writer) error {
	debug.SetMemoryLimit(memoryMax / 4 * 3)
	if err := limitMemory(memoryMax); err != nil {
		return fmt.Errorf("limit the memory: %w", err)
	}
	cases := json.NewDecoder(bufio.NewReaderSize(from, 64<<10))
	var s script
	err := cases.Decode(&s.o)
	if err == nil {
		s.verify, err = compile(s.o)
	}
	if err != nil {
		return err
	}
	begun, over := make(chan time.Duration), make(chan struct{})
	go watchSpending(time.Duration(s.o.ProcessorS*float64(time.Second)), begun, over)
	for {
		var text json.RawMessage
		if err := cases.Decode(&text); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		begun <- processorTime()
		answer, err := json.Marshal(s.answer(text))
		over <- struct{}{}
		if err != nil {
			return err
		}
		if _, err := to.Write(append(answer, '\n')); err != nil {
			return err
		}
		if taken() > memoryMax/8 {
			debug.FreeOSMemory() // the next case may be long in coming
		}
	}
}

func (s *script) answer(text []byte) (a evaluated) {
	var named struct{ ID string }
	err := json.Unmarshal(text, &named)
	if err == nil {
		a.Verdict, err = s.evaluate(text)
	}
	if a.ID = named.ID; err != nil {
		a.Class, a.Error = sandbox.VerifierCrash, clip(err.Error(), noteMax)
		if failure, ok := errors.AsType[*sandbox.Failure](err); ok {
			a.Class, a.Error = failure.Class, clip(failure.Err.Error(), noteMax)
		}
	}
	return a
}

// watchSpending ends the process where a case takes too long or too much. A single operation of Starlark
// cannot be cancelled.
func watchSpending(most time.Duration, begun <-chan time.Duration, over <-chan struct{}) {
	every := time.NewTicker(20 * time.Millisecond)
	defer every.Stop()
	for {
		since := <-begun
		for busy := true; busy; {
			select {
			case <-over:
				busy = false
			case <-every.C:
				if processorTime()-since > most || taken() > memoryMax {
					os.Exit(exitSpent)
				}
			}
		}
	}
}

// taken is the memory that the Go runtime has of the system, in bytes.
func taken() uint64 {
	read := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(read)
	return read[0].Value.Uint64() - read[1].Value.Uint64()
}
