package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headway-rl/headway/env/sandbox"
)

const (
	// answerGrace is how long after a command's time, or after it was cancelled, its answer may take:
	// all of it has to be killed and reaped on a host that may be busy.
	answerGrace = 30 * time.Second
	// fileGrace is that of a request that runs nothing.
	fileGrace = 2 * time.Second
	// fileTime is how long a read, a write, a reset or a snapshot may take.
	fileTime = 2 * time.Minute
)

// Box is a sandbox.Box behind an agent.
type Box struct {
	options Options
	command *exec.Cmd
	in, out *os.File // what the agent reads and writes
	said    *tail
	wire    *wire
	turn    chan struct{} // held by the request that is in progress
	sending sync.Mutex    // held while a message is written
	seq     uint64
	closed  atomic.Bool
	mu      sync.Mutex
	broken  error // why the box cannot be used any more
	once    sync.Once
	killed  chan struct{} // it was to be ended from outside
	done    chan struct{} // all of it has ended and is removed
	endErr  error         // of removing it, once done
}

var (
	_ sandbox.Box         = (*Box)(nil)
	_ sandbox.Resetter    = (*Box)(nil)
	_ sandbox.Snapshotter = (*Box)(nil)
)

// ID is the box's name.
func (b *Box) ID() sandbox.ID { return b.options.ID }

// Run runs a command and ends all that it left behind.
func (b *Box) Run(ctx context.Context, command sandbox.Command) (sandbox.Result, error) {
	if err := command.Check(b.options.ID); err != nil {
		return sandbox.Result{}, err
	}
	l := b.options.Setup.Limits
	allowed := command.Longest(l)
	r := request{Op: opRun, Path: []byte(command.Dir), Time: allowed, Env: entries(command.Env)}
	for _, arg := range command.Argv {
		r.Argv = append(r.Argv, []byte(arg))
	}
	var used Usage
	meter := func() {
		if b.options.Meter != nil {
			used = b.options.Meter.End()
		}
	}
	if b.options.Meter != nil {
		b.options.Meter.Begin()
	}
	ans, data, err := b.exchange(ctx, r, command.Stdin, allowed+answerGrace, func(ans answer) (int64, error) {
		if ans.Stdout < 0 || ans.Stderr < 0 || ans.Stdout > l.Output || ans.Stderr > l.Output {
			return 0, fmt.Errorf("%w: an output of %d and %d bytes where %d are kept", errGarbled, ans.Stdout, ans.Stderr, l.Output)
		}
		return ans.Stdout + ans.Stderr, nil
	})
	meter()
	if err == nil && b.closed.Load() {
		err = b.why() // what closing the box killed has no result
	}
	switch {
	case err != nil && used.OutOfMemory && !b.closed.Load() && !errors.Is(err, errGarbled):
		// The kernel took the agent with what it ran: that is the command's doing, and its end.
		return sandbox.Result{Exit: 137, Signal: "SIGKILL", Limit: sandbox.OutOfMemory, Memory: used.Memory, CPU: used.CPU}, nil
	case err != nil:
		return sandbox.Result{}, b.failure("run", err)
	case ans.Fault != nil:
		return sandbox.Result{}, b.fault("run", ans.Fault)
	}
	result, err := b.result(ans, data, used)
	if err != nil {
		b.breakUp(err)
		return sandbox.Result{}, b.failure("run", err)
	}
	if ctx.Err() != nil {
		return sandbox.Result{}, fmt.Errorf("sandbox: run %s: %w", b.options.ID, context.Cause(ctx))
	}
	return result, nil
}

// entries are an environment as the kernel has it.
func entries(env map[string]string) [][]byte {
	var all [][]byte
	for name, value := range env {
		all = append(all, []byte(name+"="+value))
	}
	return all
}

// result is what the agent says of a command, checked, with what was seen from outside.
func (b *Box) result(ans answer, data []byte, used Usage) (sandbox.Result, error) {
	r := ans.Result
	if r == nil || int64(len(data)) != ans.Stdout+ans.Stderr || r.Exit < 0 || r.Exit > 255 || r.Wall < 0 || r.CPU < 0 || r.Memory < 0 {
		return sandbox.Result{}, fmt.Errorf("%w: an answer to run without a result of one", errGarbled)
	}
	switch r.Limit {
	case "", sandbox.OutOfMemory, sandbox.Timeout, sandbox.Processes, sandbox.Disk, sandbox.Output:
	default:
		return sandbox.Result{}, fmt.Errorf("%w: a limit %.40q, which there is not", errGarbled, r.Limit)
	}
	r.Stdout, r.Stderr = data[:ans.Stdout:ans.Stdout], data[ans.Stdout:]
	r.Memory = max(r.Memory, used.Memory)
	r.CPU = max(r.CPU, used.CPU)
	switch {
	case used.OutOfMemory: // also one that then hung: memory came first
		r.Limit = sandbox.OutOfMemory
	case used.Processes && r.Limit != sandbox.Disk:
		r.Limit = sandbox.Processes
	}
	return *r, nil
}

// Read returns a file's content.
func (b *Box) Read(ctx context.Context, path string, limit int64) ([]byte, error) {
	if err := sandbox.CheckPath("read", b.options.ID, path); err != nil {
		return nil, err
	}
	if limit < 0 {
		return nil, sandbox.Fail(sandbox.Refused, "read", b.options.ID, "a limit of %d bytes is not one", limit)
	}
	return b.ask(ctx, "read", request{Op: opRead, Path: []byte(path), Limit: limit}, nil, limit)
}

// Write makes a file, and the directories above it.
func (b *Box) Write(ctx context.Context, path string, content []byte, mode fs.FileMode) error {
	if err := sandbox.CheckPath("write", b.options.ID, path); err != nil {
		return err
	}
	_, err := b.ask(ctx, "write", request{Op: opWrite, Path: []byte(path), Mode: mode.Perm()}, content, 0)
	return err
}

// Reset ends what runs and removes all that was written.
func (b *Box) Reset(ctx context.Context) error {
	_, err := b.ask(ctx, "reset", request{Op: opReset}, nil, 0)
	return err
}

// Snapshot returns an archive of Work.
func (b *Box) Snapshot(ctx context.Context) ([]byte, error) {
	limit := b.options.Setup.Limits.Disk + int64(b.options.Setup.Limits.Files+1)*4096
	return b.ask(ctx, "snapshot", request{Op: opSnapshot, Limit: limit}, nil, limit)
}

// Restore makes the box's files those of a snapshot, and no others.
func (b *Box) Restore(ctx context.Context, snapshot []byte) error {
	_, err := b.ask(ctx, "restore", request{Op: opRestore}, snapshot, 0)
	return err
}

// ask makes a request whose answer is data alone.
func (b *Box) ask(ctx context.Context, op string, r request, data []byte, limit int64) ([]byte, error) {
	ans, got, err := b.exchange(ctx, r, data, fileTime, func(answer) (int64, error) { return limit, nil })
	switch {
	case err != nil:
		return nil, b.failure(op, err)
	case ans.Fault != nil:
		return nil, b.fault(op, ans.Fault)
	case got == nil:
		got = []byte{}
	}
	return got, nil
}

// exchange sends a request and reads its answer, within a time. An error breaks the box, but for
// that of a context which ended before the request was sent.
func (b *Box) exchange(ctx context.Context, r request, data []byte, within time.Duration, limit func(answer) (int64, error)) (answer, []byte, error) {
	select {
	case b.turn <- struct{}{}:
		defer func() { <-b.turn }()
	case <-ctx.Done():
		return answer{}, nil, &notSent{context.Cause(ctx)}
	case <-b.done:
		return answer{}, nil, b.why()
	}
	if err := ctx.Err(); err != nil {
		return answer{}, nil, &notSent{context.Cause(ctx)}
	}
	if err := b.why(); err != nil {
		return answer{}, nil, err
	}
	b.seq++
	r.Seq = b.seq
	deadline := time.Now().Add(within)
	_, _ = b.out.SetReadDeadline(deadline), b.in.SetWriteDeadline(deadline)
	cancelled := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(cancelled)
		b.cancel(r, deadline)
	})
	defer func() {
		if !stop() { // it must not shorten the time of the next request
			<-cancelled
		}
	}()
	ans, got, err := b.talk(r, data, limit)
	if err != nil {
		b.breakUp(err)
		return answer{}, nil, b.why()
	}
	return ans, got, nil
}

// notSent is the error of a request that the box has not seen.
type notSent struct{ cause error }

func (e *notSent) Error() string { return e.cause.Error() }
func (e *notSent) Unwrap() error { return e.cause }

func (b *Box) talk(r request, data []byte, limit func(answer) (int64, error)) (answer, []byte, error) {
	b.sending.Lock()
	err := b.wire.send(r, data)
	b.sending.Unlock()
	if err != nil {
		return answer{}, nil, err
	}
	var ans answer
	if err := b.wire.readHeader(&ans); err != nil {
		return answer{}, nil, err
	}
	if ans.Seq != r.Seq {
		return answer{}, nil, fmt.Errorf("%w: an answer to request %d where %d was asked", errGarbled, ans.Seq, r.Seq)
	}
	most := int64(0)
	if limit != nil && ans.Fault == nil {
		if most, err = limit(ans); err != nil {
			return answer{}, nil, err
		}
	}
	got, err := b.wire.readAll(most)
	return ans, got, err
}

// cancel tells the agent to end the request's command, and gives it a while to say so. An agent that
// reads no more, or does not answer in that time, is ended.
func (b *Box) cancel(r request, deadline time.Time) {
	if r.Op == opSetup { // there is nothing to be kept
		_, _ = b.out.SetReadDeadline(time.Unix(1, 0)), b.in.SetWriteDeadline(time.Unix(1, 0))
		return
	}
	grace := answerGrace
	if r.Op != opRun {
		grace = fileGrace
	}
	if soon := time.Now().Add(grace); soon.Before(deadline) {
		_, _ = b.out.SetReadDeadline(soon), b.in.SetWriteDeadline(soon)
	}
	b.sending.Lock()
	defer b.sending.Unlock()
	_ = b.wire.send(request{Op: opCancel, Seq: r.Seq})
}

// fail notes why the box is no more, the first time.
func (b *Box) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.broken == nil {
		b.broken = err
	}
}

func (b *Box) why() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.broken
}

// breakUp ends a box that cannot be used on.
func (b *Box) breakUp(err error) {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, os.ErrClosed) || errors.Is(err, errBrokenPipe) {
		b.in.Close()
		// The pipe ends with the agent: how that ended says more.
		select {
		case <-b.done:
		case <-time.After(time.Second):
		}
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = errors.New("it did not answer in time")
	}
	b.fail(err)
	b.kill()
}

func (b *Box) kill() {
	b.once.Do(func() { close(b.killed) })
	if b.options.Kill != nil {
		b.options.Kill()
	}
	_ = b.command.Process.Kill()
}

// failure is an error of exchange as the port has it.
func (b *Box) failure(op string, err error) error {
	if sent, ok := errors.AsType[*notSent](err); ok {
		return fmt.Errorf("sandbox: %s %s: %w", op, b.options.ID, sent.cause)
	}
	class := sandbox.Lost
	if errors.Is(err, errGarbled) {
		class = sandbox.Protocol
	}
	if said := b.said.String(); said != "" && !b.closed.Load() {
		err = fmt.Errorf("%w; it said: %s", err, said)
	}
	return sandbox.Fail(class, op, b.options.ID, "%w", err)
}

// fault is a fault as the port has it; one that says the box is broken ends it.
func (b *Box) fault(op string, f *fault) error {
	if f.Kind == faultBroken {
		b.breakUp(f)
	}
	return f.failure(op, b.options.ID, b.options.Setup.Mount || b.options.Setup.OwnKernel)
}

// Close ends all that runs in the box and removes what it has written. It returns once that is done,
// or with the context's error while it goes on.
func (b *Box) Close(ctx context.Context) error {
	if b.closed.CompareAndSwap(false, true) {
		b.fail(errors.New("it was closed"))
		b.in.Close() // an agent whose client is gone ends all and itself
		patience := time.AfterFunc(b.options.Patience, b.kill)
		defer patience.Stop()
	}
	select {
	case <-b.done:
	case <-ctx.Done():
		go b.kill()
		return sandbox.Fail(sandbox.Lost, "close", b.options.ID, "it has not ended yet: %w", context.Cause(ctx))
	}
	if b.endErr != nil {
		return sandbox.Fail(sandbox.Lost, "close", b.options.ID, "what it has left: %w", b.endErr)
	}
	return nil
}
