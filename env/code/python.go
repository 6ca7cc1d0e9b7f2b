package code

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headway-rl/headway/env/sandbox"
)

//go:embed harness.py
var harness string

// source is one program with what it is run on.
type source struct {
	text   string
	inputs [][]int64
}

// outcome is what a program did, and the limit that it met, empty for none. what says what it raised.
type outcome struct {
	runs  []observed
	limit sandbox.Class
	what  string
}

// outputOfTest is how many bytes of a test's lists are kept: far more than a right program writes.
const outputOfTest = 3 << 10

// outputMost bounds what all programs of one command write, below what a box keeps of a command.
const outputMost = 768 << 10

// memoryOfPython is the address space of a program in Python.
const memoryOfPython = 192 << 20

// wallFactor times the processor time of a program is what it may take by the wall clock, on a machine
// that is busy; wallLeast at the least.
const (
	wallFactor = 10
	wallLeast  = 5 * time.Second
)

// pythonCommand runs programs one after the other, each in a process of its own.
func pythonCommand(programs []source, cpu time.Duration) sandbox.Command {
	wall := max(wallFactor*cpu, wallLeast)
	var stdin bytes.Buffer
	fmt.Fprintf(&stdin, "%g %g %d %d %d\n", cpu.Seconds(), wall.Seconds(), memoryOfPython, outputOfTest*testsOf(programs), len(programs))
	for _, p := range programs {
		fmt.Fprintf(&stdin, "%d %d\n%s", len(p.text), len(p.inputs), p.text)
		for _, x := range p.inputs {
			stdin.WriteString(written(x) + "\n")
		}
	}
	return sandbox.Command{Argv: []string{"python3", "-I", "-S", "-E", "-c", harness}, Stdin: stdin.Bytes()}
}

func testsOf(programs []source) int {
	most := 1
	for _, p := range programs {
		most = max(most, len(p.inputs))
	}
	return most
}

// ready is the harness's first line: from then on what becomes of it is the programs' doing.
const ready = "ready\n"

// parsePython reads what the harness answered behind ready. Fewer outcomes than programs means that it did
// not come to its end, or that it was made to say what is none of its own.
func parsePython(stdout []byte, programs int) []outcome {
	var outcomes []outcome
	for len(stdout) > 0 && len(outcomes) < programs {
		head, rest, complete := bytes.Cut(stdout, []byte("\n"))
		if !complete {
			return outcomes
		}
		limit, length, _ := strings.Cut(string(head), " ")
		size, err := strconv.Atoi(length)
		if err != nil || size < 0 || size > len(rest) || !isAnswer(limit) {
			return outcomes
		}
		outcomes = append(outcomes, parseRuns(rest[:size], sandbox.Class(strings.TrimPrefix(limit, "-"))))
		stdout = rest[size:]
	}
	return outcomes
}

// isAnswer reports whether a word is a limit as the harness writes it.
func isAnswer(limit string) bool {
	switch sandbox.Class(limit) {
	case "-", sandbox.Timeout, sandbox.OutOfMemory, sandbox.Output:
		return true
	}
	return false
}

// parseRuns reads what a program's process wrote, which a program may have written itself: lines that
// are none are passed over.
func parseRuns(text []byte, limit sandbox.Class) outcome {
	out := outcome{limit: limit}
	for line := range strings.Lines(string(text)) {
		line, complete := strings.CutSuffix(line, "\n")
		at := len(out.runs) - 1
		switch {
		case !complete:
		case line == "T":
			out.runs = append(out.runs, observed{})
		case strings.HasPrefix(line, "X "):
			out.raised(line[2:])
		case at < 0:
		case line == "E":
			out.runs[at].ended = true
		case strings.HasPrefix(line, "="):
			out.runs[at].stages = append(out.runs[at].stages, line[1:])
		}
	}
	return out
}

// raised notes what a program raised, which may be that it met a limit.
func (o *outcome) raised(what string) {
	switch class := sandbox.Class(what); class {
	case sandbox.OutOfMemory, sandbox.Processes:
		o.limit = cmp.Or(o.limit, class)
	}
	o.what = cmp.Or(o.what, what)
}
