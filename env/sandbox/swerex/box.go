package swerex

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/headway-rl/headway/env/sandbox"
)

// firstWait is how long a server waits itself for a command's result: it does nothing else meanwhile.
// Then the result's file is asked for, ever more rarely up to pollMost; and every askAlive whether
// anybody will still write it.
const (
	firstWait = 0.2 // seconds
	pollLeast = 5 * time.Millisecond
	pollMost  = 250 * time.Millisecond
	askAlive  = time.Second
)

type box struct {
	server *server
	id     sandbox.ID
	spec   sandbox.Spec
	link   string

	closing chan struct{} // closed once by Close
	once    sync.Once
	mu      sync.Mutex // held while it is
	gone    bool       // the server has ended the box
}

var (
	_ sandbox.Box         = (*box)(nil)
	_ sandbox.Resetter    = (*box)(nil)
	_ sandbox.Snapshotter = (*box)(nil)
)

func newBox(s *server, id sandbox.ID, spec sandbox.Spec, link string) *box {
	spec.Limits = spec.Limits.WithDefaults()
	return &box{server: s, id: id, spec: spec, link: link, closing: make(chan struct{})}
}

func (b *box) ID() sandbox.ID { return b.id }

// using is a context that ends with the box, too.
func (b *box) using(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stopped := make(chan struct{})
	go func() {
		select {
		case <-b.closing:
			cancel(errClosed)
		case <-stopped:
		}
	}()
	return ctx, func() { close(stopped); cancel(context.Canceled) }
}

var errClosed = errors.New("the box was closed")

// ask has the server do something, unless the box is closed.
func (b *box) ask(ctx context.Context, op string, r request) (reply, error) {
	select {
	case <-b.closing:
		return reply{}, b.lost(op)
	default:
	}
	using, done := b.using(ctx)
	defer done()
	r.ID = b.id
	a, err := b.server.ask(using, op, b.id, r)
	return a, b.cause(ctx, using, op, err)
}

// cause is the error of an operation that closing the box ended.
func (b *box) cause(ctx, using context.Context, op string, err error) error {
	if err != nil && ctx.Err() == nil && errors.Is(context.Cause(using), errClosed) {
		return b.lost(op)
	}
	return err
}

func (b *box) lost(op string) error { return sandbox.Fail(sandbox.Lost, op, b.id, "%w", errClosed) }

func (b *box) Run(ctx context.Context, command sandbox.Command) (sandbox.Result, error) {
	if err := command.Check(b.id); err != nil {
		return sandbox.Result{}, err
	}
	l := b.spec.Limits
	r := request{
		Verb: "run", Job: rand.Text(), Wait: firstWait, Time: command.Longest(l).Seconds(), Env: b.env(command.Env),
		Output: l.Output, Memory: l.Memory, Processes: l.Processes, Disk: l.Disk, Stdin: command.Stdin,
	}
	for _, argument := range command.Argv {
		r.Argv = append(r.Argv, []byte(argument))
	}
	if command.Dir != "" {
		r.Dir = []byte(command.Dir)
	}
	var err error
	if r.Stdin, r.From, err = b.carry(ctx, "run", command.Stdin); err != nil {
		return sandbox.Result{}, err
	}
	a, err := b.ask(ctx, "run", r)
	if err == nil && a.Running != "" {
		a, err = b.await(ctx, r.Job, a.Running)
	}
	if err != nil {
		if ctx.Err() != nil {
			b.stop(ctx)
		}
		return sandbox.Result{}, err
	}
	return a.result(b.id, l.Output)
}

// env is the whole environment of a command; HOME is the box's own directory, which the server knows.
func (b *box) env(more map[string]string) (env [][2][]byte) {
	all := map[string]string{"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
	maps.Copy(all, b.spec.Env)
	maps.Copy(all, more)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		env = append(env, [2][]byte{[]byte(name), []byte(all[name])})
	}
	return env
}

// carry brings what is too long for a request to the server, and returns what is still to be sent.
func (b *box) carry(ctx context.Context, op string, content []byte) (small []byte, from string, err error) {
	if len(content) <= inline {
		return content, "", nil
	}
	select {
	case <-b.closing:
		return nil, "", b.lost(op)
	default:
	}
	using, done := b.using(ctx)
	defer done()
	from, err = b.server.upload(using, op, b.id, content)
	return nil, from, b.cause(ctx, using, op, err)
}

// await asks for a command's result until it is there.
func (b *box) await(ctx context.Context, job, file string) (reply, error) {
	using, done := b.using(ctx)
	defer done()
	asked := time.Now()
	for wait := pollLeast; ; wait = min(2*wait, pollMost) {
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-using.Done():
			timer.Stop()
			return reply{}, b.cause(ctx, using, "run", fmt.Errorf("swerex: run %s: %w", b.id, using.Err()))
		}
		if time.Since(asked) > askAlive {
			asked = time.Now()
			a, err := b.ask(ctx, "run", request{Verb: "run", Job: job})
			if err != nil || a.Running == "" {
				return a, err
			}
		}
		var read struct{ Content string }
		err := b.server.post(using, "run", b.id, "/read_file", useTime, map[string]any{"path": file}, &read)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return reply{}, b.cause(ctx, using, "run", err)
		}
		var a reply
		if err := json.Unmarshal([]byte(read.Content), &a); err != nil {
			return reply{}, sandbox.Fail(sandbox.Protocol, "run", b.id, "the result is %.200q: %w", read.Content, err)
		}
		return a, a.failure("run", b.id)
	}
}

// stop ends what runs, for a caller who waits no longer.
func (b *box) stop(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	_, _ = b.server.ask(ctx, "stop", b.id, request{Verb: "stop", ID: b.id}) // its time limit ends it at the latest
}

// result is what came of a command. The server may be in the hands of the code that it runs, so that a result
// that no command has is refused, and no more of its output is kept than was asked for.
func (a reply) result(id sandbox.ID, output int64) (sandbox.Result, error) {
	if a.Limit != "" && !a.Limit.Kind().Limit {
		return sandbox.Result{}, sandbox.Fail(sandbox.Protocol, "run", id, "the command met the limit %.40q, which is none", a.Limit)
	}
	longest := time.Duration(math.MaxInt64).Seconds() / 2
	if !(a.Wall >= 0 && a.Wall < longest && a.CPU >= 0 && a.CPU < longest) || a.Memory < 0 {
		return sandbox.Result{}, sandbox.Fail(sandbox.Protocol, "run", id, "the command took %g s, %g s of processor time and %d bytes", a.Wall, a.CPU, a.Memory)
	}
	return sandbox.Result{
		Exit: a.Exit, Signal: a.Signal, Limit: a.Limit,
		Stdout: a.Stdout[:min(int64(len(a.Stdout)), output)], Stderr: a.Stderr[:min(int64(len(a.Stderr)), output)],
		StdoutCut: a.OutCut || int64(len(a.Stdout)) > output, StderrCut: a.ErrCut || int64(len(a.Stderr)) > output,
		Wall: time.Duration(a.Wall * float64(time.Second)), CPU: time.Duration(a.CPU * float64(time.Second)), Memory: a.Memory,
	}, nil
}

func (b *box) Read(ctx context.Context, path string, limit int64) ([]byte, error) {
	if err := sandbox.CheckPath("read", b.id, path); err != nil {
		return nil, err
	}
	a, err := b.ask(ctx, "read", request{Verb: "read", Path: []byte(path), Limit: limit})
	return a.Content, err
}

func (b *box) Write(ctx context.Context, path string, content []byte, mode fs.FileMode) error {
	if err := sandbox.CheckPath("write", b.id, path); err != nil {
		return err
	}
	small, from, err := b.carry(ctx, "write", content)
	if err != nil {
		return err
	}
	_, err = b.ask(ctx, "write", request{Verb: "write", Path: []byte(path), Mode: uint32(mode.Perm()), Content: small, From: from})
	return err
}

// Reset ends what runs and removes the box's files; what lies elsewhere on the server stays.
func (b *box) Reset(ctx context.Context) error {
	_, err := b.ask(ctx, "reset", request{Verb: "reset"})
	return err
}

func (b *box) Snapshot(ctx context.Context) ([]byte, error) {
	a, err := b.ask(ctx, "snapshot", request{Verb: "snapshot"})
	return a.Content, err
}

func (b *box) Restore(ctx context.Context, snapshot []byte) error {
	small, from, err := b.carry(ctx, "restore", snapshot)
	if err != nil {
		return err
	}
	_, err = b.ask(ctx, "restore", request{Verb: "restore", Content: small, From: from})
	return err
}

// Close ends the box. One that failed to can be closed again.
func (b *box) Close(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.once.Do(func() { close(b.closing) })
	if b.gone {
		return nil
	}
	_, err := b.server.ask(ctx, "close", b.id, request{Verb: "destroy", ID: b.id, Link: b.link})
	b.gone = err == nil
	return err
}
