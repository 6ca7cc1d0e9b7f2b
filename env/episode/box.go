package episode

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/env/taskset"
	"github.com/headway-rl/headway/internal/pause"
)

// box is a rollout's sandbox, made and given the task's files at its first use, whoever that is: a tool
// or a test. The time that takes is the sandbox's and not theirs.
type box struct {
	sandbox.Box
	task    *taskset.Task
	retries int
	ready   bool
}

// Ready makes the box. What fails before anything ran in it is tried again.
func (b *box) Ready(ctx context.Context) error {
	if b.ready {
		return nil
	}
	if err := b.start(ctx); err != nil {
		return err
	}
	if err := b.fill(ctx); err != nil {
		return err
	}
	b.ready = true
	return nil
}

func (b *box) start(ctx context.Context) error {
	starter, ok := b.Box.(Starter)
	if !ok {
		return nil
	}
	back := Enter(ctx, SandboxWait, "") // where it fails, the episode ends in this span
	for try := 0; ; try++ {
		err := starter.Ready(ctx)
		if r, ok := ctx.Value(recorderKey{}).(*recorder); ok && starter.Started() > 0 {
			r.split(starter.Waited().Nanoseconds())
		}
		if err == nil {
			back()
			return nil
		}
		if try >= b.retries || !startFailed(err) {
			return err
		}
		if err := pause.For(ctx, 200*time.Millisecond<<min(try, 5)); err != nil {
			return err
		}
	}
}

// startFailed reports whether an error is of a box that never came up, so that nothing ran in it.
func startFailed(err error) bool {
	switch sandbox.ClassOf(err) {
	case sandbox.StartFailed, sandbox.StartTimeout, sandbox.Quota, sandbox.BackendDown:
		return true
	}
	return false
}

// fill puts the task's files in their place.
func (b *box) fill(ctx context.Context) error {
	if b.task == nil || len(b.task.Files) == 0 {
		return nil
	}
	back := Enter(ctx, Tool, "files")
	names := slices.Sorted(maps.Keys(b.task.Files))
	if err := b.mayHold(ctx, names); err != nil {
		return err
	}
	for _, name := range names {
		content := b.task.Files[name]
		if err := b.Box.Write(ctx, inBox(name), content, sandbox.ModeOf(content)); err != nil {
			return fmt.Errorf("the task's file %s cannot be put into the sandbox: %w", name, err)
		}
	}
	back()
	return nil
}

// mayHold refuses files outside of Work where the box has no files of its own there: they would be the host's.
func (b *box) mayHold(ctx context.Context, names []string) error {
	at := slices.IndexFunc(names, func(name string) bool { return !strings.HasPrefix(inBox(name), sandbox.Work+"/") })
	if at < 0 {
		return nil
	}
	result, err := b.Box.Run(ctx, sandbox.Command{Argv: []string{"/bin/sh", "-c", `[ "$(pwd -P)" = ` + sandbox.Work + ` ]`}})
	switch {
	case err != nil:
	case result.Limit != "" || result.Signal != "" || result.Exit > 128: // the machine did it: nothing of the policy's runs yet
		err = sandbox.Fail(sandbox.Lost, "files", b.ID(), "the shell that looks where the task's files go was ended: exit code %d %s %s", result.Exit, result.Signal, result.Limit)
	case result.Exit != 0:
		err = sandbox.Fail(sandbox.BadTask, "files", b.ID(), "the task's file %s lies outside of %s, where this sandbox has no files of its own", names[at], sandbox.Work)
	}
	return err
}

// Run implements sandbox.Box.
func (b *box) Run(ctx context.Context, command sandbox.Command) (sandbox.Result, error) {
	for try := 0; ; try++ {
		if err := b.Ready(ctx); err != nil {
			return sandbox.Result{}, err
		}
		result, err := b.Box.Run(ctx, command)
		if err == nil || try >= b.retries || !startFailed(err) {
			return result, err
		}
		if err := pause.For(ctx, 200*time.Millisecond<<min(try, 5)); err != nil {
			return sandbox.Result{}, err
		}
	}
}

// Read implements sandbox.Box.
func (b *box) Read(ctx context.Context, path string, limit int64) ([]byte, error) {
	if err := b.Ready(ctx); err != nil {
		return nil, err
	}
	return b.Box.Read(ctx, path, limit)
}

// Write implements sandbox.Box.
func (b *box) Write(ctx context.Context, path string, content []byte, mode fs.FileMode) error {
	if err := b.Ready(ctx); err != nil {
		return err
	}
	return b.Box.Write(ctx, path, content, mode)
}
