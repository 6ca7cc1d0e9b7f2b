package verifier

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"

	"github.com/headway-rl/headway/env/sandbox"
)

// Raised is the limit of a verdict that an expression did not give: it raised, or returned no reward, for
// a response of the policy. Such a response has the lowest reward, so that a policy gains nothing by it.
const Raised sandbox.Class = "raised"

// scripts judges by Starlark, in processes of this program. Starlark bounds its steps and not its memory,
// and an expression that is safe for every honest response may multiply a hostile one.
type scripts struct {
	*programs
	o     program
	trust trust
}

func newStarlark(o Options) (Verifier, error) {
	p, err := programOf(o)
	if err != nil {
		return nil, err
	}
	first, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("verifier: starlark: %w", err)
	}
	first = append(first, '\n') // here, as several processes may start at once
	return &scripts{o: p, programs: newPrograms(starlarkName, o.Concurrency, func() (*process, error) {
		return startStarlark(first)
	})}, nil
}

// startStarlark starts a process and tells it the program. Nothing of this process's environment reaches
// it, as that may have secrets.
func startStarlark(first []byte) (*process, error) {
	path := "/proc/self/exe" // also where the program's file was replaced since it started
	if runtime.GOOS != "linux" {
		var err error
		if path, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	p, err := startProcess(&exec.Cmd{
		Path: path, Args: []string{starlarkName}, Dir: "/",
		Env: []string{"GOMAXPROCS=2", "GOTRACEBACK=none", "GORACE=atexit_sleep_ms=0"},
	})
	if err != nil {
		return nil, err
	}
	if _, err := p.input.Write(first); err != nil {
		return nil, fmt.Errorf("%w: %s", err, p.end())
	}
	return p, nil
}

// Verify implements Verifier.
func (s *scripts) Verify(ctx context.Context, c Case) (Verdict, error) {
	return s.with(ctx, func(at *slot) (Verdict, error) {
		v, err := s.judge(ctx, at, c)
		switch _, again := retryAfter(err); {
		case err == nil:
			s.trust.add(true)
		case ctx.Err() != nil || again: // the time or the process ended, whatever the response is
		case sandbox.ClassOf(err) == sandbox.BadTask: // whatever the response is
		case s.trust.add(false):
			return Verdict{Reward: s.o.Range[0], Limit: Raised, Note: err.Error()}, nil
		}
		return v, err
	})
}

// judge asks the seat's process. An error that is not to be tried again is of this case.
func (s *scripts) judge(ctx context.Context, at *slot, c Case) (Verdict, error) {
	id := rand.Text()
	c.Response = strings.ToValidUTF8(c.Response, "\uFFFD")
	text, err := c.request(id)
	if err != nil {
		return Verdict{}, err
	}
	if len(text) > inputMax {
		return Verdict{}, sandbox.Fail(sandbox.Refused, "verify", "", "the case has %d bytes, more than the %d that starlark is given", len(text), inputMax)
	}
	if err := s.ready(ctx, at); err != nil {
		return Verdict{}, err
	}
	l, err := at.process.ask(ctx, append(text, '\n'))
	if err == nil {
		err = l.err
	}
	var said evaluated
	if err == nil {
		err = json.Unmarshal(l.text, &said)
	}
	if err == nil && said.ID != id {
		err = fmt.Errorf("it answers case %q, and %q was asked", clip(said.ID, 80), id)
	}
	if err != nil {
		return Verdict{}, s.ended(ctx, at, err)
	}
	if said.Class != "" {
		return Verdict{}, sandbox.Fail(said.Class, "verify", "", "%s", said.Error)
	}
	return said.Verdict, nil
}

// ended ends the process of a seat. One that ended itself by an exit code did so for its case: its memory
// or its time was spent. One that a signal ended was ended by somebody else, and the case is asked again.
func (s *scripts) ended(ctx context.Context, at *slot, err error) error {
	command := at.process.command
	tail := at.end()
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("the expression was ended: %w%s", ctx.Err(), tail)
	case errors.Is(err, errEnded) && command.ProcessState.ExitCode() > 0:
		return sandbox.Fail(sandbox.VerifierCrash, "verify", "", "the expression needs more than %d MiB of memory, or %v s of processor time, for this case", memoryMax>>20, s.o.ProcessorS)
	}
	return Again(sandbox.Fail(sandbox.VerifierCrash, "verify", "", "the process of the expression: %w%s", err, tail), 0)
}

// trust tells a response for which an expression raises from an expression that is wrong: the expression
// is right where it has judged more than half of the last cases.
type trust struct {
	mu     sync.Mutex
	judged [trustCases]bool
	next   int
	count  int
}

// trustCases are the last cases that count.
const trustCases = 64

// add counts a case, and reports whether the expression is right now.
func (t *trust) add(judged bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.judged[t.next] = judged
	t.next = (t.next + 1) % trustCases
	t.count = min(t.count+1, trustCases)
	right := 0
	for _, judged := range t.judged[:t.count] {
		if judged {
			right++
		}
	}
	return 2*right > t.count
}
