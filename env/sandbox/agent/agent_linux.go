package agent

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// init takes over where the program was started as the agent. It is an init, not a command, because
// what else the program initialises takes longer than all that the agent does.
func init() {
	if len(os.Args) == 0 || filepath.Base(os.Args[0]) != Name {
		return
	}
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, "agent:", err)
		os.Exit(2)
	}
	os.Exit(0)
}

// agent is the state of the program inside the box. Its one goroutine that acts keeps to one thread:
// what it starts inherits that thread's capabilities and filter.
type agent struct {
	wire     *wire
	requests chan request
	cancels  chan uint64
	consumed chan struct{} // the data of a request was read: the next may be
	gone     chan error    // the client's end is closed, or garbled
	children chan os.Signal
	setup    Setup
	first    bool
	network  string   // its state before the first command
	oomScore *os.File // the agent's own, open before it is hidden
}

func serve() error {
	debug.SetMemoryLimit(24 << 20)
	runtime.LockOSThread()
	a := &agent{
		requests: make(chan request),
		cancels:  make(chan uint64, 1),
		consumed: make(chan struct{}),
		gone:     make(chan error, 1),
		children: make(chan os.Signal, 1),
		first:    os.Getpid() == 1,
	}
	// All signals are taken and let fall: without a handler of ours one that a command sends would
	// end the Go runtime.
	signal.Notify(make(chan os.Signal, 1))
	signal.Notify(a.children, syscall.SIGCHLD)
	in, out, err := ends()
	if err != nil {
		return err
	}
	a.wire = newWire(in, out)
	go a.listen()
	return a.loop()
}

// ends are the two pipes to the client, out of reach of whatever is started.
func ends() (in, out *os.File, err error) {
	// Also what whoever started headway left open by mistake.
	if unix.CloseRange(0, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC) != nil {
		for fd := range 4 * openFiles { // a kernel before 5.11
			syscall.CloseOnExec(fd)
		}
	}
	for fd := range 2 {
		if err := syscall.SetNonblock(fd, true); err != nil {
			return nil, nil, fmt.Errorf("standard input and output have to be pipes to the client: %w", err)
		}
	}
	return os.NewFile(0, "requests"), os.NewFile(1, "answers"), nil
}

// listen reads requests. A cancellation is taken at once, anything else when its turn comes.
func (a *agent) listen() {
	for {
		var r request
		err := a.wire.readHeader(&r)
		if err == nil && r.Op == opCancel {
			if _, err = a.wire.readAll(0); err == nil {
				a.cancel(r.Seq)
				continue
			}
		}
		if err != nil {
			a.gone <- err
			return
		}
		a.requests <- r
		<-a.consumed
	}
}

// cancel leaves word for whoever runs the request. Word that nobody took was of one that had ended.
func (a *agent) cancel(seq uint64) {
	for {
		select {
		case a.cancels <- seq:
			return
		default:
		}
		select {
		case <-a.cancels:
		default:
		}
	}
}

// loop serves until the client is gone, and then ends all that runs.
func (a *agent) loop() error {
	for {
		select {
		case r := <-a.requests:
			err := a.serve(r)
			if err != nil {
				a.endAll()
				return clientGone(err)
			}
		case <-a.children:
			a.reapIdle()
		case err := <-a.gone:
			a.endAll()
			return clientGone(err)
		}
	}
}

// clientGone is nil where the client closed its end, which is how an agent is told to end.
func clientGone(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.EPIPE) {
		return nil
	}
	return err
}

// serve does one request. Its error is one of the pipes.
func (a *agent) serve(r request) error {
	ans := answer{Seq: r.Seq}
	switch r.Op {
	case opSetup:
		return a.serveSetup(r, ans)
	case opRun:
		return a.serveRun(r, ans)
	case opRead:
		if err := a.takeNothing(); err != nil {
			return err
		}
		return a.serveRead(r, ans)
	case opWrite:
		return a.takeInto(ans, func(next func() ([]byte, error)) *fault { return a.writeFile(r, next) })
	case opReset:
		if err := a.takeNothing(); err != nil {
			return err
		}
		if ans.Fault = a.reset(); ans.Fault == nil {
			ans.Fault = a.networkUsed()
		}
		return a.wire.send(ans)
	case opSnapshot:
		if err := a.takeNothing(); err != nil {
			return err
		}
		return a.serveSnapshot(r, ans)
	case opRestore:
		return a.takeInto(ans, func(next func() ([]byte, error)) *fault { return a.restore(next) })
	}
	return fmt.Errorf("%w: a request for %.40q, which this version has not", errGarbled, r.Op)
}

// takeNothing reads the end of a request without data.
func (a *agent) takeNothing() error {
	_, err := a.wire.readAll(0)
	a.consumed <- struct{}{}
	return err
}

// takeInto hands a request's data to a function as it comes, and answers with what that says. What
// the function leaves is read all the same.
func (a *agent) takeInto(ans answer, take func(next func() ([]byte, error)) *fault) error {
	var broken error
	ended := false
	next := func() ([]byte, error) {
		if ended || broken != nil {
			return nil, broken
		}
		data, err := a.wire.readData()
		ended, broken = data == nil, err
		return data, err
	}
	ans.Fault = take(next)
	for !ended && broken == nil {
		_, _ = next()
	}
	a.consumed <- struct{}{}
	if broken != nil {
		return broken
	}
	return a.wire.send(ans)
}

func (a *agent) serveSetup(r request, ans answer) error {
	if err := a.takeNothing(); err != nil {
		return err
	}
	if r.Version != version || r.Setup == nil {
		ans.Fault = faulty(faultRefused, "the agent speaks version %d and was spoken to in %d: headway's program file was replaced while it ran; start it again", version, r.Version)
		return a.wire.send(ans)
	}
	a.setup = *r.Setup
	a.setup.Env = map[string]string{}
	for _, entry := range r.Env {
		name, value, _ := strings.Cut(string(entry), "=")
		a.setup.Env[name] = value
	}
	ans.Version = version
	held, err := a.prepare()
	if err != nil {
		ans.Fault = faulty(faultRefused, "%v", err)
	}
	ans.Held = held
	a.network = network()
	return a.wire.send(ans)
}

// endAll ends every process of the box but the agent, and reaps them.
func (a *agent) endAll() {
	for {
		a.killAll()
		if _, err := syscall.Wait4(-1, nil, unix.WALL, nil); err == syscall.ECHILD {
			return
		}
	}
}

// reapIdle takes what ended while no command ran: nothing should.
func (a *agent) reapIdle() {
	for {
		if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG|unix.WALL, nil); err != nil || pid <= 0 {
			return
		}
	}
}
