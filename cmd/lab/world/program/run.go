package program

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/headway-rl/headway/cmd/lab/world/plan"
)

// environment is all that a world's process is given. The user's own variables would be part of its plan. By PWD, the
// path of the working directory is the same to every world: the control plane says it in answers.
var environment = []string{
	"GOMAXPROCS=1", "GODEBUG=asyncpreemptoff=1", "GOGC=off", "GOTRACEBACK=all", "GORACE=halt_on_error=1 exitcode=66", "HOME=/", "PWD=/proc/self/cwd", "TMPDIR=.", "TZ=UTC",
}

// Job is one world to run: the plan that a seed draws, or a plan.
type Job struct {
	Seed uint64
	// Plan takes the seed's place; nil for none.
	Plan *plan.Plan
	// Keep is an empty folder to which all that the world leaves is copied; "" for none.
	Keep string
	// History is the path of the file to which the program writes its history; "" for none.
	History string
}

// Run runs one world. An error says that it could not be run, or that the context ended: nothing is known of the world.
func (p *Program) Run(ctx context.Context, job Job) (Result, error) {
	name := fmt.Sprintf("%09d", p.worlds.Add(1)) // of one length: it is a part of the path of the world's folder
	world := job.Plan
	if world == nil {
		drawn := plan.Draw(job.Seed)
		world = &drawn
	}
	text, err := json.Marshal(world)
	if err != nil {
		return Result{}, err
	}
	in, out, err := p.streams(name, text, job.History)
	if err != nil {
		return Result{}, err
	}
	defer func() { _ = errors.Join(in.Close(), out.Close(), os.Remove(in.Name())) }()
	// A seed and its plan, with a history and without, are one world: the program begins with the same steps.
	arguments := []string{"-history=0"}
	if job.History != "" {
		arguments = []string{"-history=1"}
	}
	dir := filepath.Join(p.folder, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return Result{}, err
	}
	defer os.RemoveAll(dir)
	within, cancel := limited(ctx, p.Limit)
	defer cancel()
	var stdout, stderr kept
	began := time.Now()
	e, err := execute(within, dir, p.path, arguments, !p.Race, in, out, &stdout, &stderr)
	wall := time.Since(began)
	if err == nil {
		err = ctx.Err()
	}
	if err == nil && job.Keep != "" {
		err = os.CopyFS(job.Keep, os.DirFS(dir))
	}
	if err != nil {
		return Result{}, err
	}
	r := judge(e, p.Limit, stdout.String(), stderr.String())
	r.Wall = wall
	if !r.Answered {
		r.Plan, r.Seed = *world, world.Seed
	}
	return r, nil
}

// streams are the files that a program reads its plan from and writes its history to.
func (p *Program) streams(name string, plan []byte, history string) (in, out *os.File, err error) {
	path := filepath.Join(p.folder, name+".json")
	if err = os.WriteFile(path, plan, 0o644); err != nil {
		return nil, nil, err
	}
	if in, err = os.Open(path); err != nil {
		return nil, nil, err
	}
	if history == "" {
		history = os.DevNull
	}
	if out, err = os.OpenFile(history, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644); err != nil {
		return nil, nil, errors.Join(err, in.Close())
	}
	return in, out, nil
}

// ending is how a process ended.
type ending struct {
	code   int
	signal syscall.Signal // 0 for none
	late   bool           // it was ended because its time was over
}

// dumpTime is how long a program that hangs has to print its goroutines.
const dumpTime = 10 * time.Second

// execute runs a program until it ends. When its time is over, SIGQUIT has it print its goroutines and end. A bounded
// one may take only so much memory.
func execute(ctx context.Context, dir, path string, arguments []string, bounded bool, stdin, history *os.File, stdout, stderr io.Writer) (ending, error) {
	cmd := exec.CommandContext(ctx, path, arguments...)
	cmd.Args[0] = "world" // wherever it lies
	cmd.Dir, cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = dir, environment, stdin, stdout, stderr, []*os.File{history}
	cmd.WaitDelay = dumpTime // then it is killed
	late := false
	cmd.Cancel = func() error {
		if late = errors.Is(context.Cause(ctx), errLimit); late {
			return cmd.Process.Signal(syscall.SIGQUIT)
		}
		return cmd.Process.Kill()
	}
	apart(cmd)
	if err := cmd.Start(); err != nil {
		return ending{}, fmt.Errorf("the world's program does not start: %w", err)
	}
	if bounded {
		bound(cmd.Process.Pid)
	}
	if err := cmd.Wait(); cmd.ProcessState == nil {
		return ending{}, err
	}
	e := ending{code: cmd.ProcessState.ExitCode(), late: late} // Wait has waited for Cancel
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		e.signal = status.Signal()
	}
	return e, nil
}
