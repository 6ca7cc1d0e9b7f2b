package e2b

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/env/sandbox/shell"
)

// ender ends all that the user runs in the sandbox, and nothing of root's, whose envd is.
const ender = `[ "$(id -u)" = 0 ] || kill -9 -1`

// inline is the longest script that is sent as an argument.
const inline = 64 << 10

type box struct {
	driver *Driver
	id     sandbox.ID
	spec   sandbox.Spec
	made   made
	envd   string

	closing   chan struct{} // closed once by Close
	once      sync.Once
	refreshed sync.WaitGroup
	mu        sync.Mutex // held while it is
	gone      bool       // the sandbox has ended
}

var (
	_ sandbox.Box      = (*box)(nil)
	_ sandbox.Resetter = (*box)(nil)
)

// newBox returns a box whose life is lengthened until it is closed.
func newBox(d *Driver, id sandbox.ID, spec sandbox.Spec, m made) *box {
	m.Domain = cmp.Or(m.Domain, "e2b.app")
	envd := strings.NewReplacer("{id}", m.ID, "{domain}", m.Domain).Replace(d.o.Envd)
	b := &box{driver: d, id: id, spec: spec, made: m, envd: envd, closing: make(chan struct{})}
	b.refreshed.Go(b.refresh)
	return b
}

// refresh says again and again that the box is used. One time that fails is made good by the next;
// should all fail, the sandbox ends, and what is asked of it next says so.
func (b *box) refresh() {
	again := time.NewTicker(b.driver.refresh)
	defer again.Stop()
	for {
		select {
		case <-b.closing:
			return
		case <-again.C:
		}
		ctx, cancel := context.WithTimeout(context.Background(), b.driver.refresh)
		go func() {
			select {
			case <-b.closing:
				cancel()
			case <-ctx.Done():
			}
		}()
		body := map[string]int{"timeout": b.driver.seconds()}
		_, _ = b.driver.do(ctx, call{op: "run", id: b.id, method: http.MethodPost, path: "/sandboxes/" + url.PathEscape(b.made.ID) + "/timeout", body: body}, nil)
		cancel()
	}
}

func (b *box) ID() sandbox.ID { return b.id }

var errClosed = errors.New("the box was closed")

func (b *box) lost(op string) error { return sandbox.Fail(sandbox.Lost, op, b.id, "%w", errClosed) }

// script runs a script, held to a time; limit is the one that it met.
func (b *box) script(ctx context.Context, op, text string, output int64, longest time.Duration) (e *execution, exit int, signal string, limit sandbox.Class, err error) {
	select {
	case <-b.closing:
		return nil, 0, "", "", b.lost(op)
	default:
	}
	running, end := context.WithCancel(ctx)
	defer end()
	meets := make(chan sandbox.Class, 1)
	e = &execution{script: text, stdout: shell.Stream{Limit: output}, stderr: shell.Stream{Limit: output + shell.BegunLen}, over: func() { meets <- sandbox.Output }, longest: longest + 30*time.Second}
	done := make(chan struct{})
	var watching sync.WaitGroup
	reached := true
	watching.Go(func() { limit, reached = b.watch(ctx, longest, meets, done, end) })
	exit, signal, err = b.start(running, op, e)
	close(done)
	watching.Wait()
	select {
	case <-b.closing:
		if err != nil || limit != "" {
			return e, 0, "", "", b.lost(op)
		}
	default:
	}
	if limit != "" && !reached { // it has met no limit that anybody saw
		return e, 0, "", "", sandbox.Fail(sandbox.Lost, op, b.id, "the sandbox has not answered for %v, nor when the command was to be ended", longest)
	}
	if limit != "" {
		return e, 137, "SIGKILL", limit, nil
	}
	return e, exit, signal, "", inContext(ctx, op, b.id, err)
}

// watch ends what runs when it meets a limit, when the box is closed or when nobody waits any more. It reports whether the sandbox
// has answered it.
func (b *box) watch(ctx context.Context, longest time.Duration, meets <-chan sandbox.Class, done <-chan struct{}, end context.CancelFunc) (limit sandbox.Class, reached bool) {
	timer := time.NewTimer(longest)
	defer timer.Stop()
	select {
	case <-done:
		return "", true
	case <-b.closing:
		end() // the machine goes
		return "", true
	case limit = <-meets:
	case <-timer.C:
		limit = sandbox.Timeout
	case <-ctx.Done():
	}
	reached = b.endAll(context.WithoutCancel(ctx))
	end()
	return limit, reached
}

// endTime is how long the sandbox may take to end all processes of the user.
const endTime = 30 * time.Second

// endAll ends all processes of the user, and reports whether the sandbox has answered. That the asking ends with them is no error.
func (b *box) endAll(ctx context.Context) (answered bool) {
	ctx, cancel := context.WithTimeout(ctx, endTime)
	defer cancel()
	killer := &execution{script: ender, over: func() {}, longest: endTime}
	_, _, _ = b.start(ctx, "run", killer)
	return killer.answered
}

// prepare makes the box's directory, of which no template knows.
func (b *box) prepare(ctx context.Context) error {
	const text = `mkdir -p ` + sandbox.Work + ` 2>/dev/null || sudo -n install -d -o "$(id -u)" ` + sandbox.Work + ` && [ -w ` + sandbox.Work + ` ]`
	e, exit, _, limit, err := b.script(ctx, "create", text, 4096, time.Minute)
	if err == nil && (exit != 0 || limit != "") {
		err = sandbox.Fail(sandbox.StartFailed, "create", b.id, "the user %s cannot make %s: let the template have it: %s", b.driver.o.User, sandbox.Work, e.stderr.Text)
	}
	return err
}

func (b *box) Run(ctx context.Context, command sandbox.Command) (sandbox.Result, error) {
	if err := command.Check(b.id); err != nil {
		return sandbox.Result{}, err
	}
	l := b.spec.Limits
	longest := command.Longest(l)
	text, err := b.carried(ctx, shell.Command(b.spec.Env, command, `<"$in" `), command.Stdin)
	if err != nil {
		return sandbox.Result{}, err
	}
	begun := time.Now()
	e, exit, signal, limit, err := b.script(ctx, "run", text, l.Output, longest)
	if err != nil {
		return sandbox.Result{}, err
	}
	wall, stderrCut := time.Since(begun), e.stderr.Cut()
	stderr, ran := shell.Begun(e.stderr.Text)
	if exit == shell.NoDirectory && !ran {
		return sandbox.Result{}, sandbox.Fail(sandbox.Refused, "run", b.id, "the directory %q is not there: %s", shell.Directory(command), stderr)
	}
	b.endAll(ctx)
	return sandbox.Result{
		Exit: exit, Signal: signal, Limit: limit, Wall: wall,
		Stdout: e.stdout.Text, StdoutCut: e.stdout.Cut(),
		Stderr: stderr, StderrCut: stderrCut,
	}, nil
}

// Files of the driver's own in the sandbox.
const (
	scriptFile  = "/tmp/.headway-script"
	inputFile   = "/tmp/.headway-input"
	contentFile = "/tmp/.headway-content"
)

// carried brings what is no text or too long for an argument into the sandbox, and returns what is to be run.
func (b *box) carried(ctx context.Context, text string, stdin []byte) (string, error) {
	in := "in=/dev/null\n"
	if len(stdin) > 0 {
		in = "in=" + inputFile + "\n"
		if err := b.put(ctx, "run", inputFile, stdin); err != nil {
			return "", err
		}
	}
	if len(text) <= inline && utf8.ValidString(text) {
		return in + text, nil
	}
	return in + ". " + scriptFile, b.put(ctx, "run", scriptFile, []byte(text))
}

// put uploads a file, unless the box is closed.
func (b *box) put(ctx context.Context, op, name string, content []byte) error {
	select {
	case <-b.closing:
		return b.lost(op)
	default:
	}
	return inContext(ctx, op, b.id, b.upload(ctx, op, name, content))
}

func (b *box) Read(ctx context.Context, name string, limit int64) ([]byte, error) {
	if err := sandbox.CheckPath("read", b.id, name); err != nil {
		return nil, err
	}
	text, err := b.carried(ctx, shell.Read(name, limit), nil)
	if err != nil {
		return nil, err
	}
	e, exit, _, met, err := b.script(ctx, "read", text, limit+1, b.spec.Limits.Time)
	if err != nil {
		return nil, err
	}
	if err := shell.FileError("read", b.id, name, exit, met, e.stderr.Text); err != nil {
		return nil, err
	}
	if e.stdout.Seen > limit {
		return nil, fmt.Errorf("e2b: %s: %w", name, sandbox.ErrTooLarge)
	}
	return e.stdout.Text, nil
}

func (b *box) Write(ctx context.Context, name string, content []byte, mode fs.FileMode) error {
	if err := sandbox.CheckPath("write", b.id, name); err != nil {
		return err
	}
	if err := b.put(ctx, "write", contentFile, content); err != nil {
		return err
	}
	text, err := b.carried(ctx, shell.Write(name, contentFile, mode)+"\nrm -f "+contentFile, nil)
	if err != nil {
		return err
	}
	e, exit, _, met, err := b.script(ctx, "write", text, 4096, b.spec.Limits.Time)
	if err != nil {
		return err
	}
	return shell.FileError("write", b.id, name, exit, met, e.stderr.Text)
}

// Reset ends what runs and empties the box's directory and the user's files in /tmp. What lies
// elsewhere stays.
func (b *box) Reset(ctx context.Context) error {
	e, exit, _, limit, err := b.script(ctx, "reset", shell.Reset(true), 4096, b.spec.Limits.Time)
	if err == nil && (exit != 0 || limit != "") {
		err = sandbox.Fail(sandbox.Lost, "reset", b.id, "the box cannot be emptied: %s %s", limit, e.stderr.Text)
	}
	return err
}

// Close ends the sandbox. One that failed to can be closed again.
func (b *box) Close(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.once.Do(func() { close(b.closing) })
	b.refreshed.Wait()
	if b.gone {
		return nil
	}
	err := b.driver.kill(ctx, b.id, b.made.ID)
	b.gone = err == nil
	return err
}
