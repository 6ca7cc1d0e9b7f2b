package verifier

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/headway-rl/headway/env/sandbox"
)

// programs are processes that judge. Each has one case at a time, and lives until it fails.
type programs struct {
	// name is that of the program in errors, launch starts one.
	name   string
	launch func() (*process, error)
	idle   chan *slot
	seats  []*slot

	closing sync.Once
	closed  chan struct{}
}

// slot is the place of one process. Whoever took it out of programs.idle has it alone.
type slot struct {
	process *process
	// failed counts processes that ended since the last answer; the next process starts at notBefore.
	failed    int
	notBefore time.Time
}

func newCommand(o Options) (Verifier, error) {
	if len(o.Command) == 0 || o.Command[0] == "" {
		return nil, errors.New("verifier: command needs a program and its arguments")
	}
	for _, text := range append([]string{o.Dir}, o.Command...) {
		if strings.ContainsRune(text, 0) {
			return nil, fmt.Errorf("verifier: there is a NUL in %q, which no program can be given", text)
		}
	}
	for name, value := range o.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(value, 0) {
			return nil, fmt.Errorf("verifier: the environment variable %q=%q: a name must be there, without = and NUL, and its value without NUL", name, value)
		}
	}
	if !strings.ContainsRune(o.Command[0], '/') {
		if _, err := exec.LookPath(o.Command[0]); err != nil {
			return nil, fmt.Errorf("verifier: command: %w", err)
		}
	}
	return &asked{newPrograms(o.Command[0], o.Concurrency, func() (*process, error) { return startProcess(commandOf(o)) }), o}, nil
}

func commandOf(o Options) *exec.Cmd {
	command := exec.Command(o.Command[0], o.Command[1:]...)
	command.Dir = o.Dir
	// Not this process's whole environment: that may hold keys of trackers, services and registries.
	for _, name := range []string{"PATH", "HOME", "LANG"} {
		if value, there := os.LookupEnv(name); there {
			command.Env = append(command.Env, name+"="+value)
		}
	}
	for name, value := range o.Env {
		command.Env = append(command.Env, name+"="+value)
	}
	return command
}

// asked asks a program of the user's: one JSON object a line to its standard input, one back on its
// standard output. What it does is the user's own and runs as this process's user does: it is no place for the
// policy's code.
type asked struct {
	*programs
	o Options
}

// Verify implements Verifier.
func (a *asked) Verify(ctx context.Context, c Case) (Verdict, error) {
	return a.with(ctx, func(s *slot) (Verdict, error) { return a.judge(ctx, s, c) })
}

// judge asks the seat's process, which it ends where it failed.
func (a *asked) judge(ctx context.Context, s *slot, c Case) (Verdict, error) {
	id := rand.Text() // which text of the policy's that the program prints by mistake cannot have
	text, err := c.request(id)
	if err != nil {
		return Verdict{}, err
	}
	if err := a.ready(ctx, s); err != nil {
		return Verdict{}, err
	}
	l, err := s.process.ask(ctx, append(text, '\n'))
	var answer answered
	if err == nil {
		answer, err = l.answer(id)
	}
	if err != nil {
		tail := s.end()
		if ctx.Err() != nil {
			return Verdict{}, fmt.Errorf("%s was ended: %w%s", a.name, ctx.Err(), tail)
		}
		class := sandbox.VerifierProtocol
		if errors.Is(err, errEnded) {
			class = sandbox.VerifierCrash
		}
		// The next try has a new process: whatever is wrong with this one, it goes no further.
		return Verdict{}, Again(sandbox.Fail(class, "verify", "", "%s: %w%s", a.name, err, tail), 0)
	}
	return answer.finish(a.o.Range)
}

func newPrograms(name string, concurrency int, launch func() (*process, error)) *programs {
	p := &programs{name: name, launch: launch, idle: make(chan *slot, concurrency), closed: make(chan struct{})}
	for range concurrency {
		s := &slot{}
		p.seats = append(p.seats, s)
		p.idle <- s
	}
	return p
}

// with judges a case with a seat that nobody else has meanwhile.
func (p *programs) with(ctx context.Context, judge func(*slot) (Verdict, error)) (Verdict, error) {
	var s *slot
	select {
	case s = <-p.idle:
	case <-ctx.Done():
		return Verdict{}, ctx.Err()
	case <-p.closed:
		return Verdict{}, errClosed
	}
	defer func() { p.idle <- s }()
	select {
	case <-p.closed:
		return Verdict{}, errClosed
	default:
	}
	v, err := judge(s)
	switch {
	case s.process != nil: // it answered
		s.failed = 0
	case sandbox.ClassOf(err) == sandbox.VerifierCrash: // the next would end as fast
		s.notBefore = time.Now().Add(backOff(s.failed))
		s.failed++
	}
	return v, err
}

var errClosed = sandbox.Fail(sandbox.VerifierCrash, "verify", "", "the verifier is closed")

// ready starts the seat's process where there is none.
func (p *programs) ready(ctx context.Context, s *slot) error {
	if s.process != nil {
		return nil
	}
	if wait := time.Until(s.notBefore); wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return fmt.Errorf("%s failed %d times in a row and is not started again yet: %w", p.name, s.failed, ctx.Err())
		case <-p.closed:
			return errClosed
		}
	}
	started, err := p.launch()
	if err != nil {
		return Again(sandbox.Fail(sandbox.VerifierCrash, "verify", "", "%w", err), 0)
	}
	s.process = started
	return nil
}

// end ends the seat's process and tells the end of what it wrote to standard error.
func (s *slot) end() string {
	tail := s.process.end()
	s.process = nil
	if tail == "" {
		return ""
	}
	return fmt.Sprintf("; it wrote to standard error: …%q", tail)
}

// Close ends the processes. Cases under way are not waited for longer than their processes live: the
// caller ends their contexts first.
func (p *programs) Close() error {
	p.closing.Do(func() {
		close(p.closed)
		for range p.seats {
			s := <-p.idle
			if s.process != nil {
				s.end()
			}
			s.failed = 0
		}
	})
	return nil
}
