package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/env/sandbox/shell"
)

// runner runs the script $2 with the first $1 bytes of its own standard input: counted, because older
// clusters have no message for the end of it. What the script leaves behind is ended, and
// waited for: the kernel spares the pod's first process and who asks.
//
// A shell says in words that a signal ended what it ran, and by its exit code that one may have: the
// words go into the file told.
const runner = `m=` + told + `; [ -w /tmp ] || m=/dev/null
{ head -c "$1" | /bin/sh -c "$2" 2>&3 3>&-; } 3>&2 2>"$m"
e=$?
there=$(echo /proc/[0-9]*)
kill -9 -1 2>/dev/null
n=0
for p in $there; do
	[ "$p" = /proc/1 ] || [ "$p" = "/proc/$$" ] && continue
	while { l=; read -r l <"$p/stat"; } 2>/dev/null && [ "${l#*) Z }" = "$l" ] && [ $n -lt 400 ]; do
		n=$((n+1))
		sleep 0.005
	done
done
exit $e`

const told = "/tmp/.headway-told"

// signals by their numbers on Linux.
var signals = [...]string{
	"", "SIGHUP", "SIGINT", "SIGQUIT", "SIGILL", "SIGTRAP", "SIGABRT", "SIGBUS", "SIGFPE", "SIGKILL", "SIGUSR1", "SIGSEGV", "SIGUSR2", "SIGPIPE",
	"SIGALRM", "SIGTERM", "SIGSTKFLT", "SIGCHLD", "SIGCONT", "SIGSTOP", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGURG", "SIGXCPU", "SIGXFSZ",
	"SIGVTALRM", "SIGPROF", "SIGWINCH", "SIGIO", "SIGPWR", "SIGSYS",
}

// keeper puts the first $1 bytes of its standard input into the file $2: scripts that are too long for
// a request's address.
const keeper = `head -c "$1" >"$2"`

// inline is the longest script that goes into a request's address, where it may grow threefold.
const inline = 24 << 10

// ender ends all that runs in the pod but its first process.
const ender = `kill -9 -1`

type box struct {
	driver *Driver
	id     sandbox.ID
	spec   sandbox.Spec
	pod    string
	oom    int // times that the pod's kernel has ended something for its memory

	closing chan struct{} // closed once by Close
	once    sync.Once
	mu      sync.Mutex // held while it is
	gone    bool       // the claim is deleted
}

var (
	_ sandbox.Box      = (*box)(nil)
	_ sandbox.Resetter = (*box)(nil)
)

func (b *box) ID() sandbox.ID { return b.id }

// script runs a script in the pod, held to a time; limit is the one that it met.
func (b *box) script(ctx context.Context, op, text string, stdin []byte, output int64, longest time.Duration) (e *execution, exit int, limit sandbox.Class, err error) {
	select {
	case <-b.closing:
		return nil, 0, "", b.lost(op)
	default:
	}
	if len(text) > inline {
		if text, err = b.keep(ctx, op, text); err != nil {
			return nil, 0, "", err
		}
	}
	return b.execute(ctx, op, []string{"/bin/sh", "-c", runner, "sh", strconv.Itoa(len(stdin)), text}, stdin, output, longest)
}

// keep brings a long script into the pod and returns a short one that runs it.
func (b *box) keep(ctx context.Context, op, text string) (string, error) {
	const file = "/tmp/.headway-script"
	e, exit, limit, err := b.execute(ctx, op, []string{"/bin/sh", "-c", keeper, "sh", strconv.Itoa(len(text)), file}, []byte(text), 4096, b.spec.Limits.Time)
	if err == nil && (exit != 0 || limit != "") {
		err = sandbox.Fail(sandbox.Lost, op, b.id, "a script cannot be written to %s: %s %s", file, limit, e.stderr.Text)
	}
	return ". " + file, err
}

// execute runs a command of the pod's own until it ends or meets a limit.
func (b *box) execute(ctx context.Context, op string, command []string, stdin []byte, output int64, longest time.Duration) (e *execution, exit int, limit sandbox.Class, err error) {
	running, end := context.WithCancelCause(ctx)
	defer end(nil)
	meets := make(chan sandbox.Class, 2)
	e = &execution{
		command: command, stdin: stdin, stdout: shell.Stream{Limit: output}, stderr: shell.Stream{Limit: output + shell.BegunLen},
		over: func() { meets <- sandbox.Output },
	}
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() { limit = b.watch(ctx, longest, meets, done, end) })
	exit, err = e.run(running, b.driver.api, b.driver.o.Namespace, b.pod, b.driver.o.Container)
	close(done)
	watching.Wait()
	if limit != "" {
		return e, 137, limit, nil
	}
	return e, exit, "", b.failure(ctx, running, op, err)
}

var errClosed = errors.New("the box was closed")

func (b *box) lost(op string) error { return sandbox.Fail(sandbox.Lost, op, b.id, "%w", errClosed) }

// watch ends what runs in the pod when it meets a limit, when the box is closed or when nobody waits
// any more.
func (b *box) watch(ctx context.Context, longest time.Duration, meets <-chan sandbox.Class, done <-chan struct{}, end context.CancelCauseFunc) (limit sandbox.Class) {
	timer := time.NewTimer(longest)
	defer timer.Stop()
	select {
	case <-done:
		return ""
	case <-b.closing:
		end(errClosed) // the pod goes
		return ""
	case limit = <-meets:
	case <-timer.C:
		limit = sandbox.Timeout
	case <-ctx.Done():
	}
	// The connection is left to end by itself, which is when nothing runs any more.
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	killer := &execution{command: []string{"/bin/sh", "-c", ender}, over: func() {}}
	_, err := killer.run(ending, b.driver.api, b.driver.o.Namespace, b.pod, b.driver.o.Container)
	if err != nil && !errors.Is(err, errNoExit) { // it may have ended the asking, too
		end(err)
		return ""
	}
	select {
	case <-done:
	case <-ending.Done():
		end(fmt.Errorf("what runs in the pod cannot be ended"))
	}
	return limit
}

// failure gives the error of a command its class.
func (b *box) failure(ctx, running context.Context, op string, err error) error {
	if err == nil {
		return nil
	}
	select {
	case <-b.closing:
		return b.lost(op)
	default:
	}
	if ctx.Err() != nil {
		return fmt.Errorf("kubernetes: %s %s: %w", op, b.id, ctx.Err())
	}
	if failure, is := errors.AsType[*sandbox.Failure](err); is {
		class := failure.Class
		if class == sandbox.BackendDown {
			class = sandbox.Lost
		}
		return sandbox.Fail(class, op, b.id, "%w", failure.Err)
	}
	if cause := context.Cause(running); cause != nil {
		err = cause
	}
	return sandbox.Fail(sandbox.Lost, op, b.id, "%w", err)
}

// prepare makes the box's directory and looks at what its kernel counts.
func (b *box) prepare(ctx context.Context) error {
	_, exit, limit, err := b.script(ctx, "create", "mkdir -p "+sandbox.Work, nil, 4096, time.Minute)
	if err != nil {
		return err
	}
	if exit != 0 || limit != "" {
		return sandbox.Fail(sandbox.StartFailed, "create", b.id, "the pod's user cannot make %s: let the image or the template have it", sandbox.Work)
	}
	b.oom, err = b.killed(ctx)
	return err
}

// killed is how often the pod's kernel has ended something for its memory; 0 where it does not say.
func (b *box) killed(ctx context.Context) (int, error) {
	const look = `sed -n 's/^oom_kill //p' /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control 2>/dev/null; :`
	e, _, _, err := b.script(ctx, "run", look, nil, 4096, time.Minute)
	if err != nil {
		return 0, err
	}
	count, err := strconv.Atoi(strings.TrimSpace(string(e.stdout.Text)))
	if err != nil {
		return 0, nil // it does not say
	}
	return count, nil
}

func (b *box) Run(ctx context.Context, command sandbox.Command) (sandbox.Result, error) {
	if err := command.Check(b.id); err != nil {
		return sandbox.Result{}, err
	}
	l := b.spec.Limits
	longest := command.Longest(l)
	begun := time.Now()
	e, exit, limit, err := b.script(ctx, "run", shell.Command(b.spec.Env, command, ""), command.Stdin, l.Output, longest)
	if err != nil {
		return sandbox.Result{}, err
	}
	wall, stderrCut := time.Since(begun), e.stderr.Cut()
	stderr, ran := shell.Begun(e.stderr.Text)
	result := sandbox.Result{
		Exit: exit, Limit: limit, Wall: wall,
		Stdout: e.stdout.Text, StdoutCut: e.stdout.Cut(), Stderr: stderr, StderrCut: stderrCut,
	}
	switch {
	case limit != "":
		result.Signal = "SIGKILL"
	case exit == shell.NoDirectory && !ran:
		return sandbox.Result{}, sandbox.Fail(sandbox.Refused, "run", b.id, "the directory %q is not there: %s", shell.Directory(command), stderr)
	case exit > 128 && exit-128 < len(signals):
		return result, b.ended(ctx, &result)
	}
	return result, nil
}

// ended finds out what a command ended by whose exit code looks like a signal's: by asking the shell
// and, where it was killed, the kernel.
func (b *box) ended(ctx context.Context, result *sandbox.Result) error {
	words, exit, _, err := b.execute(ctx, "run", []string{"/bin/sh", "-c", "cat " + told}, nil, 4096, time.Minute)
	if err != nil {
		return err
	}
	if exit == 0 && len(words.stdout.Text) > 0 {
		result.Signal = signals[result.Exit-128]
	}
	if result.Exit != 137 {
		return nil
	}
	count, err := b.killed(ctx)
	if count > b.oom {
		b.oom, result.Limit, result.Signal = count, sandbox.OutOfMemory, "SIGKILL"
	}
	return err
}

func (b *box) Read(ctx context.Context, name string, limit int64) ([]byte, error) {
	if err := sandbox.CheckPath("read", b.id, name); err != nil {
		return nil, err
	}
	e, exit, met, err := b.script(ctx, "read", shell.Read(name, limit), nil, limit+1, b.spec.Limits.Time)
	if err != nil {
		return nil, err
	}
	if err := shell.FileError("read", b.id, name, exit, met, e.stderr.Text); err != nil {
		return nil, err
	}
	if e.stdout.Seen > limit {
		return nil, fmt.Errorf("kubernetes: %s: %w", name, sandbox.ErrTooLarge)
	}
	return e.stdout.Text, nil
}

func (b *box) Write(ctx context.Context, name string, content []byte, mode fs.FileMode) error {
	if err := sandbox.CheckPath("write", b.id, name); err != nil {
		return err
	}
	e, exit, met, err := b.script(ctx, "write", shell.Write(name, "", mode), content, 4096, b.spec.Limits.Time)
	if err != nil {
		return err
	}
	return shell.FileError("write", b.id, name, exit, met, e.stderr.Text)
}

// Reset ends what runs and empties the box's directory and /tmp. What lies elsewhere in the pod stays.
func (b *box) Reset(ctx context.Context) error {
	e, exit, limit, err := b.script(ctx, "reset", shell.Reset(false), nil, 4096, b.spec.Limits.Time)
	if err != nil {
		return err
	}
	if exit != 0 || limit != "" {
		return sandbox.Fail(sandbox.Lost, "reset", b.id, "the box cannot be emptied: %s %s", limit, e.stderr.Text)
	}
	return nil
}

// Close deletes the claim, with which the pod goes. One that failed to can be closed again.
func (b *box) Close(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.once.Do(func() { close(b.closing) })
	if b.gone {
		return nil
	}
	err := b.driver.Destroy(ctx, b.id)
	b.gone = err == nil
	return err
}
