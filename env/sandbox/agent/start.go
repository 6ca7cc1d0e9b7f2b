package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/headway-rl/headway/env/sandbox"
)

// Usage is what a control group saw of a command.
type Usage struct {
	// OutOfMemory and Processes: the limit was met. Memory is the most there was at once, in bytes.
	OutOfMemory, Processes bool
	Memory                 int64
	CPU                    time.Duration
}

// Meter is a driver's view of a box from outside. It is used by one goroutine at a time.
type Meter interface {
	// Begin forgets what was before; End says what has been since.
	Begin()
	End() Usage
}

// Options of a box.
type Options struct {
	ID sandbox.ID
	// Command starts the agent. Its standard streams are the client's.
	Command *exec.Cmd
	Setup   Setup
	// Started is called once the agent answers, with its process's number or that of what it was
	// started by; an error ends the box. It may be nil.
	Started func(pid int, held Held) error
	// Meter may be nil.
	Meter Meter
	// Patience is how long Close waits for the agent to end what it has started by itself, before Kill.
	Patience time.Duration
	// Kill ends all of the box from outside; nil kills the command's process. It may be called more
	// than once, also at the same time as Ended, and has to return.
	Kill func()
	// Ended is called once, when the command has ended however it did. It ends all that is left of
	// the box and removes all that the driver has made. It may be nil.
	Ended func() error
}

// Environment is that of an agent: it is small, and there are hundreds of them. With one processor
// its threads would wait for each other, which doubles the time it takes to come up.
func Environment() []string {
	return []string{"GOMAXPROCS=2", "GOGC=40", "GOTRACEBACK=none", "GORACE=atexit_sleep_ms=0"}
}

// tail keeps the beginning and the end of what an agent or what starts it says.
type tail struct {
	mu        sync.Mutex
	head, end []byte
	cut       bool
}

const tailBytes = 1 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := min(len(p), tailBytes-len(t.head))
	t.head = append(t.head, p[:n]...)
	t.end = append(t.end, p[n:]...)
	if over := len(t.end) - tailBytes; over > 0 {
		t.end, t.cut = append(t.end[:0], t.end[over:]...), true
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	between := ""
	if t.cut {
		between = " … "
	}
	return strings.ToValidUTF8(strings.TrimSpace(string(t.head)+between+string(t.end)), "?")
}

// startGrace is how long a start that failed waits for the end of what it started.
const startGrace = 5 * time.Second

// Start starts an agent and returns its box once commands can run. A start that fails leaves nothing:
// Options.Ended has been called when Start returns an error. Where the kernel does not let go of a
// started process, Options.Ended is going to be called, and the error says so.
func Start(ctx context.Context, o Options) (*Box, error) {
	b, err := spawn(o)
	if err != nil {
		if o.Ended != nil {
			err = errors.Join(err, o.Ended())
		}
		return nil, sandbox.Fail(sandbox.StartFailed, "create", o.ID, "%w", err)
	}
	held, err := b.greet(ctx)
	if err == nil && o.Started != nil {
		err = o.Started(b.command.Process.Pid, held)
	}
	if err == nil {
		return b, nil
	}
	b.breakUp(err)
	ending := time.NewTimer(startGrace)
	defer ending.Stop()
	var left error
	select {
	case <-b.done:
		left = b.endErr
	case <-ending.C:
		left = errors.New("it was killed and is still ending: destroy it by its name")
	}
	class := sandbox.StartFailed
	if ctx.Err() != nil {
		class, err = sandbox.StartTimeout, context.Cause(ctx)
	}
	if said := b.said.String(); said != "" {
		err = fmt.Errorf("%w; it said: %s", err, said)
	}
	return nil, sandbox.Fail(class, "create", o.ID, "%w", errors.Join(err, left))
}

func spawn(o Options) (*Box, error) {
	theirIn, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirIn.Close()
	out, theirOut, err := os.Pipe()
	if err != nil {
		in.Close()
		return nil, err
	}
	defer theirOut.Close()
	b := &Box{
		options: o, command: o.Command, in: in, out: out, said: &tail{}, done: make(chan struct{}),
		killed: make(chan struct{}),
		turn:   make(chan struct{}, 1), wire: newWire(out, in),
	}
	o.Command.Stdin, o.Command.Stdout, o.Command.Stderr = theirIn, theirOut, b.said
	o.Command.WaitDelay = 2 * time.Second
	if err := o.Command.Start(); err != nil {
		in.Close()
		out.Close()
		return nil, err
	}
	go b.watch(o.Command.Wait)
	return b, nil
}

// greet hands the agent its setup.
func (b *Box) greet(ctx context.Context) (Held, error) {
	ans, _, err := b.exchange(ctx, request{Op: opSetup, Version: version, Setup: &b.options.Setup, Env: entries(b.options.Setup.Env)}, nil, time.Minute, nil)
	switch {
	case err != nil:
		return Held{}, err
	case ans.Fault != nil:
		return Held{}, ans.Fault
	case ans.Version != version || ans.Held == nil:
		return Held{}, fmt.Errorf("the agent speaks version %d, this program %d", ans.Version, version)
	}
	return *ans.Held, nil
}

const (
	// killAgain is how often a process that was killed and has not ended is killed, and killTimes how
	// often: one that enters the box as it is killed is met the next time.
	killAgain = time.Second
	killTimes = 20
)

// watch waits for the agent's end and cleans up after it. It ends in bounded time once the box was
// killed, whatever became of its processes.
func (b *Box) watch(wait func() error) {
	waited := make(chan error, 1)
	go func() { waited <- wait() }()
	err, ended := b.untilEnded(waited)
	if ended {
		b.fail(fmt.Errorf("its first process has ended: %s", state(b.command, err)))
	} else {
		b.fail(errStuck)
	}
	b.in.Close()
	b.out.Close()
	if b.options.Ended != nil {
		b.endErr = b.options.Ended()
	}
	if !ended {
		b.endErr = errors.Join(errStuck, b.endErr)
	}
	close(b.done)
}

// errStuck is of a process that the kernel does not end: it waits for a device or a server, or is
// traced.
var errStuck = errors.New("its first process was killed and does not end")

func (b *Box) untilEnded(waited <-chan error) (err error, ended bool) {
	select {
	case err := <-waited:
		return err, true
	case <-b.killed:
	}
	again := time.NewTicker(killAgain)
	defer again.Stop()
	for range killTimes {
		select {
		case err := <-waited:
			return err, true
		case <-again.C:
			go b.kill() // it may take a while itself
		}
	}
	return nil, false
}

func state(command *exec.Cmd, err error) string {
	if command.ProcessState != nil {
		return command.ProcessState.String()
	}
	return fmt.Sprint(err)
}
